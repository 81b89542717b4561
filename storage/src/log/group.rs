//! One group in memory: what was asked of it, ahead of what is durable.
//!
//! Invariants:
//! - `index` and `meta` change in the order in which records enter the queue; the lock of the group is held for both.
//! - Entries at and beyond `synced_end` are in the cache: they can be read before they are on disk.
//! - `synced_end` moves up only from the writer, after a sync, over slots that still wait for that very record.
//!
//! Not here: the queue (`queue`) and the disk (`writer`, `read`).

use std::collections::VecDeque;
use std::ops::Range;

use super::index::{Index, Place, Slot};
use super::meta::Meta;
use super::{Entry, LogId};

/// Counted for each cached entry besides its payload.
const ENTRY_OVERHEAD: usize = 64;

/// The state of a group.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) meta: Meta,
    pub(crate) index: Index,
    /// The id of the last entry, if there is one.
    pub(crate) last: Option<LogId>,
    pub(crate) synced_end: u64,
    /// A handle may outlive the group; whoever meets this flag must behave as if the group was not there.
    pub(crate) dropped: bool,
    cache: VecDeque<Entry>,
    cache_bytes: usize,
}

impl Group {
    pub(crate) fn new(meta: Meta, mut index: Index, last: Option<LogId>) -> Group {
        index.purge(meta.floor);
        let synced_end = index.end();
        Group { meta, index, last, synced_end, dropped: false, cache: VecDeque::new(), cache_bytes: 0 }
    }

    /// The id of the last entry or, when there is none, of the last one that was purged.
    pub(crate) fn last_id(&self) -> Option<LogId> {
        self.last.or(self.meta.purged)
    }

    pub(crate) fn cache_bytes(&self) -> usize {
        self.cache_bytes
    }

    pub(crate) fn append(&mut self, entry: Entry, ticket: u64) {
        self.last = Some(entry.id);
        self.index.push(entry.id.index, Slot::Pending { ticket });
        self.cache_bytes += entry.payload.len() + ENTRY_OVERHEAD;
        self.cache.push_back(entry);
    }

    /// The index at which an empty group goes on.
    pub(crate) fn begin(&mut self, index: u64) {
        self.meta.floor = index;
        self.index.purge(index);
        self.synced_end = self.synced_end.max(index);
    }

    /// Removes entries after `keep`, which is the id of the last one that stays.
    pub(crate) fn truncate(&mut self, from: u64, keep: Option<LogId>) {
        while self.cache.back().is_some_and(|entry| entry.id.index >= from) {
            self.pop_cached(false);
        }
        self.index.truncate(from);
        self.synced_end = self.synced_end.min(from.max(self.meta.floor));
        self.last = if self.index.is_empty() { None } else { keep };
    }

    pub(crate) fn purge(&mut self, upto: LogId) {
        self.meta.purge(upto);
        self.forget_below_floor();
    }

    pub(crate) fn forget_below_floor(&mut self) {
        let floor = self.meta.floor;
        while self.cache.front().is_some_and(|entry| entry.id.index < floor) {
            self.pop_cached(true);
        }
        self.index.purge(floor);
        self.synced_end = self.synced_end.max(floor);
        if self.index.is_empty() {
            self.last = None;
        }
    }

    /// Notes that the record with this ticket is durable at this place.
    pub(crate) fn placed(&mut self, index: u64, ticket: u64, place: Place) {
        if self.index.find(index) == Some(Slot::Pending { ticket }) {
            self.index.set(index, Slot::Written(place));
            self.synced_end = self.synced_end.max(index + 1);
        }
    }

    /// Notes that a copy of a written entry is durable at this place.
    pub(crate) fn moved(&mut self, index: u64, place: Place) {
        // Records are placed in queue order, so a later entry with the same index would still be pending here.
        if let Some(Slot::Written(_)) = self.index.find(index) {
            self.index.set(index, Slot::Written(place));
        }
    }

    /// The cached entries of a range, and the range before them that must be read from disk.
    pub(crate) fn read(&self, range: Range<u64>) -> (Vec<(u64, Place)>, Vec<Entry>) {
        let cached_from = self.cache.front().map_or(u64::MAX, |entry| entry.id.index);
        let mut on_disk = Vec::new();
        for index in range.start..range.end.min(cached_from) {
            if let Some(Slot::Written(place)) = self.index.find(index) {
                on_disk.push((index, place));
            }
        }
        let mut cached = Vec::new();
        if range.end > cached_from {
            let from = usize::try_from(range.start.max(cached_from) - cached_from).unwrap_or(usize::MAX);
            let to = usize::try_from(range.end - cached_from).unwrap_or(usize::MAX).min(self.cache.len());
            cached.extend(self.cache.range(from.min(to)..to).cloned());
        }
        (on_disk, cached)
    }

    /// Forgets the oldest synced cached entries until at most `bytes_max` are left. Gives the bytes freed.
    pub(crate) fn evict(&mut self, bytes_max: usize) -> usize {
        let before = self.cache_bytes;
        while self.cache_bytes > bytes_max
            && self.cache.front().is_some_and(|entry| entry.id.index < self.synced_end)
        {
            self.pop_cached(true);
        }
        before - self.cache_bytes
    }

    /// The group is gone. Gives the bytes freed.
    pub(crate) fn drop_all(&mut self) -> usize {
        self.dropped = true;
        self.cache.clear();
        std::mem::take(&mut self.cache_bytes)
    }

    fn pop_cached(&mut self, front: bool) {
        let entry = if front { self.cache.pop_front() } else { self.cache.pop_back() };
        if let Some(entry) = entry {
            self.cache_bytes -= entry.payload.len() + ENTRY_OVERHEAD;
        }
    }
}
