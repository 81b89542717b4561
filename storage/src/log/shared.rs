//! What the handle, the writer and the keeper of one log have in common.
//!
//! Lock order, outermost first: `groups`, one group, the queue; the queue also under the keeper's state;
//! `segments` is taken alone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use hashbrown::HashMap;
use parking_lot::{Mutex, RwLock};

use super::files::Files;
use super::group::Group;
use super::keeper::Keeper;
use super::queue::{Queue, Use};
use super::segment::Segment;
use super::{Error, GroupId, Identity, Options};

pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) identity: Identity,
    pub(crate) files: Arc<dyn Files>,
    pub(crate) queue: Queue,
    pub(crate) groups: RwLock<HashMap<GroupId, Arc<Mutex<Group>>>>,
    pub(crate) segments: RwLock<BTreeMap<u64, Arc<Segment>>>,
    pub(crate) keeper: Keeper,
    pub(crate) counters: Counters,
    pub(crate) cache_bytes: AtomicUsize,
}

/// Totals since the log was opened.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) appends: AtomicU64,
    pub(crate) entries: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) syncs: AtomicU64,
    pub(crate) group_syncs: AtomicU64,
    pub(crate) seals: AtomicU64,
    pub(crate) rewritten: AtomicU64,
    pub(crate) recycled: AtomicU64,
}

impl Counters {
    pub(crate) fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Ordering::Relaxed);
    }
}

impl Shared {
    /// Whether so many bytes may be written and the disk still counts as one with room.
    pub(crate) fn has_room(&self, bytes: u64) -> Result<bool, Error> {
        let Some(low_water) = &self.options.low_water else { return Ok(true) };
        let available = (low_water.available)().map_err(Error::io("measure free space"))?;
        Ok(available.saturating_sub(bytes) >= low_water.bytes_min)
    }

    /// Lets a proposal of so many bytes in, or refuses it.
    ///
    /// The disk is looked at here, every few megabytes, and not only by the keeper, who may be busy while a burst comes.
    pub(crate) fn admit(&self, bytes: u64, to_use: Use) -> Result<(), Error> {
        let Some(low_water) = &self.options.low_water else {
            return self.queue.admit(bytes, to_use, u64::MAX).map(drop);
        };
        let Some(admitted) = self.queue.admit(bytes, to_use, low_water.look_bytes())? else { return Ok(()) };
        let looked = (low_water.available)().map_err(Error::io("measure free space"));
        // Each byte is written again when it is applied, and once more when it leaves the memtable.
        let available = looked.inspect_err(|_| self.queue.give_back(bytes))?.saturating_sub(2 * admitted);
        if available < low_water.bytes_min {
            self.keeper.set_full(true, &self.queue);
        }
        let bytes_min = match to_use {
            Use::Common => low_water.bytes_min,
            Use::Reserve => low_water.frees_bytes_min,
        };
        if available < bytes_min {
            self.queue.give_back(bytes);
            return Err(Error::StorageFull);
        }
        Ok(())
    }

    pub(crate) fn find_group(&self, group: GroupId) -> Option<Arc<Mutex<Group>>> {
        self.groups.read().get(&group).cloned()
    }

    pub(crate) fn get_group(&self, group: GroupId) -> Result<Arc<Mutex<Group>>, Error> {
        self.find_group(group).ok_or(Error::NoGroup(group))
    }

    /// The log cannot go on: tells the hook, then everybody who waits. The first error stays.
    pub(crate) fn fail(&self, error: Error) -> Error {
        let fatal = !matches!(error, Error::Closed | Error::StorageFull | Error::Failed(_));
        if fatal {
            (self.options.on_fatal)(&error);
        }
        let seen = match error {
            Error::Closed | Error::StorageFull | Error::Failed(_) => error,
            error => Error::Failed(Arc::new(error)),
        };
        let waiting = self.queue.end(seen.clone());
        self.keeper.stop(Some(seen.clone()));
        for callback in waiting {
            callback(Err(seen.clone()));
        }
        seen
    }

    /// Brings the cache back under its bound, taking from the largest groups first.
    pub(crate) fn evict(&self) {
        let bytes_max = self.options.cache_bytes_max;
        if self.cache_bytes.load(Ordering::Relaxed) <= bytes_max {
            return;
        }
        let target = bytes_max - bytes_max / 8;
        let mut groups: Vec<_> = self.groups.read().values().cloned().collect();
        groups.sort_by_cached_key(|group| std::cmp::Reverse(group.lock().cache_bytes()));
        for group in groups {
            let total = self.cache_bytes.load(Ordering::Relaxed);
            if total <= target {
                break;
            }
            let mut group = group.lock();
            let keep = group.cache_bytes().saturating_sub(total - target);
            let freed = group.evict(keep);
            self.cache_bytes.fetch_sub(freed, Ordering::Relaxed);
        }
    }
}
