//! Gates and their maps under every interleaving: cases 11–13 and 21. Run with the feature `loom`.

use std::{
    pin::pin,
    sync::Arc,
    task::{Context, Wake, Waker},
};

use loom::{
    future::block_on,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
};
use model::id::{Point, ViewId};

use crate::ring::Range;

use super::*;

#[derive(Debug, thiserror::Error)]
#[error("broken")]
struct Broken;

fn name(ended: &Ended) -> &'static str {
    match ended {
        Ended::Completed => "completed",
        Ended::Superseded(_) => "superseded",
        Ended::Failed(_) => "failed",
        Ended::Aborted => "aborted",
    }
}

#[test]
fn loom_case_11_racing_ends_leave_one_status_and_one_completion() {
    // Four threads: all interleavings with up to two preemptions, which is where such mistakes are found.
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        let driver = Arc::new(Acquisition::new(ViewId(2), Some(ViewId(1))));
        driver.state_installed().unwrap();
        let gate = driver.gate();
        let completer = thread::spawn({
            let driver = driver.clone();
            move || {
                let fenced = driver.fenced();
                (fenced.is_ok(), driver.complete().is_ok())
            }
        });
        let failer = thread::spawn({
            let driver = driver.clone();
            move || driver.fail(Arc::new(Broken))
        });
        let early = thread::spawn({
            let gate = gate.clone();
            move || name(&block_on(gate.completion()))
        });
        driver.abort();
        let (fenced, completed) = completer.join().unwrap();
        let failed = failer.join().unwrap();
        let (early, late) = (early.join().unwrap(), name(&gate.completion().now().unwrap()));
        assert_eq!(early, late);
        assert!(!completed || fenced);
        assert!(!(completed && failed), "two ends");
        let expected = match (completed, failed) {
            (true, _) => ("completed", Status::Completed),
            // Failed first, aborted after: the error stays.
            (_, true) => ("failed", Status::Aborted),
            (false, false) => ("aborted", Status::Aborted),
        };
        assert_eq!((late, driver.status()), expected);
        assert!(!gate.is_blocking());
    });
}

#[test]
fn loom_case_12_no_wake_up_is_lost_between_looking_and_waiting() {
    loom::model(|| {
        let driver = Barrier::new(ViewId(1));
        let gate = driver.gate();
        let waiters: Vec<_> = (0..2)
            .map(|_| {
                let gate = gate.clone();
                thread::spawn(move || name(&block_on(gate.completion())))
            })
            .collect();
        driver.complete().unwrap();
        for waiter in waiters {
            assert_eq!(waiter.join().unwrap(), "completed");
        }
    });
}

/// Looks into the map and tidies it when it is woken, on the stack of whoever ended the gate.
struct Reenters {
    map: Arc<RangeMap>,
    gate: Gate,
    seen: AtomicUsize,
}

impl Wake for Reenters {
    fn wake(self: Arc<Self>) {
        assert!(self.map.find_blocking(&Range::Full, ViewId(1)).is_none());
        self.map.prune();
        assert!(self.gate.completion().now().is_some());
        self.seen.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn loom_case_13_a_continuation_may_enter_map_and_gate() {
    loom::model(|| {
        let map = RangeMap::new();
        let driver = Barrier::new(ViewId(1));
        map.register(Range::Full, &driver).unwrap();
        let gate = driver.gate();
        let waker = Arc::new(Reenters { map: map.clone(), gate: gate.clone(), seen: AtomicUsize::new(0) });
        let mut completion = pin!(gate.completion());
        let raw = Waker::from(waker.clone());
        assert!(completion.as_mut().poll(&mut Context::from_waker(&raw)).is_pending());
        let ender = thread::spawn(move || driver.complete().unwrap());
        let looker = map.find_blocking(&Range::Full, ViewId(1));
        drop(looker);
        ender.join().unwrap();
        assert_eq!(waker.seen.load(Ordering::SeqCst), 1);
        assert!(map.is_empty());
    });
}

#[test]
fn loom_case_21_a_gate_registered_before_is_never_missed() {
    loom::model(|| {
        let map = RangeMap::new();
        let at = |point| Range::point(Point(point));
        let (ended, before) = (Barrier::new(ViewId(1)), Barrier::new(ViewId(1)));
        map.register(at(1), &ended).unwrap();
        map.register(at(2), &before).unwrap();
        let registered = Arc::new(AtomicBool::new(false));
        let registrar = thread::spawn({
            let (map, registered) = (map.clone(), registered.clone());
            move || {
                let late = Barrier::new(ViewId(1));
                map.register(at(3), &late).unwrap();
                registered.store(true, Ordering::Release);
                late
            }
        });
        let pruner = thread::spawn({
            let map = map.clone();
            move || {
                ended.complete().unwrap();
                map.prune();
            }
        });
        assert!(map.find_blocking(&at(2), ViewId(1)).is_some(), "missed what was always there");
        if registered.load(Ordering::Acquire) {
            assert!(map.find_blocking(&at(3), ViewId(1)).is_some(), "missed what was registered before");
        }
        let late = registrar.join().unwrap();
        pruner.join().unwrap();
        assert_eq!(map.len(), 2);
        drop((late, before));
    });
}
