//! A log that is written by another thread than its own.

use std::sync::{Arc, mpsc};

use super::super::files::sim::Sim;
use super::super::{Callback, Error, Log, Options};
use super::support::*;

/// A callback that tells which thread it runs on.
fn whereabouts() -> (Callback, mpsc::Receiver<String>) {
    let (sender, receiver) = mpsc::channel();
    let callback = move |result: Result<(), Error>| {
        let thread = std::thread::current().name().unwrap_or_default().to_owned();
        let told = result.map_or_else(|error| error.to_string(), |()| thread);
        drop(sender.send(told));
    };
    (Box::new(callback), receiver)
}

fn written_by(log: &Log, index: u64, bytes: usize) -> String {
    let (callback, receiver) = whereabouts();
    log.append(G, entries(index..index + 1, bytes), callback).expect("it is taken");
    receiver.recv().expect("every callback runs")
}

/// Appends until the driver has written one: while the log's own thread is about to leave, it may write one more. Answers the
/// next index.
fn until_driven(log: &Log, from: u64) -> u64 {
    let by_driver = (from..from + 10_000).find(|index| written_by(log, *index, 100) == "driver");
    by_driver.expect("the driver writes at last") + 1
}

fn roomy() -> Options {
    Options { segment_bytes: 4 << 20, first_segment_bytes: 4 << 20, batch_bytes_max: 4 << 20, ..options() }
}

#[test]
fn what_is_little_is_written_by_the_driver_and_the_rest_by_the_logs_own_thread() {
    let (log, _) = try_open(&Sim::new(), roomy()).unwrap();
    create(&log, G);
    assert_eq!(written_by(&log, 0, 100), "log writer");
    let driver = Driver::start(&log);
    let next = until_driven(&log, 1);
    assert_eq!(written_by(&log, next, 300 << 10), "log writer");
    let next = until_driven(&log, next + 1);
    drop(driver);
    assert_eq!(written_by(&log, next, 100), "log writer");
    assert_eq!(log.synced_index(G).unwrap(), Some(next));
}

#[test]
fn a_driven_log_goes_from_segment_to_segment() {
    let sim = Sim::new();
    let (log, _) = open(&sim);
    create(&log, G);
    let driver = Driver::start(&log);
    let mut next = until_driven(&log, 0);
    // With a committed id each, which goes with the next batch: that one may be what does not fit any more.
    for index in next..next + 60 {
        log.save_committed(G, id(index - 1)).unwrap();
        let (callback, receiver) = whereabouts();
        log.append(G, entries(index..index + 1, 100), callback).unwrap();
        receiver.recv().expect("every callback runs");
    }
    next = until_driven(&log, next + 60);
    assert!(log.stats().segments > 1);
    drop(driver);
    log.close();
    let (log, _) = open(&sim);
    assert_eq!(log.entries(G, 0..next).unwrap(), entries(0..next, 100));
}

#[test]
fn a_driver_that_never_comes_is_given_up() {
    let (log, _) = open(&Sim::new());
    create(&log, G);
    log.set_driver(Some(Arc::new(|| {})));
    let (callback, receiver) = answer();
    log.append(G, entries(0..1, 10), callback).unwrap();
    assert_eq!(log.synced_index(G).unwrap(), None, "nobody was there to write it");
    log.set_driver(None);
    heard(&receiver).unwrap();
    // And closing does not wait for one.
    log.set_driver(Some(Arc::new(|| {})));
    let (callback, receiver) = answer();
    log.append(G, entries(1..2, 10), callback).unwrap();
    log.close();
    heard(&receiver).unwrap();
}

#[test]
fn a_driver_that_waits_for_room_in_the_queue_is_helped() {
    let (log, _) = try_open(&Sim::new(), Options { queue_bytes_max: 4 << 10, ..roomy() }).unwrap();
    create(&log, G);
    // This thread is the driver, and appends without ever driving.
    log.set_driver(Some(Arc::new(|| {})));
    let waiting: Vec<_> = (0..50)
        .map(|index| {
            let (callback, receiver) = answer();
            log.append(G, entries(index..index + 1, 1_000), callback).unwrap();
            receiver
        })
        .collect();
    log.drive();
    for receiver in &waiting {
        heard(receiver).unwrap();
    }
}

#[test]
fn a_callback_on_the_drivers_thread_may_close_the_log() {
    let sim = Sim::new();
    let (log, _) = open(&sim);
    create(&log, G);
    let driver = Driver::start(&log);
    let closing = log.clone();
    let (told, receiver) = answer();
    let callback = Box::new(move |result| {
        closing.close();
        told(result);
    });
    log.append(G, entries(0..1, 10), callback).unwrap();
    heard(&receiver).unwrap();
    drop(driver);
    drop(log);
    eventually("the lock", || try_open(&sim, options()).is_ok());
}

#[test]
fn a_failed_sync_of_the_driver_ends_the_log() {
    use super::super::files::sim::{Fault, Op};
    let sim = Sim::new();
    let (options, fatal) = counting(options());
    let (log, _) = try_open(&sim, options).unwrap();
    create(&log, G);
    quiet(&log);
    let driver = Driver::start(&log);
    sim.plan(Some(Op::Sync), 1, Fault::Fails(std::io::ErrorKind::Other));
    let refused = try_durable(|callback| log.append(G, entries(0..1, 10), callback));
    assert!(matches!(refused, Err(Error::Failed(_))), "{refused:?}");
    assert_eq!(fatal.load(std::sync::atomic::Ordering::SeqCst), 1);
    let later = log.append(G, entries(1..2, 10), answer().0);
    assert!(matches!(later, Err(Error::Failed(_))), "{later:?}");
    drop(driver);
}
