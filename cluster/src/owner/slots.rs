//! Slots: the names a gateway gives to plain commands, so that each is executed at most once.
//!
//! Invariants:
//! - A slot is in one command's hands at a time, and its number grows with each use.
//! - It is free again as soon as its command's client has had an answer, "unknown" included: a late copy of the old
//!   command carries a lower number and is refused by `apply`.
//!
//! Not here: what `apply` keeps per slot (`storage`).

use std::sync::Arc;

use parking_lot::Mutex;

/// How many commands of one gateway may be in flight in one shard.
pub const SLOTS_MAX: u16 = 32_768;

/// One shard's slots of this gateway.
#[derive(Debug, Default)]
pub struct Slots {
    free: Mutex<Free>,
}

#[derive(Debug, Default)]
struct Free {
    slots: Vec<(u16, u64)>,
    made: u16,
}

/// A slot in use, given back when dropped.
#[derive(Debug)]
pub struct Slot {
    slots: Arc<Slots>,
    slot: u16,
    number: u64,
}

impl Slots {
    /// No slot was used yet.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Takes a slot with its next number; none if too many are in use.
    pub fn acquire(self: &Arc<Self>) -> Option<Slot> {
        let mut free = self.free.lock();
        let (slot, used) = match free.slots.pop() {
            Some(slot) => slot,
            None if free.made < SLOTS_MAX => {
                free.made += 1;
                (free.made - 1, 0)
            }
            None => return None,
        };
        drop(free);
        Some(Slot { slots: self.clone(), slot, number: used + 1 })
    }
}

impl Slot {
    /// Which slot.
    pub fn slot(&self) -> u16 {
        self.slot
    }

    /// Its number for this command; never 0, which stands for "not assigned yet".
    pub fn number(&self) -> u64 {
        self.number
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.free.lock().slots.push((self.slot, self.number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_used_by_one_command_at_a_time_with_growing_numbers() {
        let slots = Slots::new();
        let first = slots.acquire().unwrap();
        let second = slots.acquire().unwrap();
        assert_ne!(first.slot(), second.slot());
        let (slot, number) = (first.slot(), first.number());
        drop(first);
        let again = slots.acquire().unwrap();
        assert_eq!((again.slot(), again.number()), (slot, number + 1));
    }

    #[test]
    fn the_number_of_slots_is_bounded() {
        let slots = Slots::new();
        let mut held: Vec<_> = (0..SLOTS_MAX).map(|_| slots.acquire().unwrap()).collect();
        assert!(slots.acquire().is_none());
        held.pop();
        assert!(slots.acquire().is_some());
    }
}
