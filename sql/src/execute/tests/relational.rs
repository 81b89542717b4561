//! Joins, grouping, sorting and set operations, as plans.

use model::{Code, Type, Value, value::Numeric};
use proptest::prelude::*;

use super::{
    column, function, given, int, key,
    naive::{self, Row},
    operator, plan, runtimes, shape,
};
use crate::{
    execute::{Runtime, aggregate, distinct, fixture::rows_of, join, set_operation, sort, types_of, window},
    expr::{Expr, SortKey},
    plan::{
        Aggregate, AggregateCall, Bound, Exclude, Frame, FrameUnit, Join, JoinKind, Node, SetKind,
        Strategy as How, Window, WindowCall,
    },
};

const TYPES: [Type; 3] = [Type::Int4, Type::Int4, Type::Text];

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![1 => Just(Value::Null), 5 => (0..6i32).prop_map(Value::Int4)]
}

fn row() -> impl Strategy<Value = Row> {
    (value(), value(), "[ab]{0,40}").prop_map(|(a, b, text)| vec![a, b, Value::text(text.as_str())])
}

fn rows(max: usize) -> impl Strategy<Value = Vec<Row>> {
    prop::collection::vec(row(), 0..max)
}

const KINDS: [JoinKind; 8] = [
    JoinKind::Inner,
    JoinKind::Left,
    JoinKind::Right,
    JoinKind::Full,
    JoinKind::Semi,
    JoinKind::Anti,
    JoinKind::NullAwareAnti,
    JoinKind::Single,
];

fn join_plan(kind: JoinKind, strategy: How, keys: Vec<(Expr, Expr)>, residual: Option<Expr>) -> Join {
    Join { kind, strategy, left: shape(&TYPES), right: shape(&TYPES), keys, residual }
}

fn run_join(plan: &Join, left: &[Row], right: &[Row], runtime: &Runtime) -> model::Result<Vec<Row>> {
    let (left, right) = (given(&TYPES, left), given(&TYPES, right));
    rows_of(match plan.strategy {
        How::Hash => join::hash(plan, left, right, runtime),
        How::Nested => join::nested(plan, left, right, runtime),
        How::Merge => join::merge(plan, left, right, runtime),
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn joins_give_the_pairs_they_should(left in rows(60), right in rows(60), with_residual: bool) {
        let keys = vec![(column(0, Type::Int4), column(0, Type::Int4))];
        // The second column of the left against that of the right.
        let residual = operator("<=", column(1, Type::Int4), column(4, Type::Int4));
        let holds = |left: &Row, right: &Row| {
            !with_residual || (!left[1].is_null() && !right[1].is_null() && left[1].cmp_sql(&right[1]).is_le())
        };
        let by_key = [key(0, Type::Int4, false, false)];
        for kind in KINDS {
            let expected = naive::join(kind, &left, &right, (3, 3), holds).map(naive::sorted);
            for strategy in [How::Hash, How::Merge, How::Nested] {
                let mut plan = join_plan(kind, strategy, keys.clone(), with_residual.then(|| residual.clone()));
                if strategy == How::Nested {
                    if kind == JoinKind::NullAwareAnti {
                        continue;
                    }
                    plan.keys = Vec::new();
                    let equal = operator("=", column(0, Type::Int4), column(3, Type::Int4));
                    plan.residual = Expr::and([equal].into_iter().chain(plan.residual));
                }
                let (mut left, mut right) = (left.clone(), right.clone());
                if strategy == How::Merge {
                    left = naive::order_by(left, &by_key);
                    right = naive::order_by(right, &by_key);
                }
                for (number, runtime) in runtimes().iter().enumerate() {
                    let what = format!("{kind:?} by {strategy:?}, budget {number}");
                    match (run_join(&plan, &left, &right, runtime), &expected) {
                        (Ok(rows), Some(expected)) => prop_assert_eq!(&naive::sorted(rows), expected, "{}", what),
                        (Err(error), None) => prop_assert_eq!(error.code(), Code::CardinalityViolation, "{}", what),
                        (Err(error), _) if number == 1 => prop_assert_eq!(error.code(), Code::OutOfMemory, "{}", what),
                        (result, expected) => prop_assert!(false, "{what}: {result:?}, expected {expected:?}"),
                    }
                }
            }
        }
    }

    #[test]
    fn sorts_are_ordered_and_stable(rows in rows(400), desc: bool, nulls_first: bool, limit in 0..30i64, offset in 0..5i64) {
        let keys = [key(0, Type::Int4, desc, nulls_first), key(2, Type::Text, !desc, false)];
        let expected = naive::order_by(rows.clone(), &keys);
        for runtime in runtimes() {
            let sort = sort::Sort::new(given(&TYPES, &rows), &keys, TYPES.to_vec(), &runtime);
            prop_assert_eq!(&rows_of(Box::new(sort)).expect("sorts spill"), &expected);
            let number = |value| Expr::constant(Value::Int8(value), Type::Int8);
            let top = sort::TopN::new(given(&TYPES, &rows), &keys, &number(limit), Some(&number(offset)), TYPES.to_vec(), &runtime);
            let expected: Vec<Row> = expected.iter().skip(offset as usize).take(limit as usize).cloned().collect();
            prop_assert_eq!(rows_of(Box::new(top)).expect("few rows"), expected);
        }
    }

    #[test]
    fn distinct_and_set_operations_count_rows(left in rows(300), right in rows(300)) {
        let cut = |rows: &[Row]| rows.iter().map(|row| vec![row[0].clone(), row[1].clone(), row[2].clone()]).collect::<Vec<_>>();
        let (left, right) = (cut(&left), cut(&right));
        let same = |a: &Row, b: &Row| a.iter().zip(b).all(|(a, b)| a.eq_sql(b));
        let count = |rows: &[Row], row: &Row| rows.iter().filter(|at| same(at, row)).count();
        for runtime in runtimes() {
            let operator = distinct::Distinct::new(given(&TYPES, &left), TYPES.to_vec(), &runtime);
            let expected: Vec<Row> = naive::groups(&left, &[0, 1, 2]).into_iter().map(|(key, _)| key).collect();
            prop_assert_eq!(naive::sorted(rows_of(Box::new(operator)).expect("distinct spills")), naive::sorted(expected));
        }
        let runtime = &runtimes()[0];
        let all: Vec<Row> = left.iter().chain(&right).cloned().collect();
        for (kind, is_all) in [
            (SetKind::Union, true),
            (SetKind::Union, false),
            (SetKind::Intersect, true),
            (SetKind::Intersect, false),
            (SetKind::Except, true),
            (SetKind::Except, false),
        ] {
            let mut expected = Vec::new();
            for (row, _) in naive::groups(&all, &[0, 1, 2]) {
                let (a, b) = (count(&left, &row), count(&right, &row));
                let times = match (kind, is_all) {
                    (SetKind::Union, true) => a + b,
                    (SetKind::Union, false) => 1,
                    (SetKind::Intersect, true) => a.min(b),
                    (SetKind::Intersect, false) => usize::from(a > 0 && b > 0),
                    (SetKind::Except, true) => a.saturating_sub(b),
                    (SetKind::Except, false) => usize::from(a > 0 && b == 0),
                };
                expected.extend(vec![row; times]);
            }
            let operator = set_operation::open(kind, is_all, given(&TYPES, &left), given(&TYPES, &right), TYPES.to_vec(), runtime);
            prop_assert_eq!(naive::sorted(rows_of(operator).expect("memory enough")), naive::sorted(expected), "{:?} {}", kind, is_all);
        }
    }

    #[test]
    fn aggregates_see_their_groups(rows in rows(400), ordered: bool, distinct: bool, filtered: bool) {
        let rows = if ordered { naive::order_by(rows, &[key(0, Type::Int4, false, false)]) } else { rows };
        let call = |name: &str, argument: Option<usize>, ty: Type| {
            let types: Vec<Type> = argument.iter().map(|at| TYPES[*at]).collect();
            AggregateCall {
                function: function(name, &types),
                arguments: argument.iter().map(|at| column(*at, TYPES[*at])).collect(),
                distinct: distinct && argument.is_some(),
                filter: filtered.then(|| operator(">", column(1, Type::Int4), int(1))),
                order: Vec::new(),
                ty,
            }
        };
        let calls = vec![
            call("count", None, Type::Int8),
            call("count", Some(1), Type::Int8),
            call("sum", Some(1), Type::Int8),
            call("avg", Some(1), Type::Numeric),
            call("min", Some(1), Type::Int4),
            call("max", Some(2), Type::Text),
        ];
        let mut types = vec![Type::Int4];
        types.extend(calls.iter().map(|call| call.ty));
        let plan = Aggregate {
            input: shape(&TYPES),
            groups: vec![column(0, Type::Int4)],
            sets: None,
            aggregates: calls,
            grouping: Vec::new(),
            ordered,
        };
        let mut expected = Vec::new();
        for (mut group, members) in naive::groups(&rows, &[0]) {
            let passes = |row: &&Row| !filtered || row[1].as_i64().is_some_and(|value| value > 1);
            let members: Vec<&Row> = members.iter().filter(passes).collect();
            let mut numbers: Vec<i64> = members.iter().filter_map(|row| row[1].as_i64()).collect();
            if distinct {
                numbers.sort_unstable();
                numbers.dedup();
            }
            let count = numbers.len() as i64;
            let sum: i64 = numbers.iter().sum();
            group.push(Value::Int8(members.len() as i64));
            group.push(Value::Int8(count));
            group.push(if count == 0 { Value::Null } else { Value::Int8(sum) });
            let average = || Numeric::from(sum).div(&Numeric::from(count)).expect("not zero");
            group.push(if count == 0 { Value::Null } else { Value::Numeric(average()) });
            group.push(numbers.iter().min().map_or(Value::Null, |least| Value::Int4(*least as i32)));
            let texts = members.iter().filter_map(|row| row[2].as_str());
            group.push(texts.max().map_or(Value::Null, Value::text));
            expected.push(group);
        }
        for (number, runtime) in runtimes().iter().enumerate() {
            let operator = aggregate::open(&plan, given(&TYPES, &rows), types.clone(), runtime);
            match rows_of(operator) {
                Ok(rows) => prop_assert_eq!(naive::sorted(rows), naive::sorted(expected.clone())),
                Err(error) => prop_assert!(number == 1 && error.code() == Code::OutOfMemory, "{error:?}"),
            }
        }
    }

    #[test]
    fn many_groups_are_spilled_and_come_back(seed in 0..1000i32) {
        let rows: Vec<Row> = (0..3000).map(|at| vec![Value::Int4((at * 7 + seed) % 1500), Value::Int4(1), Value::text("x")]).collect();
        let plan = Aggregate {
            input: shape(&TYPES),
            groups: vec![column(0, Type::Int4), column(2, Type::Text)],
            sets: Some(vec![vec![0, 1], vec![1], vec![]]),
            aggregates: vec![AggregateCall {
                function: function("sum", &[Type::Int4]),
                arguments: vec![column(1, Type::Int4)],
                distinct: false,
                filter: None,
                order: Vec::new(),
                ty: Type::Int8,
            }],
            grouping: vec![vec![0, 1]],
            ordered: false,
        };
        let mut expected: Vec<Row> = (0..1500)
            .map(|at| vec![Value::Int4(at), Value::text("x"), Value::Int8(2), Value::Int4(0)])
            .collect();
        expected.push(vec![Value::Null, Value::text("x"), Value::Int8(3000), Value::Int4(2)]);
        expected.push(vec![Value::Null, Value::Null, Value::Int8(3000), Value::Int4(3)]);
        let types = vec![Type::Int4, Type::Text, Type::Int8, Type::Int4];
        for bytes in [super::super::fixture::PLENTY, 64 * 1024] {
            let runtime = super::super::fixture::runtime(bytes);
            let operator = aggregate::open(&plan, given(&TYPES, &rows), types.clone(), &runtime);
            prop_assert_eq!(naive::sorted(rows_of(operator).expect("groups spill")), naive::sorted(expected.clone()));
        }
    }

    #[test]
    fn windows_number_and_sum_their_frames(rows in rows(60), before in 0..3i64, after in 0..3i64) {
        let order = vec![key(1, Type::Int4, false, false)];
        let frame = |unit, start, end| Frame { unit, start, end, exclude: Exclude::NoOthers };
        let default = || frame(FrameUnit::Range, Bound::UnboundedPreceding, Bound::CurrentRow);
        let number = |value: i64| Expr::constant(Value::Int8(value), Type::Int8);
        let call = |name: &str, arguments: Vec<Expr>, frame, ty| WindowCall {
            function: function(name, &arguments.iter().map(|at| at.ty).collect::<Vec<_>>()),
            arguments,
            filter: None,
            frame,
            ty,
        };
        let sliding = frame(FrameUnit::Rows, Bound::Preceding(number(before)), Bound::Following(number(after)));
        let plan = Window {
            input: shape(&TYPES),
            partition: vec![column(0, Type::Int4)],
            order: order.clone(),
            calls: vec![
                call("row_number", Vec::new(), default(), Type::Int8),
                call("rank", Vec::new(), default(), Type::Int8),
                call("sum", vec![column(1, Type::Int4)], default(), Type::Int8),
                call("count", vec![column(1, Type::Int4)], sliding, Type::Int8),
            ],
        };
        let keys: Vec<SortKey> = [key(0, Type::Int4, false, false)].into_iter().chain(order).collect();
        let mut expected = Vec::new();
        for (_, members) in naive::groups(&naive::order_by(rows.clone(), &keys), &[0]) {
            for (at, row) in members.iter().enumerate() {
                let first = members.iter().position(|other| other[1].eq_sql(&row[1])).expect("itself");
                let end = members.iter().rposition(|other| other[1].eq_sql(&row[1])).expect("itself") + 1;
                let numbers: Vec<i64> = members[..end].iter().filter_map(|row| row[1].as_i64()).collect();
                let from = at.saturating_sub(before as usize);
                let to = (at + after as usize + 1).min(members.len());
                let mut made = row.clone();
                made.push(Value::Int8(at as i64 + 1));
                made.push(Value::Int8(first as i64 + 1));
                made.push(if numbers.is_empty() { Value::Null } else { Value::Int8(numbers.iter().sum()) });
                made.push(Value::Int8(members[from..to].iter().filter(|row| !row[1].is_null()).count() as i64));
                expected.push(made);
            }
        }
        for runtime in runtimes() {
            let operator = window::Window::new(&plan, given(&TYPES, &rows), Vec::new(), &runtime);
            prop_assert_eq!(&rows_of(Box::new(operator)).expect("small partitions"), &expected);
        }
    }
}

#[test]
fn a_join_that_cannot_be_cut_small_enough_is_refused() {
    let rows: Vec<Row> = (0..2000).map(|_| vec![Value::Int4(1), Value::Int4(1), Value::text("x")]).collect();
    let keys = vec![(column(0, Type::Int4), column(0, Type::Int4))];
    let plan = join_plan(JoinKind::Inner, How::Hash, keys, None);
    let runtime = super::super::fixture::runtime(16 * 1024);
    let error = run_join(&plan, &rows, &rows, &runtime).expect_err("one key does not fit");
    assert_eq!(error.code(), Code::OutOfMemory);
    assert_eq!(runtime.budget.used(), 0);
    assert_eq!(runtime.spill.used(), 0);
}

#[test]
fn a_cancelled_statement_stops_at_the_next_batch() {
    let runtime = super::super::fixture::runtime(super::super::fixture::PLENTY);
    runtime.cancel.cancel(super::super::Reason::Request);
    let rows = vec![vec![Value::Int4(1), Value::Int4(1), Value::text("x")]];
    let sort =
        sort::Sort::new(given(&TYPES, &rows), &[key(0, Type::Int4, false, false)], TYPES.to_vec(), &runtime);
    assert_eq!(rows_of(Box::new(sort)).expect_err("cancelled").code(), Code::QueryCanceled);
}

#[test]
fn plans_say_what_their_columns_are() {
    assert_eq!(types_of(&plan(Node::Values(Vec::new()), &TYPES)), TYPES);
}
