//! Memory: what a statement may hold, taken from one pool of the server.
//!
//! Invariants:
//! - What operators hold is charged before it is used; a [`Charge`] gives back what it took when it is dropped.
//! - The first [`FREE`] bytes of each charge are not counted, so that an operator with next to nothing is never refused
//!   because its neighbours hold much; a statement has few operators.
//! - A statement's charges never exceed its own limit, nor all statements' the pool's. Beyond that an operator spills, or
//!   the statement ends with `53200`; the process lives on.
//!
//! Not here: where spilled rows go (`spill`).

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use model::{Code, Error, Result};

/// What each operator may hold without being counted.
pub const FREE: usize = 16 * 1024;

/// What all statements of the server may hold together.
#[derive(Debug)]
pub struct Pool {
    limit: usize,
    used: AtomicUsize,
}

impl Pool {
    /// A pool of so many bytes.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, used: AtomicUsize::new(0) })
    }

    /// Bytes that are taken.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Bytes there are.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// The budget of one statement: at most `limit` bytes of this pool.
    pub fn budget(self: &Arc<Self>, limit: usize) -> Budget {
        Budget(Arc::new(Statement { pool: Arc::clone(self), limit, used: AtomicUsize::new(0) }))
    }
}

/// What one statement may hold. Clones share it.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Statement>);

#[derive(Debug)]
struct Statement {
    pool: Arc<Pool>,
    limit: usize,
    used: AtomicUsize,
}

impl Budget {
    /// A budget of its own, for tests and tools.
    pub fn of(bytes: usize) -> Self {
        Pool::new(bytes).budget(bytes)
    }

    /// A charge that holds nothing yet, in the name of an operator.
    pub fn charge(&self, what: &'static str) -> Charge {
        Charge { budget: self.clone(), what, bytes: 0 }
    }

    /// Bytes that are taken.
    pub fn used(&self) -> usize {
        self.0.used.load(Ordering::Relaxed)
    }

    /// The statement's limit.
    pub fn limit(&self) -> usize {
        self.0.limit
    }

    fn take(&self, bytes: usize) -> bool {
        if !add_within(&self.0.used, bytes, self.0.limit) {
            return false;
        }
        if !add_within(&self.0.pool.used, bytes, self.0.pool.limit) {
            self.0.used.fetch_sub(bytes, Ordering::Relaxed);
            return false;
        }
        true
    }

    fn give_back(&self, bytes: usize) {
        self.0.used.fetch_sub(bytes, Ordering::Relaxed);
        self.0.pool.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

fn add_within(used: &AtomicUsize, bytes: usize, limit: usize) -> bool {
    used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
        used.checked_add(bytes).filter(|sum| *sum <= limit)
    })
    .is_ok()
}

/// What one operator holds.
#[derive(Debug)]
pub struct Charge {
    budget: Budget,
    what: &'static str,
    bytes: usize,
}

impl Charge {
    /// Holds so many bytes from now on, or tells that they are not to be had.
    #[must_use]
    pub fn try_set(&mut self, bytes: usize) -> bool {
        let (before, now) = (counted(self.bytes), counted(bytes));
        if now > before {
            if !self.budget.take(now - before) {
                return false;
            }
        } else {
            self.budget.give_back(before - now);
        }
        self.bytes = bytes;
        true
    }

    /// Holds so many bytes from now on (`53200` if they are not to be had).
    pub fn set(&mut self, bytes: usize) -> Result<()> {
        if self.try_set(bytes) { Ok(()) } else { Err(self.refusal(bytes)) }
    }

    /// Holds so many bytes more (`53200` if they are not to be had).
    pub fn add(&mut self, bytes: usize) -> Result<()> {
        self.set(self.bytes.saturating_add(bytes))
    }

    /// Bytes it holds.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The error of an operator that needs so many bytes and cannot spill.
    pub fn refusal(&self, bytes: usize) -> Error {
        Error::new(Code::OutOfMemory, "out of memory")
            .with_detail(format!(
                "Failed on request of {} bytes in {}.",
                bytes.saturating_sub(self.bytes),
                self.what
            ))
            .with_hint("Raise work_mem or memory.limit, or let the statement touch fewer rows.")
    }
}

fn counted(bytes: usize) -> usize {
    bytes.saturating_sub(FREE)
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.give_back(counted(self.bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_stays_within_its_own_limit_and_the_pool_within_its() {
        let pool = Pool::new(100);
        let (one, two) = (pool.budget(80), pool.budget(80));
        let (mut a, mut b) = (one.charge("a sort"), two.charge("a hash join"));
        assert!(!a.try_set(FREE + 81));
        assert!(a.try_set(FREE + 70));
        let refused = b.set(FREE + 40).expect_err("only 30 are left");
        assert_eq!(refused.code(), Code::OutOfMemory);
        assert_eq!(two.used(), 0);
        assert!(b.try_set(FREE + 30));
        assert_eq!(pool.used(), 100);
    }

    #[test]
    fn a_dropped_charge_gives_back_what_it_took() {
        let pool = Pool::new(100);
        let budget = pool.budget(100);
        let mut charge = budget.charge("a sort");
        charge.add(FREE + 60).expect("there is room");
        assert!(charge.try_set(FREE + 20));
        assert_eq!(pool.used(), 20);
        drop(charge);
        assert_eq!(pool.used(), 0);
    }
}
