//! Calling other nodes.
//!
//! Invariants:
//! - One connection per receiver, opened when first needed and opened again after it broke; another address or another life
//!   of the receiver is another connection.
//! - Calls run on the runtime of the connections: whoever asks only waits, and may do so anywhere. Who stops waiting
//!   cancels the call.
//! - Every call has a deadline.

use std::{collections::HashMap, future::Future, time::Duration};

use model::id::{NodeId, ShardId};
use parking_lot::Mutex;
use tokio::{
    runtime::Handle,
    sync::mpsc,
    task::{JoinError, JoinHandle},
};
use tonic::{
    Code, Response, Status,
    transport::{Channel, Endpoint},
};

use super::{
    Known, MESSAGE_BYTES_MAX, Me, Peer, Refusal,
    proto::{self, SnapshotPart, peer_client::PeerClient},
};

/// How long a connection may take to stand.
const CONNECT_WAIT: Duration = Duration::from_secs(1);

/// How often a silent connection is tried, and how long its answer may take.
const PING_EVERY: Duration = Duration::from_secs(2);
const PING_WAIT: Duration = Duration::from_secs(2);

/// Bytes on their way in one call, and in one connection: no few calls that stand still can stop the others, and what a
/// heartbeat stands behind is little.
pub(super) const STREAM_WINDOW: u32 = 1 << 20;
pub(super) const CONNECTION_WINDOW: u32 = 32 << 20;

/// Why a call has no answer.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum CallError {
    /// The receiver is not known; nothing was sent.
    #[error("node {0} is not known")]
    Unknown(NodeId),
    /// The receiver did not take it; nothing was done.
    #[error("refused: {0}")]
    Refused(#[from] Refusal),
    /// No answer came in time; it may have been taken.
    #[error("no answer within {0:?}")]
    Deadline(Duration),
    /// The connection failed; it may have been taken.
    #[error("the connection failed: {0}")]
    Connection(String),
    /// The answer makes no sense.
    #[error("the answer is malformed: {0}")]
    Malformed(String),
}

/// The other nodes, seen from this one.
#[derive(Debug)]
pub(crate) struct Peers {
    me: Me,
    known: Known,
    connections: Handle,
    open: Mutex<HashMap<NodeId, (Peer, Channel)>>,
}

impl Peers {
    /// Connects on a runtime with input and output, when there is something to say.
    pub(crate) fn new(me: Me, known: Known, connections: Handle) -> Self {
        Self { me, known, connections, open: Mutex::default() }
    }

    /// Who this node is.
    pub(crate) fn me(&self) -> &Me {
        &self.me
    }

    /// The runtime of the connections.
    pub(crate) fn connections(&self) -> &Handle {
        &self.connections
    }

    /// Sends entries, or a heartbeat.
    pub(crate) async fn append(
        &self,
        (to, group): (NodeId, ShardId),
        mut request: proto::AppendRequest,
        wait: Duration,
    ) -> Result<proto::AppendReply, CallError> {
        let (mut client, envelope) = self.reach(to, group)?;
        request.envelope = Some(envelope);
        self.run(wait, async move { client.append(request).await }).await
    }

    /// Asks for a vote, or whether there would be one.
    pub(crate) async fn elect(
        &self,
        (to, group): (NodeId, ShardId),
        mut request: proto::ElectRequest,
        wait: Duration,
    ) -> Result<proto::ElectReply, CallError> {
        let (mut client, envelope) = self.reach(to, group)?;
        request.envelope = Some(envelope);
        self.run(wait, async move { client.elect(request).await }).await
    }

    /// Names a successor.
    pub(crate) async fn transfer(
        &self,
        (to, group): (NodeId, ShardId),
        mut request: proto::TransferRequest,
        wait: Duration,
    ) -> Result<proto::TransferReply, CallError> {
        let (mut client, envelope) = self.reach(to, group)?;
        request.envelope = Some(envelope);
        self.run(wait, async move { client.transfer(request).await }).await
    }

    /// Sends a snapshot: the header, then what comes out of `parts`. A sender that is dropped before the end was sent ends
    /// the snapshot without one, and the receiver forgets it.
    pub(crate) async fn snapshot(
        &self,
        (to, group): (NodeId, ShardId),
        mut header: proto::SnapshotHeader,
        parts: mpsc::Receiver<SnapshotPart>,
        wait: Duration,
    ) -> Result<proto::SnapshotReply, CallError> {
        let (mut client, envelope) = self.reach(to, group)?;
        header.envelope = Some(envelope);
        let first = SnapshotPart { part: Some(proto::snapshot_part::Part::Header(header)) };
        let sent = futures::stream::unfold((Some(first), parts), |(first, mut parts)| async move {
            match first {
                Some(first) => Some((first, (None, parts))),
                None => parts.recv().await.map(|part| (part, (None, parts))),
            }
        });
        self.run(wait, async move { client.snapshot(sent).await }).await
    }

    fn reach(&self, to: NodeId, group: ShardId) -> Result<(PeerClient<Channel>, proto::Envelope), CallError> {
        let peer = self.known.find(to).ok_or(CallError::Unknown(to))?;
        let envelope = proto::Envelope {
            cluster: self.me.cluster.to_be_bytes().to_vec().into(),
            from: self.me.node.0,
            from_incarnation: self.me.incarnation.to_be_bytes().to_vec().into(),
            to: to.0,
            to_incarnation: peer.incarnation.to_be_bytes().to_vec().into(),
            group: group.0,
        };
        let client = PeerClient::new(self.channel(to, peer)?)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        Ok((client, envelope))
    }

    fn channel(&self, to: NodeId, peer: Peer) -> Result<Channel, CallError> {
        let mut open = self.open.lock();
        if let Some((known, channel)) = open.get(&to)
            && *known == peer
        {
            return Ok(channel.clone());
        }
        let failed = |error: tonic::transport::Error| CallError::Connection(error.to_string());
        let endpoint = Endpoint::from_shared(format!("http://{}", peer.address)).map_err(failed)?;
        // The task of a connection belongs to the runtime that is current when it is made.
        let _here = self.connections.enter();
        let channel = endpoint
            .connect_timeout(CONNECT_WAIT)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_WAIT)
            .keep_alive_while_idle(true)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .connect_lazy();
        open.insert(to, (peer, channel.clone()));
        Ok(channel)
    }

    async fn run<T: Send + 'static>(
        &self,
        wait: Duration,
        call: impl Future<Output = Result<Response<T>, Status>> + Send + 'static,
    ) -> Result<T, CallError> {
        let call = async move { tokio::time::timeout(wait, call).await };
        let answered = Cancelled(self.connections.spawn(call)).answer().await;
        match answered {
            Ok(Ok(Ok(response))) => Ok(response.into_inner()),
            Ok(Ok(Err(status))) => Err(error_of(&status)),
            Ok(Err(_)) => Err(CallError::Deadline(wait)),
            Err(lost) => Err(CallError::Connection(lost.to_string())),
        }
    }
}

fn error_of(status: &Status) -> CallError {
    match (Refusal::find(status), status.code()) {
        (Some(refusal), _) => CallError::Refused(refusal),
        (None, Code::DataLoss | Code::Internal) => CallError::Malformed(status.message().to_owned()),
        (None, _) => {
            let mut text = status.message().to_owned();
            let mut cause = std::error::Error::source(status);
            while let Some(error) = cause {
                text = format!("{text}: {error}");
                cause = error.source();
            }
            CallError::Connection(text)
        }
    }
}

/// A task that ends when nobody waits for it.
struct Cancelled<T>(JoinHandle<T>);

impl<T> Cancelled<T> {
    async fn answer(mut self) -> Result<T, JoinError> {
        (&mut self.0).await
    }
}

impl<T> Drop for Cancelled<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
