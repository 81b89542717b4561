//! A group's answers to the calls of its peers.
//!
//! Invariants:
//! - The library sees a snapshot only when all of it is here, checked and on disk: what breaks off on its way costs what was
//!   received, never the group.
//! - What was received and is not installed is deleted.

use std::sync::Arc;

use model::{
    id::{NodeId, ShardId},
    port::BoxFuture,
};
use openraft::{Raft, storage::Snapshot};
use tokio::{runtime::Handle, task::JoinHandle};
use tracing::warn;

use super::{
    machine::{Machine, State, to_position},
    pool::{Pool, finished},
    types::Types,
    wire,
};
use crate::peer::{Incoming, Receive, Refusal, proto};

/// The receiving end of a group.
pub(super) struct Inbox<S: State> {
    pub(super) raft: Raft<Types, Machine<S>>,
    pub(super) shard: ShardId,
    pub(super) state: Arc<S>,
    pub(super) pool: Arc<Pool>,
    /// Where snapshots are received: a runtime with threads that may block.
    pub(super) connections: Handle,
}

impl<S: State> Receive for Inbox<S> {
    fn append(
        &self,
        _from: NodeId,
        request: proto::AppendRequest,
    ) -> BoxFuture<'static, Result<proto::AppendReply, Refusal>> {
        let raft = self.raft.clone();
        Box::pin(async move {
            let reply = raft.append_entries(wire::take_append(request)?).await;
            Ok(wire::put_appended(reply.map_err(|_| Refusal::Stopped)?))
        })
    }

    fn elect(
        &self,
        _from: NodeId,
        request: proto::ElectRequest,
    ) -> BoxFuture<'static, Result<proto::ElectReply, Refusal>> {
        let raft = self.raft.clone();
        Box::pin(async move {
            let (request, beforehand) = wire::take_elect(request)?;
            let reply = if beforehand { raft.pre_vote(request).await } else { raft.vote(request).await };
            Ok(wire::put_elected(&reply.map_err(|_| Refusal::Stopped)?))
        })
    }

    fn transfer(
        &self,
        _from: NodeId,
        request: proto::TransferRequest,
    ) -> BoxFuture<'static, Result<proto::TransferReply, Refusal>> {
        let raft = self.raft.clone();
        Box::pin(async move {
            let reply = raft.handle_transfer_leader(wire::take_transfer(request)?).await;
            Ok(wire::put_transferred(reply.map_err(|_| Refusal::Stopped)?))
        })
    }

    fn snapshot(
        &self,
        from: NodeId,
        header: proto::SnapshotHeader,
        chunks: Incoming,
    ) -> BoxFuture<'static, Result<proto::SnapshotReply, Refusal>> {
        let (shard, raft, pool) = (self.shard, self.raft.clone(), self.pool.clone());
        let (state, connections) = (self.state.clone(), self.connections.clone());
        Box::pin(async move {
            let (vote, meta) = wire::take_header(header)?;
            let position = to_position(&meta);
            let receiving = state.clone();
            let received: JoinHandle<storage::Result<S::Image>> =
                connections.spawn_blocking(move || receiving.receive(Box::new(chunks), &position));
            let received = match received.await {
                Ok(received) => received,
                Err(panicked) => {
                    warn!(%shard, %from, error = %panicked, "a snapshot could not be received");
                    return Err(Refusal::Stopped);
                }
            };
            let installed = match received {
                Ok(snapshot) => {
                    let installed = raft.install_full_snapshot(vote, Snapshot { meta, snapshot }).await;
                    installed.map_err(|_| Refusal::Stopped)
                }
                Err(error) => {
                    warn!(%shard, %from, %error, "a snapshot was not received");
                    Err(Refusal::malformed(error.to_string()))
                }
            };
            // Without a place of its own in the log it is garbage, also if it came too late to be installed.
            if let Ok(Err(error)) = finished(pool.run(shard, move || state.forget_received())).await {
                warn!(%shard, %error, "a snapshot that was dropped could not be deleted");
            }
            Ok(wire::put_installed(&installed?.vote))
        })
    }
}
