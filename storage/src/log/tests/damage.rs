//! Bits flipped, bytes made up, files cut, deleted and swapped: refused, or provably without effect.

use std::sync::Arc;

use bytes::Bytes;

use super::super::files::sim::{Chance, Fault, Loss, Op, Sim};
use super::super::{Error, GroupId, GroupInit, Log, Options, Plant};
use super::model::{self, Model};
use super::support::*;

/// A closed log with a record of every kind but `Rewrite`, and its state.
fn every_kind() -> (Sim, Model) {
    let sim = Sim::new();
    let (log, _) = open(&sim);
    create(&log, G);
    let init = GroupInit {
        vote: Some(Bytes::from_static(b"v")),
        last: Some(id(9)),
        membership: Bytes::from_static(b"m"),
    };
    durable(|callback| log.create_group(H, init, callback));
    create(&log, GroupId(9));
    append(&log, GroupId(9), 4..6, 50); // Begin
    append(&log, G, 0..6, 120);
    append(&log, H, 10..12, 30);
    durable(|callback| log.save_vote(G, Bytes::from_static(b"vote"), callback));
    durable(|callback| log.truncate_after(G, Some(id(4)), callback));
    durable(|callback| log.purge_upto(G, id(1), callback));
    log.save_committed(G, id(3)).unwrap();
    durable(|callback| log.checkpoint(&[(G, 3)].into(), callback));
    durable(|callback| log.snapshot_installed(H, id(11), Bytes::from_static(b"generation"), callback));
    durable(|callback| log.drop_group(GroupId(9), callback));
    // A torn tail, so that the log goes on with a note about it.
    hold(&sim, &log);
    log.append(G, entries(5..8, 400), answer().0).unwrap();
    sim.wait_for_held_sync();
    let image = sim.image(Loss::Nothing, 0);
    sim.release_syncs();
    let last = image.contents()[&file(1)].iter().rposition(|byte| *byte != 0).unwrap();
    image.edit(&file(1), |bytes| bytes[last] ^= 1);
    let (log, recovered) = open(&image);
    assert!(recovered.torn.is_some());
    append(&log, H, 12..13, 30);
    append(&log, G, 5..25, 700);
    finish(image, &log)
}

/// A closed log with rewritten entries, and its state.
fn rewritten() -> (Sim, Model) {
    let sim = Sim::new();
    let (log, _) = try_open(&sim, Options { pinned_segments_max: 0, ..options() }).unwrap();
    create(&log, G);
    create(&log, H);
    append(&log, H, 0..3, 30);
    let mut index = 0;
    while log.stats().rewritten < 3 {
        append(&log, G, index..index + 1, 900);
        index += 1;
        durable(|callback| log.purge_upto(G, id(index - 1), callback));
    }
    finish(sim, &log)
}

fn finish(sim: Sim, log: &Log) -> (Sim, Model) {
    log.close();
    let (log, _) = open(&sim);
    let state = model::read(&log);
    log.close();
    (sim, state)
}

fn reads_as(sim: &Sim, state: &Model) -> Result<bool, Error> {
    let (log, _) = try_open(sim, options())?;
    Ok(model::read(&log) == *state)
}

#[test]
fn a_flipped_bit_anywhere_is_refused_or_without_effect() {
    let (every_kind, rewritten) = (every_kind(), rewritten());
    let mut kinds = [0; 16];
    let (mut refused, mut unused) = (0, 0);
    let files = [&every_kind, &rewritten]
        .into_iter()
        .flat_map(|log| log.0.contents().into_iter().map(move |file| (log, file)));
    for ((sim, state), (name, bytes)) in files {
        if !name.ends_with(".log") {
            continue;
        }
        let end = bytes.iter().rposition(|byte| *byte != 0).unwrap();
        let offsets: Vec<usize> =
            (0..100).chain((4096..end + 48).step_by(5)).filter(|at| *at < bytes.len()).collect();
        for at in offsets {
            let image = sim.image(Loss::Nothing, 0);
            image.edit(&name, |bytes| bytes[at] ^= 1 << (at % 8));
            match reads_as(&image, state) {
                Ok(true) => unused += 1,
                Ok(false) => panic!("{name} at {at}: other data than was written"),
                Err(Error::Corrupt { .. } | Error::UnknownVersion { .. }) => refused += 1,
                Err(other) => panic!("{name} at {at}: {other}"),
            }
        }
        kinds_of(&bytes, &mut kinds);
    }
    let missing: Vec<_> = (1..=15).filter(|kind| kinds[*kind] == 0).collect();
    println!("{refused} refused, {unused} without effect, records by kind {kinds:?}");
    assert!(missing.is_empty(), "no record of kind {missing:?}: {kinds:?}");
    assert!(refused > 10 * unused);
}

#[test]
fn the_flip_test_finds_damage_that_is_taken_for_a_torn_tail() {
    let (sim, state) = every_kind();
    let mut wrong = 0;
    for at in (4096..7000).step_by(50) {
        let image = sim.image(Loss::Nothing, 0);
        image.edit(&file(1), |bytes| bytes[at] ^= 1);
        if let Ok((log, _)) = try_open(&image, planted(Plant::BelieveAnyTail)) {
            wrong += u64::from(model::read(&log) != state);
        }
    }
    assert!(wrong > 10, "{wrong}");
}

/// Counts records by kind, walking by lengths only.
fn kinds_of(bytes: &[u8], kinds: &mut [usize; 16]) {
    let mut at = 4096;
    while at + 40 <= bytes.len() && bytes[at + 8] != 0 {
        let length = u32::from_le_bytes(bytes[at + 4..at + 8].try_into().unwrap()) as usize;
        kinds[usize::from(bytes[at + 8])] += 1;
        at += 40 + length.next_multiple_of(8);
    }
}

#[test]
fn st01_a_flip_at_10_50_and_99_percent_of_every_segment_is_refused() {
    let (sim, _) = every_kind();
    for (name, bytes) in sim.contents() {
        let Some(end) = bytes[4096..].iter().rposition(|byte| *byte != 0).filter(|_| name.ends_with(".log"))
        else {
            continue;
        };
        for percent in [10, 50, 99] {
            // The last record may be the seal itself, whose loss loses nothing.
            let at = 4096 + end.saturating_sub(48) * percent / 100;
            let image = sim.image(Loss::Nothing, 0);
            image.edit(&name, |bytes| bytes[at] ^= 0x10);
            let error = try_open(&image, options()).map(|_| ()).unwrap_err();
            assert!(error.is_corruption(), "{name} at {percent} %: {error}");
        }
    }
}

#[test]
fn st02_made_up_bytes_never_panic_and_never_read_as_entries() {
    let (sim, state) = every_kind();
    let names: Vec<_> = sim.contents().into_keys().collect();
    for seed in 0..300 {
        let mut chance = Chance(seed);
        let image = sim.image(Loss::Nothing, 0);
        let name = &names[chance.below(names.len() as u64) as usize];
        let length = 1 + chance.below(64) as usize;
        image.edit(name, |bytes| {
            let at = chance.below((bytes.len() - length) as u64) as usize;
            for byte in &mut bytes[at..at + length] {
                *byte = chance.next_u64() as u8;
            }
        });
        if let Ok((log, _)) = try_open(&image, options()) {
            assert_eq!(model::read(&log), state, "seed {seed}");
        }
    }
}

#[test]
fn st07_a_missing_segment_is_refused_and_named() {
    let sim = Sim::new();
    let (log, _) = open(&sim);
    create(&log, G);
    append(&log, G, 0..60, 700);
    log.close();
    let segments = sim.contents().len() as u64;
    assert!(segments > 4);
    for segment in 1..segments - 1 {
        let image = sim.image(Loss::Nothing, 0);
        image.delete(&file(segment));
        let error = try_open(&image, options()).map(|_| ()).unwrap_err();
        if segment == 1 {
            // What is gone with the first are the entries.
            assert!(matches!(error, Error::Corrupt { segment: 2, .. }), "{error}");
        } else {
            assert!(matches!(error, Error::MissingSegment { segment: found } if found == segment), "{error}");
        }
    }
}

#[test]
fn st19_a_corrupt_length_allocates_nothing_and_is_refused() {
    for length in [u32::MAX, 1 << 31, 1 << 20, 0] {
        let sim = Sim::new();
        let (log, _) = open(&sim);
        create(&log, G);
        append(&log, G, 0..3, 100);
        log.close();
        sim.edit(&file(1), |bytes| bytes[4096 + 4..4096 + 8].copy_from_slice(&length.to_le_bytes()));
        assert!(matches!(try_open(&sim, options()), Err(Error::Corrupt { segment: 1, offset: 4096, .. })));
    }
}

#[test]
fn st20_an_empty_or_short_segment_is_refused() {
    for length in [0, 40, 4096, 8000] {
        let (sim, _) = every_kind();
        let name = sim.contents().into_keys().find(|name| name.ends_with(".log")).unwrap();
        sim.edit(&name, |bytes| bytes.truncate(length));
        assert!(matches!(try_open(&sim, options()), Err(Error::Corrupt { .. })), "{length} bytes");
    }
}

#[test]
fn st23_a_valid_record_after_a_bad_one_tells_damage_from_a_torn_tail() {
    // Two syncs, nothing sealed: the first is damaged, the second proves that it was synced.
    let sim = Sim::new();
    let (log, _) = open(&sim);
    create(&log, G);
    append(&log, G, 0..1, 1000);
    append(&log, G, 1..2, 10);
    let image = sim.image(Loss::Nothing, 0);
    image.edit(&file(1), |bytes| bytes[4096 + 700] ^= 1);
    assert!(matches!(try_open(&image, options()), Err(Error::Corrupt { segment: 1, .. })));
}

#[test]
fn st26_a_refused_log_is_not_changed_by_looking_at_it() {
    let (sim, _) = every_kind();
    sim.put("00000000000000ff.free", b"leftover");
    let name = sim.contents().into_keys().find(|name| name.ends_with(".log")).unwrap();
    for damage in [4096 + 20, 8, 60] {
        let image = sim.image(Loss::Nothing, 0);
        image.edit(&name, |bytes| bytes[damage] ^= 1);
        let before = image.contents();
        for _ in 0..2 {
            let calls = image.calls();
            assert!(try_open(&image, options()).is_err());
            assert_eq!(image.calls(), calls, "nothing was asked of the disk but reading");
        }
        assert!(image.contents() == before);
    }
}

#[test]
fn a_segment_swapped_with_an_older_copy_of_itself_is_refused() {
    let sim = Sim::new();
    let (log, _) = open(&sim);
    create(&log, G);
    append(&log, G, 0..16, 700);
    let old = sim.contents();
    let (name, bytes) = old.iter().filter(|(name, _)| name.ends_with(".log")).nth(1).unwrap();
    append(&log, G, 16..60, 700);
    log.close();
    assert!(sim.contents()[name] != *bytes);
    sim.edit(name, |now| now.clone_from(bytes));
    assert!(matches!(try_open(&sim, options()), Err(Error::Corrupt { .. })));
}

#[test]
fn damage_under_a_running_log_is_found_when_it_is_read() {
    let sim = Sim::new();
    let (log, _) = try_open(&sim, Options { cache_bytes_max: 0, ..options() }).unwrap();
    create(&log, G);
    append(&log, G, 0..3, 300);
    append(&log, G, 3..4, 300);
    eventually("an empty cache", || log.stats().cache_bytes == 0);
    assert_eq!(log.entries(G, 0..4).unwrap(), entries(0..4, 300));
    sim.edit(&file(1), |bytes| bytes[4096 + 700] ^= 1);
    let error = log.entries(G, 0..4).unwrap_err();
    assert!(matches!(error, Error::Corrupt { segment: 1, .. }), "{error}");
    sim.plan(Some(Op::Read), 1, Fault::KeepsFailing(std::io::ErrorKind::Other));
    assert!(matches!(log.entries(G, 0..1), Err(Error::Io { .. })));
}

#[test]
fn a_record_of_a_newer_build_is_refused_with_its_version() {
    use super::super::record;
    use super::super::segment::VERSION;
    let sim = Sim::new();
    let (log, _) = open(&sim);
    create(&log, G);
    log.close();
    sim.edit(&file(1), |bytes| {
        // The last record is the seal; make it a kind that does not exist, with a right checksum.
        let last = bytes.len() - 40 - bytes.rchunks(8).position(|word| word != [0; 8]).unwrap() * 8;
        assert_eq!(bytes[last + 8], 10);
        bytes[last + 8] = 99;
        let crc = crc32c::crc32c_append(record::seed(identity().incarnation, 1), &bytes[last + 4..last + 40]);
        bytes[last..last + 4].copy_from_slice(&crc.to_le_bytes());
    });
    match try_open(&sim, options()).map(|_| ()).unwrap_err() {
        Error::UnknownKind { segment: 1, kind: 99, version, .. } => assert_eq!(version, VERSION),
        other => panic!("{other}"),
    }
    // And a header of a newer format.
    let image = Sim::new();
    open(&image).0.close();
    image.edit(&file(1), |bytes| bytes[8] = 2);
    let error = try_open(&image, options()).map(|_| ()).unwrap_err();
    assert!(matches!(error, Error::UnknownVersion { segment: 1, version: 2, known: VERSION }), "{error}");
    assert_eq!(error.to_string(), "log segment 1 has format version 2, this build reads version 1");
}

#[test]
fn bytes_of_an_entry_never_pass_for_a_record() {
    // A client stores the very bytes of a record of a higher sync group, of this segment, but for the seed of the CRC,
    // which it cannot know. The record around them is torn.
    use super::super::record::{self, Body, Stamp};
    let mut forged = Vec::new();
    record::encode(G, &Body::Vote(b"forged"), &mut forged);
    let stamp = Stamp { seed: 0, segment: 1, sync_group: 1000, lsn: 1000, last: true };
    record::stamp(&mut forged, stamp);
    let sim = Sim::new();
    let (log, _) = open(&sim);
    create(&log, G);
    hold(&sim, &log);
    let mut forging = entry(0, 0);
    forging.payload = Bytes::from(forged.repeat(20));
    log.append(G, vec![forging], answer().0).unwrap();
    sim.wait_for_held_sync();
    let image = sim.image(Loss::Nothing, 0);
    sim.release_syncs();
    let end = image.contents()[&file(1)].iter().rposition(|byte| *byte != 0).unwrap();
    image.edit(&file(1), |bytes| bytes[end - 1000] ^= 1);
    let (after, recovered) = open(&image);
    assert!(recovered.torn.is_some());
    assert_eq!(after.state(G).unwrap().last, None);
    drop(Arc::new(after));
}
