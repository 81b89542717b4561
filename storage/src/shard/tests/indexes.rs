//! Secondary indexes: order, partial ones, builds.

use bytes::Bytes;
use model::{
    command::Write,
    id::{CatalogVersion, IndexId},
    key::KeyPart,
    schema::IndexState,
};

use super::fixture::*;
use crate::{
    codec::entry::{Backfill, Body, Descriptors, Held},
    shard::{Backfilled, EntryOutcome, Shard},
};

#[test]
fn an_index_has_its_own_order_both_ways() {
    let shard = shard();
    run(&shard, command(vec![insert(1, "c", 30), insert(2, "a", 20), insert(3, "b", 30), insert(4, "d", 5)]));
    assert_eq!(show_by(&shard, Some(BY_SCORE), false), "1:c:30 3:b:30 2:a:20 4:d:5");
    assert_eq!(show_by(&shard, Some(BY_SCORE), true), "4:d:5 2:a:20 3:b:30 1:c:30");
    assert_eq!(show_by(&shard, Some(BY_NAME), false), "2:a:20 3:b:30 1:c:30 4:d:5");
    assert_eq!(show_by(&shard, Some(HOT), false), "2:a:20 1:c:30 3:b:30", "only the hot ones");
    assert_eq!(show_by(&shard, Some(PRIMARY), true), "4:d:5 3:b:30 2:a:20 1:c:30");
    run(&shard, command(vec![put(4, "d", 40), delete(1)]));
    assert_eq!(show_by(&shard, Some(HOT), false), "2:a:20 3:b:30 4:d:40");
    assert_sound(&shard);
}

#[test]
fn nulls_differ_from_each_other_in_a_unique_index() {
    let shard = shard();
    let unnamed = |id| Write::Insert { table: TABLE, key: key(id), row: row(id, None, 1, false) };
    assert_eq!(run(&shard, command(vec![unnamed(1), unnamed(2), insert(3, "a", 1)])), applied(1, &[1, 1, 1]));
    assert_eq!(show_by(&shard, Some(BY_NAME), false), "3:a:1 1:-:1 2:-:1");
    assert_eq!(run(&shard, command(vec![put(1, "b", 1)])), applied(2, &[1]));
    assert_eq!(show_by(&shard, Some(BY_NAME), false), "3:a:1 1:b:1 2:-:1");
    assert_sound(&shard);
}

#[test]
fn rows_are_found_by_keys_of_a_unique_index() {
    let shard = shard();
    run(&shard, command(vec![insert(1, "a", 1), insert(2, "b", 2)]));
    let keys = [name_key("b"), name_key("z"), name_key("a")];
    let found = shard.snapshot().get_many(&partition(), TABLE, Some(BY_NAME), &keys).expect("read");
    let shown: Vec<_> =
        found.iter().map(|stored| stored.as_ref().map(|stored| show_row(&stored.row))).collect();
    assert_eq!(shown, [Some("2:b:2".to_owned()), None, Some("1:a:1".to_owned())]);
    assert_eq!(found[0].as_ref().map(|stored| stored.key.clone()), Some(key(2)));
}

pub(super) const NEW: IndexId = IndexId(120);

pub(super) fn announce(shard: &Shard, version: u64, unique: bool, column: u16, state: IndexState) {
    let mut table = table();
    table.version = version;
    let mut index = index(NEW, column, KeyPart::ASC, unique);
    index.state = state;
    table.indexes.push(index);
    let held = Held { table, since: CatalogVersion(1) };
    let descriptors = Descriptors { tables: vec![held], ..Descriptors::default() };
    apply(shard, &entry(Body::Descriptors(descriptors), 1));
}

fn backfill(shard: &Shard, from: Bytes, limit: u32) -> Backfilled {
    let backfill = Backfill { partition: partition(), table: TABLE, index: NEW, from, limit };
    match apply(shard, &entry(Body::Backfill(backfill), 1)) {
        EntryOutcome::Backfilled(outcome) => outcome,
        other => panic!("a page is built: {other:?}"),
    }
}

#[test]
fn an_index_is_built_page_by_page_while_rows_change() {
    let shard = shard();
    let rows = (0..10).map(|id| insert(id, &format!("n{id}"), 100 - id)).collect();
    run(&shard, command(rows));
    announce(&shard, 2, false, 3, IndexState::Building);
    let Backfilled::Next(from) = backfill(&shard, Bytes::new(), 4) else { panic!("there is more") };
    run(&shard, command(vec![put(1, "n1", 500), put(8, "n8", 600), delete(2), insert(20, "x", 0)]));
    let Backfilled::Next(from) = backfill(&shard, from, 4) else { panic!("there is more") };
    assert_eq!(backfill(&shard, from, 100), Backfilled::End);
    announce(&shard, 3, false, 3, IndexState::Ready);
    assert_eq!(
        show_by(&shard, Some(NEW), false),
        "20:x:0 9:n9:91 7:n7:93 6:n6:94 5:n5:95 4:n4:96 3:n3:97 0:n0:100 1:n1:500 8:n8:600"
    );
    assert_sound(&shard);
    assert_eq!(backfill(&shard, Bytes::new(), 10), Backfilled::Gone, "it is no longer being built");
}

#[test]
fn a_duplicate_ends_the_build_of_a_unique_index() {
    let shard = shard();
    run(&shard, command(vec![insert(1, "a", 7), insert(2, "b", 8), insert(3, "c", 7)]));
    announce(&shard, 2, true, 3, IndexState::Building);
    assert_eq!(backfill(&shard, Bytes::new(), 100), Backfilled::Duplicate(key(7)));
    announce(&shard, 3, true, 3, IndexState::Invalid);
    assert_eq!(run(&shard, command(vec![insert(4, "d", 8)])), applied(2, &[1]), "it binds nobody");
    assert_sound(&shard);
    while shard.collect().expect("collect") > 0 {}
    assert_sound(&shard);
}

#[test]
fn a_row_the_build_has_not_reached_does_not_take_anothers_entry_with_it() {
    let shard = shard();
    run(&shard, command(vec![insert(1, "a", 7), insert(2, "b", 8), insert(3, "c", 7), insert(4, "d", 8)]));
    announce(&shard, 2, true, 3, IndexState::Building);
    let Backfilled::Next(from) = backfill(&shard, Bytes::new(), 2) else { panic!("there is more") };
    // One duplicate goes, the other changes, before they are reached.
    run(&shard, command(vec![delete(3), put(4, "d", 9)]));
    assert_eq!(backfill(&shard, from, 10), Backfilled::End);
    announce(&shard, 3, true, 3, IndexState::Ready);
    assert_eq!(show_by(&shard, Some(NEW), false), "1:a:7 2:b:8 4:d:9");
    assert_eq!(run(&shard, command(vec![insert(5, "e", 7)])), taken(Some(NEW), key(7)));
    assert_sound(&shard);
}
