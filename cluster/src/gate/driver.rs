//! The two ends of a gate: its driver's, with the steps of its role, and everybody else's.
//!
//! Invariants:
//! - A driver cannot be cloned; dropping one that has not ended its gate fails the gate.
//! - A [`Gate`] can be looked at and waited for, never moved.
//!
//! Not here: which step may follow which (`lifecycle`).

use std::{fmt, marker::PhantomData, sync::Arc};

use model::id::ViewId;

use super::{
    completion::{Completion, Core, Failure},
    lifecycle::{Kind, Misstep, Phase, Status, Step},
};

/// What a driver is of. Sealed: acquisition, release, barrier.
pub trait Role: private::Sealed + Send + Sync + 'static {}

mod private {
    pub trait Sealed {}
}

/// The role of [`Acquisition`].
#[derive(Debug)]
pub enum AcquisitionRole {}
/// The role of [`Release`].
#[derive(Debug)]
pub enum ReleaseRole {}
/// The role of [`Barrier`].
#[derive(Debug)]
pub enum BarrierRole {}

impl private::Sealed for AcquisitionRole {}
impl private::Sealed for ReleaseRole {}
impl private::Sealed for BarrierRole {}
impl Role for AcquisitionRole {}
impl Role for ReleaseRole {}
impl Role for BarrierRole {}

/// Drives a gate through the steps of its role. There is one per gate.
pub struct Driver<R: Role> {
    core: Arc<Core>,
    role: PhantomData<fn() -> R>,
}

/// The gate of who becomes owner: blocking, state installed, fenced, completed.
pub type Acquisition = Driver<AcquisitionRole>;

/// The gate of who was owner: blocking, drained, and state retained if somebody will come for it, completed.
pub type Release = Driver<ReleaseRole>;

/// The gate of work that must be alone: blocking, completed.
pub type Barrier = Driver<BarrierRole>;

/// What everybody else has of a gate.
#[derive(Clone, Debug)]
pub struct Gate {
    pub(super) core: Arc<Core>,
}

impl<R: Role> Driver<R> {
    fn make(kind: Kind, target: ViewId, previous: Option<ViewId>) -> Self {
        Self { core: Core::new(kind, target, previous), role: PhantomData }
    }

    /// What others may have of it.
    pub fn gate(&self) -> Gate {
        Gate { core: self.core.clone() }
    }

    /// The view from which on it blocks.
    pub fn target(&self) -> ViewId {
        self.core.target()
    }

    /// The view the transition comes from; none if that is not known.
    pub fn previous(&self) -> Option<ViewId> {
        self.core.previous()
    }

    /// How far it is.
    pub fn phase(&self) -> Phase {
        self.core.phase()
    }

    /// Where it is in its life.
    pub fn status(&self) -> Status {
        self.core.status()
    }

    /// Ends it as done. From another phase than its last this fails the gate, which then goes on blocking.
    pub fn complete(&self) -> Result<(), Misstep> {
        self.core.complete()
    }

    /// Fails it: waiters get this error, and it goes on blocking. Whether this was its first end; a later error is logged.
    pub fn fail(&self, failure: Failure) -> bool {
        self.core.fail(failure)
    }

    /// Ends it because its runtime is torn down.
    pub fn abort(&self) {
        self.core.abort();
    }
}

impl Driver<AcquisitionRole> {
    /// Towards `target`, from `previous` if the views are contiguous.
    pub fn new(target: ViewId, previous: Option<ViewId>) -> Self {
        Self::make(Kind::Acquisition, target, previous)
    }

    /// The state is here, by handoff or by recovery.
    pub fn state_installed(&self) -> Result<(), Misstep> {
        self.core.advance(Step::Advance(Phase::StateInstalled))
    }

    /// No older owner can do anything any more.
    pub fn fenced(&self) -> Result<(), Misstep> {
        self.core.advance(Step::Advance(Phase::Fenced))
    }

    /// Ends it because a newer view has taken the unit away. Only while nothing was installed: whoever waits for this gate
    /// then finds the newer view's.
    pub fn supersede(&self, by: ViewId) -> Result<(), Misstep> {
        self.core.supersede(by)
    }
}

impl Driver<ReleaseRole> {
    /// The release of what somebody will come for.
    pub fn of_state(target: ViewId, previous: ViewId) -> Self {
        Self::make(Kind::ReleaseWithState, target, Some(previous))
    }

    /// The release of what nobody will come for: there are no partners, or the views are not contiguous.
    pub fn of_nothing(target: ViewId, previous: Option<ViewId>) -> Self {
        Self::make(Kind::ReleaseOfNothing, target, previous)
    }

    /// Whether the state must be kept before it completes.
    pub fn keeps_state(&self) -> bool {
        self.core.kind() == Kind::ReleaseWithState
    }

    /// Nobody will come for the state any more. Can be said until it is kept.
    pub fn keep_nothing(&self) -> Result<(), Misstep> {
        self.core.advance(Step::KeepNothing)
    }

    /// All admitted requests are out.
    pub fn drained(&self) -> Result<(), Misstep> {
        self.core.advance(Step::Advance(Phase::Drained))
    }

    /// The state is kept for who will come.
    pub fn state_retained(&self) -> Result<(), Misstep> {
        self.core.advance(Step::Advance(Phase::StateRetained))
    }
}

impl Driver<BarrierRole> {
    /// From `target` on.
    pub fn new(target: ViewId) -> Self {
        Self::make(Kind::Barrier, target, None)
    }
}

impl<R: Role> Drop for Driver<R> {
    fn drop(&mut self) {
        self.core.abandon();
    }
}

impl<R: Role> fmt::Debug for Driver<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.core.fmt(f)
    }
}

impl Gate {
    /// The view from which on it blocks.
    pub fn target(&self) -> ViewId {
        self.core.target()
    }

    /// Whether requests of its target view and later ones must wait.
    pub fn is_blocking(&self) -> bool {
        self.core.is_blocking()
    }

    /// Waits for its end. Dropping it ends this wait only.
    pub fn completion(&self) -> Completion {
        Completion::new(self.core.clone())
    }
}
