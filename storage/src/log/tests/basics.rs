//! What the log does when nothing goes wrong, on real files.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use bytes::Bytes;

use super::super::files::sim::Sim;
use super::super::{Error, GroupId, GroupInit, Log, Options, Priority, Recovered};
use super::model;
use super::support::*;

fn open_at(path: &Path) -> (Log, Recovered) {
    Log::open(path, Options::default(), identity()).expect("the log opens")
}

#[test]
fn appended_entries_are_there_after_reopening() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    {
        let (log, recovered) = open_at(&path);
        assert!(recovered.created);
        create(&log, G);
        append(&log, G, 0..100, 50);
        assert_eq!(log.synced_index(G).unwrap(), Some(99));
        durable(|callback| log.save_vote(G, Bytes::from_static(b"vote"), callback));
    }
    let (log, recovered) = open_at(&path);
    assert!(recovered.sealed && !recovered.created && recovered.torn.is_none());
    assert_eq!(recovered.groups[&G].vote.as_deref(), Some(&b"vote"[..]));
    assert_eq!(log.state(G).unwrap().last, Some(id(99)));
    assert_eq!(log.entries(G, 0..1000).unwrap(), entries(0..100, 50));
}

#[test]
fn looking_at_a_log_changes_nothing_and_sees_what_opening_sees() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("not/there/yet");
    assert!(matches!(Log::inspect(&path, identity()), Err(Error::Missing)));
    assert!(!path.exists());
    let (log, _) = open_at(&path);
    create(&log, G);
    append(&log, G, 0..3, 10);
    assert!(matches!(Log::inspect(&path, identity()), Err(Error::Locked { .. })));
    log.close();
    let seen = Log::inspect(&path, identity()).unwrap();
    assert!(seen.sealed && seen.records > 4);
    assert_eq!(seen.groups[&G].last, Some(id(2)));
    assert_eq!(open_at(&path).1.groups, seen.groups);
}

#[test]
fn entries_can_be_read_before_they_are_durable() {
    let sim = Sim::new();
    let (log, _) = open(&sim);
    create(&log, G);
    append(&log, G, 0..2, 10);
    hold(&sim, &log);
    log.append(G, entries(2..5, 10), answer().0).unwrap();
    assert_eq!(log.entries(G, 0..9).unwrap(), entries(0..5, 10));
    assert_eq!(log.state(G).unwrap().last, Some(id(4)));
    assert_eq!(log.synced_index(G).unwrap(), Some(1));
    sim.release_syncs();
}

#[test]
fn a_byte_limit_gives_at_least_one_entry_and_no_more_than_needed() {
    for cache_bytes_max in [0, 1 << 20] {
        let (log, _) = try_open(&Sim::new(), Options { cache_bytes_max, ..options() }).unwrap();
        create(&log, G);
        append(&log, G, 0..10, 100);
        assert_eq!(log.entries_limited(G, 2..9, 1).unwrap(), entries(2..3, 100));
        assert_eq!(log.entries_limited(G, 2..9, 201).unwrap(), entries(2..5, 100));
        assert_eq!(log.entries_limited(G, 2..4, 9999).unwrap(), entries(2..4, 100));
        assert!(log.entries(G, 10..20).unwrap().is_empty());
        assert!(log.entries(G, 4..4).unwrap().is_empty());
    }
}

#[test]
fn one_sync_serves_all_groups_that_wait() {
    let sim = Sim::new();
    let (log, _) = open(&sim);
    for group in 0..4 {
        create(&log, GroupId(group));
    }
    hold(&sim, &log);
    log.append(GroupId(0), entries(0..1, 10), answer().0).unwrap();
    sim.wait_for_held_sync();
    let before = log.stats();
    let waiting: Vec<_> = (0..4)
        .map(|group| {
            let (callback, receiver) = answer();
            let first = u64::from(group == 0);
            log.append(GroupId(group), entries(first..first + 1, 10), callback).unwrap();
            receiver
        })
        .collect();
    assert!(log.stats().queue_bytes > 0);
    sim.release_syncs();
    waiting.iter().for_each(|receiver| heard(receiver).unwrap());
    let after = log.stats();
    assert_eq!(after.syncs - before.syncs, 2, "the held one, and one for all four");
    assert_eq!(after.group_syncs - before.group_syncs, 5);
    assert_eq!(after.appends - before.appends, 4);
}

#[test]
fn a_committed_id_rides_along_and_is_there_after_a_clean_stop() {
    let sim = Sim::new();
    let (log, _) = open(&sim);
    create(&log, G);
    append(&log, G, 0..5, 10);
    let syncs = log.stats().syncs;
    for index in 0..4 {
        log.save_committed(G, id(index)).unwrap();
    }
    assert_eq!(log.state(G).unwrap().committed, Some(id(3)));
    append(&log, G, 5..6, 10);
    assert_eq!(log.stats().syncs, syncs + 1);
    log.save_committed(G, id(5)).unwrap();
    log.close();
    assert_eq!(open(&sim).1.groups[&G].committed, Some(id(5)));
}

#[test]
fn a_group_begins_after_the_entry_its_state_includes_and_is_gone_when_dropped() {
    let sim = Sim::new();
    let (log, _) = open(&sim);
    let init = GroupInit {
        vote: Some(Bytes::from_static(b"v")),
        last: Some(id(41)),
        membership: Bytes::from_static(b"m"),
    };
    durable(|callback| log.create_group(H, init, callback));
    let state = log.state(H).unwrap();
    assert_eq!((state.last, state.last_purged, state.first_index), (Some(id(41)), Some(id(41)), 42));
    assert_eq!((state.vote.as_deref(), &state.membership[..]), (Some(&b"v"[..]), &b"m"[..]));
    append(&log, H, 42..45, 10);
    create(&log, G);
    durable(|callback| log.drop_group(H, callback));
    assert_eq!(log.groups(), [G]);
    assert_eq!(log.stats().cache_bytes, 0);
    create(&log, H);
    append(&log, H, 0..2, 10);
    log.close();
    let (log, _) = open(&sim);
    assert_eq!(log.entries(H, 0..9).unwrap(), entries(0..2, 10));
}

#[test]
fn a_snapshot_drops_what_it_covers_and_keeps_what_follows() {
    let sim = Sim::new();
    let (log, _) = open(&sim);
    create(&log, G);
    append(&log, G, 0..10, 10);
    durable(|callback| log.snapshot_installed(G, id(6), Bytes::from_static(b"generation 2"), callback));
    let check = |log: &Log| {
        let state = log.state(G).unwrap();
        assert_eq!(state.snapshot, Some((id(6), Bytes::from_static(b"generation 2"))));
        assert_eq!((state.last_purged, state.durable_applied), (Some(id(6)), Some(6)));
        assert_eq!(log.entries(G, 7..99).unwrap(), entries(7..10, 10));
    };
    check(&log);
    log.close();
    let (log, _) = open(&sim);
    check(&log);
    durable(|callback| log.snapshot_installed(G, id(50), Bytes::new(), callback));
    assert_eq!(log.state(G).unwrap().last, Some(id(50)));
    append(&log, G, 51..52, 10);
}

#[test]
fn the_cache_stays_within_its_bound_and_takes_from_the_largest_group() {
    let (log, _) = try_open(&Sim::new(), Options { cache_bytes_max: 8 << 10, ..options() }).unwrap();
    create(&log, G);
    create(&log, H);
    append(&log, H, 0..2, 100);
    for index in 0..40 {
        append(&log, G, index..index + 1, 500);
    }
    eventually("a small cache", || log.stats().cache_bytes <= 8 << 10);
    assert!(log.stats().cache_bytes > 4 << 10);
    assert_eq!(log.entries(G, 0..99).unwrap(), entries(0..40, 500));
    durable(|callback| log.purge_upto(G, id(39), callback));
    assert_eq!(log.stats().cache_bytes, 2 * (100 + 64), "the small group was left alone");
}

#[test]
fn many_threads_append_read_and_purge_while_others_do() {
    const GROUPS: u32 = 6;
    let directory = tempfile::tempdir().unwrap();
    let options = Options {
        segment_bytes: 128 << 10,
        first_segment_bytes: 16 << 10,
        cache_bytes_max: 20 << 10,
        priority: Priority::Auto,
        ..Options::default()
    };
    let (log, _) = Log::open(directory.path(), options.clone(), identity()).unwrap();
    std::thread::scope(|scope| {
        for group in (0..GROUPS).map(GroupId) {
            let log = log.clone();
            scope.spawn(move || {
                create(&log, group);
                let mut first = 0;
                for index in 0..300 {
                    append(&log, group, index * 3..index * 3 + 3, 100 + group.0 as usize);
                    if index % 25 == 24 {
                        first = index * 3 - 20;
                        durable(|callback| log.purge_upto(group, id(first - 1), callback));
                    }
                    if index % 20 == 0 {
                        let end = index * 3 + 3;
                        let found = log.entries(group, first..end).unwrap();
                        assert_eq!(found, entries(first..end, 100 + group.0 as usize));
                    }
                }
            });
        }
    });
    let state = model::read(&log);
    assert_eq!(state.len(), GROUPS as usize);
    let stats = log.stats();
    assert!(stats.recycled > 0 && stats.syncs < stats.entries / 3, "{stats:?}");
    drop(log);
    let (log, recovered) = Log::open(directory.path(), options, identity()).unwrap();
    assert!(recovered.sealed);
    assert_eq!(model::read(&log), state);
}

#[test]
fn the_last_handle_may_be_dropped_by_a_callback() {
    let sim = Sim::new();
    let (log, _) = open(&sim);
    create(&log, G);
    let holder = Arc::new(Mutex::new(Some(log.clone())));
    let (told, receiver) = answer();
    let callback = Box::new(move |result| {
        drop(holder.lock().unwrap().take());
        told(result);
    });
    log.append(G, entries(0..1, 10), callback).unwrap();
    drop(log);
    heard(&receiver).unwrap();
    eventually("the lock", || try_open(&sim, options()).is_ok());
}

#[test]
fn a_log_that_began_above_0_can_be_told_what_came_before() {
    let sim = Sim::new();
    let (log, _) = open(&sim);
    create(&log, G);
    append(&log, G, 5..7, 10);
    assert_eq!(log.state(G).unwrap().last_purged, None);
    durable(|callback| log.purge_upto(G, id(4), callback));
    let check = |log: &Log| {
        let state = log.state(G).unwrap();
        assert_eq!((state.last_purged, state.first_index, state.last), (Some(id(4)), 5, Some(id(6))));
        assert_eq!(log.entries(G, 5..9).unwrap(), entries(5..7, 10));
    };
    check(&log);
    log.close();
    check(&open(&sim).0);
}

#[test]
fn an_empty_change_is_answered_too() {
    let (log, _) = open(&Sim::new());
    create(&log, G);
    append(&log, G, 0..3, 10);
    durable(|callback| log.truncate_after(G, Some(id(7)), callback));
    durable(|callback| log.append(G, Vec::new(), callback));
    durable(|callback| log.purge_upto(G, id(1), callback));
    durable(|callback| log.purge_upto(G, id(0), callback));
    durable(|callback| log.checkpoint(&BTreeMap::new(), callback));
    assert_eq!(log.entries(G, 2..9).unwrap(), entries(2..3, 10));
}

#[test]
fn the_bench_leaves_nothing_behind() {
    use super::super::bench::{Settings, run};
    let directory = tempfile::tempdir().unwrap();
    let slice = std::time::Duration::from_millis(5);
    let report = run(directory.path(), &Settings { turns: 1, slice, ..Settings::default() }).unwrap();
    assert!(report.entries_per_sec > 0.0 && report.syncs_to_zeroed > 0.0, "{report}");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}
