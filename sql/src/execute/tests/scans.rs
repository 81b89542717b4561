//! Scans: key ranges, indexes and filters, as plans.

use std::sync::Arc;

use model::{
    Type, Value,
    id::{ColumnNumber, IndexId},
    schema::Table,
};

use super::{column, int, naive::Row, operator, plan, shape};
use crate::{
    execute::{
        fixture::{Memory, PLENTY, index, rows_of, runtime_over, table, wait},
        open,
    },
    expr::Expr,
    plan::{
        Access, Apply, Insert, JoinKind, KeyRange, Keys, LockRows, LockWait, Node, Partitions, Plan, RowLock,
        Scan, ScanColumn, Target,
    },
    txn::Overlay,
};

const TYPES: [Type; 3] = [Type::Int4, Type::Int4, Type::Text];

fn items() -> Table {
    let mut table = table(
        100,
        "items",
        &[("id", Type::Int4, true), ("size", Type::Int4, false), ("name", Type::Text, false)],
    );
    table.indexes.push(index(110, "items_size", 2, false));
    table
}

fn row(id: i32, size: Option<i32>, name: &str) -> Row {
    vec![Value::Int4(id), size.map_or(Value::Null, Value::Int4), Value::text(name)]
}

pub(super) fn values(types: &[Type], rows: &[Row]) -> Box<Plan> {
    let exprs =
        |row: &Row| row.iter().zip(types).map(|(value, ty)| Expr::constant(value.clone(), *ty)).collect();
    Box::new(plan(Node::Values(rows.iter().map(exprs).collect()), types))
}

/// What a transaction has written when it inserted these rows.
fn inserted(memory: &Arc<Memory>, id: u32, types: &[Type], rows: &[Row]) -> Overlay {
    let runtime = runtime_over(memory, PLENTY, false, Overlay::default());
    let insert = Insert {
        table: memory.table(id),
        source: values(types, rows),
        rules: crate::execute::fixture::no_rules(),
        on_conflict: None,
        returning: None,
    };
    let insert = plan(Node::Insert(insert), &[]);
    let mut operator = open(&insert, &runtime).expect("a plan");
    wait(async { operator.next().await }).expect("new rows");
    runtime.statement.take_writes()
}

fn filled() -> Arc<Memory> {
    let memory = Memory::new(vec![items()]);
    let rows: Vec<Row> = (0..20).map(|id| row(id, (id % 7 != 3).then_some(id % 5), "stored")).collect();
    memory.commit(inserted(&memory, 100, &TYPES, &rows)).expect("new rows");
    memory
}

fn scan(memory: &Memory, access: Access, reverse: bool, filter: Option<Expr>) -> Plan {
    let scan = Scan {
        table: memory.table(100),
        alias: "items".to_owned(),
        partitions: Partitions::Default,
        access,
        reverse,
        columns: (1..=3).map(|number| ScanColumn::Column(ColumnNumber(number))).collect(),
        filter,
        ordered: true,
    };
    plan(Node::Scan(scan), &TYPES)
}

/// Ids of what a scan gives, with the transaction's own rows.
fn ids(
    memory: &Arc<Memory>,
    overlay: &Overlay,
    access: Access,
    reverse: bool,
    filter: Option<Expr>,
) -> Vec<i64> {
    let runtime = runtime_over(memory, PLENTY, true, overlay.clone());
    let rows =
        rows_of(open(&scan(memory, access, reverse, filter), &runtime).expect("a plan")).expect("rows");
    rows.iter().map(|row| row[0].as_i64().expect("an id")).collect()
}

#[test]
fn a_full_scan_goes_over_pages_both_ways() {
    let memory = filled();
    let (none, all) = (Overlay::default(), || Access::Full { index: None });
    assert_eq!(ids(&memory, &none, all(), false, None), (0..20).collect::<Vec<i64>>());
    assert_eq!(ids(&memory, &none, all(), true, None), (0..20).rev().collect::<Vec<i64>>());
    let small = operator("<", column(0, Type::Int4), int(3));
    assert_eq!(ids(&memory, &none, all(), false, Some(small)), [0, 1, 2]);
}

#[test]
fn a_range_begins_and_ends_where_it_says() {
    let memory = filled();
    let none = Overlay::default();
    let range =
        |lower, upper| Access::Range { index: None, range: KeyRange { lower, upper, ..KeyRange::default() } };
    assert_eq!(
        ids(&memory, &none, range(Some((int(3), true)), Some((int(6), false))), false, None),
        [3, 4, 5]
    );
    assert_eq!(
        ids(&memory, &none, range(Some((int(3), false)), Some((int(6), true))), true, None),
        [6, 5, 4]
    );
    assert_eq!(ids(&memory, &none, range(Some((int(17), true)), None), false, None), [17, 18, 19]);
    let null = Expr::null(Type::Int4);
    assert!(ids(&memory, &none, range(Some((null, true)), None), false, None).is_empty());
}

#[test]
fn an_index_is_read_in_its_order_with_nulls_apart() {
    let memory = filled();
    let none = Overlay::default();
    let by_size = |range: KeyRange| Access::Range { index: Some(IndexId(110)), range };
    let of = |prefix: Vec<Expr>, null, lower| KeyRange { prefix, null, lower, upper: None };
    assert_eq!(ids(&memory, &none, by_size(of(vec![int(1)], None, None)), false, None), [1, 6, 11, 16]);
    assert_eq!(ids(&memory, &none, by_size(of(vec![], Some(true), None)), false, None), [3, 10, 17]);
    assert_eq!(
        ids(&memory, &none, by_size(of(vec![], None, Some((int(4), true)))), false, None),
        [4, 9, 14, 19]
    );
    assert_eq!(ids(&memory, &none, by_size(of(vec![], Some(false), None)), false, None).len(), 17);
}

#[test]
fn keys_are_read_once_each_and_null_finds_nothing() {
    let memory = filled();
    let none = Overlay::default();
    let keys = |list: Vec<Expr>| Access::Keys {
        index: None,
        keys: Keys::List(list.into_iter().map(|key| vec![key]).collect()),
    };
    assert_eq!(
        ids(&memory, &none, keys(vec![int(7), int(2), int(7), int(99), Expr::null(Type::Int4)]), false, None),
        [2, 7]
    );
}

#[test]
fn a_transaction_reads_its_own_writes_by_every_access() {
    let memory = filled();
    // Row 1 gets another size, row 6 goes, rows 30 and -1 come.
    let mut overlay = inserted(&memory, 100, &TYPES, &[row(30, Some(1), "new"), row(-1, Some(1), "new")]);
    let changed =
        inserted(&Memory::new(vec![items()]), 100, &TYPES, &[row(1, Some(4), "new"), row(6, None, "new")]);
    for (place, key, entry) in changed.into_parts().1 {
        let gone = super::super::whole_row(&memory.table(100), entry.row.as_ref().expect("a row"))
            .expect("a row")[0]
            == Value::Int4(6);
        overlay.write(&place.0, place.1, key, crate::txn::Base::Any, entry.row.filter(|_| !gone));
    }
    let mut all: Vec<i64> = (-1..20).filter(|id| *id != 6).collect();
    all.push(30);
    assert_eq!(ids(&memory, &overlay, Access::Full { index: None }, false, None), all);
    all.reverse();
    assert_eq!(ids(&memory, &overlay, Access::Full { index: None }, true, None), all);
    let size = |size| Access::Range {
        index: Some(IndexId(110)),
        range: KeyRange { prefix: vec![int(size)], ..KeyRange::default() },
    };
    assert_eq!(ids(&memory, &overlay, size(1), false, None), [-1, 11, 16, 30]);
    assert_eq!(ids(&memory, &overlay, size(4), true, None), [19, 14, 9, 4, 1]);
    let keys =
        Access::Keys { index: None, keys: Keys::List(vec![vec![int(6)], vec![int(30)], vec![int(1)]]) };
    assert_eq!(ids(&memory, &overlay, keys, false, None), [1, 30]);
    let runtime = runtime_over(&memory, PLENTY, true, overlay);
    let count =
        plan(Node::CountRows { table: memory.table(100), partitions: Partitions::Default }, &[Type::Int8]);
    assert_eq!(rows_of(open(&count, &runtime).expect("a plan")).expect("a count"), [vec![Value::Int8(21)]]);
}

#[test]
fn hidden_columns_say_where_a_row_is() {
    let memory = filled();
    let mut scan = match scan(&memory, Access::Full { index: None }, false, None).node {
        Node::Scan(scan) => scan,
        _ => unreachable!("it was made a scan"),
    };
    scan.columns = vec![ScanColumn::Key, ScanColumn::Revision, ScanColumn::TableOid, ScanColumn::Partition];
    let scan = plan(Node::Scan(scan), &[Type::Bytea, Type::Int8, Type::Oid, Type::Bytea]);
    let runtime = runtime_over(&memory, PLENTY, false, Overlay::default());
    let rows = rows_of(open(&scan, &runtime).expect("a plan")).expect("rows");
    assert_eq!(rows.len(), 20);
    assert_eq!(rows[0][1..3], [Value::Int8(2), Value::Oid(100)]);
    assert_eq!(rows[0][3].as_bytes(), Some(crate::execute::fixture::partition().as_bytes()));
    assert_eq!(shape(&TYPES).columns.len(), 3);
}

#[test]
fn rows_looked_up_by_key_for_a_batch_are_those_of_one_run_per_row() {
    let memory = filled();
    let left: Vec<Row> = [Some(3), None, Some(99), Some(3), Some(5), Some(6)]
        .into_iter()
        .map(|at| vec![at.map_or(Value::Null, Value::Int4), Value::text("left")])
        .collect();
    let left_types = [Type::Int4, Type::Text];
    let outer = Expr::new(crate::expr::Kind::Outer(0), Type::Int4);
    // Rows with id = outer and size < outer.
    let filter = || operator("<", column(1, Type::Int4), outer.clone());
    let by_key = |as_range: bool| {
        let access = if as_range {
            Access::Range {
                index: None,
                range: KeyRange { prefix: vec![outer.clone()], ..KeyRange::default() },
            }
        } else {
            Access::Keys { index: None, keys: Keys::List(vec![vec![outer.clone()]]) }
        };
        scan(&memory, access, false, Some(filter()))
    };
    let overlay = inserted(&memory, 100, &TYPES, &[row(99, Some(1), "new")]);
    for kind in [JoinKind::Inner, JoinKind::Left, JoinKind::Semi, JoinKind::Anti, JoinKind::Single] {
        let run = |as_range: bool| {
            let apply = Apply {
                kind,
                left: values(&left_types, &left),
                right: Box::new(by_key(as_range)),
                outer: vec![column(0, Type::Int4)],
                residual: None,
            };
            let runtime = runtime_over(&memory, PLENTY, true, overlay.clone());
            rows_of(open(&plan(Node::Apply(apply), &[]), &runtime).expect("a plan")).expect("rows")
        };
        assert_eq!(run(false), run(true), "{kind:?}");
        assert!(!run(false).is_empty());
    }
}

#[test]
fn a_measured_statement_tells_rows_read_and_removed() {
    let memory = filled();
    let mut scan = scan(
        &memory,
        Access::Full { index: None },
        false,
        Some(operator("<", column(0, Type::Int4), int(3))),
    );
    scan.id = 7;
    let runtime = runtime_over(&memory, PLENTY, false, Overlay::default()).with_statistics();
    rows_of(open(&scan, &runtime).expect("a plan")).expect("rows");
    let node = runtime.statistics.as_ref().expect("it is measured").node(7);
    assert_eq!((node.loops, node.rows, node.rows_removed, node.partitions), (1, 3, 17, 1));
    assert!(node.bytes_read > 0);
}

#[test]
fn locked_rows_are_given_one_by_one_as_they_are_now() {
    let memory = filled();
    let table = memory.table(100);
    let mut inner = match scan(&memory, Access::Full { index: None }, false, None).node {
        Node::Scan(scan) => scan,
        _ => unreachable!("it was made a scan"),
    };
    inner.columns.extend([ScanColumn::Partition, ScanColumn::Key, ScanColumn::Row]);
    let types = [&TYPES[..], &[Type::Bytea; 3]].concat();
    let lock = LockRows {
        input: Box::new(plan(Node::Scan(inner), &types)),
        tables: vec![RowLock {
            table: Arc::clone(&table),
            target: Target { partition: 3, key: 4, row: 5 },
            columns: (0..3).map(|at| (at, ScanColumn::Column(ColumnNumber(at as u16 + 1)))).collect(),
            mode: model::port::LockMode::Update,
            wait: LockWait::Wait,
        }],
        condition: Some(operator("=", column(1, Type::Int4), int(4))),
    };
    let runtime = runtime_over(&memory, PLENTY, true, Overlay::default());
    let mut operator = open(&plan(Node::LockRows(lock), &types), &runtime).expect("a plan");
    let other =
        inserted(&Memory::new(vec![items()]), 100, &TYPES, &[row(1, Some(4), "new"), row(2, Some(9), "new")]);
    wait(async {
        let first = operator.next().await.expect("a row").expect("20 rows");
        assert_eq!(first.rows()[0][..3], row(0, Some(0), "stored"));
        assert_eq!(runtime.statement.state.locks_held(), 1);
        // Another transaction changes the next two rows before they are locked; one still meets the condition.
        let mut changed = Overlay::default();
        for (place, key, entry) in other.into_parts().1 {
            changed.write(&place.0, place.1, key, crate::txn::Base::Any, entry.row);
        }
        memory.commit(changed).expect("a change");
        let second = operator.next().await.expect("a row").expect("19 rows");
        assert_eq!(second.rows()[0][..3], row(1, Some(4), "new"));
        let third = operator.next().await.expect("a row").expect("17 rows");
        assert_eq!(third.rows()[0][..3], row(3, None, "stored"));
    });
}

#[test]
fn a_long_scan_is_cut_in_two_and_misses_nothing() {
    let memory = filled();
    let mut whole = match scan(&memory, Access::Full { index: None }, false, None).node {
        Node::Scan(scan) => scan,
        _ => unreachable!("it was made a scan"),
    };
    whole.ordered = false;
    let overlay =
        inserted(&memory, 100, &TYPES, &[row(-5, None, "new"), row(14, None, "new"), row(99, None, "new")]);
    let runtime = runtime_over(&memory, PLENTY, true, overlay);
    let rows = rows_of(open(&plan(Node::Scan(whole), &TYPES), &runtime).expect("a plan")).expect("rows");
    let mut ids: Vec<i64> = rows.iter().map(|row| row[0].as_i64().expect("an id")).collect();
    assert!(!ids.is_sorted(), "two ranges are read side by side");
    ids.sort_unstable();
    let expected: Vec<i64> = [-5].into_iter().chain(0..20).chain([99]).collect();
    assert_eq!(ids, expected);
}
