//! Conditions and writes.

use bytes::Bytes;
use model::{
    Code, Type, Value,
    command::{Condition, Effect, Outcome, Receipt, Rejection, Write, range_digest},
    expr::{Arithmetic, Comparison, Expr, Program},
    id::{CatalogVersion, ColumnNumber, Epoch, Revision, TableId},
    row::RowView,
};

use super::fixture::*;
use crate::{
    codec::{
        entry::{Body, Descriptors, Entry as LogEntry, Stamp},
        state::FeedKind,
    },
    shard::{EntryOutcome, Points, Shard},
};

#[test]
fn rows_come_change_and_go() {
    let shard = shard();
    assert_eq!(run(&shard, command(vec![insert(1, "a", 5), insert(2, "b", 20)])), applied(1, &[1, 1]));
    assert_eq!(run(&shard, command(vec![put(2, "b", 7), delete(9)])), applied(2, &[1, 0]));
    assert_eq!(show(&shard), "1:a:5 2:b:7");
    assert_eq!(run(&shard, command(vec![delete(1)])), applied(3, &[1]));
    assert_eq!(show(&shard), "2:b:7");
    assert_eq!(shard.snapshot().count(&partition(), TABLE).expect("read"), 1);
    assert_sound(&shard);
}

#[test]
fn a_rejected_command_changes_nothing() {
    let shard = shard();
    run(&shard, command(vec![insert(1, "a", 5)]));
    let before = shard.hash(Points::ALL).expect("read");
    let rejected = run(&shard, command(vec![insert(2, "b", 5), insert(1, "c", 5)]));
    assert_eq!(rejected, taken(None, key(1)));
    let rejected = run(&shard, command(vec![insert(2, "a", 5)]));
    assert_eq!(rejected, taken(Some(BY_NAME), name_key("a")));
    assert_eq!(shard.hash(Points::ALL).expect("read"), before);
    assert_eq!(shard.revision(), Revision(1));
}

#[test]
fn keys_may_move_over_each_other_in_one_command() {
    let shard = shard();
    run(&shard, command(vec![insert(1, "a", 1), insert(2, "b", 2), insert(3, "c", 3)]));
    // UPDATE t SET id = id + 1, row by row.
    let writes =
        vec![delete(1), insert(2, "a", 1), delete(2), insert(3, "b", 2), delete(3), insert(4, "c", 3)];
    assert_eq!(run(&shard, command(writes)), applied(2, &[1, 1, 1, 1, 1, 1]));
    assert_eq!(show(&shard), "2:a:1 3:b:2 4:c:3");
    // Two rows exchange a unique name.
    assert_eq!(run(&shard, command(vec![put(2, "b", 1), put(3, "a", 2)])), applied(3, &[1, 1]));
    assert_eq!(show_by(&shard, Some(BY_NAME), false), "3:a:2 2:b:1 4:c:3");
    assert_eq!(run(&shard, command(vec![put(2, "c", 1)])), taken(Some(BY_NAME), name_key("c")));
    assert_sound(&shard);
}

#[test]
fn conditions_are_judged_on_the_state_before() {
    let shard = shard();
    run(&shard, command(vec![insert(1, "a", 5)]));
    let (t, k) = (TABLE, key(1));
    let holds = [
        Condition::RowRevision { table: t, key: k.clone(), revision: Revision(1) },
        Condition::RowExists { table: t, key: k.clone() },
        Condition::RowAbsent { table: t, key: key(2) },
        Condition::UniqueFree { table: t, index: BY_NAME, key: name_key("z") },
        Condition::UniqueFree { table: t, index: PRIMARY, key: key(2) },
        Condition::RangeEmpty { table: t, index: None, from: key(2), to: key(9) },
        Condition::TableUntouched { table: t, since: Revision(1) },
    ];
    for condition in holds {
        let outcome = run(&shard, when(condition.clone(), vec![]));
        assert!(matches!(outcome, Outcome::Applied(_)), "{condition:?}: {outcome:?}");
    }
    let rejected = |rejection| Outcome::Rejected(rejection);
    let fails = [
        (
            Condition::RowRevision { table: t, key: k.clone(), revision: Revision(2) },
            rejected(Rejection::RowChanged { table: t, key: k.clone() }),
        ),
        (
            Condition::RowExists { table: t, key: key(2) },
            rejected(Rejection::RowMissing { table: t, key: key(2) }),
        ),
        (Condition::RowAbsent { table: t, key: k.clone() }, taken(None, k.clone())),
        (
            Condition::UniqueFree { table: t, index: BY_NAME, key: name_key("a") },
            taken(Some(BY_NAME), name_key("a")),
        ),
        (Condition::UniqueFree { table: t, index: PRIMARY, key: k.clone() }, taken(Some(PRIMARY), k.clone())),
        (
            Condition::RangeEmpty { table: t, index: None, from: key(0), to: key(9) },
            rejected(Rejection::RangeChanged { table: t }),
        ),
        (
            Condition::TableUntouched { table: t, since: Revision(0) },
            rejected(Rejection::RangeChanged { table: t }),
        ),
    ];
    for (condition, expected) in fails {
        let write = insert(50, "never", 1);
        assert_eq!(run(&shard, when(condition.clone(), vec![write])), expected, "{condition:?}");
    }
    assert_eq!(show(&shard), "1:a:5");
}

#[test]
fn a_digest_tells_whether_a_range_is_as_it_was_read() {
    let shard = shard();
    run(&shard, command(vec![insert(1, "a", 5), insert(2, "b", 6), insert(3, "c", 7)]));
    for index in [None, Some(BY_NAME), Some(BY_SCORE)] {
        let (from, to) = (Bytes::new(), Bytes::from_static(&[0xff]));
        let pairs =
            shard.snapshot().range_revisions(&partition(), TABLE, index, &from, &to, 10).expect("read");
        assert_eq!(pairs.len(), 3);
        let digest = range_digest(pairs.iter().map(|(key, revision)| (&**key, *revision)));
        let condition = Condition::RangeDigest { table: TABLE, index, from, to, digest };
        assert!(matches!(run(&shard, when(condition.clone(), vec![])), Outcome::Applied(_)));
        // In the same group as the write that changes the range, too.
        let write = entry(Body::Command(command(vec![put(2, "b", 6)])), 1);
        let judged = entry(Body::Command(when(condition, vec![])), 1);
        let outcomes = apply_all(&shard, &[write, judged]);
        let changed = Outcome::Rejected(Rejection::RangeChanged { table: TABLE });
        assert_eq!(outcomes[1], EntryOutcome::Command(changed), "{index:?}");
    }
}

fn add_to_score(number: i32) -> Program {
    let score = Expr::Column(ColumnNumber(3), Type::Int4);
    let number = Expr::Constant(Value::Int4(number), Type::Int4);
    let sum = Expr::Arithmetic(Arithmetic::Add, Box::new(score), Box::new(number));
    Program { guard: None, assignments: vec![(ColumnNumber(3), sum)] }
}

fn program(id: i32, program: Program, returning: bool) -> Write {
    Write::Program { table: TABLE, key: key(id), program, returning }
}

#[test]
fn a_program_changes_a_row_and_its_index_entries() {
    let shard = shard();
    run(&shard, command(vec![insert(1, "a", 5), insert(2, "b", 6)]));
    let outcome =
        run(&shard, command(vec![program(1, add_to_score(10), true), program(9, add_to_score(1), false)]));
    let Outcome::Applied(Receipt { effects, .. }) = outcome else { panic!("applied: {outcome:?}") };
    let Effect::Row(row) = &effects[0] else { panic!("the row was asked for") };
    assert_eq!(show_row(row), "1:a:15");
    assert_eq!(RowView::new(row).expect("a row").revision(), 2);
    assert_eq!(effects[1], Effect::Rows(0));
    assert_eq!(show_by(&shard, Some(BY_SCORE), false), "1:a:15 2:b:6");
    // Twice in one command, each on what the other left.
    run(&shard, command(vec![program(1, add_to_score(1), false), program(1, add_to_score(1), false)]));
    assert_eq!(show(&shard), "1:a:17 2:b:6");
    assert_sound(&shard);
}

#[test]
fn a_program_that_fails_or_is_guarded_changes_nothing() {
    let shard = shard();
    run(&shard, command(vec![insert(1, "a", 5)]));
    let code = |outcome| match outcome {
        Outcome::Rejected(Rejection::Program { code, message }) => (code, message),
        other => panic!("the program fails: {other:?}"),
    };
    let (found, message) = code(run(&shard, command(vec![program(1, add_to_score(i32::MAX), false)])));
    assert_eq!((found, message.as_str()), (Code::NumericValueOutOfRange, "integer out of range"));
    let null = Expr::Constant(Value::Null, Type::Int4);
    let to_null = Program { guard: None, assignments: vec![(ColumnNumber(3), null)] };
    let (found, message) = code(run(&shard, command(vec![program(1, to_null, false)])));
    assert_eq!(found, Code::NotNullViolation);
    assert_eq!(message, "null value in column \"score\" of relation \"t\" violates not-null constraint");
    let mut guarded = add_to_score(1);
    guarded.guard = Some(Expr::Compare(
        Comparison::Greater,
        Box::new(Expr::Column(ColumnNumber(3), Type::Int4)),
        Box::new(Expr::Constant(Value::Int4(100), Type::Int4)),
    ));
    assert_eq!(run(&shard, command(vec![program(1, guarded, false)])), applied(2, &[0]));
    assert_eq!(show(&shard), "1:a:5");
}

#[test]
fn a_truncated_table_begins_again_under_a_new_storage() {
    let shard = shard();
    run(&shard, command(vec![insert(1, "a", 5), insert(2, "b", 6)]));
    let old = shard.snapshot();
    let writes = vec![insert(3, "c", 7), Write::Truncate { table: TABLE }, insert(1, "a", 9)];
    assert_eq!(run(&shard, command(writes)), applied(2, &[1, 3, 1]));
    assert_eq!(show(&shard), "1:a:9");
    assert_eq!(shard.snapshot().storage_generation(&partition(), TABLE).expect("read"), Revision(2));
    // A snapshot from before still sees what it saw.
    assert_eq!(old.storage_generation(&partition(), TABLE).expect("read"), Revision(0));
    assert!(old.get(&partition(), TABLE, &key(2)).expect("read").is_some());
    assert!(shard.snapshot().get(&partition(), TABLE, &key(2)).expect("read").is_none());
    assert_sound(&shard);
    let before = shard.hash(Points::ALL).expect("read");
    let mut collected = 0;
    while let n @ 1.. = shard.collect().expect("collect") {
        collected += n;
    }
    // Two rows, two names, two scores, and the record itself.
    assert_eq!(collected, 7);
    assert_eq!(shard.hash(Points::ALL).expect("read"), before);
    assert_eq!(show(&shard), "1:a:9");
}

#[test]
fn a_sequence_gives_each_number_once_and_ends() {
    let shard = shard();
    let reserve = |count| run(&shard, command(vec![Write::Reserve { sequence: SEQUENCE, count }]));
    let effect = |outcome| match outcome {
        Outcome::Applied(receipt) => receipt.effects[0].clone(),
        Outcome::Rejected(rejection) => panic!("{rejection:?}"),
    };
    assert_eq!(effect(reserve(4)), Effect::Reserved { first: 1, count: 4 });
    assert_eq!(effect(reserve(4)), Effect::Reserved { first: 5, count: 4 });
    assert_eq!(effect(reserve(4)), Effect::Reserved { first: 9, count: 2 }, "as many as there are");
    assert_eq!(reserve(1), Outcome::Rejected(Rejection::SequenceExhausted { sequence: SEQUENCE }));
    run(&shard, command(vec![Write::SetSequence { sequence: SEQUENCE, value: 3, called: true }]));
    assert_eq!(effect(reserve(1)), Effect::Reserved { first: 4, count: 1 });
}

#[test]
fn a_command_needs_a_descriptor_that_fits_its_plan() {
    let shard = shard();
    let mut stale = command(vec![insert(1, "a", 1)]);
    stale.catalog = CatalogVersion(0);
    assert_eq!(run(&shard, stale), Outcome::Rejected(Rejection::DescriptorChanged { table: TABLE }));
    let missing = TableId(999);
    let write = Write::Delete { table: missing, key: key(1) };
    assert_eq!(
        run(&shard, command(vec![write])),
        Outcome::Rejected(Rejection::TableMissing { table: missing })
    );
    let dropped = Descriptors { dropped_tables: vec![TABLE], ..Descriptors::default() };
    run(&shard, command(vec![insert(1, "a", 1)]));
    apply(&shard, &entry(Body::Descriptors(dropped), 1));
    let outcome = run(&shard, command(vec![insert(2, "b", 1)]));
    assert_eq!(outcome, Outcome::Rejected(Rejection::TableMissing { table: TABLE }));
    let before = shard.hash(Points::ALL).expect("read");
    while shard.collect().expect("collect") > 0 {}
    assert_eq!(shard.hash(Points::ALL).expect("read"), before);
    assert_eq!(shard.snapshot().partitions(TABLE).expect("read"), []);
}

#[test]
fn an_entry_of_another_claim_is_fenced() {
    let shard = shard();
    let claim =
        Body::Claim { epoch: Epoch(3), node: model::id::NodeId(1), boot: model::id::Boot(1), nonce: 9 };
    assert_eq!(apply(&shard, &entry(claim.clone(), 1)), EntryOutcome::Done);
    assert_eq!(apply(&shard, &entry(claim, 1)), EntryOutcome::Fenced, "an epoch is claimed once");
    let stamped = |epoch| LogEntry {
        stamp: Stamp { time: at(2), epoch: Epoch(epoch) },
        body: Body::Command(command(vec![insert(1, "a", 1)])),
    };
    let fenced = EntryOutcome::Command(Outcome::Rejected(Rejection::Fenced));
    assert_eq!(apply(&shard, &stamped(2)), fenced);
    assert_eq!(apply(&shard, &stamped(3)), EntryOutcome::Command(applied(1, &[1])));
}

#[test]
fn a_command_past_its_deadline_is_refused_and_clocks_never_go_back() {
    let shard = shard();
    let mut late = command(vec![insert(1, "a", 1)]);
    late.time_left = Some(2_000_000);
    apply(&shard, &entry(Body::Clock, 10));
    assert_eq!(run_at(&shard, 7, late.clone()), Outcome::Rejected(Rejection::DeadlinePassed));
    assert_eq!(shard.head().time, at(10));
    assert_eq!(run_at(&shard, 8, late), applied(1, &[1]));
    let row = shard.snapshot().get(&partition(), TABLE, &key(1)).expect("read").expect("it was added");
    assert_eq!(RowView::new(&row).expect("a row").updated_at(), at(10).wall.micros());
}

#[test]
fn the_feed_tells_what_changed_and_what_came_before() {
    let shard = shard();
    run(&shard, command(vec![insert(1, "a", 5), insert(2, "b", 6)]));
    run(&shard, command(vec![delete(9)]));
    run(&shard, command(vec![put(1, "a", 7), delete(2)]));
    run(&shard, command(vec![Write::Truncate { table: TABLE }]));
    let page = shard.snapshot().feed(&partition(), Revision(0), 10).expect("read");
    let shown: Vec<(u64, u64, Vec<FeedKind>)> = page
        .records
        .iter()
        .map(|(revision, record)| {
            let kinds = record.changes.iter().map(|change| change.kind).collect();
            (revision.0, record.previous.0, kinds)
        })
        .collect();
    use FeedKind::{Deleted, Inserted, Replaced, Updated};
    let expected =
        vec![(1, 0, vec![Inserted, Inserted]), (3, 1, vec![Updated, Deleted]), (4, 3, vec![Replaced])];
    assert_eq!(shown, expected, "a command without effect has no record");
    assert_eq!((page.floor, page.last), (Revision(0), Revision(4)));
    let rest = shard.snapshot().feed(&partition(), Revision(1), 1).expect("read");
    assert_eq!(rest.records[0].0, Revision(3));
}

#[test]
fn an_entry_out_of_order_stops_the_replica_without_a_trace() {
    let shard = shard();
    let before = shard.hash(Points::ALL).expect("read");
    let log_id = crate::log::LogId { term: 1, node: 1, index: 7 };
    let blank = crate::shard::Entry { log_id, payload: crate::shard::Payload::Blank };
    assert!(matches!(shard.apply(&[blank]), Err(crate::Error::OutOfOrder { given: 7, .. })));
    let unknown = Bytes::from_static(&[0x63, 1, 0, 0, 0]);
    let log_id = crate::log::LogId { term: 1, node: 1, index: 2 };
    let entry = crate::shard::Entry { log_id, payload: crate::shard::Payload::Encoded(&unknown) };
    assert!(matches!(shard.apply(&[entry]), Err(crate::Error::Codec(_))));
    assert_eq!(shard.hash(Points::ALL).expect("read"), before);
    assert_eq!(shard.applied_index(), Some(1));
}

#[test]
fn a_group_that_failed_is_not_remembered() {
    let shard = shard();
    let mut slotted = command(vec![insert(1, "a", 1)]);
    slotted.identity = slot(5);
    let good = entry(Body::Command(slotted.clone()), 1);
    let entry_at = |index, entry| crate::shard::Entry {
        log_id: crate::log::LogId { term: 1, node: 1, index },
        payload: crate::shard::Payload::Decoded(entry),
    };
    assert!(shard.apply(&[entry_at(2, &good), entry_at(9, &good)]).is_err());
    assert_eq!(show(&shard), "");
    assert_eq!(run(&shard, slotted), applied(1, &[1]), "it was never executed");
}

#[test]
fn a_quarantined_replica_applies_nothing_and_its_neighbour_goes_on() {
    let engine = crate::engine::Engine::in_memory();
    let (one, other) = (shard_in(&engine, 0), shard_in(&engine, 1));
    one.quarantine("a bug");
    let log_id = crate::log::LogId { term: 1, node: 1, index: 2 };
    let blank = crate::shard::Entry { log_id, payload: crate::shard::Payload::Blank };
    assert!(matches!(one.apply(&[blank]), Err(crate::Error::Quarantined { .. })));
    assert_eq!(run(&other, command(vec![insert(1, "a", 1)])), applied(1, &[1]));
}

#[test]
fn a_panic_stops_only_the_replica_it_happens_in_and_leaves_no_trace() {
    let engine = crate::engine::Engine::in_memory();
    let (one, other) = (shard_in(&engine, 0), shard_in(&engine, 1));
    // A descriptor that no decoder lets through: an index on a column that does not exist.
    let mut broken = table();
    broken.version = 2;
    broken.indexes[2].parts[0].column = ColumnNumber(99);
    let held = crate::codec::entry::Held { table: broken, since: CatalogVersion(1) };
    let bodies = [
        Body::Descriptors(Descriptors { tables: vec![held], ..Descriptors::default() }),
        Body::Command(command(vec![insert(1, "a", 1)])),
    ];
    let before = one.hash(Points::ALL).expect("read");
    let entries = bodies.map(|body| entry(body, 1));
    let log_id = |index| crate::log::LogId { term: 1, node: 1, index };
    let group: Vec<_> = (2..)
        .zip(&entries)
        .map(|(index, entry)| crate::shard::Entry {
            log_id: log_id(index),
            payload: crate::shard::Payload::Decoded(entry),
        })
        .collect();
    assert!(matches!(one.apply(&group), Err(crate::Error::Quarantined { .. })));
    assert!(one.quarantined().is_some_and(|reason| reason.contains("index out of bounds")));
    assert_eq!(one.hash(Points::ALL).expect("read"), before);
    assert_eq!(run(&other, command(vec![insert(1, "a", 1)])), applied(1, &[1]));
}

#[test]
fn hot_state_comes_back_when_a_shard_is_opened_again() {
    let engine = crate::engine::Engine::in_memory();
    let shard = shard_in(&engine, 0);
    run(&shard, command(vec![insert(1, "a", 5), Write::Truncate { table: TABLE }, insert(2, "b", 6)]));
    let again = Shard::open(&engine, SHARD, 0).expect("it is there");
    assert_eq!(again.applied(), shard.applied());
    assert_eq!(again.head(), shard.head());
    assert_eq!(show(&again), "2:b:6");
    assert_eq!(again.held(TABLE).expect("held").held(), shard.held(TABLE).expect("held").held());
    assert_eq!(run(&again, command(vec![insert(3, "c", 1)])), applied(2, &[1]));
    assert_sound(&again);
}
