//! Pages, bounds, lists.

use bytes::Bytes;
use model::read::{At, Scan};

use super::fixture::*;
use crate::shard::Shard;

fn filled(rows: i32) -> Shard {
    let shard = shard();
    let writes = (0..rows).map(|id| insert(id, &format!("n{id:03}"), rows - id)).collect();
    run(&shard, command(writes));
    shard
}

fn scan(rows_max: usize, bytes_max: usize) -> Scan {
    Scan {
        partition: partition(),
        table: TABLE,
        index: None,
        from: Bytes::new(),
        to: None,
        reverse: false,
        rows_max,
        bytes_max,
        at: At::Latest,
    }
}

#[test]
fn pages_of_any_size_give_every_row_once_in_both_directions() {
    let shard = filled(50);
    let snapshot = shard.snapshot();
    for index in [None, Some(BY_SCORE), Some(BY_NAME)] {
        for reverse in [false, true] {
            for (rows_max, bytes_max) in [(1, 1 << 20), (7, 1 << 20), (50, 1 << 20), (1_000, 1), (1_000, 300)]
            {
                let mut scan = Scan { index, reverse, ..scan(rows_max, bytes_max) };
                let mut found = Vec::new();
                let mut pages = 0;
                loop {
                    let page = snapshot.scan(&scan).expect("read");
                    found.extend(page.rows.iter().map(|stored| stored.key));
                    pages += 1;
                    match page.next {
                        None => break,
                        Some(next) if reverse => scan.to = Some(next),
                        Some(next) => scan.from = next,
                    }
                }
                assert!(pages > 1 || rows_max >= 50);
                let mut expected: Vec<Bytes> = (0..50).map(key).collect();
                if reverse {
                    expected.reverse();
                }
                assert_eq!(found, expected, "{index:?} {reverse} {rows_max} {bytes_max}");
            }
        }
    }
}

#[test]
fn a_range_is_inclusive_at_its_start_and_exclusive_at_its_end() {
    let shard = filled(10);
    let bounded = Scan { from: key(3), to: Some(key(6)), ..scan(100, 1 << 20) };
    let page = shard.snapshot().scan(&bounded).expect("read");
    let keys: Vec<Bytes> = page.rows.iter().map(|stored| stored.key.clone()).collect();
    assert_eq!(keys, [key(3), key(4), key(5)]);
    let empty = Scan { from: key(6), to: Some(key(3)), ..scan(100, 1 << 20) };
    assert!(shard.snapshot().scan(&empty).expect("read").rows.is_empty());
}

#[test]
fn partitions_do_not_see_each_other() {
    let shard = shard();
    for name in ["acme", "beta"] {
        let mut command = command(vec![insert(1, name, 5)]);
        command.partition = partition_of(name);
        run(&shard, command);
    }
    let mut partitions = shard.snapshot().partitions(TABLE).expect("read");
    partitions.sort();
    let mut expected = vec![partition_of("acme"), partition_of("beta")];
    expected.sort();
    assert_eq!(partitions, expected);
    let row =
        shard.snapshot().get(&partition_of("beta"), TABLE, &key(1)).expect("read").expect("it is there");
    assert_eq!(show_row(&row), "1:beta:5");
    assert_eq!(shard.snapshot().count(&partition_of("acme"), TABLE).expect("read"), 1);
    assert_eq!(shard.snapshot().count(&partition(), TABLE).expect("read"), 0);
    assert_sound(&shard);
}

#[test]
fn a_snapshot_sees_one_moment() {
    let shard = filled(3);
    let before = shard.snapshot();
    run(&shard, command(vec![put(1, "n001", 99), delete(2)]));
    assert_eq!(before.revision().expect("read").0, 1);
    assert_eq!(shard.snapshot().revision().expect("read").0, 2);
    assert_eq!(before.count(&partition(), TABLE).expect("read"), 3);
    let old = before.get(&partition(), TABLE, &key(1)).expect("read").expect("it was there");
    assert_eq!(show_row(&old), "1:n001:2");
}

#[test]
fn a_table_that_was_never_written_here_is_empty_by_any_path() {
    let engine = crate::engine::Engine::in_memory();
    let shard = Shard::open(&engine, SHARD, 0).expect("a new shard");
    let snapshot = shard.snapshot();
    for index in [None, Some(BY_NAME)] {
        let page = snapshot.scan(&Scan { index, ..scan(10, 1 << 20) }).expect("read");
        assert!(page.rows.is_empty() && page.next.is_none());
        let found = snapshot.get_many(&partition(), TABLE, index, &[key(1), key(2)]).expect("read");
        assert_eq!(found, [None, None]);
    }
}

#[test]
fn an_index_that_is_gone_sends_the_reader_back_to_plan_again() {
    let shard = filled(3);
    let gone = Some(model::id::IndexId(999));
    let refused = shard.snapshot().scan(&Scan { index: gone, ..scan(10, 1 << 20) });
    assert_eq!(refused.expect_err("it is not there").code(), model::Code::SerializationFailure);
}

#[test]
fn a_scrub_reads_every_key_once() {
    let shard = filled(5);
    let (mut from, mut pages) = (Bytes::new(), 0);
    while let Some(next) = shard.scrub(&from, 7).expect("undamaged") {
        assert!(next > from);
        (from, pages) = (next, pages + 1);
    }
    assert!(pages >= 3);
}
