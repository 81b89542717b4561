//! What gates and admission are built on: the real primitives, or those of loom while they are model-checked.
//!
//! Invariants:
//! - [`order`] stands wherever one side stores and then loads what the other side stores and then loads. Both sides do so
//!   with sequentially consistent operations, which is enough for the language; loom takes those for acquire and release
//!   only, so that under loom `order` is the fence that makes them what they are.
//! - In tests each lock taken is counted, so that a test can show that a path takes none.
//!
//! Not here: anything that waits for long (`gate::completion`).

#[cfg(not(all(test, feature = "loom")))]
pub(crate) use real::{AtomicBool, AtomicU64, AtomicUsize, Mutex, Ordering, RwLock, order};

#[cfg(all(test, feature = "loom"))]
pub(crate) use model::{AtomicBool, AtomicU64, AtomicUsize, Mutex, Ordering, RwLock, order};

#[cfg(not(all(test, feature = "loom")))]
mod real {
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

    use parking_lot::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

    /// A lock for one.
    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(parking_lot::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(parking_lot::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            #[cfg(test)]
            super::count::one();
            self.0.lock()
        }
    }

    /// A lock for one who writes or many who read.
    #[derive(Debug, Default)]
    pub(crate) struct RwLock<T>(parking_lot::RwLock<T>);

    impl<T> RwLock<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(parking_lot::RwLock::new(value))
        }

        pub(crate) fn read(&self) -> RwLockReadGuard<'_, T> {
            #[cfg(test)]
            super::count::one();
            self.0.read()
        }

        pub(crate) fn write(&self) -> RwLockWriteGuard<'_, T> {
            #[cfg(test)]
            super::count::one();
            self.0.write()
        }
    }

    /// Nothing: the operations around it are sequentially consistent.
    #[inline]
    pub(crate) fn order() {}
}

/// How many locks this thread has taken.
#[cfg(all(test, not(feature = "loom")))]
pub(crate) mod count {
    use std::cell::Cell;

    thread_local! {
        static LOCKS: Cell<usize> = const { Cell::new(0) };
    }

    pub(super) fn one() {
        LOCKS.with(|locks| locks.set(locks.get() + 1));
    }

    pub(crate) fn locks() -> usize {
        LOCKS.with(Cell::get)
    }
}

#[cfg(test)]
#[cfg(feature = "loom")]
pub(crate) mod model {
    use std::cell::Cell;

    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
    use loom::sync::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap()
        }
    }

    #[derive(Debug, Default)]
    pub(crate) struct RwLock<T>(loom::sync::RwLock<T>);

    impl<T> RwLock<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::sync::RwLock::new(value))
        }

        pub(crate) fn read(&self) -> RwLockReadGuard<'_, T> {
            self.0.read().unwrap()
        }

        pub(crate) fn write(&self) -> RwLockWriteGuard<'_, T> {
            self.0.write().unwrap()
        }
    }

    thread_local! {
        /// Set by the test that shows what happens without the order. All threads of a model run on one real thread.
        static WEAKENED: Cell<bool> = const { Cell::new(false) };
    }

    /// For the models that this thread runs from now on.
    pub(crate) fn weaken() {
        WEAKENED.with(|weakened| weakened.set(true));
    }

    /// Takes [`weaken`] back: threads of the test runner are used again.
    pub(crate) fn strengthen() {
        WEAKENED.with(|weakened| weakened.set(false));
    }

    pub(crate) fn order() {
        if !WEAKENED.with(Cell::get) {
            loom::sync::atomic::fence(Ordering::SeqCst);
        }
    }
}
