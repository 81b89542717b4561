//! Entering against draining under every interleaving: cases 30 and 31. Run with the feature `loom`.

use std::{sync::Arc, time::Duration};

use loom::{
    future::block_on,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};
use model::{
    id::{Epoch, Point, ShardId, ViewId},
    time::{Clock, Timestamp},
};

use crate::{
    gate::{RangeMap, Release},
    ring::Range,
    sync::model::{strengthen, weaken},
    view::Horizon,
};

use super::*;

struct Still;

impl Clock for Still {
    fn wall(&self) -> Timestamp {
        Timestamp::from_micros(0).unwrap()
    }

    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }
}

fn shard() -> Arc<Admission> {
    let parts = Parts {
        horizon: Horizon::fixed(ViewId(1)),
        gates: RangeMap::new(),
        parking: Parking::new(Bounds::UNIT, Lot::new(Bounds::NODE)),
        clock: Arc::new(Still),
    };
    let admission = Admission::closed(ShardId(1), Range::Full, parts);
    admission.open(Epoch(1));
    admission
}

fn request(view: u64) -> Request<Range> {
    let key = Range::point(Point(7));
    Request { view: ViewId(view), key, effect: Effect::Uses, bytes: 0 }
}

/// The installer's side: gate, view, drain, state taken, closed, gate ended and taken out.
fn release(admission: &Admission, taken: &AtomicBool) {
    let release = Release::of_nothing(ViewId(2), Some(ViewId(1)));
    admission.gates().register(Range::Full, &release).unwrap();
    admission.horizon.raise(ViewId(2));
    block_on(admission.drain());
    taken.store(true, Ordering::Release);
    release.drained().unwrap();
    admission.close();
    release.complete().unwrap();
    admission.gates().prune();
}

/// A request that gets in must not meet the state taken, neither when it comes in nor before it leaves.
fn touch(admission: &Arc<Admission>, view: u64, taken: &AtomicBool) {
    if let Ok(pass) = admission.try_enter(&request(view)) {
        assert!(!taken.load(Ordering::Acquire), "admitted: a request met what was taken out");
        thread::yield_now();
        assert!(!taken.load(Ordering::Acquire), "drained: a request met what was taken out");
        drop(pass);
    }
}

fn a_drain_against_requests(requests: u64, preemptions: usize) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(move || {
        let admission = shard();
        let taken = Arc::new(AtomicBool::new(false));
        let threads: Vec<_> = (0..requests)
            .map(|_| {
                let (admission, taken) = (admission.clone(), taken.clone());
                thread::spawn(move || touch(&admission, 1, &taken))
            })
            .collect();
        release(&admission, &taken);
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(admission.inside(), 0);
    });
}

#[test]
fn loom_case_30_a_drain_never_ends_while_an_admitted_request_is_inside() {
    strengthen();
    a_drain_against_requests(1, 3);
    a_drain_against_requests(2, 2);
}

#[test]
#[should_panic(expected = "what was taken out")]
fn loom_case_31_without_the_order_on_both_sides_the_same_model_fails() {
    weaken();
    a_drain_against_requests(1, 3);
}

/// Two drains one after the other: a request that was counted in the bank of long ago is waited for all the same.
#[test]
fn loom_case_30_a_second_drain_misses_nobody_whom_the_first_left_in_the_other_bank() {
    strengthen();
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        let admission = shard();
        let taken = Arc::new(AtomicBool::new(false));
        let thread = thread::spawn({
            let (admission, taken) = (admission.clone(), taken.clone());
            move || touch(&admission, 1, &taken)
        });
        // Drains something else first: the banks are turned.
        block_on(admission.drain());
        release(&admission, &taken);
        thread.join().unwrap();
    });
}
