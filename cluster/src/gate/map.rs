//! The gates of a runtime: by exact resource, and by range of the ring.
//!
//! Invariants:
//! - Looking is read-only and one pass. A gate that was registered before is not missed, whatever is registered or taken out
//!   meanwhile; without gates it is one load, without a lock.
//! - Only gates that no longer block are taken out, never one that has failed.
//! - One resource, or two ranges that meet, have at most one blocking gate of the same target view.
//!
//! Not here: what is done after a wait: look again from scratch (`admission`).

use std::{borrow::Borrow, collections::HashMap, fmt, hash::Hash, sync::Arc};

use model::id::ViewId;

use crate::{
    admission::ShardUnit,
    ring::Range,
    sync::{AtomicUsize, Ordering, RwLock, order},
};

use super::driver::{Driver, Gate, Role};

/// What admission asks of a map.
pub trait Gates: Send + Sync + 'static {
    /// What is looked up.
    type Key: Clone + Send + Sync;

    /// What an admission leads into.
    type Unit: Send + Sync;

    /// Whether there is no gate at all. One load.
    fn is_clear(&self) -> bool;

    /// A gate that blocks requests of this key which are judged under the required view.
    fn find_blocking(&self, key: &Self::Key, required: ViewId) -> Option<Gate>;
}

/// A second blocking gate was registered for the same unit and the same view.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a gate towards {target} is already registered there")]
pub struct Registered {
    /// The view.
    pub target: ViewId,
}

/// Gates by ring range.
#[derive(Default)]
pub struct RangeMap {
    entries: RwLock<Vec<(Range, Gate)>>,
    live: AtomicUsize,
}

/// Gates by exact resource.
pub struct ResourceMap<R> {
    entries: RwLock<HashMap<R, Vec<Gate>>>,
    live: AtomicUsize,
}

impl RangeMap {
    /// A map without gates.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Registers a gate over a range.
    pub fn register<R: Role>(&self, range: Range, driver: &Driver<R>) -> Result<(), Registered> {
        let gate = driver.gate();
        let mut entries = self.entries.write();
        if entries.iter().any(|(other, there)| same(there, &gate) && other.intersects(range)) {
            return Err(Registered { target: gate.target() });
        }
        entries.push((range, gate));
        self.live.store(entries.len(), Ordering::SeqCst);
        order();
        Ok(())
    }

    /// Takes out the gates that no longer block; how many.
    pub fn prune(&self) -> usize {
        let mut entries = self.entries.write();
        let before = entries.len();
        let (blocking, released): (Vec<_>, Vec<_>) =
            entries.drain(..).partition(|(_, gate)| gate.is_blocking());
        *entries = blocking;
        self.live.store(entries.len(), Ordering::SeqCst);
        let pruned = before - entries.len();
        drop(entries);
        drop(released);
        pruned
    }

    /// Ends all gates because their runtime is torn down, and takes them out.
    pub fn abort_all(&self) {
        // Outside the lock: who is woken may look here at once.
        let gates: Vec<_> = self.entries.read().iter().map(|(_, gate)| gate.clone()).collect();
        for gate in gates {
            gate.core.abort();
        }
        self.prune();
    }

    /// How many gates there are, ended ones that were not yet taken out among them.
    pub fn len(&self) -> usize {
        self.entries.read().len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Gates for RangeMap {
    type Key = Range;
    type Unit = ShardUnit;

    fn is_clear(&self) -> bool {
        self.live.load(Ordering::SeqCst) == 0
    }

    fn find_blocking(&self, key: &Range, required: ViewId) -> Option<Gate> {
        if self.is_clear() {
            return None;
        }
        let entries = self.entries.read();
        let blocks = |(range, gate): &&(Range, Gate)| blocks(gate, required) && range.intersects(*key);
        entries.iter().find(blocks).map(|(_, gate)| gate.clone())
    }
}

impl<R: Clone + Eq + Hash + Send + Sync + 'static> ResourceMap<R> {
    /// A map without gates.
    pub fn new() -> Arc<Self> {
        Arc::new(Self { entries: RwLock::new(HashMap::new()), live: AtomicUsize::new(0) })
    }

    /// Registers a gate on a resource.
    pub fn register<A: Role>(&self, resource: R, driver: &Driver<A>) -> Result<(), Registered> {
        let gate = driver.gate();
        let mut entries = self.entries.write();
        let there = entries.entry(resource).or_default();
        if there.iter().any(|there| same(there, &gate)) {
            return Err(Registered { target: gate.target() });
        }
        there.push(gate);
        self.live.fetch_add(1, Ordering::SeqCst);
        order();
        Ok(())
    }

    /// Takes out the gates that no longer block; how many.
    pub fn prune(&self) -> usize {
        let mut entries = self.entries.write();
        let mut released = Vec::new();
        entries.retain(|_, gates| {
            released.extend(gates.extract_if(.., |gate| !gate.is_blocking()));
            !gates.is_empty()
        });
        self.live.fetch_sub(released.len(), Ordering::SeqCst);
        drop(entries);
        released.len()
    }

    /// Ends all gates because their runtime is torn down, and takes them out.
    pub fn abort_all(&self) {
        let gates: Vec<_> = self.entries.read().values().flatten().cloned().collect();
        for gate in gates {
            gate.core.abort();
        }
        self.prune();
    }

    /// How many gates there are, ended ones that were not yet taken out among them.
    pub fn len(&self) -> usize {
        self.entries.read().values().map(Vec::len).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// As [`Gates::find_blocking`], for a borrowed name.
    pub fn find<Q>(&self, resource: &Q, required: ViewId) -> Option<Gate>
    where
        R: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        if self.is_clear() {
            return None;
        }
        let entries = self.entries.read();
        entries.get(resource)?.iter().find(|gate| blocks(gate, required)).cloned()
    }
}

impl<R: Clone + Eq + Hash + Send + Sync + 'static> Gates for ResourceMap<R> {
    type Key = R;
    type Unit = R;

    fn is_clear(&self) -> bool {
        self.live.load(Ordering::SeqCst) == 0
    }

    fn find_blocking(&self, key: &R, required: ViewId) -> Option<Gate> {
        self.find(key, required)
    }
}

fn blocks(gate: &Gate, required: ViewId) -> bool {
    gate.target() <= required && gate.is_blocking()
}

/// Whether a second gate beside one would be in its place.
fn same(there: &Gate, new: &Gate) -> bool {
    there.target() == new.target() && there.is_blocking()
}

impl fmt::Debug for RangeMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.entries.read().iter()).finish()
    }
}

impl<R: fmt::Debug> fmt::Debug for ResourceMap<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.entries.read().iter()).finish()
    }
}
