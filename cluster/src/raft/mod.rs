//! Consensus behind words of our own: the one place where openraft is named.
//!
//! A group is one Raft instance of this node over its part of the shared log (`store`) and a state machine that runs on
//! the apply pool (`machine`). Whoever proposes sees a [`Consensus`], so that simulation and another library can take its
//! place.
//!
//! Invariants:
//! - Cores, timers and log callbacks live on one thread (`runtime`); nothing slow runs there.
//! - What was refused was not proposed, unless the refusal is [`Refused::Unknown`].
//! - A group of one voter sends nothing and waits for nobody; with more, its log is replicated over `peer`.

mod control;
mod group;
mod machine;
mod members;
mod network;
#[cfg(test)]
mod nodes;
mod peers;
mod pool;
mod receive;
mod receiving;
mod runtime;
mod shard;
mod store;
#[cfg(test)]
mod suite;
mod types;
mod wire;

use bytes::Bytes;
use model::{
    id::{LogIndex, NodeId},
    port::BoxFuture,
};
use tokio::sync::watch;

pub(crate) use control::{Control, ControlReplica};
pub(crate) use group::{Group, Origin, Parts, Peering};
pub(crate) use machine::State;
pub(crate) use members::{Change, ChangeRefused, Membership, TransferRefused};
pub(crate) use pool::Pool;
pub(crate) use runtime::{Runtime, Timer};
pub(crate) use shard::Replica;
pub(crate) use types::{Applied, InFlight};

/// One replicated log, seen from its leader.
pub(crate) trait Consensus: Send + Sync {
    /// Adds an entry; answers what came of it when it was applied here. `in_flight` is dropped in that moment, or when the
    /// entry is refused, whether or not the answer is still waited for.
    fn propose(
        &self,
        entry: Bytes,
        in_flight: Option<InFlight>,
    ) -> BoxFuture<'static, Result<Applied, Refused>>;

    /// An index such that state applied up to it holds whatever was acknowledged before the call.
    fn read_index(&self) -> BoxFuture<'static, Result<LogIndex, Refused>>;

    /// Whether this node leads and is the only voter, so that its applied state needs nobody's consent.
    fn is_sole_voter_leader(&self) -> bool;

    /// Who leads, as it changes.
    fn status(&self) -> watch::Receiver<Status>;

    /// Who takes part, as this node knows it.
    fn membership(&self) -> Membership;

    /// Who leads, as this node knows it.
    fn leader(&self) -> Option<NodeId>;

    /// Changes who takes part; answers the members when the change is committed. One at a time, on the leader. What was begun
    /// goes on when it is waited for no longer.
    fn change(&self, change: Change) -> BoxFuture<'static, Result<Membership, ChangeRefused>>;

    /// Hands leadership to a voter that has all there is, and is answered when somebody else leads. Until then, and if it
    /// fails until an election is over, the group takes no proposals: whoever asks lets what is under way end first.
    fn transfer(&self, to: NodeId) -> BoxFuture<'static, Result<(), TransferRefused>>;

    /// Where the group is.
    fn metrics(&self) -> Metrics;

    /// Lets go of the log up to an index whose state is durable.
    fn purge(&self, upto: LogIndex) -> BoxFuture<'static, Result<(), Refused>>;

    /// Ends the group; what was proposed and not applied has an unknown outcome.
    fn shutdown(&self) -> BoxFuture<'static, ()>;
}

/// Whether a group leads here, and whether it has failed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) enum Status {
    /// It has no leader, or another node is.
    #[default]
    Follows,
    /// This node leads in a term, as the only voter.
    Leads(u64),
    /// This node leads in a term, and others have votes too: its applied state may be old news unless a quorum is asked.
    LeadsOthers(u64),
    /// The group has stopped.
    Failed(String),
}

/// Why an entry was not applied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refused {
    /// This node does not lead, or no quorum says that it still does; nothing was proposed.
    NotLeader,
    /// The group has stopped; nothing was proposed.
    Stopped,
    /// The log has no record of this size; nothing was proposed. A log that is given one ends, and all with it.
    TooLarge {
        /// Bytes of the entry.
        given: usize,
        /// What the log takes.
        max: usize,
    },
    /// It was proposed, and leadership or the group ended before it was known to be applied.
    Unknown,
}

/// Where a group is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Metrics {
    pub(crate) term: u64,
    pub(crate) last: Option<LogIndex>,
    pub(crate) applied: Option<LogIndex>,
    pub(crate) purged: Option<LogIndex>,
}
