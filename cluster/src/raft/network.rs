//! The network of a group whose only voter is this node: every other node is unreachable, and says so.
//!
//! The cluster's wire (`peer`) takes this place when there are peers; a group of one never calls it.

use std::{fmt, future::Future, io, marker::PhantomData};

use openraft::{
    RaftNetworkFactory,
    errors::{RPCError, ReplicationClosed, StreamingError, Unreachable},
    impls::EmptyNode,
    network::{RPCOption, v2::RaftNetworkV2},
    raft::{
        AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderRequest,
        TransferLeaderResponse, VoteRequest, VoteResponse,
    },
    storage::Snapshot,
};

use super::types::{CommittedLeaderId, Types, Vote};

/// Makes connections that reach nobody, for groups whose images are `I`.
pub(super) struct Alone<I>(PhantomData<fn() -> I>);

impl<I> Alone<I> {
    pub(super) fn new() -> Self {
        Self(PhantomData)
    }
}

/// A connection to a node that cannot be reached.
pub(super) struct NoPeer<I> {
    target: u64,
    images: PhantomData<fn() -> I>,
}

#[derive(Debug)]
struct NoRoute(u64);

impl fmt::Display for NoRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "this node has no peers, so there is no way to node {}", self.0)
    }
}

impl std::error::Error for NoRoute {}

impl<I> NoPeer<I> {
    fn unreachable(&self) -> Unreachable<Types> {
        Unreachable::new(&io::Error::new(io::ErrorKind::HostUnreachable, NoRoute(self.target)))
    }
}

impl<I: Send + 'static> RaftNetworkFactory<Types> for Alone<I> {
    type Network = NoPeer<I>;

    async fn new_client(&mut self, target: u64, _node: &EmptyNode) -> NoPeer<I> {
        NoPeer { target, images: PhantomData }
    }
}

impl<I: Send + 'static> RaftNetworkV2<Types> for NoPeer<I> {
    type SnapshotData = I;

    async fn append_entries(
        &mut self,
        _rpc: AppendEntriesRequest<Types>,
        _option: RPCOption,
    ) -> Result<AppendEntriesResponse<Types>, RPCError<Types>> {
        Err(self.unreachable().into())
    }

    async fn vote(
        &mut self,
        _rpc: VoteRequest<Types>,
        _option: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        Err(self.unreachable().into())
    }

    async fn pre_vote(
        &mut self,
        _rpc: VoteRequest<Types>,
        _option: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        Err(self.unreachable().into())
    }

    async fn full_snapshot(
        &mut self,
        _vote: Vote,
        _snapshot: Snapshot<CommittedLeaderId, u64, EmptyNode, I>,
        _cancel: impl Future<Output = ReplicationClosed> + Send + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<Types>, StreamingError<Types>> {
        Err(self.unreachable().into())
    }

    async fn transfer_leader(
        &mut self,
        _request: TransferLeaderRequest<Types>,
        _option: RPCOption,
    ) -> Result<TransferLeaderResponse<Types>, RPCError<Types>> {
        Err(self.unreachable().into())
    }
}
