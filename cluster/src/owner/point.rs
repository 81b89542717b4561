//! Read points: leased snapshots of one shard's state.
//!
//! Invariants:
//! - Their number and their age are bounded: each keeps old versions in the engine alive.
//! - A point ends with its last lease, with its age, or with its owner's claim; afterwards it is lost, never wrong.
//! - Reading at one takes no table and no list: the lease carries the snapshot.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use model::{
    id::{Epoch, Revision, ShardId},
    read::ReadPoint,
};
use parking_lot::Mutex;

use crate::{Error, Result};

/// The read points of one shard, over snapshots of a kind.
#[derive(Debug)]
pub(crate) struct Points<V> {
    shard: ShardId,
    count_max: usize,
    age_max: Duration,
    open: Arc<AtomicUsize>,
    list: Mutex<List<V>>,
}

#[derive(Debug)]
struct List<V> {
    next: u64,
    leases: Vec<Weak<Lease<V>>>,
}

/// What keeps a read point alive.
#[derive(Debug)]
struct Lease<V> {
    shard: ShardId,
    epoch: Epoch,
    born: Duration,
    view: Mutex<Option<V>>,
    open: Arc<AtomicUsize>,
}

impl<V> Drop for Lease<V> {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::AcqRel);
    }
}

impl<V: Clone + Send + 'static> Points<V> {
    pub(crate) fn new(shard: ShardId, count_max: usize, age_max: Duration) -> Self {
        let list = Mutex::new(List { next: 0, leases: Vec::new() });
        Self { shard, count_max, age_max, open: Arc::default(), list }
    }

    /// Leases a snapshot.
    pub(crate) fn lease(
        &self,
        epoch: Epoch,
        now: Duration,
        revision: Revision,
        view: V,
    ) -> Result<ReadPoint> {
        if self.open.fetch_add(1, Ordering::AcqRel) >= self.count_max {
            self.open.fetch_sub(1, Ordering::AcqRel);
            return Err(Error::TooMany { what: "read points", max: self.count_max });
        }
        let lease = Arc::new(Lease {
            shard: self.shard,
            epoch,
            born: now,
            view: Mutex::new(Some(view)),
            open: self.open.clone(),
        });
        let mut list = self.list.lock();
        list.next += 1;
        let id = list.next;
        if list.leases.len() >= 64 && list.leases.len() >= 2 * self.open.load(Ordering::Acquire) {
            list.leases.retain(|lease| lease.strong_count() > 0);
        }
        list.leases.push(Arc::downgrade(&lease));
        Ok(ReadPoint { shard: self.shard, epoch, id, revision, lease })
    }

    /// The snapshot of a point.
    pub(crate) fn find(&self, point: &ReadPoint, epoch: Epoch, now: Duration) -> Result<V> {
        if point.shard != self.shard {
            return Err(Error::Foreign { what: "read point", given: point.shard, shard: self.shard });
        }
        let lease = point.lease.downcast_ref::<Lease<V>>().ok_or(Error::ReadPointLost)?;
        let alive = lease.shard == self.shard
            && lease.epoch == epoch
            && now.saturating_sub(lease.born) <= self.age_max;
        let view = lease.view.lock().clone();
        view.filter(|_| alive).ok_or(Error::ReadPointLost)
    }

    /// Gives up what is too old; what only its lease still holds is freed.
    pub(crate) fn expire(&self, now: Duration) {
        self.give_up(|lease| now.saturating_sub(lease.born) > self.age_max);
    }

    /// Gives up everything: the owner changed, or stops.
    pub(crate) fn clear(&self) {
        self.give_up(|_| true);
    }

    /// How many are open.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::Acquire)
    }

    fn give_up(&self, which: impl Fn(&Lease<V>) -> bool) {
        let mut ended = Vec::new();
        self.list.lock().leases.retain(|lease| {
            let Some(lease) = lease.upgrade() else { return false };
            let gone = which(&lease);
            if gone {
                ended.push(lease);
            }
            !gone
        });
        // Freeing a snapshot can take a while; the list is not locked meanwhile.
        for lease in ended {
            drop(lease.view.lock().take());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn points() -> Points<&'static str> {
        Points::new(ShardId(3), 2, 10 * MINUTE)
    }

    #[test]
    fn a_point_is_read_until_its_last_lease_goes() {
        let points = points();
        let point = points.lease(Epoch(1), MINUTE, Revision(9), "then").unwrap();
        let again = point.clone();
        drop(point);
        assert_eq!(points.find(&again, Epoch(1), MINUTE).unwrap(), "then");
        assert_eq!(points.open(), 1);
        drop(again);
        assert_eq!(points.open(), 0);
    }

    #[test]
    fn age_and_a_new_claim_end_a_point() {
        let points = points();
        let point = points.lease(Epoch(1), MINUTE, Revision(9), "then").unwrap();
        assert!(matches!(points.find(&point, Epoch(2), MINUTE), Err(Error::ReadPointLost)));
        assert!(matches!(points.find(&point, Epoch(1), 12 * MINUTE), Err(Error::ReadPointLost)));
        points.expire(12 * MINUTE);
        assert!(matches!(points.find(&point, Epoch(1), MINUTE), Err(Error::ReadPointLost)));
    }

    #[test]
    fn their_number_is_bounded() {
        let points = points();
        let _held = [(); 2].map(|()| points.lease(Epoch(1), MINUTE, Revision(9), "then").unwrap());
        assert!(matches!(points.lease(Epoch(1), MINUTE, Revision(9), "then"), Err(Error::TooMany { .. })));
        assert_eq!(points.open(), 2);
    }

    #[test]
    fn a_point_of_another_shard_is_refused() {
        let other = Points::new(ShardId(4), 2, MINUTE);
        let point = other.lease(Epoch(1), MINUTE, Revision(9), "then").unwrap();
        assert!(matches!(points().find(&point, Epoch(1), MINUTE), Err(Error::Foreign { .. })));
    }
}
