//! Why a request was not let in. None of these has had any effect; each has one cause.
//!
//! Not here: what goes wrong later (`Error`): fenced in `apply`, or an outcome that is not known.

use std::time::Duration;

use model::id::ViewId;

use crate::{gate::Failure, view::Member};

/// Whether what was refused may have had an effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Applied {
    /// It had none, and will have none.
    No,
}

/// Why a request was not let in.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Refusal {
    /// The installed view says that another owns it, or nobody. The sender takes a view at least as new and asks there; the
    /// hint is advice.
    #[error("not the owner under view {view}")]
    RefreshRequired {
        /// The view it was judged under.
        view: ViewId,
        /// Who owns it there.
        owner: Option<Member>,
    },
    /// The view says that this node owns it, but its claim is not through.
    #[error("not serving yet under view {view}")]
    NotServing {
        /// The view it was judged under.
        view: ViewId,
    },
    /// The deadline passed while it waited for a view or at a gate. Says nothing about who the owner is.
    #[error("not ready within the deadline, under view {view}")]
    NotReady {
        /// The view at the end.
        view: ViewId,
    },
    /// Too many requests wait already, or too many bytes.
    #[error("too many requests wait for the owner to change")]
    Crowded,
    /// New registrations are held off.
    #[error("registrations are held for {retry_after:?}")]
    Held {
        /// For so long.
        retry_after: Duration,
    },
    /// The transition failed, with this error; the unit is blocked until its runtime is rebuilt.
    #[error("the change of owner failed: {0}")]
    GateFailed(Failure),
    /// The runtime was torn down while it waited.
    #[error("the runtime of the unit has ended")]
    Aborted,
    /// The view that the request was routed by cannot be had.
    #[error("the view of the request was not obtained: {0}")]
    ViewLost(Failure),
}

impl Refusal {
    /// Never: who was not let in did nothing.
    pub fn applied(&self) -> Applied {
        Applied::No
    }

    /// Whether the same request may be let in later or elsewhere.
    pub fn is_retriable(&self) -> bool {
        match self {
            Self::RefreshRequired { .. }
            | Self::NotServing { .. }
            | Self::NotReady { .. }
            | Self::Crowded
            | Self::Held { .. }
            | Self::Aborted
            | Self::ViewLost(_) => true,
            Self::GateFailed(_) => false,
        }
    }
}
