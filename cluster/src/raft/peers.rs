//! The network of a group that has peers: what the library wants said goes over the shared connections.
//!
//! Invariants:
//! - Nothing is read or written here but messages; an image is read on a thread that may block, a few pieces ahead of what
//!   the receiver takes.
//! - A node that cannot be reached or refuses is unreachable to the library, which waits before it tries again; an answer
//!   that is only late is not.

use std::{future::Future, marker::PhantomData, sync::Arc, time::Duration};

use model::id::{NodeId, ShardId};
use openraft::{
    RaftNetworkFactory,
    errors::{NetworkError, RPCError, ReplicationClosed, StreamingError, Timeout, Unreachable},
    impls::EmptyNode,
    network::{RPCOption, RPCTypes, v2::RaftNetworkV2},
    raft::{
        AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderRequest,
        TransferLeaderResponse, VoteRequest, VoteResponse,
    },
    storage::Snapshot,
};
use tokio::sync::mpsc;
use tracing::debug;

use super::{
    machine::State,
    types::{CommittedLeaderId, Types, Vote},
    wire,
};
use crate::peer::{CallError, Peers, Pieces, Refusal};

/// How long entries may take to be sent and synced. The library's own measure is that of a heartbeat, which a full batch on
/// a slow disk or line would miss again and again, to be sent anew each time.
const ENTRIES_WAIT: Duration = Duration::from_secs(2);

/// Pieces that are ready before the receiver wants them.
const PIECES_AHEAD: usize = 2;

/// Makes connections for one group.
pub(super) struct Among<S> {
    peers: Arc<Peers>,
    group: ShardId,
    state: PhantomData<fn() -> S>,
}

impl<S> Among<S> {
    pub(super) fn new(peers: Arc<Peers>, group: ShardId) -> Self {
        Self { peers, group, state: PhantomData }
    }
}

impl<S: State> RaftNetworkFactory<Types> for Among<S> {
    type Network = ToPeer<S>;

    async fn new_client(&mut self, target: u64, _node: &EmptyNode) -> ToPeer<S> {
        ToPeer { peers: self.peers.clone(), group: self.group, target, state: PhantomData }
    }
}

/// The way of one group to one node.
pub(super) struct ToPeer<S> {
    peers: Arc<Peers>,
    group: ShardId,
    target: u64,
    state: PhantomData<fn() -> S>,
}

impl<S: State> ToPeer<S> {
    /// No node has a larger id than 32 bits; one that has is not known.
    fn to(&self) -> (NodeId, ShardId) {
        (NodeId(u32::try_from(self.target).unwrap_or(u32::MAX)), self.group)
    }

    fn failed(&self, action: RPCTypes, error: CallError) -> RPCError<Types> {
        debug!(group = %self.group, node = self.target, ?action, %error, "a peer did not answer");
        match error {
            CallError::Deadline(timeout) => {
                RPCError::Timeout(Timeout { action, id: self.target, target: self.target, timeout })
            }
            CallError::Malformed(_) => RPCError::Network(NetworkError::new(&error)),
            CallError::Unknown(_) | CallError::Refused(_) | CallError::Connection(_) => {
                RPCError::Unreachable(Unreachable::new(&error))
            }
        }
    }
}

fn malformed(refusal: Refusal) -> CallError {
    CallError::Malformed(refusal.to_string())
}

impl<S: State> RaftNetworkV2<Types> for ToPeer<S> {
    type SnapshotData = S::Image;

    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<Types>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<Types>, RPCError<Types>> {
        let wait = if rpc.entries.is_empty() { option.soft_ttl() } else { ENTRIES_WAIT };
        let reply = self.peers.append(self.to(), wire::put_append(rpc), wait).await;
        let reply = reply.and_then(|reply| wire::take_appended(reply).map_err(malformed));
        reply.map_err(|error| self.failed(RPCTypes::AppendEntries, error))
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<Types>,
        option: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        let reply = self.peers.elect(self.to(), wire::put_elect(&rpc, false), option.soft_ttl()).await;
        let reply = reply.and_then(|reply| wire::take_elected(reply).map_err(malformed));
        reply.map_err(|error| self.failed(RPCTypes::Vote, error))
    }

    async fn pre_vote(
        &mut self,
        rpc: VoteRequest<Types>,
        option: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        let reply = self.peers.elect(self.to(), wire::put_elect(&rpc, true), option.soft_ttl()).await;
        let reply = reply.and_then(|reply| wire::take_elected(reply).map_err(malformed));
        reply.map_err(|error| self.failed(RPCTypes::Vote, error))
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot<CommittedLeaderId, u64, EmptyNode, S::Image>,
        cancel: impl Future<Output = ReplicationClosed> + Send + 'static,
        option: RPCOption,
    ) -> Result<SnapshotResponse<Types>, StreamingError<Types>> {
        let Snapshot { meta, snapshot } = snapshot;
        let (sender, parts) = mpsc::channel(PIECES_AHEAD);
        let group = self.group;
        // Ends by itself when the receiving end of the channel is gone.
        let _reader = self.peers.connections().spawn_blocking(move || {
            if let Err(error) = read_out::<S>(snapshot, &sender) {
                // Without its end the receiver takes it for cut short.
                tracing::warn!(shard = %group, %error, "a snapshot could not be read");
            }
        });
        let header = wire::put_header(&vote, &meta);
        let sent = self.peers.snapshot(self.to(), header, parts, option.soft_ttl());
        tokio::select! {
            reply = sent => {
                let vote = reply.and_then(|reply| wire::take_installed(reply).map_err(malformed));
                let vote = vote.map_err(|error| self.failed(RPCTypes::InstallSnapshot, error))?;
                Ok(SnapshotResponse::new(vote))
            }
            closed = cancel => Err(closed.into()),
        }
    }

    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<Types>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<Types>, RPCError<Types>> {
        let failed = |error| self.failed(RPCTypes::TransferLeader, error);
        let message = wire::put_transfer(&request).map_err(|refusal| failed(malformed(refusal)))?;
        let reply = self.peers.transfer(self.to(), message, option.soft_ttl()).await;
        let reply = reply.and_then(|reply| wire::take_transferred(reply, &request).map_err(malformed));
        reply.map_err(failed)
    }
}

/// Reads an image chunk by chunk, waiting while enough of it is on its way.
fn read_out<S: State>(
    image: S::Image,
    sender: &mpsc::Sender<crate::peer::proto::SnapshotPart>,
) -> storage::Result<()> {
    let mut pieces = Pieces::default();
    for chunk in S::chunks(image)? {
        for part in pieces.cut(chunk?) {
            if sender.blocking_send(part).is_err() {
                return Ok(());
            }
        }
    }
    // Nobody waits any more if this fails.
    let _ = sender.blocking_send(pieces.end());
    Ok(())
}
