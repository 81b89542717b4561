//! Gates: a transition's unfinished obligation. A gate blocks requests from its target view on until it has ended.
//!
//! 1. A driver makes a [`Driver`] of its role, which nobody else has, and registers it in a map before the view is seen.
//! 2. Requests find the [`Gate`] in the map, and wait for its [`Completion`].
//! 3. The driver takes the steps of its role, and completes; or it fails, or is aborted at shutdown.
//!
//! Invariants:
//! - There is one final outcome, and every waiter, early or late, sees that one, with the original error.
//! - A failed gate goes on blocking until its runtime is torn down; only that aborts it.
//! - A driver that goes away without having ended its gate fails it: no gate is forgotten.
//!
//! Steps of another role do not compile; the misuses are under `tests/compile_fail`.
//!
//! Not here: when a gate is made, and what its steps mean (`handoff`, `assignment`).

mod completion;
mod driver;
mod lifecycle;
mod map;
#[cfg(test)]
#[cfg(feature = "loom")]
mod models;
#[cfg(test)]
#[cfg(not(feature = "loom"))]
mod suite;

pub use completion::{Completion, Ended, Failure};
pub use driver::{
    Acquisition, AcquisitionRole, Barrier, BarrierRole, Driver, Gate, Release, ReleaseRole, Role,
};
pub use lifecycle::{Kind, Misstep, Phase, Status};
pub use map::{Gates, RangeMap, Registered, ResourceMap};
