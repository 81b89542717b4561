//! Where a node stands, in numbers.

use model::id::{Epoch, LogIndex, Revision, ShardId};

use super::Parts;
use crate::{owner::LockCounts, ring::Range};

/// A node's present values and totals.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// The log.
    pub log: storage::log::Stats,
    /// Journals of the engine that hold data not flushed.
    pub journals: usize,
    /// The shards in ring order.
    pub shards: Vec<ShardStats>,
}

/// A shard's present values.
#[derive(Clone, Debug)]
pub struct ShardStats {
    /// Which.
    pub shard: ShardId,
    /// Its part of the ring.
    pub range: Range,
    /// The claim it is owned under; 0 before the first.
    pub epoch: Epoch,
    /// Whether this node owns it.
    pub owned: bool,
    /// The term of its group.
    pub term: u64,
    /// Its newest revision.
    pub revision: Revision,
    /// The last applied entry.
    pub applied: Option<LogIndex>,
    /// The last entry of its log.
    pub last: Option<LogIndex>,
    /// Up to where its log was let go.
    pub purged: Option<LogIndex>,
    /// Requests inside.
    pub inside: usize,
    /// Locks.
    pub locks: LockCounts,
    /// Open read points.
    pub read_points: usize,
    /// Whether its wall clock is held, because the node's is too far ahead.
    pub clock_held: bool,
}

/// All of it; nothing after the node was closed.
pub(super) fn collect(parts: &Parts) -> Stats {
    let running = parts.running.lock();
    let Some(running) = running.as_ref() else { return Stats::default() };
    let shards = running.owners.iter().map(|owner| {
        let metrics = owner.consensus().metrics();
        ShardStats {
            shard: owner.shard(),
            range: owner.admission().range(),
            epoch: owner.epoch(),
            owned: owner.admission().is_open(),
            term: metrics.term,
            revision: owner.state().revision(),
            applied: metrics.applied,
            last: metrics.last,
            purged: metrics.purged,
            inside: owner.admission().inside(),
            locks: owner.lock_counts(),
            read_points: owner.read_points(),
            clock_held: owner.is_clock_held(),
        }
    });
    Stats { log: running.log.stats(), journals: running.engine.journals(), shards: shards.collect() }
}
