//! INSERT, UPDATE, DELETE and their clauses, as plans.

use std::sync::Arc;

use model::{
    Code, Result, Type, Value,
    id::{ColumnNumber, IndexId},
    schema::{ForeignKey, Referential, Table},
};

use super::{column, int, naive::Row, operator, plan, scans::values};
use crate::{
    copy::{CopyFrom, Format, Options},
    execute::{
        fixture::{Memory, PLENTY, index, no_rules, rows_of, runtime_over, table, wait},
        open,
    },
    expr::Expr,
    plan::{
        Access, ConflictAction, Delete, Insert, Merge, MergeAction, MergeClause, Node, OnConflict,
        Partitions, Plan, RowRules, Scan, ScanColumn, Target, Update,
    },
    txn::Overlay,
};

const TYPES: [Type; 3] = [Type::Int4, Type::Int4, Type::Text];

fn accounts() -> Table {
    let mut table = table(
        100,
        "accounts",
        &[("id", Type::Int4, true), ("balance", Type::Int4, true), ("email", Type::Text, false)],
    );
    table.indexes.push(index(110, "accounts_email", 3, true));
    table
}

/// Children of accounts.
fn orders(on_delete: Referential) -> Table {
    let mut table = table(200, "orders", &[("id", Type::Int4, true), ("account", Type::Int4, false)]);
    table.indexes.push(index(210, "orders_account", 2, false));
    table.foreign_keys.push(ForeignKey {
        name: "orders_account_fkey".to_owned(),
        columns: vec![ColumnNumber(2)],
        parent: model::id::TableId(100),
        parent_columns: vec![ColumnNumber(1)],
        on_delete,
        on_update: Referential::Cascade,
    });
    table
}

fn account(id: i32, balance: i32, email: &str) -> Row {
    vec![Value::Int4(id), Value::Int4(balance), Value::text(email)]
}

/// Runs a changing plan in autocommit, or in a transaction of its own that is committed at once.
fn run(memory: &Arc<Memory>, node: Node, returns: &[Type], explicit: bool) -> Result<(u64, Vec<Row>)> {
    let runtime = runtime_over(memory, PLENTY, explicit, Overlay::default());
    let rows = rows_of(open(&plan(node, returns), &runtime)?)?;
    let affected = runtime.affected_by(0);
    memory.commit(runtime.statement.take_writes())?;
    Ok((affected, rows))
}

fn insert_node(memory: &Memory, id: u32, types: &[Type], rows: &[Row]) -> Insert {
    Insert {
        table: memory.table(id),
        source: values(types, rows),
        rules: no_rules(),
        on_conflict: None,
        returning: None,
    }
}

fn insert(memory: &Arc<Memory>, rows: &[Row], explicit: bool) -> Result<u64> {
    Ok(run(memory, Node::Insert(insert_node(memory, 100, &TYPES, rows)), &[], explicit)?.0)
}

/// All rows of a table with their places, as the source of a change: columns, then partition, key and stored row.
fn source(memory: &Memory, id: u32, types: &[Type], filter: Option<Expr>) -> (Box<Plan>, Target) {
    let width = types.len();
    let mut columns: Vec<ScanColumn> =
        (1..=width as u16).map(|number| ScanColumn::Column(ColumnNumber(number))).collect();
    columns.extend([ScanColumn::Partition, ScanColumn::Key, ScanColumn::Row]);
    let scan = Scan {
        table: memory.table(id),
        alias: "t".to_owned(),
        partitions: Partitions::Default,
        access: Access::Full { index: None },
        reverse: false,
        columns,
        filter,
        ordered: false,
    };
    let types = [types, &[Type::Bytea; 3]].concat();
    (Box::new(plan(Node::Scan(scan), &types)), Target { partition: width, key: width + 1, row: width + 2 })
}

fn update(memory: &Memory, assignments: Vec<(u16, Expr)>, filter: Option<Expr>) -> Update {
    let (source, target) = source(memory, 100, &TYPES, filter);
    Update {
        table: memory.table(100),
        source,
        target,
        assignments: assignments.into_iter().map(|(number, expr)| (ColumnNumber(number), expr)).collect(),
        condition: None,
        rules: no_rules(),
        returning: None,
    }
}

fn delete(memory: &Memory, id: u32, types: &[Type], filter: Option<Expr>) -> Node {
    let (source, target) = source(memory, id, types, filter);
    Node::Delete(Delete { table: memory.table(id), source, target, condition: None, returning: None })
}

fn plus(place: usize, value: i32) -> Expr {
    operator("+", column(place, Type::Int4), int(value))
}

const BOTH: [bool; 2] = [false, true];

#[test]
fn inserted_rows_are_stored_and_returned() {
    for explicit in BOTH {
        let memory = Memory::new(vec![accounts()]);
        let mut node = insert_node(&memory, 100, &TYPES, &[account(1, 10, "a"), account(2, 20, "b")]);
        node.returning = Some(vec![plus(1, 1)]);
        let (affected, rows) = run(&memory, Node::Insert(node), &[Type::Int4], explicit).expect("new rows");
        assert_eq!((affected, rows), (2, vec![vec![Value::Int4(11)], vec![Value::Int4(21)]]));
        assert_eq!(memory.rows(100), [account(1, 10, "a"), account(2, 20, "b")]);
    }
}

#[test]
fn a_taken_key_is_refused_with_postgresqls_words() {
    for explicit in BOTH {
        let memory = Memory::new(vec![accounts()]);
        insert(&memory, &[account(1, 10, "a")], explicit).expect("a new row");
        let error = insert(&memory, &[account(2, 0, "b"), account(1, 0, "c")], explicit).expect_err("taken");
        assert_eq!(error.code(), Code::UniqueViolation);
        assert_eq!(error.message(), "duplicate key value violates unique constraint \"accounts_pkey\"");
        assert_eq!(error.detail(), Some("Key (id)=(1) already exists."));
        assert_eq!(error.object().constraint.as_deref(), Some("accounts_pkey"));
        assert_eq!(memory.rows(100).len(), 1, "nothing of the statement stays");
        let twice = insert(&memory, &[account(3, 0, "x"), account(3, 0, "y")], explicit).expect_err("twice");
        assert_eq!(twice.detail(), Some("Key (id)=(3) already exists."));
    }
    let memory = Memory::new(vec![accounts()]);
    insert(&memory, &[account(1, 10, "a")], true).expect("a new row");
    let error = insert(&memory, &[account(2, 0, "a")], true).expect_err("the email is taken");
    assert_eq!(error.detail(), Some("Key (email)=(a) already exists."));
}

#[test]
fn null_and_checks_are_refused_with_the_failing_row() {
    let memory = Memory::new(vec![accounts()]);
    let row = vec![Value::Int4(1), Value::Null, Value::text("a")];
    let error = insert(&memory, &[row], false).expect_err("null");
    assert_eq!(error.code(), Code::NotNullViolation);
    assert_eq!(
        error.message(),
        "null value in column \"balance\" of relation \"accounts\" violates not-null constraint"
    );
    assert_eq!(error.detail(), Some("Failing row contains (1, null, a)."));
    assert_eq!(error.object().column.as_deref(), Some("balance"));
    let mut node = insert_node(&memory, 100, &TYPES, &[account(1, -5, "a")]);
    let positive = operator(">=", column(1, Type::Int4), int(0));
    node.rules = RowRules { generated: Vec::new(), checks: vec![("positive".to_owned(), positive)] };
    let error = run(&memory, Node::Insert(node), &[], false).expect_err("a check");
    assert_eq!(error.message(), "new row for relation \"accounts\" violates check constraint \"positive\"");
}

#[test]
fn generated_columns_are_computed_before_checks_look() {
    let memory = Memory::new(vec![accounts()]);
    let row = vec![Value::Int4(4), Value::Null, Value::text("a")];
    let mut node = insert_node(&memory, 100, &TYPES, &[row]);
    node.rules.generated = vec![(ColumnNumber(2), plus(0, 100))];
    run(&memory, Node::Insert(node), &[], false).expect("a computed balance");
    assert_eq!(memory.rows(100), [account(4, 104, "a")]);
}

#[test]
fn on_conflict_leaves_out_or_changes() {
    for explicit in BOTH {
        let memory = Memory::new(vec![accounts()]);
        insert(&memory, &[account(1, 10, "a")], explicit).expect("a new row");
        let mut node =
            insert_node(&memory, 100, &TYPES, &[account(1, 1, "x"), account(2, 2, "b"), account(2, 3, "c")]);
        node.on_conflict = Some(OnConflict { indexes: Vec::new(), action: ConflictAction::Nothing });
        let (affected, _) = run(&memory, Node::Insert(node), &[], explicit).expect("left out");
        assert_eq!(affected, 1);
        assert_eq!(memory.rows(100), [account(1, 10, "a"), account(2, 2, "b")]);

        let upsert = |rows: &[Row]| {
            let mut node = insert_node(&memory, 100, &TYPES, rows);
            // balance = accounts.balance + excluded.balance where excluded.balance > 0
            let sum = operator("+", column(1, Type::Int4), column(4, Type::Int4));
            node.on_conflict = Some(OnConflict {
                indexes: vec![IndexId(101)],
                action: ConflictAction::Update {
                    assignments: vec![(ColumnNumber(2), sum)],
                    condition: Some(operator(">", column(4, Type::Int4), int(0))),
                },
            });
            node.returning = Some(vec![column(1, Type::Int4)]);
            Node::Insert(node)
        };
        let rows = [account(1, 5, "q"), account(2, -1, "q"), account(3, 7, "d")];
        let (affected, returned) = run(&memory, upsert(&rows), &[Type::Int4], explicit).expect("an upsert");
        assert_eq!((affected, returned), (2, vec![vec![Value::Int4(15)], vec![Value::Int4(7)]]));
        assert_eq!(memory.rows(100), [account(1, 15, "a"), account(2, 2, "b"), account(3, 7, "d")]);
        let twice = run(&memory, upsert(&[account(9, 1, "z"), account(9, 1, "z")]), &[Type::Int4], explicit);
        assert_eq!(twice.expect_err("the same key twice").code(), Code::CardinalityViolation);
    }
}

#[test]
fn updated_rows_keep_what_is_not_assigned() {
    for explicit in BOTH {
        let memory = Memory::new(vec![accounts()]);
        insert(&memory, &[account(1, 10, "a"), account(2, 20, "b")], explicit).expect("new rows");
        let mut node =
            update(&memory, vec![(2, plus(1, 1))], Some(operator("=", column(0, Type::Int4), int(2))));
        node.returning = Some(vec![column(0, Type::Int4), column(1, Type::Int4)]);
        let (affected, rows) =
            run(&memory, Node::Update(node), &[Type::Int4; 2], explicit).expect("a change");
        assert_eq!((affected, rows), (1, vec![vec![Value::Int4(2), Value::Int4(21)]]));
        assert_eq!(memory.rows(100), [account(1, 10, "a"), account(2, 21, "b")]);
    }
}

#[test]
fn keys_may_wander_between_rows_of_one_update() {
    for explicit in BOTH {
        let memory = Memory::new(vec![accounts()]);
        insert(&memory, &[account(1, 10, "a"), account(2, 20, "b"), account(3, 30, "c")], explicit)
            .expect("new rows");
        let (affected, _) =
            run(&memory, Node::Update(update(&memory, vec![(1, plus(0, 1))], None)), &[], explicit)
                .expect("moved");
        assert_eq!(affected, 3);
        assert_eq!(memory.rows(100), [account(2, 10, "a"), account(3, 20, "b"), account(4, 30, "c")]);
        let first = operator("=", column(0, Type::Int4), int(2));
        let onto = run(&memory, Node::Update(update(&memory, vec![(1, int(4))], Some(first))), &[], explicit);
        assert_eq!(onto.expect_err("4 stays").detail(), Some("Key (id)=(4) already exists."));
    }
}

#[test]
fn deleted_rows_go_and_a_row_found_twice_goes_once() {
    for explicit in BOTH {
        let memory = Memory::new(vec![accounts()]);
        insert(&memory, &[account(1, 10, "a"), account(2, 20, "b")], explicit).expect("new rows");
        let node = delete(&memory, 100, &TYPES, Some(operator("=", column(0, Type::Int4), int(1))));
        assert_eq!(run(&memory, node, &[], explicit).expect("one row").0, 1);
        let (scan, target) = source(&memory, 100, &TYPES, None);
        let (again, _) = source(&memory, 100, &TYPES, None);
        let types = [&TYPES[..], &[Type::Bytea; 3]].concat();
        let doubled = plan(
            Node::SetOperation { kind: crate::plan::SetKind::Union, all: true, left: scan, right: again },
            &types,
        );
        let node = Delete {
            table: memory.table(100),
            source: Box::new(doubled),
            target,
            condition: None,
            returning: None,
        };
        assert_eq!(run(&memory, Node::Delete(node), &[], explicit).expect("one row").0, 1);
        assert!(memory.rows(100).is_empty());
    }
}

fn order(id: i32, account: Option<i32>) -> Row {
    vec![Value::Int4(id), account.map_or(Value::Null, Value::Int4)]
}

fn with_orders(on_delete: Referential) -> Arc<Memory> {
    let memory = Memory::new(vec![accounts(), orders(on_delete)]);
    insert(&memory, &[account(1, 0, "a"), account(2, 0, "b")], false).expect("parents");
    let rows = [order(1, Some(1)), order(2, Some(2)), order(3, None), order(4, Some(1))];
    let node = insert_node(&memory, 200, &[Type::Int4; 2], &rows);
    run(&memory, Node::Insert(node), &[], false).expect("children");
    memory
}

#[test]
fn a_child_needs_its_parent() {
    for explicit in BOTH {
        let memory = with_orders(Referential::NoAction);
        let node = insert_node(&memory, 200, &[Type::Int4; 2], &[order(9, Some(7))]);
        let error = run(&memory, Node::Insert(node), &[], explicit).expect_err("no parent");
        assert_eq!(error.code(), Code::ForeignKeyViolation);
        assert_eq!(
            error.message(),
            "insert or update on table \"orders\" violates foreign key constraint \"orders_account_fkey\""
        );
        assert_eq!(error.detail(), Some("Key (account)=(7) is not present in table \"accounts\"."));
    }
}

#[test]
fn a_parent_with_children_stays_or_takes_them_along() {
    let first = || Some(operator("=", column(0, Type::Int4), int(1)));
    for explicit in BOTH {
        let memory = with_orders(Referential::NoAction);
        let error = run(&memory, delete(&memory, 100, &TYPES, first()), &[], explicit).expect_err("children");
        assert_eq!(error.detail(), Some("Key (id)=(1) is still referenced from table \"orders\"."));

        let memory = with_orders(Referential::Cascade);
        run(&memory, delete(&memory, 100, &TYPES, first()), &[], explicit).expect("cascades");
        assert_eq!(memory.rows(200), [order(2, Some(2)), order(3, None)]);

        let memory = with_orders(Referential::SetNull);
        run(&memory, delete(&memory, 100, &TYPES, first()), &[], explicit).expect("sets null");
        assert_eq!(memory.rows(200), [order(1, None), order(2, Some(2)), order(3, None), order(4, None)]);

        let memory = with_orders(Referential::NoAction);
        let node = update(&memory, vec![(1, int(5))], first());
        run(&memory, Node::Update(node), &[], explicit).expect("cascades");
        assert_eq!(
            memory.rows(200),
            [order(1, Some(5)), order(2, Some(2)), order(3, None), order(4, Some(5))]
        );
    }
}

#[test]
fn copy_puts_rows_in_and_names_the_line_that_is_wrong() {
    let memory = Memory::new(vec![accounts()]);
    let columns: Vec<ColumnNumber> = (1..=3).map(ColumnNumber).collect();
    let load = |chunks: &[&str]| -> Result<u64> {
        let runtime = runtime_over(&memory, PLENTY, false, Overlay::default());
        let options =
            Options { format: Format::Csv, delimiter: b',', null: String::new(), ..Options::default() };
        let mut copy = CopyFrom::new(&memory.table(100), &columns, &options, &runtime)?;
        wait(async {
            for chunk in chunks {
                copy.write(chunk.as_bytes()).await?;
            }
            copy.finish().await
        })?;
        memory.commit(runtime.statement.take_writes())?;
        Ok(copy.rows())
    };
    assert_eq!(load(&["1,10,a\n2,", "20,\n"]).expect("two rows"), 2);
    assert_eq!(memory.rows(100), [account(1, 10, "a"), vec![Value::Int4(2), Value::Int4(20), Value::Null]]);
    let context = |chunks: &[&str]| {
        let error = load(chunks).expect_err("bad data");
        (error.code(), error.context().map(str::to_owned))
    };
    assert_eq!(
        context(&["3,1,x\n4,oops,y\n"]),
        (Code::InvalidTextRepresentation, Some("COPY accounts, line 2, column balance: \"oops\"".to_owned()))
    );
    assert_eq!(
        context(&["5,1\n"]),
        (Code::BadCopyFileFormat, Some("COPY accounts, line 1: \"5,1\"".to_owned()))
    );
    assert_eq!(context(&["6,1,a,b\n"]).0, Code::BadCopyFileFormat);
    assert_eq!(
        context(&["7,1,q\n8,,r\n"]),
        (Code::NotNullViolation, Some("COPY accounts, line 2: \"8,,r\"".to_owned()))
    );
    assert_eq!(memory.rows(100).len(), 2, "nothing of a failed COPY stays");
}

#[test]
fn merge_does_the_first_clause_that_fits() {
    for explicit in BOTH {
        let memory = Memory::new(vec![accounts()]);
        insert(&memory, &[account(1, 10, "a"), account(2, 20, "b"), account(3, 30, "c")], explicit)
            .expect("new rows");
        // Data (id, amount) joined to accounts: 1 is changed, 2 removed, 4 added, 5 left alone.
        let data: Vec<Row> = [(1, 5), (2, 0), (4, 7), (5, -1)]
            .map(|(id, amount)| vec![Value::Int4(id), Value::Int4(amount)])
            .to_vec();
        let (target_scan, _) = source(&memory, 100, &TYPES, None);
        let data_types = [Type::Int4; 2];
        let types = [&data_types[..], &TYPES, &[Type::Bytea; 3]].concat();
        let join = crate::plan::Join {
            kind: crate::plan::JoinKind::Left,
            strategy: crate::plan::Strategy::Hash,
            left: values(&data_types, &data),
            right: target_scan,
            keys: vec![(column(0, Type::Int4), column(0, Type::Int4))],
            residual: None,
        };
        // Over the target's three columns, then the source's eight.
        let (id, amount) = (column(3, Type::Int4), column(4, Type::Int4));
        let clause = |matched, condition, action| MergeClause { matched, condition, action };
        let merge = Merge {
            table: memory.table(100),
            source: Box::new(plan(Node::Join(join), &types)),
            target: Target { partition: 5, key: 6, row: 7 },
            clauses: vec![
                clause(true, Some(operator("=", amount.clone(), int(0))), MergeAction::Delete),
                clause(
                    true,
                    None,
                    MergeAction::Update(vec![(
                        ColumnNumber(2),
                        operator("+", column(1, Type::Int4), amount.clone()),
                    )]),
                ),
                clause(
                    false,
                    Some(operator(">", amount.clone(), int(0))),
                    MergeAction::Insert(vec![id, amount, Expr::null(Type::Text)]),
                ),
                clause(false, None, MergeAction::Nothing),
            ],
            rules: no_rules(),
        };
        let (affected, _) = run(&memory, Node::Merge(merge), &[], explicit).expect("a merge");
        assert_eq!(affected, 3);
        let added = vec![Value::Int4(4), Value::Int4(7), Value::Null];
        assert_eq!(memory.rows(100), [account(1, 15, "a"), account(3, 30, "c"), added]);
    }
}
