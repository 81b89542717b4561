//! The two ways to evaluate are held against each other: whatever a batch gives, its rows one by one give too.

use model::{
    Type, Value,
    types::Scalar,
    value::{Array, Numeric},
};
use proptest::prelude::*;

use super::Scope;
use crate::{
    batch::Batch,
    execute::fixture::{Memory, context},
    expr::{Expr, Kind},
    functions::{self, Accepts, Gives},
};

const TYPES: [Type; 7] =
    [Type::Int4, Type::Int8, Type::Float8, Type::Numeric, Type::Text, Type::Bool, Type::Date];

fn value_of(ty: Type) -> BoxedStrategy<Value> {
    let value = match ty {
        Type::Int4 => prop_oneof![(-3..4i32), Just(i32::MAX), Just(i32::MIN)].prop_map(Value::Int4).boxed(),
        Type::Int8 => prop_oneof![(-3..4i64), Just(i64::MAX), Just(i64::MIN)].prop_map(Value::Int8).boxed(),
        Type::Float8 => {
            prop::sample::select(vec![0.0, -0.0, 1.5, -2.0, f64::NAN, f64::INFINITY, f64::MAX, 1e-308])
                .prop_map(Value::Float8)
                .boxed()
        }
        Type::Numeric => (-30..30i64, 0..3u16)
            .prop_map(|(digits, scale)| {
                Numeric::from_parts(i128::from(digits), scale).map_or(Value::Null, Value::Numeric)
            })
            .boxed(),
        Type::Text => "[ab%_]{0,4}".prop_map(Value::text).boxed(),
        Type::Bool => any::<bool>().prop_map(Value::Bool).boxed(),
        _ => (0..4i32)
            .prop_map(|days| model::value::Date::from_days(days).map_or(Value::Null, Value::Date))
            .boxed(),
    };
    prop_oneof![1 => Just(Value::Null), 5 => value].boxed()
}

fn leaf(ty: Type) -> BoxedStrategy<Expr> {
    let place = TYPES.iter().position(|at| *at == ty);
    let constant = value_of(ty).prop_map(move |value| Expr::constant(value, ty));
    match place {
        Some(place) => prop_oneof![3 => Just(Expr::column(place, ty, -1)), 2 => constant].boxed(),
        None => constant.boxed(),
    }
}

fn operator(symbol: &'static str, left: Expr, right: Expr) -> Option<Expr> {
    let exact = |accepts: Accepts, ty: Type| accepts == Accepts::Exact(ty);
    let found = functions::find_operators(symbol)
        .iter()
        .find(|at| at.left.is_some_and(|at| exact(at, left.ty)) && exact(at.right, right.ty))?;
    let Gives::Exact(ty) = found.gives else { return None };
    Some(Expr::new(Kind::Operator(found, vec![left, right]), ty))
}

fn number() -> impl Strategy<Value = Type> {
    prop::sample::select(vec![Type::Int4, Type::Int8, Type::Float8, Type::Numeric])
}

/// An expression of a type, up to a depth.
fn expr(ty: Type, depth: u32) -> BoxedStrategy<Expr> {
    if depth == 0 {
        return leaf(ty);
    }
    let below = depth - 1;
    let case = (prop::collection::vec((expr(Type::Bool, below), expr(ty, below)), 1..3), expr(ty, below))
        .prop_map(move |(branches, otherwise)| {
            Expr::new(Kind::Case { branches, otherwise: Box::new(otherwise) }, ty)
        })
        .boxed();
    let coalesce = prop::collection::vec(expr(ty, below), 1..4)
        .prop_map(move |parts| Expr::new(Kind::Coalesce(parts), ty))
        .boxed();
    let mut choices = vec![leaf(ty), case, coalesce];
    match ty {
        Type::Bool => choices.extend(conditions(below)),
        Type::Int4 | Type::Int8 | Type::Float8 | Type::Numeric => {
            let symbols = prop::sample::select(vec!["+", "-", "*", "/", "%"]);
            let arithmetic = (symbols, expr(ty, below), expr(ty, below))
                .prop_map(move |(symbol, left, right)| operator(symbol, left.clone(), right).unwrap_or(left))
                .boxed();
            let from = number().prop_flat_map(move |from| expr(from, below));
            let cast = from
                .prop_map(move |value| Expr::new(Kind::Cast { value: Box::new(value), explicit: true }, ty))
                .boxed();
            let extremes = prop::collection::vec(expr(ty, below), 1..4)
                .prop_map(move |parts| Expr::new(Kind::Greatest(parts), ty))
                .boxed();
            choices.extend([arithmetic, cast, extremes]);
        }
        _ => {}
    }
    proptest::strategy::Union::new(choices).boxed()
}

fn conditions(below: u32) -> Vec<BoxedStrategy<Expr>> {
    let symbols = prop::sample::select(vec!["=", "<>", "<", "<=", ">", ">="]);
    let any_type = prop::sample::select(TYPES.to_vec());
    let pair = any_type.prop_flat_map(move |ty| (expr(ty, below), expr(ty, below)));
    let compare = (symbols, pair)
        .prop_map(|(symbol, (left, right))| operator(symbol, left, right).unwrap_or_else(|| Expr::bool(true)))
        .boxed();
    let logic = |kind: fn(Vec<Expr>) -> Kind| {
        prop::collection::vec(expr(Type::Bool, below), 2..4)
            .prop_map(move |parts| Expr::new(kind(parts), Type::Bool))
            .boxed()
    };
    let not =
        expr(Type::Bool, below).prop_map(|value| Expr::new(Kind::Not(Box::new(value)), Type::Bool)).boxed();
    let is_null = (expr(Type::Text, below), any::<bool>())
        .prop_map(|(value, negated)| Expr::new(Kind::IsNull { value: Box::new(value), negated }, Type::Bool))
        .boxed();
    let is_truth = (expr(Type::Bool, below), any::<Option<bool>>(), any::<bool>())
        .prop_map(|(value, truth, negated)| {
            Expr::new(Kind::IsTruth { value: Box::new(value), truth, negated }, Type::Bool)
        })
        .boxed();
    let in_list = prop::sample::select(TYPES.to_vec())
        .prop_flat_map(move |ty| {
            let items =
                prop::collection::vec(value_of(ty).prop_map(move |value| Expr::constant(value, ty)), 0..20);
            (expr(ty, below), items, any::<bool>())
        })
        .prop_map(|(value, list, negated)| {
            Expr::new(Kind::InList { value: Box::new(value), list, negated }, Type::Bool)
        })
        .boxed();
    let distinct = (expr(Type::Int4, below), expr(Type::Int4, below), any::<bool>())
        .prop_map(|(left, right, negated)| {
            Expr::new(Kind::IsDistinct { left: Box::new(left), right: Box::new(right), negated }, Type::Bool)
        })
        .boxed();
    let like = (expr(Type::Text, below), "[ab%_]{0,4}", prop::sample::select(vec!["~~", "!~~"]))
        .prop_map(|(value, pattern, symbol)| {
            let pattern = Expr::constant(Value::text(pattern.as_str()), Type::Text);
            operator(symbol, value, pattern).unwrap_or_else(|| Expr::bool(false))
        })
        .boxed();
    let any_all = (expr(Type::Int4, below), prop::collection::vec(value_of(Type::Int4), 0..4), any::<bool>())
        .prop_map(|(left, values, all)| {
            let found = operator("=", left.clone(), left.clone());
            let Some(Kind::Operator(operator, _)) = found.map(|expr| expr.kind) else {
                return Expr::bool(true);
            };
            let array = Value::Array(Array::from_values(Scalar::Int4, values).into());
            let array = Box::new(Expr::constant(array, Type::Array(Scalar::Int4)));
            Expr::new(Kind::AnyAll { operator, left: Box::new(left), array, all }, Type::Bool)
        })
        .boxed();
    vec![compare, logic(Kind::And), logic(Kind::Or), not, is_null, is_truth, in_list, distinct, like, any_all]
}

fn rows() -> impl Strategy<Value = Vec<Vec<Value>>> {
    let row: Vec<BoxedStrategy<Value>> = TYPES.iter().map(|ty| value_of(*ty)).collect();
    prop::collection::vec(row, 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_500))]

    #[test]
    fn a_batch_means_what_its_rows_mean(
        expr in prop::sample::select(vec![Type::Bool, Type::Int4, Type::Int8, Type::Float8, Type::Numeric])
            .prop_flat_map(|ty| expr(ty, 3)),
        rows in rows(),
        selected: bool,
    ) {
        let mut context = context(Memory::new(Vec::new()).table_catalog());
        let mut scope = Scope { context: &mut context, outer: &[] };
        let one_by_one: Vec<_> = rows.iter().map(|row| scope.value(&expr, row.as_slice())).collect();
        let batch = if selected {
            let mut doubled = rows.clone();
            doubled.extend(rows.iter().cloned());
            let kept: Vec<u32> = (rows.len() as u32..2 * rows.len() as u32).collect();
            Batch::from_rows(&TYPES, &doubled).select(&kept)
        } else {
            Batch::from_rows(&TYPES, &rows)
        };
        match scope.column(&expr, &batch) {
            Ok(column) => {
                for (row, expected) in one_by_one.iter().enumerate() {
                    prop_assert_eq!(&column.value(row), expected.as_ref().expect("no row was refused"), "row {}", row);
                }
            }
            // A batch may meet another row's error first, but only an error that some row has.
            Err(error) => {
                let met = one_by_one.iter().any(|row| row.as_ref().is_err_and(|at| at.code() == error.code()));
                prop_assert!(met, "{error:?} of no row");
            }
        }
        if expr.ty == Type::Bool && one_by_one.iter().all(Result::is_ok) {
            let kept = scope.filter(&expr, &batch).expect("no row was refused");
            let expected: Vec<Vec<Value>> = rows
                .iter()
                .zip(&one_by_one)
                .filter(|(_, truth)| truth.as_ref().is_ok_and(|truth| truth.as_bool() == Some(true)))
                .map(|(row, _)| row.clone())
                .collect();
            prop_assert_eq!(kept.rows(), expected);
        }
    }
}

#[test]
fn an_operand_is_evaluated_only_for_rows_that_need_it() {
    // x <> 0 AND 1 / x > 0
    let x = || Expr::column(0, Type::Int4, -1);
    let int = |value| Expr::constant(Value::Int4(value), Type::Int4);
    let not_zero = operator("<>", x(), int(0)).expect("an operator");
    let inverse = operator("/", int(1), x()).expect("an operator");
    let positive = operator(">", inverse.clone(), int(0)).expect("an operator");
    let condition = Expr::and([not_zero.clone(), positive]).expect("two parts");
    let batch = Batch::from_rows(&[Type::Int4], &[[Value::Int4(0)], [Value::Int4(1)], [Value::Null]]);
    let mut context = context(Memory::new(Vec::new()).table_catalog());
    let mut scope = Scope { context: &mut context, outer: &[] };
    let column = scope.column(&condition, &batch).expect("nothing is divided by zero");
    let values: Vec<Value> = (0..3).map(|row| column.value(row)).collect();
    assert_eq!(values, [Value::Bool(false), Value::Bool(true), Value::Null]);
    let case = Kind::Case { branches: vec![(not_zero, inverse)], otherwise: Box::new(int(-1)) };
    let column = scope.column(&Expr::new(case, Type::Int4), &batch).expect("nothing is divided by zero");
    let values: Vec<Value> = (0..3).map(|row| column.value(row)).collect();
    assert_eq!(values, [Value::Int4(-1), Value::Int4(1), Value::Int4(-1)]);
}
