//! Whole queries, as plans.

use std::sync::Arc;

use model::{Code, Result, Type, Value};

use super::{
    column, given, int, key,
    naive::{self, Row},
    operator, plan,
    scans::values,
};
use crate::{
    execute::{
        Expressions, distinct, filter,
        fixture::{PLENTY, rows_of, runtime, wait},
        limit, open,
    },
    expr::{Expr, Kind, Query, Subquery, SubqueryKind},
    functions::{self, Volatility},
    plan::{CommonTable, FunctionScan, Node, Plan, SetExpr},
};

fn numbers(values: &[Option<i32>]) -> Vec<Row> {
    values.iter().map(|value| vec![value.map_or(Value::Null, Value::Int4)]).collect()
}

fn subquery(kind: SubqueryKind, plan: Box<Plan>, outer: Vec<Expr>, ty: Type) -> Expr {
    let query = Query::Physical { plan: Arc::new(*plan), outer };
    Expr::new(Kind::Subquery(Box::new(Subquery { kind, query, text: "".into() })), ty)
}

/// `column [NOT] IN (these)`.
fn in_these(these: &[Option<i32>], negated: bool) -> Expr {
    let symbol = if negated { "<>" } else { "=" };
    let Kind::Operator(operator, _) = operator(symbol, int(1), int(1)).kind else {
        unreachable!("an operator")
    };
    let kind =
        SubqueryKind::Compare { left: vec![column(0, Type::Int4)], operators: vec![operator], all: negated };
    subquery(kind, values(&[Type::Int4], &numbers(these)), Vec::new(), Type::Bool)
}

/// An expression's value for each row.
fn evaluate(expr: Expr, types: &[Type], rows: &[Row]) -> Result<Vec<Value>> {
    let runtime = runtime(PLENTY);
    let mut expressions = Expressions::new(&[expr], types.len());
    let batch = crate::batch::Batch::from_rows(types, rows);
    let columns = wait(expressions.columns(&runtime, &batch))?;
    Ok((0..rows.len()).map(|row| columns[0].value(row)).collect())
}

#[test]
fn in_and_not_in_know_three_truths() {
    let left = numbers(&[Some(1), Some(2), None]);
    let (yes, no, unknown) = (Value::Bool(true), Value::Bool(false), Value::Null);
    for (these, negated, expected) in [
        (vec![Some(1), None], false, [yes.clone(), unknown.clone(), unknown.clone()]),
        (vec![Some(1), None], true, [no.clone(), unknown.clone(), unknown.clone()]),
        (vec![Some(1)], false, [yes.clone(), no.clone(), unknown.clone()]),
        (vec![Some(1)], true, [no.clone(), yes.clone(), unknown.clone()]),
        (vec![], false, [no.clone(), no.clone(), no.clone()]),
        (vec![], true, [yes.clone(), yes.clone(), yes.clone()]),
    ] {
        let found = evaluate(in_these(&these, negated), &[Type::Int4], &left).expect("values");
        assert_eq!(found, expected, "{these:?}, negated {negated}");
    }
}

#[test]
fn a_scalar_subquery_gives_its_only_value() {
    let scalar = |rows: &[Option<i32>]| {
        let query = values(&[Type::Int4], &numbers(rows));
        evaluate(
            subquery(SubqueryKind::Scalar, query, Vec::new(), Type::Int4),
            &[Type::Int4],
            &numbers(&[Some(0)]),
        )
    };
    assert_eq!(scalar(&[Some(5)]).expect("one row"), [Value::Int4(5)]);
    assert_eq!(scalar(&[]).expect("no row"), [Value::Null]);
    assert_eq!(scalar(&[Some(1), Some(2)]).expect_err("two rows").code(), Code::CardinalityViolation);
}

/// `SELECT … FROM (values 1, 2, 2) WHERE value = outer`.
fn matching() -> Box<Plan> {
    let outer = Expr::new(Kind::Outer(0), Type::Int4);
    let condition = operator("=", column(0, Type::Int4), outer);
    let input = values(&[Type::Int4], &numbers(&[Some(1), Some(2), Some(2)]));
    Box::new(plan(Node::Filter { input, condition }, &[Type::Int4]))
}

#[test]
fn a_correlated_subquery_sees_its_row() {
    let rows = numbers(&[Some(1), Some(2), Some(3), None, Some(1)]);
    let outer = || vec![column(0, Type::Int4)];
    let exists =
        evaluate(subquery(SubqueryKind::Exists, matching(), outer(), Type::Bool), &[Type::Int4], &rows);
    let expected = [true, true, false, false, true].map(Value::Bool);
    assert_eq!(exists.expect("values"), expected);
    let ty = Type::Array(model::types::Scalar::Int4);
    let arrays = evaluate(subquery(SubqueryKind::Array, matching(), outer(), ty), &[Type::Int4], &rows)
        .expect("values");
    let counts: Vec<usize> = arrays.iter().map(|array| array.as_array().expect("an array").len()).collect();
    assert_eq!(counts, [1, 2, 0, 0, 1]);
    let scalar =
        evaluate(subquery(SubqueryKind::Scalar, matching(), outer(), Type::Int4), &[Type::Int4], &rows);
    assert_eq!(scalar.expect_err("two rows for 2").code(), Code::CardinalityViolation);
}

#[test]
fn a_filter_with_a_subquery_keeps_what_holds() {
    let rows = numbers(&[Some(1), Some(2), None, Some(7)]);
    let condition =
        Expr::and([in_these(&[Some(1), Some(7)], false), operator("<", column(0, Type::Int4), int(5))]);
    let filter =
        filter::Filter::new(given(&[Type::Int4], &rows), &condition.expect("two parts"), 1, &runtime(PLENTY));
    assert_eq!(rows_of(Box::new(filter)).expect("rows"), numbers(&[Some(1)]));
}

#[test]
fn a_recursion_ends_with_the_first_empty_round() {
    let step = plan(
        Node::Project {
            input: Box::new(plan(
                Node::Filter {
                    input: Box::new(plan(Node::CteScan { id: 3 }, &[Type::Int4])),
                    condition: operator("<", column(0, Type::Int4), int(5)),
                },
                &[Type::Int4],
            )),
            expressions: vec![operator("+", column(0, Type::Int4), int(1))],
        },
        &[Type::Int4],
    );
    let all = Node::Recursive {
        id: 3,
        initial: values(&[Type::Int4], &numbers(&[Some(1), Some(3)])),
        recursive: Box::new(step.clone()),
        all: true,
    };
    let runtime = runtime(PLENTY);
    let rows = rows_of(open(&plan(all, &[Type::Int4]), &runtime).expect("a plan")).expect("rows");
    let expected: Vec<Option<i32>> = [1, 3, 2, 4, 3, 5, 4, 5].map(Some).to_vec();
    assert_eq!(naive::sorted(rows), naive::sorted(numbers(&expected)));
    let different = Node::Recursive {
        id: 3,
        initial: values(&[Type::Int4], &numbers(&[Some(1), Some(3)])),
        recursive: Box::new(step),
        all: false,
    };
    let rows = rows_of(open(&plan(different, &[Type::Int4]), &runtime).expect("a plan")).expect("rows");
    assert_eq!(naive::sorted(rows), numbers(&[1, 2, 3, 4, 5].map(Some)));
}

#[test]
fn a_common_table_is_computed_once() {
    let random = functions::find_functions("random").first().expect("random()");
    assert_eq!(random.volatility, Volatility::Volatile);
    let chance = plan(
        Node::Project {
            input: Box::new(plan(Node::Values(vec![vec![]]), &[])),
            expressions: vec![Expr::new(Kind::Call(random, Vec::new()), Type::Float8)],
        },
        &[Type::Float8],
    );
    let read = || Box::new(plan(Node::CteScan { id: 1 }, &[Type::Float8]));
    let twice = plan(
        Node::SetOperation { kind: crate::plan::SetKind::Union, all: true, left: read(), right: read() },
        &[Type::Float8],
    );
    let with = Node::With {
        expressions: vec![CommonTable { id: 1, name: "c".to_owned(), plan: chance, writes: false }],
        input: Box::new(twice),
    };
    let rows = rows_of(open(&plan(with, &[Type::Float8]), &runtime(PLENTY)).expect("a plan")).expect("rows");
    assert_eq!(rows.len(), 2);
    assert_eq!(rows[0], rows[1]);
}

fn series(to: Expr) -> SetExpr {
    let function = functions::find_functions("generate_series")
        .iter()
        .find(|function| function.parameters.first() == Some(&functions::Accepts::Exact(Type::Int4)))
        .expect("generate_series(int4, int4)");
    SetExpr::Set { function, arguments: vec![int(1), to], types: vec![Type::Int4] }
}

#[test]
fn sets_side_by_side_are_filled_with_nulls() {
    let project = Node::ProjectSet {
        input: values(&[Type::Int4], &numbers(&[Some(2), Some(0), None])),
        expressions: vec![
            SetExpr::Scalar(column(0, Type::Int4)),
            series(column(0, Type::Int4)),
            series(operator("-", int(3), column(0, Type::Int4))),
        ],
    };
    let rows =
        rows_of(open(&plan(project, &[Type::Int4; 3]), &runtime(PLENTY)).expect("a plan")).expect("rows");
    let row = |a: i32, b: Option<i32>, c: Option<i32>| {
        vec![Value::Int4(a), b.map_or(Value::Null, Value::Int4), c.map_or(Value::Null, Value::Int4)]
    };
    let expected = [
        row(2, Some(1), Some(1)),
        row(2, Some(2), None),
        row(0, None, Some(1)),
        row(0, None, Some(2)),
        row(0, None, Some(3)),
    ];
    assert_eq!(rows, expected);
    let scan = FunctionScan { calls: vec![series(int(2)), SetExpr::Scalar(int(9))], ordinality: true };
    let types = [Type::Int4, Type::Int4, Type::Int8];
    let rows = rows_of(open(&plan(Node::FunctionScan(scan), &types), &runtime(PLENTY)).expect("a plan"))
        .expect("rows");
    assert_eq!(
        rows,
        [
            vec![Value::Int4(1), Value::Int4(9), Value::Int8(1)],
            vec![Value::Int4(2), Value::Null, Value::Int8(2)],
        ]
    );
}

#[test]
fn limits_count_and_ties_go_along() {
    let rows = numbers(&[1, 1, 2, 2, 2, 3, 4].map(Some));
    let count = |value: i64| Expr::constant(Value::Int8(value), Type::Int8);
    let take = |limit: Expr, offset: Expr, ties: bool| {
        let keys = [key(0, Type::Int4, false, false)];
        let ties = ties.then_some(keys.as_slice());
        let operator = limit::Limit::new(
            given(&[Type::Int4], &rows),
            Some(&limit),
            Some(&offset),
            ties,
            1,
            &runtime(PLENTY),
        );
        rows_of(Box::new(operator))
    };
    assert_eq!(take(count(2), count(1), false).expect("rows"), numbers(&[1, 2].map(Some)));
    assert_eq!(take(count(3), count(0), true).expect("rows"), numbers(&[1, 1, 2, 2, 2].map(Some)));
    assert_eq!(take(Expr::null(Type::Int8), count(5), false).expect("rows"), numbers(&[3, 4].map(Some)));
    assert!(take(count(0), count(0), false).expect("rows").is_empty());
    let refused = take(count(-1), count(0), false).expect_err("negative");
    assert_eq!(
        (refused.code(), refused.message()),
        (Code::InvalidRowCountInLimitClause, "LIMIT must not be negative")
    );
    let keys = [column(0, Type::Int4)];
    let first = distinct::DistinctOn::new(given(&[Type::Int4], &rows), &keys, 1, &runtime(PLENTY));
    assert_eq!(rows_of(Box::new(first)).expect("rows"), numbers(&[1, 2, 3, 4].map(Some)));
}
