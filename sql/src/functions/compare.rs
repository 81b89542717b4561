//! Comparison: `=`, `<>`, `<`, `<=`, `>`, `>=` for every type that has an order or an equality.
//!
//! Invariants:
//! - Which pairs of types exist here is PostgreSQL's `pg_operator`: resolution by implicit casts depends on it.
//! - All six agree with `Value::cmp_sql`, as the key codec does; `bpchar` compares without its trailing blanks.

use std::cmp::Ordering;

use model::{
    Result, Type, Value,
    value::{Timestamp, trim_blanks},
};

use super::{Accepts, Definitions, IntoAccepts, Scalar};
use crate::context::Context;

/// The six symbols, in the order of the arrays below.
const SYMBOLS: [&str; 6] = ["=", "<>", "<", "<=", ">", ">="];

pub(super) fn define(d: &mut Definitions) {
    for data_type in [
        Type::Bool,
        Type::Float4,
        Type::Float8,
        Type::Int2,
        Type::Int4,
        Type::Int8,
        Type::Numeric,
        Type::Text,
        Type::Name,
        Type::Char,
        Type::Bytea,
        Type::Date,
        Type::Time,
        Type::Timestamp,
        Type::Timestamptz,
        Type::Interval,
        Type::Uuid,
        Type::Jsonb,
        Type::Oid,
        Type::OidVector,
    ] {
        all(d, data_type, data_type, by_value());
    }
    for (left, right) in [
        (Type::Int2, Type::Int4),
        (Type::Int2, Type::Int8),
        (Type::Int4, Type::Int8),
        (Type::Float4, Type::Float8),
        (Type::Name, Type::Text),
    ] {
        all(d, left, right, by_value());
        all(d, right, left, by_value());
    }
    all(d, Type::Bpchar, Type::Bpchar, bodies::<Blanks>());
    all(d, Accepts::Array, Accepts::Array, by_value());
    all(d, Type::Record, Type::Record, by_value());
    for (left, right) in
        [(Type::Date, Type::Timestamp), (Type::Date, Type::Timestamptz), (Type::Timestamp, Type::Timestamptz)]
    {
        all(d, left, right, bodies::<Moments>());
        all(d, right, left, bodies::<Moments>());
    }
    for data_type in [Type::Xid, Type::Cid, Type::Tid] {
        let [equal, unequal, ..] = by_value();
        d.infix("=", data_type, data_type, Type::Bool, equal);
        d.infix("<>", data_type, data_type, Type::Bool, unequal);
    }
    d.infix("=", Type::Xid, Type::Int4, Type::Bool, by_value()[0]);
}

fn all(
    d: &mut Definitions,
    left: impl IntoAccepts + Copy,
    right: impl IntoAccepts + Copy,
    bodies: [Scalar; 6],
) {
    for (symbol, body) in SYMBOLS.into_iter().zip(bodies) {
        d.infix(symbol, left, right, Type::Bool, body);
    }
}

/// How two values are ordered.
trait Order {
    fn compare(context: &Context, left: &Value, right: &Value) -> Result<Ordering>;
}

struct Plain;
struct Blanks;
struct Moments;

impl Order for Plain {
    fn compare(_: &Context, left: &Value, right: &Value) -> Result<Ordering> {
        Ok(left.cmp_sql(right))
    }
}

impl Order for Blanks {
    fn compare(_: &Context, left: &Value, right: &Value) -> Result<Ordering> {
        let (left, right) = (trim_blanks(super::text(left)), trim_blanks(super::text(right)));
        Ok(left.as_bytes().cmp(right.as_bytes()))
    }
}

impl Order for Moments {
    /// A date is its midnight; a timestamp meets a timestamptz in the session's zone.
    fn compare(context: &Context, left: &Value, right: &Value) -> Result<Ordering> {
        let zoned = |value: &Value| matches!(value, Value::Timestamptz(_));
        if zoned(left) || zoned(right) {
            return Ok(instant(context, left)?.cmp(&instant(context, right)?));
        }
        Ok(local(left)?.cmp(&local(right)?))
    }
}

fn local(value: &Value) -> Result<Timestamp> {
    match value {
        Value::Date(date) => Ok(date.to_timestamp()?),
        Value::Timestamp(at) | Value::Timestamptz(at) => Ok(*at),
        other => unreachable!("resolution gave a date or timestamp, not {:?}", other.natural_type()),
    }
}

fn instant(context: &Context, value: &Value) -> Result<Timestamp> {
    match value {
        Value::Timestamptz(at) => Ok(*at),
        other => Ok(context.text.zone.to_instant(local(other)?)?),
    }
}

fn by_value() -> [Scalar; 6] {
    bodies::<Plain>()
}

fn bodies<O: Order>() -> [Scalar; 6] {
    [
        |context, a| Ok(Value::Bool(O::compare(context, &a[0], &a[1])?.is_eq())),
        |context, a| Ok(Value::Bool(O::compare(context, &a[0], &a[1])?.is_ne())),
        |context, a| Ok(Value::Bool(O::compare(context, &a[0], &a[1])?.is_lt())),
        |context, a| Ok(Value::Bool(O::compare(context, &a[0], &a[1])?.is_le())),
        |context, a| Ok(Value::Bool(O::compare(context, &a[0], &a[1])?.is_gt())),
        |context, a| Ok(Value::Bool(O::compare(context, &a[0], &a[1])?.is_ge())),
    ]
}
