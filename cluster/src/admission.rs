//! Admission: how a request gets into a shard while its owner may be changing.
//!
//! Invariants:
//! - Whoever holds a [`Pass`] was counted before the view and the gates were looked at: a drain that closes the shard
//!   first and then waits for the count to fall to zero misses nobody.
//! - In the steady state entering is one addition and one load; it allocates nothing and wakes nobody.
//! - A pass leaves when it is dropped, on whatever path.
//!
//! Not here: who opens and closes shards (handoff; today a shard is opened once, by its claim).

use std::sync::{
    Arc,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

use model::id::{Point, ShardId, ViewId};

use crate::{Error, ring::Range};

/// In how many places passes are counted, so that threads do not share a cache line.
const STRIPES: usize = 8;

/// The way into one shard.
#[derive(Debug)]
pub struct Admission {
    shard: ShardId,
    range: Range,
    /// The view under which the shard is served, and in the lowest bit whether a gate blocks. 0 is closed: views begin
    /// at 1.
    state: AtomicU64,
    inside: [Stripe; STRIPES],
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct Stripe(AtomicUsize);

/// The proof of being inside a shard.
#[derive(Debug)]
pub struct Pass {
    admission: Arc<Admission>,
    stripe: usize,
}

const GATED: u64 = 1;

impl Admission {
    /// A shard that nobody may enter yet.
    pub fn closed(shard: ShardId, range: Range) -> Arc<Self> {
        Arc::new(Self { shard, range, state: AtomicU64::new(0), inside: Default::default() })
    }

    /// Serves the shard under a view.
    pub fn open(&self, view: ViewId) {
        self.state.store(view.0 << 1, Ordering::SeqCst);
    }

    /// Closes the shard; those inside stay until they leave.
    pub fn close(&self) {
        self.state.store(0, Ordering::SeqCst);
    }

    /// Sets or lifts a gate over the whole shard.
    pub fn set_gated(&self, gated: bool) {
        if gated {
            self.state.fetch_or(GATED, Ordering::SeqCst);
        } else {
            self.state.fetch_and(!GATED, Ordering::SeqCst);
        }
    }

    /// The part of the ring it leads to.
    pub fn range(&self) -> Range {
        self.range
    }

    /// Whether it is served and no gate blocks it.
    pub fn is_open(&self) -> bool {
        let state = self.state.load(Ordering::SeqCst);
        state != 0 && state & GATED == 0
    }

    /// How many are inside.
    pub fn inside(&self) -> usize {
        self.inside.iter().map(|stripe| stripe.0.load(Ordering::SeqCst)).sum()
    }

    /// The view it is served under, while it is.
    pub fn view(&self) -> ViewId {
        ViewId(self.state.load(Ordering::SeqCst) >> 1)
    }

    /// Enters the shard for a point, under the view the request was routed by.
    pub fn enter(self: &Arc<Self>, view: ViewId, point: Point) -> Result<Pass, Error> {
        let pass = self.enter_shard(view)?;
        if self.range.contains(point) {
            return Ok(pass);
        }
        Err(Error::WrongShard { shard: self.shard, point })
    }

    /// Enters the shard for all it holds.
    pub fn enter_shard(self: &Arc<Self>, view: ViewId) -> Result<Pass, Error> {
        let stripe = stripe();
        // Counted first, in one total order with `close` and `inside`: else a drain could see nobody and be passed.
        self.inside[stripe].0.fetch_add(1, Ordering::SeqCst);
        let pass = Pass { admission: self.clone(), stripe };
        let state = self.state.load(Ordering::SeqCst);
        if state == view.0 << 1 && state != 0 {
            return Ok(pass);
        }
        Err(self.refusal(state))
    }

    #[cold]
    fn refusal(&self, state: u64) -> Error {
        match state {
            0 => Error::NotServing { shard: self.shard },
            gated if gated & GATED != 0 => Error::Gated { shard: self.shard },
            other => Error::ViewStale { shard: self.shard, view: ViewId(other >> 1) },
        }
    }
}

impl Pass {
    /// The shard it is a pass for.
    pub fn shard(&self) -> ShardId {
        self.admission.shard
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.admission.inside[self.stripe].0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The stripe of this thread: threads are numbered as they come.
fn stripe() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static MINE: usize = NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES;
    }
    MINE.with(|mine| *mine)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open() -> Arc<Admission> {
        let admission = Admission::closed(ShardId(1), Range::between(Point(0), Point(100)));
        admission.open(ViewId(3));
        admission
    }

    #[test]
    fn a_pass_counts_until_it_is_dropped() {
        let admission = open();
        let pass = admission.enter(ViewId(3), Point(7)).unwrap();
        assert_eq!((admission.inside(), pass.shard()), (1, ShardId(1)));
        drop(pass);
        assert_eq!(admission.inside(), 0);
    }

    #[test]
    fn nobody_enters_a_closed_gated_or_differently_viewed_shard_nor_stays_counted() {
        let admission = open();
        assert!(matches!(
            admission.enter(ViewId(2), Point(7)),
            Err(Error::ViewStale { view: ViewId(3), .. })
        ));
        assert!(matches!(admission.enter(ViewId(3), Point(101)), Err(Error::WrongShard { .. })));
        admission.set_gated(true);
        assert!(matches!(admission.enter(ViewId(3), Point(7)), Err(Error::Gated { .. })));
        admission.set_gated(false);
        assert!(admission.enter(ViewId(3), Point(7)).is_ok());
        admission.close();
        assert!(matches!(admission.enter(ViewId(3), Point(7)), Err(Error::NotServing { .. })));
        assert_eq!(admission.inside(), 0);
    }

    #[test]
    fn a_drain_misses_nobody_who_got_in() {
        let admission = open();
        let entered = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    let admission = admission.clone();
                    scope.spawn(move || {
                        let mut passes = Vec::new();
                        for _ in 0..10_000 {
                            passes.extend(admission.enter(ViewId(3), Point(7)).ok());
                        }
                        passes
                    })
                })
                .collect();
            admission.close();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        assert_eq!(admission.inside(), entered.len());
    }
}
