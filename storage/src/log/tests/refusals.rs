//! Disks that refuse: an error at the n-th call, whatever it is, never makes an acknowledged entry untrue.

use std::io::ErrorKind;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::super::files::sim::{Fault, Loss, Op, Sim};
use super::super::{Error, GroupId, GroupInit, LogId};
use super::support::*;

/// Works until done or refused; returns how many entries were acknowledged.
fn work(sim: &Sim, options: super::super::Options) -> (u64, Option<Error>) {
    let (log, _) = match try_open(sim, options) {
        Ok(opened) => opened,
        Err(error) => return (0, Some(error)),
    };
    let mut acknowledged = 0;
    let run = || -> Result<(), Error> {
        try_durable(|callback| log.create_group(G, GroupInit::default(), callback))?;
        for index in 0..70 {
            loop {
                match try_durable(|callback| log.append(G, entries(index..index + 1, 700), callback)) {
                    Err(Error::StorageFull) => {
                        eventually("room or an end", || !log.is_read_only() || log.check_open().is_err())
                    }
                    other => break other?,
                }
            }
            acknowledged = index + 1;
            if index % 9 == 8 {
                try_durable(|callback| log.purge_upto(G, id(index - 4), callback))?;
            }
        }
        Ok(())
    };
    let mut run = run;
    let error = run().err();
    log.close();
    (acknowledged, error)
}

fn check(sim: &Sim, acknowledged: u64, what: &str) {
    for (seed, loss) in
        [Loss::Everything, Loss::Nothing, Loss::Subset { sector_bytes: 512 }].into_iter().enumerate()
    {
        let (after, recovered) = try_open(&sim.image(loss, seed as u64), options())
            .unwrap_or_else(|error| panic!("{what}, {loss:?}: {error}"));
        let Some(state) = recovered.groups.get(&G) else {
            assert_eq!(acknowledged, 0, "{what}, {loss:?}");
            continue;
        };
        let found = after.entries(G, state.first_index..99).unwrap();
        let end = state.first_index + found.len() as u64;
        assert!(end >= acknowledged && end <= acknowledged + 1, "{what}, {loss:?}: {acknowledged} of {end}");
        assert_eq!(found, entries(state.first_index..end, 700), "{what}, {loss:?}");
    }
}

#[test]
fn st05_an_io_error_at_the_nth_call_ends_the_log_and_loses_nothing() {
    let mut ended = 0;
    for nth in 1..=200 {
        let sim = Sim::new();
        sim.plan(None, nth, Fault::Fails(ErrorKind::Other));
        let (options, fatal) = counting(options());
        let (acknowledged, error) = work(&sim, options);
        if let Some(error) = error {
            ended += 1;
            let opened = sim.contents().keys().any(|name| name.ends_with(".log"));
            if matches!(error, Error::Failed(_)) {
                assert_eq!(fatal.load(Ordering::SeqCst), 1, "call {nth}: {error}");
            } else {
                assert!(acknowledged == 0, "call {nth}: {error} with {opened}");
            }
        }
        check(&sim, acknowledged, &format!("call {nth}"));
    }
    println!("{ended} of 200 errors met the log");
    assert!(ended > 80, "{ended}");
}

#[test]
fn an_io_error_at_the_nth_write_and_sync_is_never_acknowledged() {
    for op in [Op::Write, Op::Sync, Op::Rename, Op::SyncDir, Op::Create] {
        for nth in 1..=100 {
            let sim = Sim::new();
            sim.plan(Some(op), nth, Fault::Fails(ErrorKind::Other));
            let (acknowledged, _) = work(&sim, options());
            check(&sim, acknowledged, &format!("{op:?} {nth}"));
        }
    }
}

#[test]
fn a_full_disk_at_the_nth_call_is_survived_or_ends_the_log_but_loses_nothing() {
    let mut survived = 0;
    for nth in 1..=100 {
        let sim = Sim::new();
        sim.plan(None, nth, Fault::Fails(ErrorKind::StorageFull));
        let (acknowledged, error) = work(&sim, options());
        survived += u64::from(error.is_none());
        check(&sim, acknowledged, &format!("call {nth}"));
    }
    println!("{survived} of 100 survived");
    assert!(survived > 0);
}

#[test]
fn st17_every_bound_on_the_disk_keeps_what_was_acknowledged() {
    for bound in (6..90).map(|kib| kib << 10) {
        let sim = Sim::new();
        sim.set_bytes_max(Some(bound));
        let Ok((log, _)) = try_open(&sim, options()) else { continue };
        let mut acknowledged = 0;
        if try_durable(|callback| log.create_group(G, GroupInit::default(), callback)).is_ok() {
            while try_durable(|callback| {
                log.append(G, entries(acknowledged..acknowledged + 1, 700), callback)
            })
            .is_ok()
                && acknowledged < 90
            {
                acknowledged += 1;
            }
        }
        log.close();
        check(&sim, acknowledged, &format!("{bound} bytes"));
        // With room again it goes on.
        sim.set_bytes_max(None);
        let (log, recovered) = open(&sim);
        if recovered.groups.contains_key(&G) {
            append(&log, G, acknowledged..acknowledged + 20, 700);
        }
    }
}

#[test]
fn closing_a_full_log_answers_everybody() {
    let sim = Sim::new();
    let (log, _) = open(&sim);
    create(&log, G);
    eventually("a segment ahead", || log.stats().ready_segments == 1);
    sim.set_bytes_max(Some(sim.bytes_used()));
    let mut answers = Vec::new();
    // Votes are never refused for want of room: those that find none wait for it.
    for vote in 0..300_u64 {
        let (callback, receiver) = answer();
        log.save_vote(G, Bytes::copy_from_slice(&vote.to_le_bytes().repeat(30)), callback).unwrap();
        answers.push(receiver);
    }
    log.close();
    let heard: Vec<_> = answers.iter().map(heard).collect();
    let durable = heard.iter().take_while(|answer| answer.is_ok()).count();
    assert!(heard[durable..].iter().all(|answer| matches!(answer, Err(Error::StorageFull))));
    assert!(durable > 0 && durable < 300);
    let (_, recovered) = open(&sim);
    let vote = (durable as u64 - 1).to_le_bytes().repeat(30);
    assert_eq!(recovered.groups[&G].vote.as_deref(), Some(&vote[..]));
}

#[test]
fn what_does_not_fit_the_log_is_refused_and_changes_nothing() {
    let sim = Sim::new();
    let (log, _) = open(&sim);
    create(&log, G);
    append(&log, G, 0..10, 10);
    let before = super::model::read(&log);
    let no = |result: Result<(), Error>| result.unwrap_err();
    assert!(matches!(no(log.append(H, entries(0..1, 1), answer().0)), Error::NoGroup(H)));
    assert!(matches!(no(log.create_group(G, GroupInit::default(), answer().0)), Error::GroupExists(G)));
    assert!(matches!(
        no(log.append(G, entries(11..12, 1), answer().0)),
        Error::NotContiguous { expected: 10, found: 11, .. }
    ));
    assert!(matches!(no(log.append(G, entries(9..10, 1), answer().0)), Error::NotContiguous { .. }));
    let gap = vec![entry(10, 1), entry(12, 1)];
    assert!(matches!(
        no(log.append(G, gap, answer().0)),
        Error::NotContiguous { expected: 11, found: 12, .. }
    ));
    assert!(matches!(no(log.append(G, entries(10..11, 9000), answer().0)), Error::TooLarge { .. }));
    assert!(matches!(no(log.save_vote(G, Bytes::from(vec![0; 300]), answer().0)), Error::TooLarge { .. }));
    assert!(matches!(no(log.checkpoint(&[(H, 1)].into(), answer().0)), Error::NoGroup(H)));
    let huge = GroupInit { membership: Bytes::from(vec![0; 4000]), ..GroupInit::default() };
    assert!(matches!(no(log.create_group(H, huge, answer().0)), Error::TooManyGroups));
    let far = LogId { index: u64::MAX, ..id(0) };
    assert!(matches!(no(log.purge_upto(G, far, answer().0)), Error::OutOfRange { .. }));
    assert!(matches!(no(log.snapshot_installed(G, far, Bytes::new(), answer().0)), Error::OutOfRange { .. }));
    let init = GroupInit { last: Some(far), ..GroupInit::default() };
    assert!(matches!(no(log.create_group(H, init, answer().0)), Error::OutOfRange { .. }));
    assert_eq!(super::model::read(&log), before);
    durable(|callback| log.purge_upto(G, id(4), callback));
    assert!(matches!(no(log.truncate_after(G, Some(id(1)), answer().0)), Error::OutOfRange { index: 2, .. }));
    assert!(matches!(
        no(log.snapshot_installed(G, id(2), Bytes::new(), answer().0)),
        Error::OutOfRange { index: 2, .. }
    ));
    log.close();
    assert!(matches!(no(log.append(G, entries(10..11, 1), answer().0)), Error::Closed));
    assert!(matches!(no(log.drop_group(GroupId(77), answer().0)), Error::NoGroup(_)));
    assert_eq!(log.entries(G, 5..99).unwrap(), entries(5..10, 10), "a closed log can still be read");
}

#[test]
fn options_that_cannot_work_are_refused() {
    let with = |change: fn(&mut super::super::Options)| {
        let mut options = options();
        change(&mut options);
        try_open(&Sim::new(), options).map(|_| ()).unwrap_err()
    };
    for error in [
        with(|options| options.segment_bytes = 4096),
        with(|options| options.segment_bytes = 10_000),
        with(|options| options.segment_bytes = 2 << 30),
        with(|options| options.first_segment_bytes = 4096),
        with(|options| options.ready_segments = 0),
    ] {
        assert!(matches!(error, Error::InvalidOption { .. }), "{error}");
    }
}
