//! Getting in at once: case 23, counting, draining, and the seam that the owner uses.

use std::{
    pin::pin,
    task::{Context, Poll, Waker},
    thread,
};

use crate::{
    Error,
    gate::{Barrier, Release},
    sync::count::locks,
};

use super::*;

#[test]
fn case_23_in_the_steady_state_entering_allocates_nothing_locks_nothing_and_wakes_nobody() {
    let bed = Bed::open();
    let request = request(1);
    // The first time a thread comes it gets its stripe.
    drop(bed.admission.try_enter(&request).unwrap());
    let wakes = Arc::new(Wakes::default());
    let waker = Waker::from(wakes.clone());
    let mut context = Context::from_waker(&waker);
    let before = locks();
    let counted = allocation_counter::measure(|| {
        for _ in 0..1_000 {
            let mut entering = pin!(bed.admission.enter_by(&request, &bed.views, std::future::pending()));
            match entering.as_mut().poll(&mut context) {
                Poll::Ready(Ok(pass)) => assert_eq!((pass.view(), pass.epoch()), (ViewId(1), Epoch(1))),
                Poll::Ready(Err(_)) | Poll::Pending => panic!("not in at the first poll"),
            }
            assert!(bed.admission.enter(ViewId(1), Point(7)).is_ok());
        }
    });
    assert_eq!(counted.count_total, 0, "allocations");
    assert_eq!(locks() - before, 0, "locks");
    assert_eq!(wakes.0.load(Ordering::SeqCst), 0, "wake-ups");
    assert_eq!((bed.admission.inside(), bed.parked()), (0, (0, 0)));
}

#[test]
fn a_pass_counts_until_it_is_dropped() {
    let bed = Bed::open();
    let pass = bed.admission.enter(ViewId(1), Point(7)).unwrap();
    assert_eq!((bed.admission.inside(), pass.shard(), pass.view()), (1, SHARD, ViewId(1)));
    drop(pass);
    assert_eq!(bed.admission.inside(), 0);
}

#[test]
fn nobody_enters_what_is_closed_gated_or_seen_too_late_nor_stays_counted() {
    let bed = Bed::open();
    let enter = |view, point| bed.admission.enter(ViewId(view), Point(point));
    assert!(matches!(enter(2, 7), Err(Error::ViewStale { view: ViewId(1), .. })));
    assert!(matches!(enter(1, u32::MAX), Err(Error::WrongShard { .. })));
    assert!(enter(0, 7).is_ok(), "an older view is judged under the newer one");
    let barrier = Barrier::new(ViewId(1));
    bed.gates.register(Range::point(Point(7)), &barrier).unwrap();
    assert!(matches!(enter(1, 7), Err(Error::Gated { .. })));
    assert!(matches!(bed.admission.enter_shard(ViewId(1)), Err(Error::Gated { .. })));
    assert!(enter(1, 8).is_ok(), "the gate is over another point");
    barrier.complete().unwrap();
    bed.gates.prune();
    assert!(enter(1, 7).is_ok());
    bed.admission.close();
    assert!(!bed.admission.is_open());
    assert!(matches!(enter(1, 7), Err(Error::NotServing { .. })));
    assert_eq!(bed.admission.inside(), 0);
}

#[test]
fn a_pass_tells_whether_it_would_be_given_again() {
    let key = Range::point(Point(7));
    let bed = Bed::open();
    let enter = || bed.admission.enter(bed.admission.view(), Point(7)).unwrap();
    let pass = enter();
    assert!(pass.still_holds(&key));
    bed.install(view(2, ME));
    assert!(!pass.still_holds(&key), "another view");
    let pass = enter();
    let barrier = Barrier::new(ViewId(2));
    bed.gates.register(key, &barrier).unwrap();
    assert!(!pass.still_holds(&key), "a gate");
    assert!(pass.still_holds(&Range::point(Point(9))));
    barrier.abort();
    assert!(pass.still_holds(&key));
    bed.admission.open(Epoch(2));
    assert!(!pass.still_holds(&key), "another epoch");
}

#[test]
fn a_drain_of_a_part_ends_while_the_rest_is_busy() {
    let bed = Bed::open();
    let enter = |point| bed.admission.enter(ViewId(1), Point(point)).unwrap();
    let (mut busy, gated) = (enter(1), enter(100));
    let release = Release::of_nothing(ViewId(1), None);
    bed.gates.register(Range::between(Point(99), Point(200)), &release).unwrap();
    let mut drain = pin!(bed.admission.drain());
    let mut context = Context::from_waker(Waker::noop());
    assert!(drain.as_mut().poll(&mut context).is_pending());
    // The rest of the shard is never empty; each in it takes the next one's place.
    busy = {
        let next = enter(2);
        drop(busy);
        next
    };
    assert!(drain.as_mut().poll(&mut context).is_pending(), "one of the drained part is inside");
    drop(gated);
    assert!(drain.as_mut().poll(&mut context).is_ready());
    assert!(bed.admission.enter(ViewId(1), Point(100)).is_err());
    assert_eq!(bed.admission.inside(), 1);
    drop(busy);
}

#[test]
fn a_drain_is_woken_by_the_last_who_leaves_and_a_dropped_one_by_nobody() {
    let bed = Bed::open();
    let enter = |point| bed.admission.enter(ViewId(1), Point(point)).unwrap();
    let passes = [enter(1), enter(2), enter(3)];
    let wakes = Arc::new(Wakes::default());
    let waker = Waker::from(wakes.clone());
    let mut context = Context::from_waker(&waker);
    {
        let mut given_up = pin!(bed.admission.drain());
        assert!(given_up.as_mut().poll(&mut context).is_pending());
    }
    let mut drain = pin!(bed.admission.drain());
    assert!(drain.as_mut().poll(&mut context).is_pending());
    for pass in passes {
        assert_eq!(wakes.0.load(Ordering::SeqCst), 0);
        drop(pass);
    }
    assert_eq!(wakes.0.load(Ordering::SeqCst), 1);
    assert!(drain.as_mut().poll(&mut context).is_ready());
    drop(enter(1));
    assert_eq!(wakes.0.load(Ordering::SeqCst), 1, "nobody waits any more");
}

#[test]
fn threads_that_come_and_go_are_all_counted() {
    let bed = Bed::open();
    let admission = &bed.admission;
    let kept = thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(move || {
                    let mut passes = Vec::new();
                    for number in 0..10_000 {
                        match admission.enter(ViewId(1), Point(7)) {
                            Ok(pass) if number % 2 == 0 => passes.push(pass),
                            Ok(_) | Err(_) => {}
                        }
                    }
                    passes
                })
            })
            .collect();
        admission.close();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    assert_eq!(admission.inside(), kept.len());
}
