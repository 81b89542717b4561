//! Loads: rows that come in parts before the command that adds them.

use bytes::Bytes;
use model::{
    command::{Command, Outcome, Rejection, Write},
    id::{Boot, Epoch, NodeId, Revision},
    load::Rows,
};

use super::fixture::*;
use crate::{
    codec::entry::{Body, Load, Part},
    engine::{Engine, Options},
    keyspace::{self, due},
    shard::{EntryOutcome, Points, Shard},
};

/// More rows than this are a megabyte: they go past the journal.
const MANY: i32 = 9_000;

fn name_of(id: i32) -> String {
    format!("{id:0>100}")
}

fn row_of(id: i32) -> Bytes {
    row(id, Some(&name_of(id)), id, id % 2 == 0)
}

/// The parts of a load of these rows, some in each.
fn parts(ids: &[i32], row: impl Fn(i32) -> Bytes) -> Vec<Body> {
    let part = |(sequence, ids): (usize, &[i32])| {
        let mut rows = Rows::default();
        for id in ids {
            let bytes = row(*id);
            rows.push(&key(*id), |out| {
                out.extend_from_slice(&bytes);
                Ok::<_, ()>(())
            })
            .expect("nothing fails");
        }
        let (partition, sequence) = (partition(), sequence as u32);
        Body::Part(Part { partition, number: 0, sequence, bytes: rows.into_parts().next().expect("rows") })
    };
    ids.chunks(1_000).enumerate().map(part).collect()
}

fn load(parts: &[Body], command: Command) -> Body {
    Body::Load(Load { number: 0, parts: parts.len() as u32, table: TABLE, command })
}

fn outcome(shard: &Shard, body: Body) -> Outcome {
    match apply(shard, &entry(body, 1)) {
        EntryOutcome::Command(outcome) => outcome,
        other => panic!("a load has an outcome, not {other:?}"),
    }
}

/// Stages rows and executes their load.
fn run_load(shard: &Shard, ids: &[i32], row: impl Fn(i32) -> Bytes, command: Command) -> Outcome {
    let parts = parts(ids, row);
    let load = load(&parts, command);
    for part in parts {
        assert_eq!(apply(shard, &entry(part, 1)), EntryOutcome::Done);
    }
    outcome(shard, load)
}

fn count(shard: &Shard) -> u64 {
    shard.snapshot().count(&partition(), TABLE).expect("read")
}

fn get(shard: &Shard, id: i32) -> Option<String> {
    shard.snapshot().get(&partition(), TABLE, &key(id)).expect("read").map(|row| show_row(&row))
}

/// Keys of the data region that are not a feed's: rows and index entries, seen by somebody or not.
fn data_keys(shard: &Shard, engine: &Engine) -> usize {
    let of = |family| keyspace::family_prefix(&partition(), family);
    let families =
        [keyspace::family::ROW, keyspace::family::INDEX, keyspace::family::UNIQUE, keyspace::family::PART];
    families.iter().map(|family| engine.snapshot().prefix(shard.keyspace(), &of(*family)).count()).sum()
}

fn engines() -> (tempfile::TempDir, [Engine; 2]) {
    let folder = tempfile::tempdir().expect("a folder");
    let disk = Engine::open(folder.path(), &Options::default()).expect("opened");
    (folder, [Engine::in_memory(), disk])
}

#[test]
fn rows_of_a_load_are_seen_with_its_command_and_all_at_once() {
    let (_folder, engines) = engines();
    for engine in engines {
        let shard = shard_in(&engine, 0);
        let ids: Vec<i32> = (0..MANY).collect();
        let parts = parts(&ids, row_of);
        let load = load(&parts, command(vec![]));
        for part in parts {
            apply(&shard, &entry(part, 1));
            assert_eq!((count(&shard), get(&shard, 1)), (0, None));
        }
        let before = shard.snapshot();
        assert_eq!(outcome(&shard, load.clone()), applied(1, &[MANY as u64]));
        assert_eq!(count(&shard), MANY as u64);
        assert_eq!(get(&shard, 8_999), Some(format!("8999:{}:8999", name_of(8_999))));
        assert_eq!(before.get(&partition(), TABLE, &key(1)).expect("read"), None);
        assert_eq!(before.count(&partition(), TABLE).expect("read"), 0);
        // Its parts are gone: ending it again finds nothing and does nothing.
        assert_eq!(outcome(&shard, load), Outcome::Rejected(Rejection::Fenced));
        run(&shard, command(vec![delete(5), put(6, "six", 6)]));
        assert_eq!((count(&shard), get(&shard, 6)), (MANY as u64 - 1, Some("6:six:6".to_owned())));
        assert_sound(&shard);
    }
}

#[test]
fn rows_in_any_order_become_what_rows_in_order_do() {
    let shards: Vec<Shard> = [false, true]
        .iter()
        .map(|mixed| {
            let shard = shard();
            let mut ids: Vec<i32> = (0..MANY).collect();
            if *mixed {
                ids.sort_by_key(|id| (id * 7_919) % MANY);
            }
            assert_eq!(run_load(&shard, &ids, row_of, command(vec![])), applied(1, &[MANY as u64]));
            assert_sound(&shard);
            shard
        })
        .collect();
    let hash = |shard: &Shard| shard.hash(Points::ALL).expect("read");
    assert_eq!(hash(&shards[0]), hash(&shards[1]));
}

#[test]
fn a_load_that_is_rejected_leaves_nothing_for_the_next_command_to_find() {
    let (_folder, engines) = engines();
    for engine in engines {
        let shard = shard_in(&engine, 0);
        let twice: Vec<i32> = (0..MANY).chain([77]).collect();
        assert_eq!(run_load(&shard, &twice, row_of, command(vec![])), taken(None, key(77)));
        let same_name = |id: i32| row(id, Some(&name_of(if id == 8_000 { 3 } else { id })), id, false);
        let ids: Vec<i32> = (0..MANY).collect();
        let refused = run_load(&shard, &ids, same_name, command(vec![]));
        assert_eq!(refused, taken(Some(BY_NAME), name_key(&name_of(3))));
        assert_eq!((count(&shard), data_keys(&shard, &engine)), (0, 0));
        // The next command takes the revision that the load would have had.
        let truncated = run(&shard, command(vec![Write::Truncate { table: TABLE }]));
        assert_eq!(truncated, applied(1, &[0]));
        assert_eq!((count(&shard), get(&shard, 1)), (0, None));
        assert_sound(&shard);
    }
}

#[test]
fn a_load_onto_rows_is_judged_with_them() {
    let shard = shard();
    run(&shard, command(vec![insert(-1, "there", 1)]));
    let ids: Vec<i32> = (0..MANY).collect();
    assert_eq!(run_load(&shard, &ids, row_of, command(vec![])), applied(2, &[MANY as u64]));
    assert_eq!(count(&shard), MANY as u64 + 1);
    assert_eq!(run_load(&shard, &[-5, 1], row_of, command(vec![])), taken(None, key(1)));
    assert_eq!(get(&shard, -5), None);
    assert_sound(&shard);
}

#[test]
fn a_load_after_a_truncation_in_its_command_replaces_the_table() {
    let shard = shard();
    run(&shard, command(vec![insert(1, "there", 1)]));
    let ids: Vec<i32> = (0..MANY).collect();
    let replaced = run_load(&shard, &ids, row_of, command(vec![Write::Truncate { table: TABLE }]));
    assert_eq!(replaced, applied(2, &[1, MANY as u64]));
    assert_eq!((count(&shard), get(&shard, 1)), (MANY as u64, Some(format!("1:{}:1", name_of(1)))));
    assert_sound(&shard);
}

#[test]
fn a_load_that_was_cut_off_by_a_crash_is_the_same_when_it_is_applied_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let ids: Vec<i32> = (0..MANY).collect();
    let parts = parts(&ids, row_of);
    let load = load(&parts, command(vec![]));
    {
        let engine = Engine::open(folder.path(), &Options::default()).expect("opened");
        let shard = shard_in(&engine, 0);
        parts.iter().for_each(|part| drop(apply(&shard, &entry(part.clone(), 1))));
        // What the load puts past the journal, without the batch that makes it the table's.
        let prefix = keyspace::rows_prefix(&partition(), TABLE, Revision(1));
        let written = engine.ingest_from(shard.keyspace(), |put| {
            let ids = ids.iter().map(|id| (key(*id), row_of(*id)));
            let mut ids: Vec<_> = ids.collect();
            ids.sort();
            ids.iter().try_for_each(|(key, row)| put(&[&prefix, &**key].concat(), row))
        });
        written.expect("written");
        engine.persist().expect("synced");
    }
    let engine = Engine::open(folder.path(), &Options::default()).expect("opened");
    let shard = shard_in(&engine, 0);
    assert_eq!((count(&shard), get(&shard, 1)), (0, None));
    assert_eq!(outcome(&shard, load), applied(1, &[MANY as u64]));
    assert_eq!((count(&shard), get(&shard, 1)), (MANY as u64, Some(format!("1:{}:1", name_of(1)))));
    assert_sound(&shard);
}

#[test]
fn a_load_dies_with_its_claim_and_one_that_is_given_up_leaves_nothing() {
    let engine = Engine::in_memory();
    let shard = shard_in(&engine, 0);
    let ids: Vec<i32> = (0..MANY).collect();
    let all = parts(&ids, row_of);
    all.iter().for_each(|part| drop(apply(&shard, &entry(part.clone(), 1))));
    assert_eq!(data_keys(&shard, &engine), all.len());
    let abort = Body::LoadAbort { partition: partition(), number: 0 };
    assert_eq!(apply(&shard, &entry(abort.clone(), 1)), EntryOutcome::Done);
    assert_eq!(data_keys(&shard, &engine), 0);
    all.iter().for_each(|part| drop(apply(&shard, &entry(part.clone(), 1))));
    let claim = Body::Claim { epoch: Epoch(1), node: NodeId(2), boot: Boot(1), nonce: 9 };
    apply(&shard, &entry(claim, 1));
    let late = load(&all, command(vec![]));
    assert_eq!(outcome(&shard, late), Outcome::Rejected(Rejection::Fenced));
    assert_eq!(apply(&shard, &entry(abort, 1)), EntryOutcome::Fenced);
    assert_eq!(count(&shard), 0);
    // What is left is found by the sweep.
    assert_eq!(shard.snapshot().due(due::PART, 0, u64::MAX, 100).expect("read").len(), 1);
}

#[test]
fn parts_that_are_no_rows_are_damage() {
    let shard = shard();
    let (partition, bytes) = (partition(), Bytes::from_static(b"no rows"));
    apply(&shard, &entry(Body::Part(Part { partition, number: 0, sequence: 0, bytes }), 1));
    let load = entry(load(&[Body::Clock], command(vec![])), 1);
    let bytes = crate::codec::entry::to_bytes(&load);
    let index = shard.applied_index().map_or(1, |index| index + 1);
    let log_id = crate::log::LogId { term: 1, node: 1, index };
    let entry = crate::shard::Entry { log_id, payload: crate::shard::Payload::Encoded(&bytes) };
    assert!(shard.apply(&[entry]).is_err());
    assert_eq!(count(&shard), 0);
}

#[test]
fn rows_of_a_load_may_share_the_key_of_an_index_that_is_not_unique() {
    let shard = shard();
    let ids: Vec<i32> = (0..MANY).collect();
    let of_one_score = |id: i32| row(id, Some(&name_of(id)), 7, true);
    assert_eq!(run_load(&shard, &ids, of_one_score, command(vec![])), applied(1, &[MANY as u64]));
    assert_sound(&shard);
}

/// In whatever groups entries are applied, as in a replay, their outcomes are the same.
#[test]
fn what_follows_a_load_in_its_group_sees_its_rows() {
    let (_folder, engines) = engines();
    for engine in engines {
        let shard = shard_in(&engine, 0);
        let ids: Vec<i32> = (0..MANY).collect();
        let mut bodies = parts(&ids, row_of);
        bodies.push(load(&bodies, command(vec![])));
        bodies.push(Body::Command(command(vec![insert(7, "again", 1)])));
        bodies.push(Body::Command(command(vec![delete(8)])));
        bodies.push(Body::Command(command(vec![put(9, "nine", 9)])));
        let entries: Vec<_> = bodies.into_iter().map(|body| entry(body, 1)).collect();
        let outcomes = apply_all(&shard, &entries);
        let command = |outcome| EntryOutcome::Command(outcome);
        let expected = [applied(1, &[MANY as u64]), taken(None, key(7)), applied(2, &[1]), applied(3, &[1])];
        assert_eq!(outcomes[outcomes.len() - 4..], expected.map(command));
        assert_eq!((count(&shard), get(&shard, 9)), (MANY as u64 - 1, Some("9:nine:9".to_owned())));
        assert_sound(&shard);
    }
}

#[test]
fn a_row_may_be_wider_than_a_part() {
    let shard = shard();
    let wide = "w".repeat(1_000);
    let rows = [(1, "one"), (2, &wide), (3, "three")].map(|(id, name)| (id, row(id, Some(name), id, true)));
    let mut whole = Rows::default();
    for (id, bytes) in &rows {
        let put = |out: &mut Vec<u8>| {
            out.extend_from_slice(bytes);
            Ok::<_, ()>(())
        };
        whole.push(&key(*id), put).expect("nothing fails");
    }
    let whole: Bytes = whole.into_parts().flatten().collect();
    for cut in [3, 50, 999] {
        run(&shard, command(vec![Write::Truncate { table: TABLE }]));
        let parts: Vec<Body> = (0..)
            .zip(whole.chunks(cut))
            .map(|(sequence, bytes)| {
                let bytes = Bytes::copy_from_slice(bytes);
                Body::Part(Part { partition: partition(), number: 0, sequence, bytes })
            })
            .collect();
        let load = load(&parts, command(vec![]));
        parts.into_iter().for_each(|part| drop(apply(&shard, &entry(part, 1))));
        assert!(matches!(outcome(&shard, load), Outcome::Applied(_)), "{cut}");
        assert_eq!(get(&shard, 2), Some(format!("2:{wide}:2")), "{cut}");
        assert_eq!(count(&shard), 3);
        assert_sound(&shard);
    }
}
