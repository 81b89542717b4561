//! Case 11: a disk without room, and the low water above its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;

use super::super::files::sim::Sim;
use super::super::{Error, LowWater, Options, Use};
use super::support::*;

const LOW_WATER: u64 = 4 << 20;
const FREES_LOW_WATER: u64 = 2 << 20;

/// A disk of which a test says what is free.
fn low_water(available: &Arc<AtomicU64>) -> LowWater {
    let seen = available.clone();
    LowWater {
        bytes_min: LOW_WATER,
        frees_bytes_min: FREES_LOW_WATER,
        available: Arc::new(move || Ok(seen.load(Ordering::SeqCst))),
    }
}

fn with(low_water: LowWater) -> Options {
    Options { low_water: Some(low_water), ..options() }
}

#[test]
fn case_11_a_full_disk_makes_the_log_read_only_before_it_is_full_and_space_heals_it() {
    let sim = Sim::new();
    sim.set_bytes_max(Some(50 << 10));
    let (log, _) = open(&sim);
    create(&log, G);
    let mut index = 0;
    let refused = loop {
        match try_durable(|callback| log.append(G, entries(index..index + 1, 500), callback)) {
            Ok(()) => index += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, Error::StorageFull), "{refused}");
    assert!(log.is_read_only() && log.check_open().is_ok());
    // Reads, votes and what frees space go on from the room that was made ahead.
    assert_eq!(log.entries(G, 0..index).unwrap(), entries(0..index, 500));
    durable(|callback| log.append_reserved(G, entries(index..index + 1, 100), callback));
    durable(|callback| log.save_vote(G, Bytes::from_static(b"vote"), callback));
    durable(|callback| log.purge_upto(G, id(index - 3), callback));
    // Freed segments are used again, without any new space.
    eventually("room in freed segments", || !log.is_read_only());
    append(&log, G, index + 1..index + 2, 500);
    log.close();
    let (after, _) = open(&sim);
    assert_eq!(after.state(G).unwrap().last, Some(id(index + 1)));
}

#[test]
fn case_11_space_that_comes_back_is_noticed_without_a_restart() {
    let sim = Sim::new();
    let (log, _) = open(&sim);
    create(&log, G);
    eventually("a segment ahead", || log.stats().ready_segments == 1);
    sim.set_bytes_max(Some(sim.bytes_used()));
    let mut index = 0;
    while !log.is_read_only() {
        if try_durable(|callback| log.append(G, entries(index..index + 1, 500), callback)).is_ok() {
            index += 1;
        }
    }
    sim.set_bytes_max(None);
    eventually("space", || !log.is_read_only());
    append(&log, G, index..index + 40, 500);
}

#[test]
fn case_11_below_the_low_water_new_entries_are_refused() {
    let available = Arc::new(AtomicU64::new(u64::MAX));
    let sim = Sim::new();
    let (log, _) = try_open(&sim, with(low_water(&available))).unwrap();
    create(&log, G);
    quiet(&log);
    append(&log, G, 0..1, 10);
    available.store(LOW_WATER - 1, Ordering::SeqCst);
    eventually("low water", || log.is_read_only());
    assert!(matches!(log.append(G, entries(1..2, 10), answer().0), Err(Error::StorageFull)));
    available.store(LOW_WATER, Ordering::SeqCst);
    eventually("high water", || !log.is_read_only());
    append(&log, G, 1..2, 10);
}

#[test]
fn case_11_a_burst_meets_the_low_water_before_the_keeper_looks() {
    let available = Arc::new(AtomicU64::new(u64::MAX));
    let sim = Sim::new();
    // The keeper looks in an hour.
    let patient = Options { retry_after: Duration::from_secs(3600), ..with(low_water(&available)) };
    let (log, _) = try_open(&sim, patient).unwrap();
    create(&log, G);
    quiet(&log);
    let others = log.admit(1, Use::Common).unwrap();
    available.store(LOW_WATER - 1, Ordering::SeqCst);
    let admitted: Vec<_> = (0..1_000).map_while(|_| log.admit(1 << 10, Use::Common).ok()).collect();
    assert!(admitted.len() <= 64, "{} KiB came in", admitted.len());
    assert!(log.is_read_only());
    assert!(!admitted.is_empty(), "it is looked at now and then");
    drop((others, admitted));
    assert!(matches!(log.admit(1, Use::Common), Err(Error::StorageFull)));
    // What makes room goes on, down to a mark of its own and as far as the segments reach that are there.
    let frees = log.admit(100, Use::Reserve).unwrap();
    assert!(matches!(log.admit(1 << 20, Use::Reserve), Err(Error::StorageFull)));
    available.store(FREES_LOW_WATER - 1, Ordering::SeqCst);
    assert!(matches!(log.admit(100, Use::Reserve), Err(Error::StorageFull)));
    drop(frees);
}

#[test]
fn case_11_what_is_in_flight_counts_as_written() {
    let available = Arc::new(AtomicU64::new(LOW_WATER + (1 << 20)));
    let sim = Sim::new();
    let (log, _) = try_open(&sim, with(low_water(&available))).unwrap();
    create(&log, G);
    let admitted: Vec<_> = (0..1_000).map_while(|_| log.admit(10 << 10, Use::Common).ok()).collect();
    assert!(admitted.len() <= 60, "{} of 10 KiB came in", admitted.len());
    drop(admitted);
    eventually("room", || log.admit(10 << 10, Use::Common).is_ok());
}

#[test]
fn case_11_below_the_low_water_a_segment_is_made_only_for_what_was_let_in() {
    let available = Arc::new(AtomicU64::new(u64::MAX));
    let looks = Arc::new(AtomicU64::new(0));
    let (seen, look) = (available.clone(), looks.clone());
    let counted: Arc<dyn Fn() -> std::io::Result<u64> + Send + Sync> = Arc::new(move || {
        look.fetch_add(1, Ordering::SeqCst);
        Ok(seen.load(Ordering::SeqCst))
    });
    let sim = Sim::new();
    let low_water = LowWater { available: counted, ..low_water(&available) };
    let (log, _) = try_open(&sim, with(low_water)).unwrap();
    create(&log, G);
    quiet(&log);
    let admitted = log.admit(100 << 10, Use::Common).unwrap();
    available.store(LOW_WATER - 1, Ordering::SeqCst);
    eventually("low water", || log.is_read_only());
    for index in 0..90 {
        let more = entries(index..index + 1, 1_000);
        durable(|callback| log.append_reserved(G, more, callback));
    }
    drop(admitted);
    assert!(log.stats().segments > 5);
    // Now nobody needs another one: there is at most the one that was ready.
    let segments = log.stats().segments;
    let mut index = 90;
    while let Ok(admitted) = log.admit(1_100, Use::Reserve) {
        let more = entries(index..index + 1, 1_000);
        durable(|callback| log.append_reserved(G, more, callback));
        drop(admitted);
        index += 1;
        assert!(index < 200, "a full log takes what it is given");
    }
    // However often the keeper looks again.
    let before = looks.load(Ordering::SeqCst);
    eventually("looks", || looks.load(Ordering::SeqCst) > before + 20);
    assert_eq!(log.stats().ready_segments, 0);
    assert!(log.stats().segments <= segments + 1, "{} after {segments}", log.stats().segments);
}

/// Somebody else takes the room that was promised.
#[test]
fn case_11_what_was_let_in_waits_for_room_that_is_gone() {
    let sim = Sim::new();
    let (log, _) = open(&sim);
    create(&log, G);
    quiet(&log);
    let admitted = log.admit(100 << 10, Use::Common).unwrap();
    sim.set_bytes_max(Some(sim.bytes_used()));
    let append_one = |index: u64| {
        let (callback, answered) = answer();
        log.append_reserved(G, entries(index..index + 1, 1_000), callback).unwrap();
        answered
    };
    let waiting: Vec<_> = (0..100).map(append_one).collect();
    eventually("a full disk", || log.is_read_only());
    log.check_open().unwrap();
    sim.set_bytes_max(None);
    for answered in &waiting {
        heard(answered).unwrap();
    }
    drop(admitted);
    eventually("space", || !log.is_read_only());
    append(&log, G, 100..110, 500);
}
