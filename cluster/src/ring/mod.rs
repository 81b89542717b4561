//! The hash ring: pure algebra of its ranges, and who holds which part of it.
//!
//! Invariants:
//! - Nothing here knows of nodes, time or I/O; every function is total.
//! - A partition's point is in exactly one shard's range.
//!
//! Not here: views and owners (`view`), gates (they compare ranges made here).

mod boundaries;
mod map;
mod range;
#[cfg(test)]
mod suite;
mod topology;

pub use map::{CONTROL, Fault, Map, SHARDS_MAX};
pub use range::{Arc, POINTS, Pieces, RANGE_BYTES, Range};
pub use topology::{Change, Seat, Topology};
