//! Views: immutable, numbered pictures of who owns what, with their predecessor and the authority that published them.
//!
//! 1. The authority's views reach a node's [`Provider`], which only moves forward.
//! 2. A consumer installs one of them ([`Installed`]): it registers the gates of what changed, then the view is seen.
//! 3. Admission judges requests under the installed view; the [`Delta`] between two says what starts work.
//!
//! Invariants:
//! - A view is checked when it is built, and never changes: a bad one is never published, let alone installed.
//! - Ordered numbers alone say nothing about continuity: only the predecessor, of the same authority, does.
//! - Who was owner of a unit in between shows in its epoch, not in the views that were skipped.
//!
//! Not here: what a change makes a node do (`gate`, `handoff`).

mod assignment;
mod delta;
mod installed;
mod provider;
mod ring;
#[cfg(test)]
#[cfg(not(feature = "loom"))]
mod suite;
mod table;

pub use assignment::{Authority, Fault, Header, Held, Member, Versioned, View};
pub use delta::{Delta, Units, delta};
pub use installed::{Horizon, Installed, NotInstalled};
pub use provider::{Conflict, Lost, Provider, Publication, Published, Source, Updates};
pub use ring::RingView;
pub(crate) use table::{FIRST, decode, encode};
