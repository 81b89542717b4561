//! Where calls of other nodes arrive.
//!
//! Invariants:
//! - No group sees a call whose envelope does not fit: this cluster, a sender in the life that is known of it, this node in
//!   this life.
//! - A vote is believed only from the node it is of: what a leader or candidate says comes from itself.
//! - A snapshot reaches its group piece by piece, as fast as the group takes it.

use std::{collections::BTreeMap, future::Future, sync::Arc};

use arc_swap::ArcSwap;
use futures::Stream;
use model::{
    id::{NodeId, ShardId},
    port::BoxFuture,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Semaphore, mpsc},
};
use tonic::{Request, Response, Status, Streaming, transport::Server};
use tracing::warn;

use super::{
    Incoming, Known, MESSAGE_BYTES_MAX, Me, PIECE_WAIT, Refusal, SNAPSHOTS_MAX,
    call::{CONNECTION_WINDOW, STREAM_WINDOW},
    parts::{Arrived, Joined, Joiner},
    proto::{self, peer_server, snapshot_part::Part},
};

/// Calls of one connection at a time: each group has a few.
const CALLS_MAX: u32 = 1_024;

/// How long a failed `accept` is waited out: descriptors may be free again by then.
const ACCEPT_PAUSE: std::time::Duration = std::time::Duration::from_millis(50);

/// What a group answers to the calls of others. `from` is who sent it, and was checked.
pub(crate) trait Receive: Send + Sync {
    /// Entries, or a heartbeat.
    fn append(
        &self,
        from: NodeId,
        request: proto::AppendRequest,
    ) -> BoxFuture<'static, Result<proto::AppendReply, Refusal>>;

    /// A vote, or the question whether there would be one.
    fn elect(
        &self,
        from: NodeId,
        request: proto::ElectRequest,
    ) -> BoxFuture<'static, Result<proto::ElectReply, Refusal>>;

    /// A successor is named.
    fn transfer(
        &self,
        from: NodeId,
        request: proto::TransferRequest,
    ) -> BoxFuture<'static, Result<proto::TransferReply, Refusal>>;

    /// A snapshot, whose chunks come while it is worked at.
    fn snapshot(
        &self,
        from: NodeId,
        header: proto::SnapshotHeader,
        chunks: Incoming,
    ) -> BoxFuture<'static, Result<proto::SnapshotReply, Refusal>>;
}

/// The receiving end of a node; clones are the same.
#[derive(Clone)]
pub(crate) struct Desk(Arc<Inner>);

struct Inner {
    me: Me,
    known: Known,
    groups: ArcSwap<BTreeMap<ShardId, Arc<dyn Receive>>>,
    snapshots: Arc<Semaphore>,
}

impl Desk {
    /// Takes calls for this node from those that are known.
    pub(crate) fn new(me: Me, known: Known) -> Self {
        let snapshots = Arc::new(Semaphore::new(SNAPSHOTS_MAX));
        Self(Arc::new(Inner { me, known, groups: ArcSwap::default(), snapshots }))
    }

    /// Calls of a group go there from now on.
    pub(crate) fn open(&self, group: ShardId, receive: Arc<dyn Receive>) {
        self.0.groups.rcu(|groups| {
            let mut groups = BTreeMap::clone(groups);
            groups.insert(group, receive.clone());
            groups
        });
    }

    /// Calls of a group are refused from now on.
    pub(crate) fn close(&self, group: ShardId) {
        self.0.groups.rcu(|groups| {
            let mut groups = BTreeMap::clone(groups);
            groups.remove(&group);
            groups
        });
    }

    /// Serves until `draining` is ready, then lets running calls end.
    pub(crate) async fn serve(self, listener: TcpListener, draining: impl Future<Output = ()>) {
        let service = peer_server::PeerServer::new(self)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        let served = Server::builder()
            .max_concurrent_streams(CALLS_MAX)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .add_service(service)
            .serve_with_incoming_shutdown(connections(listener), draining)
            .await;
        if let Err(error) = served {
            warn!(%error, "peer door closed");
        }
    }

    /// The sender and its group, if the envelope fits.
    fn check(&self, envelope: Option<&proto::Envelope>) -> Result<(NodeId, Arc<dyn Receive>), Refusal> {
        let Inner { me, known, groups, .. } = &*self.0;
        let envelope = envelope.ok_or_else(|| Refusal::malformed("no envelope"))?;
        if id(&envelope.cluster)? != me.cluster {
            return Err(Refusal::Cluster);
        }
        if envelope.to != me.node.0 || id(&envelope.to_incarnation)? != me.incarnation {
            return Err(Refusal::Receiver { node: me.node });
        }
        let from = NodeId(envelope.from);
        let incarnation = id(&envelope.from_incarnation)?;
        // A node never talks to itself: whoever says so has the id of this one.
        if from == me.node || known.find(from).is_none_or(|peer| peer.incarnation != incarnation) {
            return Err(Refusal::Sender);
        }
        let group = groups.load().get(&ShardId(envelope.group)).cloned();
        Ok((from, group.ok_or(Refusal::Group)?))
    }
}

fn id(bytes: &[u8]) -> Result<u128, Refusal> {
    let bytes = bytes.try_into().map_err(|_| Refusal::malformed("an id has other than sixteen bytes"))?;
    Ok(u128::from_be_bytes(bytes))
}

fn is_of(from: NodeId, vote: Option<&proto::Vote>) -> Result<(), Refusal> {
    match vote {
        Some(vote) if vote.node == u64::from(from.0) => Ok(()),
        Some(_) => Err(Refusal::malformed("a vote of another node than the sender")),
        None => Err(Refusal::malformed("no vote")),
    }
}

#[tonic::async_trait]
impl peer_server::Peer for Desk {
    async fn append(
        &self,
        request: Request<proto::AppendRequest>,
    ) -> Result<Response<proto::AppendReply>, Status> {
        let request = request.into_inner();
        let (from, group) = self.check(request.envelope.as_ref())?;
        is_of(from, request.vote.as_ref())?;
        Ok(Response::new(group.append(from, request).await?))
    }

    async fn elect(
        &self,
        request: Request<proto::ElectRequest>,
    ) -> Result<Response<proto::ElectReply>, Status> {
        let request = request.into_inner();
        let (from, group) = self.check(request.envelope.as_ref())?;
        is_of(from, request.vote.as_ref())?;
        Ok(Response::new(group.elect(from, request).await?))
    }

    async fn transfer(
        &self,
        request: Request<proto::TransferRequest>,
    ) -> Result<Response<proto::TransferReply>, Status> {
        let request = request.into_inner();
        let (from, group) = self.check(request.envelope.as_ref())?;
        is_of(from, request.leader.as_ref())?;
        Ok(Response::new(group.transfer(from, request).await?))
    }

    async fn snapshot(
        &self,
        request: Request<Streaming<proto::SnapshotPart>>,
    ) -> Result<Response<proto::SnapshotReply>, Status> {
        let mut parts = request.into_inner();
        let Some(Part::Header(header)) = next(&mut parts).await?.part else {
            return Err(Refusal::malformed("a snapshot without a header").into());
        };
        let (from, group) = self.check(header.envelope.as_ref())?;
        is_of(from, header.vote.as_ref())?;
        let _permit = self.0.snapshots.clone().try_acquire_owned().map_err(|_| Refusal::Busy)?;
        let (sender, chunks) = Incoming::channel();
        let made = group.snapshot(from, header, chunks);
        // Both or neither: if the stream breaks, the group hears it as the end of its chunks and is waited for all the same,
        // so that what it had made is gone when the sender is told.
        let (came, made) = futures::join!(receive(&mut parts, sender), made);
        match (came, made) {
            (_, Ok(reply)) => Ok(Response::new(reply)),
            (Err(status), Err(_)) => Err(status),
            (Ok(()), Err(refusal)) => Err(refusal.into()),
        }
    }
}

/// Gives the chunks on until the end came, the group wants no more, or the stream broke.
async fn receive(
    parts: &mut Streaming<proto::SnapshotPart>,
    sender: mpsc::Sender<Arrived>,
) -> Result<(), Status> {
    let mut joiner = Joiner::default();
    loop {
        let arrived = match joiner.take(next(parts).await?)? {
            Joined::Nothing => continue,
            Joined::Chunk(chunk) => Arrived::Chunk(chunk),
            Joined::End => Arrived::End,
        };
        let is_end = matches!(arrived, Arrived::End);
        if sender.send(arrived).await.is_err() || is_end {
            return Ok(());
        }
    }
}

async fn next(parts: &mut Streaming<proto::SnapshotPart>) -> Result<proto::SnapshotPart, Status> {
    let part = tokio::time::timeout(PIECE_WAIT, parts.message()).await;
    let part = part.map_err(|_| Status::deadline_exceeded("the next piece of a snapshot did not come"))?;
    part?.ok_or_else(|| Refusal::malformed("a snapshot breaks off").into())
}

/// Accepted sockets; an error of `accept` is waited out and never ends the stream.
fn connections(listener: TcpListener) -> impl Stream<Item = std::io::Result<TcpStream>> {
    futures::stream::unfold(listener, |listener| async move {
        loop {
            match listener.accept().await {
                Ok((socket, _)) => {
                    let _ = socket.set_nodelay(true);
                    return Some((Ok(socket), listener));
                }
                Err(error) => {
                    warn!(%error, door = "peer", "accept failed");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    })
}
