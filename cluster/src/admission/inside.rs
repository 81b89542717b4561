//! How many are inside a unit, and waiting until those of before are out.
//!
//! Invariants:
//! - Who enters is counted in a stripe of its thread, in the bank that is current then, and leaves the same place: no count
//!   is ever below the number of those in it.
//! - A drain looks at the idle bank until it is empty, makes it the current one, and looks at the other. Whoever was counted
//!   before the drain began is in one of them. Those who come later fill only one at a time, so that a drain of part of a
//!   shard ends while the rest is busy.
//! - Leaving wakes a drain, if there is one: it does not ask again by the clock.
//!
//! Not here: what is looked at between entering and being in (`admission`).

use std::{
    future::poll_fn,
    task::{Poll, Waker},
};

use crate::sync::{AtomicBool, AtomicUsize, Mutex, Ordering, order};

/// In how many places passes are counted, so that threads do not share a cache line.
#[cfg(not(all(test, feature = "loom")))]
const STRIPES: usize = 8;
#[cfg(all(test, feature = "loom"))]
const STRIPES: usize = 1;

#[derive(Debug, Default)]
pub(super) struct Inside {
    /// Where those who come are counted.
    bank: AtomicUsize,
    /// Whether who leaves must tell.
    draining: AtomicBool,
    stripes: [Stripe; STRIPES],
    drainer: Mutex<Option<Waker>>,
    /// One drain at a time.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct Stripe([AtomicUsize; 2]);

/// Where somebody is counted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seat {
    stripe: usize,
    bank: usize,
}

/// Nobody has to tell any more, however the drain ended.
struct Telling<'a>(&'a Inside);

impl Inside {
    #[inline]
    pub(super) fn enter(&self) -> Seat {
        // An old bank does no harm: a drain looks at both.
        let seat = Seat { stripe: stripe(), bank: self.bank.load(Ordering::Relaxed) };
        self.stripes[seat.stripe].0[seat.bank].fetch_add(1, Ordering::SeqCst);
        order();
        seat
    }

    #[inline]
    pub(super) fn leave(&self, seat: Seat) {
        self.stripes[seat.stripe].0[seat.bank].fetch_sub(1, Ordering::SeqCst);
        order();
        if self.draining.load(Ordering::SeqCst) {
            self.tell(seat.bank);
        }
    }

    pub(super) fn count(&self) -> usize {
        self.count_in(0) + self.count_in(1)
    }

    pub(super) async fn drain(&self) {
        let _turn = self.turn.lock().await;
        let _telling = Telling(self);
        let current = self.bank.load(Ordering::SeqCst);
        self.emptied(1 - current).await;
        self.bank.store(1 - current, Ordering::SeqCst);
        self.emptied(current).await;
    }

    async fn emptied(&self, bank: usize) {
        poll_fn(|context| {
            let old = self.drainer.lock().replace(context.waker().clone());
            drop(old);
            self.draining.store(true, Ordering::SeqCst);
            order();
            if self.count_in(bank) == 0 { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    fn count_in(&self, bank: usize) -> usize {
        self.stripes.iter().map(|stripe| stripe.0[bank].load(Ordering::SeqCst)).sum()
    }

    #[cold]
    fn tell(&self, bank: usize) {
        // Of several who leave at once the last to be counted out sees that nobody is left.
        if self.count_in(bank) == 0 {
            let waker = self.drainer.lock().clone();
            waker.into_iter().for_each(Waker::wake);
        }
    }
}

impl Drop for Telling<'_> {
    fn drop(&mut self) {
        self.0.draining.store(false, Ordering::SeqCst);
        let waker = self.0.drainer.lock().take();
        drop(waker);
    }
}

/// The stripe of this thread: threads are numbered as they come.
fn stripe() -> usize {
    use std::sync::atomic::AtomicUsize;
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static MINE: usize = NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES;
    }
    MINE.with(|mine| *mine)
}
