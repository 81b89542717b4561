//! Where the entries of one group lie.
//!
//! Invariants:
//! - Slots are contiguous in log index; the first is `first`.
//! - `Missing` slots exist only during recovery: a rewritten entry may be met long before or after its neighbours.
//! - `pinned` counts the written slots of each segment; a segment nobody pins can be recycled.
//!
//! Not here: the entries' bytes (`group` keeps recent ones, `read` fetches the rest).

use std::collections::{BTreeMap, VecDeque};

/// More slots than this between two entries of a group can only be damage.
const GAP_MAX: u64 = 1 << 26;

/// Where an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    /// Not seen yet.
    Missing,
    /// Waiting for the writer, with its place in the queue.
    Pending { ticket: u64 },
    /// On disk, whole record.
    Written(Place),
}

/// A record's place on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) segment: u64,
    pub(crate) offset: u32,
    pub(crate) bytes: u32,
}

/// Live entries and bytes of one group in one segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pin {
    pub(crate) entries: u64,
    pub(crate) bytes: u64,
}

/// The slots of one group.
#[derive(Debug, Default)]
pub(crate) struct Index {
    first: u64,
    slots: VecDeque<Slot>,
    pinned: BTreeMap<u64, Pin>,
}

impl Index {
    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    /// The index after the last one.
    pub(crate) fn end(&self) -> u64 {
        self.first + self.slots.len() as u64
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    pub(crate) fn find(&self, index: u64) -> Option<Slot> {
        let at = usize::try_from(index.checked_sub(self.first)?).ok()?;
        self.slots.get(at).copied()
    }

    pub(crate) fn pinned(&self) -> &BTreeMap<u64, Pin> {
        &self.pinned
    }

    /// Adds the next entry.
    pub(crate) fn push(&mut self, index: u64, slot: Slot) {
        if self.slots.is_empty() {
            self.first = index;
        }
        debug_assert_eq!(index, self.end());
        self.pin(slot);
        self.slots.push_back(slot);
    }

    /// Changes an entry's slot; the entry must be there.
    pub(crate) fn set(&mut self, index: u64, slot: Slot) {
        let at = usize::try_from(index - self.first).expect("an existing slot has a small offset");
        let old = std::mem::replace(&mut self.slots[at], slot);
        self.unpin(old);
        self.pin(slot);
    }

    /// Puts an entry anywhere, leaving `Missing` slots between. `false`: so far away that it must be damage.
    pub(crate) fn put(&mut self, index: u64, slot: Slot) -> bool {
        if self.slots.is_empty() {
            self.first = index;
        }
        if index < self.first {
            if self.first - index > GAP_MAX {
                return false;
            }
            while self.first > index {
                self.slots.push_front(Slot::Missing);
                self.first -= 1;
            }
        }
        if index >= self.end() {
            if index - self.end() > GAP_MAX {
                return false;
            }
            while self.end() <= index {
                self.slots.push_back(Slot::Missing);
            }
        }
        self.set(index, slot);
        true
    }

    /// Forgets entries from this index on.
    pub(crate) fn truncate(&mut self, from: u64) {
        while self.end() > from {
            let Some(slot) = self.slots.pop_back() else { break };
            self.unpin(slot);
        }
    }

    /// Forgets entries below this index.
    pub(crate) fn purge(&mut self, floor: u64) {
        while self.first < floor {
            let Some(slot) = self.slots.pop_front() else { break };
            self.first += 1;
            self.unpin(slot);
        }
        if self.slots.is_empty() {
            self.first = floor;
        }
    }

    /// The first index of the range that is missing.
    pub(crate) fn find_missing(&self) -> Option<u64> {
        let at = self.slots.iter().position(|slot| *slot == Slot::Missing)?;
        Some(self.first + at as u64)
    }

    /// The live entries that lie in a segment, in order.
    pub(crate) fn in_segment(&self, segment: u64) -> Vec<(u64, Place)> {
        let Some(pin) = self.pinned.get(&segment) else { return Vec::new() };
        let mut left = pin.entries;
        let mut found = Vec::new();
        for (at, slot) in self.slots.iter().enumerate() {
            if left == 0 {
                break;
            }
            if let Slot::Written(place) = slot
                && place.segment == segment
            {
                found.push((self.first + at as u64, *place));
                left -= 1;
            }
        }
        found
    }

    fn pin(&mut self, slot: Slot) {
        if let Slot::Written(place) = slot {
            let pin = self.pinned.entry(place.segment).or_default();
            pin.entries += 1;
            pin.bytes += u64::from(place.bytes);
        }
    }

    fn unpin(&mut self, slot: Slot) {
        if let Slot::Written(place) = slot
            && let Some(pin) = self.pinned.get_mut(&place.segment)
        {
            pin.entries -= 1;
            pin.bytes -= u64::from(place.bytes);
            if pin.entries == 0 {
                self.pinned.remove(&place.segment);
            }
        }
    }
}
