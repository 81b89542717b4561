//! The hash ring: pure algebra of its ranges, and which shard a point belongs to.
//!
//! Invariants:
//! - Nothing here knows of nodes, time or I/O; every function is total.
//! - A partition's point is in exactly one shard's range.
//!
//! Not here: views and owners, gates (they compare ranges made here).

mod map;
mod range;

pub use map::{CONTROL, Fault, Map, SHARDS_MAX};
pub use range::{Arc, POINTS, Pieces, Range};
