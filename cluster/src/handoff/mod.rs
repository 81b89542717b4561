//! Handoff: what a node does when a view gives it a part of the ring, or takes one away.
//!
//! 1. A published view reaches the [`Coordinator`]: it plans what changed for this node ([`plan`]), registers every gate,
//!    makes the view seen, and only then starts the drivers.
//! 2. The release driver waits for what was unfinished at the view before, drains the requests, and keeps the state for its
//!    new owners ([`Retained`]), or drops it if nobody will come.
//! 3. The acquire driver pulls the state from the owners before, part by part, and tells each once that it has all; or it
//!    recovers the whole part from what every member knows.
//! 4. It fences, and completes its gate; the requests that waited go on.
//!
//! Invariants:
//! - No pause lies between looking at a view and the last gate's registration; no transfer begins before the view is seen.
//! - What is not contiguous is never handed over, and what was away in between is drained, dropped and recovered.
//! - A part is opened whole or not at all: one source that fails means recovery of all that was added.
//! - Whatever goes wrong, and wherever, the gate ends failed or aborted; none is forgotten.
//!
//! Not here: how messages travel ([`Transport`]) and what the state is ([`Service`]).

mod acquire;
mod coordinator;
pub(crate) mod ending;
pub mod plan;
mod recovery;
mod release;
mod retained;
#[cfg(test)]
#[cfg(not(feature = "loom"))]
mod suite;

use std::sync::Arc;

use futures::future::BoxFuture;
use model::id::{ShardId, ViewId};

use crate::{gate::Failure, ring::Range, view::Member};

pub use coordinator::{Coordinator, Parts, Refused};
pub use recovery::{Answer, Merged, Record, Redo, Watermark, newest};
pub use retained::Retained;

/// Starts a task.
pub type Spawn = Arc<dyn Fn(BoxFuture<'static, ()>) + Send + Sync>;

/// The unit of acknowledgement: a member and the unit of its that takes over.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Partner {
    /// Who.
    pub member: Member,
    /// For which of its units.
    pub unit: ShardId,
}

/// Whose state moves.
pub trait Service: Send + Sync + 'static {
    /// The state of a part of the ring.
    type State: Clone + Send + Sync + 'static;

    /// Whether an acquisition that has installed nothing may give way to a newer view: only where nothing is lost by that,
    /// because the state is kept otherwise (a replicated log).
    const SUPERSEDABLE: bool;

    /// Waits until everybody who was admitted to these points is out. Their gate is registered and the view is seen.
    fn drain(&self, range: Range) -> BoxFuture<'_, ()>;

    /// Takes the state of these points out, to be kept for others: this node serves them no more.
    fn take(&self, range: Range) -> Result<Self::State, Failure>;

    /// Drops the state of these points, with all that was cached or locked: this node serves them no more.
    fn discard(&self, range: Range) -> Result<(), Failure>;

    /// The part of a kept state that lies in `range`.
    fn part(&self, state: &Self::State, range: Range) -> Self::State;

    /// Adds state that was pulled, beside what is there.
    fn install(&self, state: Self::State) -> Result<(), Failure>;

    /// What this node knows about these points, for a recovery under `view`. From now on what was registered under an older
    /// view and is still on its way is done again.
    fn collect(&self, range: Range, view: ViewId) -> Self::State;

    /// Adds what all members know to what is there; the newest wins, and losers are gone before this returns. Calls nobody
    /// that could wait for this recovery.
    fn recover(&self, range: Range, known: Vec<(Member, Self::State)>) -> Result<(), Failure>;

    /// Keeps new registrations off for a while: the owner before was declared dead and may not know it.
    fn hold(&self, range: Range);

    /// Makes sure that no older owner can do anything any more, and serves these points.
    fn fence(&self, range: Range, view: ViewId) -> BoxFuture<'_, Result<(), Failure>>;
}

/// How a member went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Departure {
    /// It left, and knows it.
    Left,
    /// Others say that it is dead.
    Declared,
}

/// A question for kept state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pull {
    /// Who asks, for which of its units.
    pub by: Partner,
    /// Of which points.
    pub range: Range,
    /// The view before, under which the state was released.
    pub version: ViewId,
    /// The view under which it is asked for.
    pub target: ViewId,
}

/// How members reach each other. Each call may fail; none is repeated by the caller, so that whoever implements it decides
/// how often a member that is not gone is asked again.
pub trait Transport<S>: Send + Sync + 'static {
    /// The kept state; none if nothing is kept for that view.
    fn pull(&self, from: Member, pull: Pull) -> BoxFuture<'static, Result<Option<Vec<S>>, Failure>>;

    /// All that was kept for this partner is installed.
    fn acknowledge(
        &self,
        to: Member,
        by: Partner,
        version: ViewId,
    ) -> BoxFuture<'static, Result<(), Failure>>;

    /// This partner recovers instead, and comes for nothing that was kept up to `version`.
    fn renounce(&self, to: Member, by: Partner, version: ViewId) -> BoxFuture<'static, Result<(), Failure>>;

    /// What a member knows about these points.
    fn collect(&self, from: Member, range: Range, view: ViewId) -> BoxFuture<'static, Result<S, Failure>>;

    /// Ready when the member is gone.
    fn gone(&self, member: Member) -> BoxFuture<'static, Departure>;
}
