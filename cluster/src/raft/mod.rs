//! Consensus behind words of our own: the one place where openraft is named.
//!
//! A group is one Raft instance of this node over its part of the shared log (`store`) and a state machine that runs on
//! the apply pool (`machine`). Whoever proposes sees a [`Consensus`], so that simulation and another library can take its
//! place.
//!
//! Invariants:
//! - Cores, timers and log callbacks live on one thread (`runtime`); nothing slow runs there.
//! - What was refused was not proposed, unless the refusal is [`Refused::Unknown`].

mod control;
mod group;
mod machine;
mod network;
mod pool;
mod runtime;
mod shard;
mod store;
#[cfg(test)]
mod suite;
mod types;

use bytes::Bytes;
use model::{id::LogIndex, port::BoxFuture};
use tokio::sync::watch;

pub(crate) use control::{Control, ControlReplica};
pub(crate) use group::{Group, Parts};
pub(crate) use machine::State;
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
    /// The group has stopped.
    Failed(String),
}

/// Why an entry was not applied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refused {
    /// This node does not lead; nothing was proposed.
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
