//! Threads that write themselves what they append.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::super::files::sim::{Loss, Sim};
use super::super::{Callback, Options};
use super::support::*;

/// A callback that notes whether it ran on the thread that made it.
fn note_here(here: &Arc<AtomicBool>) -> Callback {
    let (here, me) = (here.clone(), thread::current().id());
    Box::new(move |result| {
        result.expect("durable");
        here.fetch_or(thread::current().id() == me, Ordering::SeqCst);
    })
}

#[test]
fn a_lender_writes_what_it_appends() {
    let sim = Sim::new();
    let (log, _) = open(&sim);
    create(&log, G);
    let lender = log.lender();
    lender.write();
    let here = Arc::new(AtomicBool::new(false));
    let mut index = 0;
    // The log's own thread does it if it happens to be awake.
    while !here.load(Ordering::SeqCst) {
        log.append(G, entries(index..index + 1, 10), note_here(&here)).unwrap();
        lender.write();
        index += 1;
    }
    eventually("the last entry", || log.synced_index(G).unwrap() == Some(index - 1));
    let (again, _) = open(&sim.image(Loss::Everything, 0));
    assert_eq!(again.entries(G, 0..index).unwrap(), entries(0..index, 10));
}

#[test]
fn much_is_written_though_the_lender_does_not_sleep() {
    let (log, _) = open(&Sim::new());
    create(&log, G);
    let lender = log.lender();
    lender.write();
    let answers: Vec<_> = (0..500)
        .map(|index| {
            let (callback, heard) = answer();
            log.append(G, entries(index..index + 1, 10), callback).unwrap();
            heard
        })
        .collect();
    for early in &answers[..400] {
        heard(early).unwrap();
    }
    lender.write();
    for late in &answers[400..] {
        heard(late).unwrap();
    }
}

#[test]
fn what_needs_another_segment_is_left_to_the_log() {
    let sim = Sim::new();
    let (log, _) = open(&sim);
    create(&log, G);
    let lender = log.lender();
    lender.write();
    for index in 0..300 {
        let (callback, durable) = answer();
        log.append(G, entries(index..index + 1, 500), callback).unwrap();
        lender.write();
        heard(&durable).unwrap();
    }
    assert!(log.stats().segments > 3);
    log.close();
    assert_eq!(open(&sim).0.entries(G, 0..300).unwrap(), entries(0..300, 500));
}

#[test]
fn a_log_that_a_lender_wrote_is_sealed_when_idle_and_closes_with_what_was_lent() {
    let sim = Sim::new();
    let options = Options { seal_after: Duration::from_millis(1), ..options() };
    let (log, _) = try_open(&sim, options.clone()).unwrap();
    create(&log, G);
    let sealed = || try_open(&sim.image(Loss::Everything, 0), options.clone()).unwrap().1.sealed;
    eventually("a first seal", sealed);
    let lender = log.lender();
    lender.write();
    let (callback, durable) = answer();
    log.append(G, entries(0..1, 10), callback).unwrap();
    lender.write();
    heard(&durable).unwrap();
    eventually("another seal", sealed);
    log.append(G, entries(1..2, 10), answer().0).unwrap();
    log.close();
    assert_eq!(try_open(&sim, options).unwrap().0.entries(G, 0..9).unwrap(), entries(0..2, 10));
}

#[test]
fn a_failed_sync_of_a_lender_ends_the_log() {
    let sim = Sim::new();
    let (options, fatal) = counting(options());
    let (log, _) = try_open(&sim, options).unwrap();
    create(&log, G);
    quiet(&log);
    let lender = log.lender();
    lender.write();
    sim.cut_power();
    let (callback, durable) = answer();
    log.append(G, entries(0..1, 10), callback).unwrap();
    lender.write();
    assert!(heard(&durable).is_err());
    assert_eq!(fatal.load(Ordering::SeqCst), 1);
    assert!(log.check_open().is_err());
}
