//! Who owns what, and how a command gets there.
//!
//! The life of a request below [`model::port::Dispatch`]:
//!
//! 1. [`Router`] finds the partition's point, the point's shard ([`ring`]) and the shard's owner, today always this node.
//! 2. [`admission`] counts it in and looks at view and gates; the `Pass` it gives is what the owner demands.
//! 3. A read takes the newest applied state (a sole voter whose claim is applied needs nobody's consent) and answers on
//!    the spot. A command takes its locks, gets its slot, deadline and logged time, and is proposed.
//! 4. `raft` puts it into the shared log with its neighbours, one sync for all, and applies it on its own threads.
//! 5. The outcome goes back, the locks are given up, the slot is free.
//!
//! [`Node`] composes storage, groups and owners into one that can be opened, closed and opened again:
//!
//! ```text
//! let node = cluster::Node::open(cluster::Options::new(directory, clock)).await?;
//! let dispatch: Arc<dyn model::port::Dispatch> = node.router();
//! node.close().await?; // idempotent; a cancelled close can be closed again
//! ```
//!
//! openraft is named in `raft` only. Everything that waits works from any async runtime.

pub mod admission;
pub mod assignment;
pub mod bench;
mod catalog;
mod error;
pub mod gate;
pub mod handoff;
mod node;
mod options;
mod owner;
#[cfg_attr(not(test), allow(dead_code, unused_imports, reason = "nodes do not join each other yet"))]
mod peer;
#[cfg_attr(not(test), allow(dead_code, unused_imports, reason = "nodes do not join each other yet"))]
mod raft;
pub mod ring;
mod router;
mod sync;
pub mod view;

pub use error::{Error, Result};
pub use node::{Node, ShardStats, Stats};
pub use options::{Bootstrap, FeedRetention, Options, SEGMENT_BYTES_MIN, SHARDS};
pub use owner::{LockCounts, SLOTS_MAX, Slot, Slots};
pub use router::Router;
