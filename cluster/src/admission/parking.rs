//! How many requests may wait, and how many bytes they may hold: per unit and per node.
//!
//! Invariants:
//! - No bound is ever exceeded, also not for a moment in between; who would exceed one is refused, the newest first.
//! - What is taken is given back when the [`Parked`] is dropped, on whatever path.
//!
//! Not here: for how long (the request's deadline).

use std::sync::Arc;

use crate::sync::{AtomicUsize, Ordering};

/// How much may wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// Requests.
    pub count_max: usize,
    /// Their bytes.
    pub bytes_max: usize,
}

impl Bounds {
    /// Of one unit.
    pub const UNIT: Self = Self { count_max: 1_000, bytes_max: 16 << 20 };
    /// Of a node.
    pub const NODE: Self = Self { count_max: 16_000, bytes_max: 128 << 20 };
}

/// What waits in one place.
#[derive(Debug)]
pub struct Lot {
    bounds: Bounds,
    count: AtomicUsize,
    bytes: AtomicUsize,
}

/// The two lots in which whoever waits for a unit is counted.
#[derive(Clone, Debug)]
pub struct Parking {
    unit: Arc<Lot>,
    node: Arc<Lot>,
}

/// A waiter's place.
#[derive(Debug)]
pub struct Parked {
    taken: [Arc<Lot>; 2],
    bytes: usize,
}

impl Lot {
    /// An empty one.
    pub fn new(bounds: Bounds) -> Arc<Self> {
        Arc::new(Self { bounds, count: AtomicUsize::new(0), bytes: AtomicUsize::new(0) })
    }

    /// Requests and bytes that wait.
    pub fn parked(&self) -> (usize, usize) {
        (self.count.load(Ordering::SeqCst), self.bytes.load(Ordering::SeqCst))
    }

    fn take(&self, bytes: usize) -> Option<()> {
        add(&self.count, 1, self.bounds.count_max)?;
        let taken = add(&self.bytes, bytes, self.bounds.bytes_max);
        if taken.is_none() {
            self.count.fetch_sub(1, Ordering::SeqCst);
        }
        taken
    }

    fn give_back(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::SeqCst);
        self.count.fetch_sub(1, Ordering::SeqCst);
    }
}

fn add(to: &AtomicUsize, more: usize, max: usize) -> Option<()> {
    let added = |now: usize| now.checked_add(more).filter(|sum| *sum <= max);
    to.fetch_update(Ordering::SeqCst, Ordering::SeqCst, added).ok().map(drop)
}

impl Parking {
    /// A unit's own lot beside its node's.
    pub fn new(unit: Bounds, node: Arc<Lot>) -> Self {
        Self { unit: Lot::new(unit), node }
    }

    /// The unit's lot.
    pub fn unit(&self) -> &Lot {
        &self.unit
    }

    /// A place for one that waits; none if there is no room.
    pub fn park(&self, bytes: usize) -> Option<Parked> {
        self.unit.take(bytes)?;
        if self.node.take(bytes).is_none() {
            self.unit.give_back(bytes);
            return None;
        }
        Some(Parked { taken: [self.unit.clone(), self.node.clone()], bytes })
    }
}

impl Drop for Parked {
    fn drop(&mut self) {
        for lot in &self.taken {
            lot.give_back(self.bytes);
        }
    }
}
