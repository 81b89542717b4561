//! A gate's states and steps, as a pure function.
//!
//! Invariants:
//! - A step is one phase forward or an end; a refused step changes nothing.
//! - Only the last phase of a kind can complete; to complete from another fails the gate, because its driver is wrong about
//!   what was done.
//! - Completed, superseded and aborted are final; failed can only be aborted.
//! - Superseded is only for an acquisition that has not begun to hold anything.
//!
//! Not here: who waits (`completion`), which steps a role has (`driver`).

use std::fmt;

use model::id::ViewId;

/// What a gate protects.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// The new owner's: until the state is here and older owners are fenced.
    Acquisition,
    /// The old owner's, who has the state to hand over: until it is kept for whoever comes for it.
    ReleaseWithState,
    /// The old owner's, when nobody will come: until all requests are out.
    ReleaseOfNothing,
    /// Work that must be alone.
    Barrier,
}

/// How far a gate's driver is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Phase {
    /// Requests are kept out, nothing more.
    Blocking,
    /// All admitted requests are out.
    Drained,
    /// The state is kept for the new owner.
    StateRetained,
    /// The state is here.
    StateInstalled,
    /// No older owner can do anything any more.
    Fenced,
}

/// Where a gate is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Status {
    /// Its driver is at work.
    Pending,
    /// All was done.
    Completed,
    /// A newer view took the unit away before anything was installed.
    Superseded,
    /// Something went wrong; it goes on blocking.
    Failed,
    /// Its runtime was torn down.
    Aborted,
}

/// A step that cannot be taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Misstep {
    /// The phase is not the next one.
    #[error("{kind} cannot go from {from} to {to}")]
    Phase {
        /// Of what kind of gate.
        kind: Kind,
        /// Where it is.
        from: Phase,
        /// Where it was to go.
        to: Phase,
    },
    /// Completed too early: this has failed the gate.
    #[error("{kind} was completed in phase {phase}")]
    NotReady {
        /// Of what kind of gate.
        kind: Kind,
        /// Where it is.
        phase: Phase,
    },
    /// It has ended, or failed.
    #[error("the gate is already {0}")]
    Over(Status),
    /// It is not an acquisition that has only blocked, or the other view is not newer.
    #[error("{kind} towards {target} in phase {phase} cannot give way to {by}")]
    NotSupersedable {
        /// Of what kind of gate.
        kind: Kind,
        /// Its view.
        target: ViewId,
        /// Where it is.
        phase: Phase,
        /// The view that was to take its place.
        by: ViewId,
    },
    /// The driver went away without ending its gate.
    #[error("the driver of {kind} towards {target} went away in phase {phase}")]
    Abandoned {
        /// Of what kind of gate.
        kind: Kind,
        /// Its view.
        target: ViewId,
        /// Where it is.
        phase: Phase,
    },
}

/// How far a gate is, and of what kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Progress {
    pub(super) kind: Kind,
    pub(super) target: ViewId,
    pub(super) phase: Phase,
    pub(super) status: Status,
}

/// What a driver wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    Advance(Phase),
    /// A release has found that nobody will come for the state.
    KeepNothing,
    Complete,
    Supersede(ViewId),
    Fail,
    Abort,
}

/// What became of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Taken {
    /// It is done.
    Done(Progress),
    /// The gate has failed of the step itself.
    Failed(Progress, Misstep),
}

impl Kind {
    /// The phase after another; none after the last.
    fn next(self, phase: Phase) -> Option<Phase> {
        match (self, phase) {
            (Self::Acquisition, Phase::Blocking) => Some(Phase::StateInstalled),
            (Self::Acquisition, Phase::StateInstalled) => Some(Phase::Fenced),
            (Self::ReleaseWithState | Self::ReleaseOfNothing, Phase::Blocking) => Some(Phase::Drained),
            (Self::ReleaseWithState, Phase::Drained) => Some(Phase::StateRetained),
            (Self::Acquisition | Self::ReleaseWithState | Self::ReleaseOfNothing | Self::Barrier, _) => None,
        }
    }
}

impl Status {
    /// Whether requests must wait.
    pub fn is_blocking(self) -> bool {
        match self {
            Self::Pending | Self::Failed => true,
            Self::Completed | Self::Superseded | Self::Aborted => false,
        }
    }
}

impl Progress {
    pub(super) fn new(kind: Kind, target: ViewId) -> Self {
        Self { kind, target, phase: Phase::Blocking, status: Status::Pending }
    }

    pub(super) fn step(self, step: Step) -> Result<Taken, Misstep> {
        let Self { kind, target, phase, status } = self;
        let ended = |status| Ok(Taken::Done(Self { status, ..self }));
        match (status, step) {
            (Status::Pending | Status::Failed, Step::Abort) => ended(Status::Aborted),
            (Status::Pending, Step::Fail) => ended(Status::Failed),
            (Status::Pending, Step::Advance(to)) if kind.next(phase) == Some(to) => {
                Ok(Taken::Done(Self { phase: to, ..self }))
            }
            (Status::Pending, Step::Advance(to)) => Err(Misstep::Phase { kind, from: phase, to }),
            (Status::Pending, Step::KeepNothing) => match (kind, phase) {
                (Kind::ReleaseWithState | Kind::ReleaseOfNothing, Phase::Blocking | Phase::Drained) => {
                    Ok(Taken::Done(Self { kind: Kind::ReleaseOfNothing, ..self }))
                }
                _ => Err(Misstep::Phase { kind, from: phase, to: Phase::Drained }),
            },
            (Status::Pending, Step::Complete) if kind.next(phase).is_none() => ended(Status::Completed),
            (Status::Pending, Step::Complete) => {
                let failed = Self { status: Status::Failed, ..self };
                Ok(Taken::Failed(failed, Misstep::NotReady { kind, phase }))
            }
            (Status::Pending, Step::Supersede(by))
                if kind == Kind::Acquisition && phase == Phase::Blocking && by > target =>
            {
                ended(Status::Superseded)
            }
            (Status::Pending, Step::Supersede(by)) => {
                Err(Misstep::NotSupersedable { kind, target, phase, by })
            }
            (
                Status::Completed | Status::Superseded | Status::Failed | Status::Aborted,
                Step::Advance(_)
                | Step::KeepNothing
                | Step::Complete
                | Step::Supersede(_)
                | Step::Fail
                | Step::Abort,
            ) => Err(Misstep::Over(status)),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Acquisition => "an acquisition",
            Self::ReleaseWithState => "a release with state",
            Self::ReleaseOfNothing => "a release of nothing",
            Self::Barrier => "a barrier",
        })
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Blocking => "blocking",
            Self::Drained => "drained",
            Self::StateRetained => "state retained",
            Self::StateInstalled => "state installed",
            Self::Fenced => "fenced",
        })
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pending => "pending",
            Self::Completed => "completed",
            Self::Superseded => "superseded",
            Self::Failed => "failed",
            Self::Aborted => "aborted",
        })
    }
}
