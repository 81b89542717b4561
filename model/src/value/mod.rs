//! Values: what a column, parameter or expression holds, and what it means to compare two of them.
//!
//! `Value` is 24 bytes and cheap to clone; it knows its own kind but no modifier and, for texts, not which of the
//! text types it is: that is said by the `Type` beside it.
//!
//! Invariants:
//! - `cmp_sql`, `eq_sql` and `hash_sql` agree with each other and with PostgreSQL: NaN equals NaN and is greatest,
//!   -0 equals 0, numeric 1.0 equals 1.00, a month is 30 days, text compares by bytes.
//! - `==` is for tests and caches: it sees representations (1.0 ≠ 1.00) and is reflexive (NaN == NaN).
//! - Text never holds a NUL character.
//!
//! Not here: which types may be compared or cast at all (`sql`), order-preserving bytes (`key`), rows (`row`).

pub mod array;
pub mod binary;
pub mod datetime;
mod error;
mod float;
pub mod json;
pub mod numeric;
mod text;
pub mod text_io;

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

pub use array::Array;
pub use datetime::{Date, DateOrder, Interval, Time, Timestamp, Zone};
pub use error::{ValueError, ValueErrorKind};
pub use json::Jsonb;
pub use numeric::{Numeric, NumericSum};
pub use text::{Bytea, Text, trim_blanks};

use crate::types::{Scalar, Type};

/// One value of any type, or null.
#[derive(Clone, Debug, Default)]
pub enum Value {
    /// The absence of a value.
    #[default]
    Null,
    /// `boolean`.
    Bool(bool),
    /// `smallint`.
    Int2(i16),
    /// `integer`.
    Int4(i32),
    /// `bigint`.
    Int8(i64),
    /// `real`.
    Float4(f32),
    /// `double precision`.
    Float8(f64),
    /// `numeric`.
    Numeric(Numeric),
    /// `text`, `varchar`, `character`, `name`, `"char"`.
    Text(Text),
    /// `bytea`.
    Bytea(Bytea),
    /// `date`.
    Date(Date),
    /// `time`.
    Time(Time),
    /// `timestamp`.
    Timestamp(Timestamp),
    /// `timestamp with time zone`.
    Timestamptz(Timestamp),
    /// `interval`.
    Interval(Interval),
    /// `uuid`, in its written byte order.
    Uuid([u8; 16]),
    /// `json`: valid JSON, kept as it was written.
    Json(Text),
    /// `jsonb`.
    Jsonb(Jsonb),
    /// `oid` and the types that are one: `regclass`, `xid`, …
    Oid(u32),
    /// An array, `int2vector` or `oidvector`.
    Array(Arc<Array>),
    /// A row.
    Record(Arc<[Value]>),
}

/// The settings a text form depends on.
#[derive(Clone, Debug)]
pub struct Context {
    /// The session's time zone.
    pub zone: Zone,
    /// How `01/02/2024` is read.
    pub date_order: DateOrder,
    /// The transaction's time, for `now`, `today` and the like; without it those words are refused.
    pub now: Option<Timestamp>,
    /// `bytea_output`.
    pub bytea_output: ByteaOutput,
}

/// How `bytea` is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ByteaOutput {
    /// `\x6162`.
    #[default]
    Hex,
    /// `ab`, with octal escapes.
    Escape,
}

impl Default for Context {
    fn default() -> Self {
        Context {
            zone: Zone::utc(),
            date_order: DateOrder::default(),
            now: None,
            bytea_output: ByteaOutput::default(),
        }
    }
}

impl Value {
    /// A text value.
    pub fn text(text: impl Into<Text>) -> Value {
        Value::Text(text.into())
    }

    /// Whether this is null.
    #[inline]
    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }

    /// The type this value is of by itself; `None` for null. Texts say `text`, oids say `oid`.
    pub fn natural_type(&self) -> Option<Type> {
        Some(match self {
            Value::Null => return None,
            Value::Bool(_) => Type::Bool,
            Value::Int2(_) => Type::Int2,
            Value::Int4(_) => Type::Int4,
            Value::Int8(_) => Type::Int8,
            Value::Float4(_) => Type::Float4,
            Value::Float8(_) => Type::Float8,
            Value::Numeric(_) => Type::Numeric,
            Value::Text(_) => Type::Text,
            Value::Bytea(_) => Type::Bytea,
            Value::Date(_) => Type::Date,
            Value::Time(_) => Type::Time,
            Value::Timestamp(_) => Type::Timestamp,
            Value::Timestamptz(_) => Type::Timestamptz,
            Value::Interval(_) => Type::Interval,
            Value::Uuid(_) => Type::Uuid,
            Value::Json(_) => Type::Json,
            Value::Jsonb(_) => Type::Jsonb,
            Value::Oid(_) => Type::Oid,
            Value::Array(array) => Type::Array(array.element()),
            Value::Record(_) => Type::Record,
        })
    }

    /// Whether this value may stand in a column of this type; null may stand in any.
    pub fn fits(&self, of: Type) -> bool {
        match self {
            Value::Null => true,
            Value::Text(_) => of.is_text() || matches!(of, Type::Tid | Type::Void),
            Value::Oid(_) => of.is_oid(),
            Value::Array(array) => match of {
                Type::Array(element) => array.element() == element,
                Type::Int2Vector => array.element() == Scalar::Int2,
                Type::OidVector => array.element() == Scalar::Oid,
                Type::Vector => array.element() == Scalar::Float4,
                _ => false,
            },
            _ => self.natural_type() == Some(of),
        }
    }

    /// The boolean, if it is one.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Value::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// The integer of any width or OID, if it is one.
    #[inline]
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Value::Int2(value) => Some(i64::from(*value)),
            Value::Int4(value) => Some(i64::from(*value)),
            Value::Int8(value) => Some(*value),
            Value::Oid(value) => Some(i64::from(*value)),
            _ => None,
        }
    }

    /// The floating-point number of either width, if it is one.
    #[inline]
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Value::Float4(value) => Some(f64::from(*value)),
            Value::Float8(value) => Some(*value),
            _ => None,
        }
    }

    /// The text of a text or json value.
    #[inline]
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::Text(text) | Value::Json(text) => Some(text),
            _ => None,
        }
    }

    /// The bytes of a bytea value.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match self {
            Value::Bytea(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The array, if it is one.
    pub fn as_array(&self) -> Option<&Arc<Array>> {
        match self {
            Value::Array(array) => Some(array),
            _ => None,
        }
    }

    /// Bytes this value holds beyond its own 24, for memory budgets.
    pub fn heap_size(&self) -> usize {
        match self {
            Value::Text(text) | Value::Json(text) => text.len(),
            Value::Bytea(bytes) => bytes.len(),
            Value::Jsonb(json) => json.as_bytes().len(),
            Value::Numeric(number) => number.heap_size(),
            Value::Array(array) => array.values().iter().map(Value::heap_size_whole).sum::<usize>() + 64,
            Value::Record(values) => values.iter().map(Value::heap_size_whole).sum(),
            _ => 0,
        }
    }

    fn heap_size_whole(&self) -> usize {
        size_of::<Value>() + self.heap_size()
    }

    /// Compares two values of one type as a B-tree of PostgreSQL does: a total order, null greatest.
    /// Values of different kinds compare by number where both are numbers, else by kind.
    pub fn cmp_sql(&self, other: &Value) -> Ordering {
        match (self, other) {
            (Value::Int4(a), Value::Int4(b)) => a.cmp(b),
            (Value::Int8(a), Value::Int8(b)) => a.cmp(b),
            (Value::Text(a), Value::Text(b)) => a.as_bytes().cmp(b.as_bytes()),
            (Value::Null, Value::Null) => Ordering::Equal,
            (Value::Null, _) => Ordering::Greater,
            (_, Value::Null) => Ordering::Less,
            (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
            (Value::Int2(a), Value::Int2(b)) => a.cmp(b),
            (Value::Float4(a), Value::Float4(b)) => float::cmp(f64::from(*a), f64::from(*b)),
            (Value::Float8(a), Value::Float8(b)) => float::cmp(*a, *b),
            (Value::Numeric(a), Value::Numeric(b)) => a.cmp_sql(b),
            (Value::Bytea(a), Value::Bytea(b)) => a.cmp(b),
            (Value::Date(a), Value::Date(b)) => a.cmp(b),
            (Value::Time(a), Value::Time(b)) => a.cmp(b),
            (Value::Timestamp(a), Value::Timestamp(b)) | (Value::Timestamptz(a), Value::Timestamptz(b)) => {
                a.cmp(b)
            }
            (Value::Interval(a), Value::Interval(b)) => a.cmp_sql(b),
            (Value::Uuid(a), Value::Uuid(b)) => a.cmp(b),
            (Value::Json(a), Value::Json(b)) => a.as_bytes().cmp(b.as_bytes()),
            (Value::Jsonb(a), Value::Jsonb(b)) => a.cmp_sql(b),
            (Value::Oid(a), Value::Oid(b)) => a.cmp(b),
            (Value::Array(a), Value::Array(b)) => a.cmp_sql(b),
            (Value::Record(a), Value::Record(b)) => cmp_rows(a, b),
            _ => self.cmp_mixed(other),
        }
    }

    fn cmp_mixed(&self, other: &Value) -> Ordering {
        if let (Some(a), Some(b)) = (self.as_i64(), other.as_i64()) {
            return a.cmp(&b);
        }
        if let (Some(a), Some(b)) = (self.as_f64(), other.as_f64()) {
            return float::cmp(a, b);
        }
        if let (Some(a), Some(b)) = (self.to_numeric(), other.to_numeric()) {
            return a.cmp_sql(&b);
        }
        self.kind().cmp(&other.kind())
    }

    fn to_numeric(&self) -> Option<Numeric> {
        match self {
            Value::Numeric(number) => Some(number.clone()),
            _ => match self.as_f64() {
                Some(float) => Some(Numeric::from_f64(float)),
                None => self.as_i64().map(Numeric::from),
            },
        }
    }

    /// Whether two values are equal as SQL's grouping and unique keys see it; null equals null.
    #[inline]
    pub fn eq_sql(&self, other: &Value) -> bool {
        match (self, other) {
            (Value::Text(a), Value::Text(b)) => a == b,
            (Value::Int4(a), Value::Int4(b)) => a == b,
            (Value::Int8(a), Value::Int8(b)) => a == b,
            (Value::Numeric(a), Value::Numeric(b)) => a.cmp_sql(b).is_eq(),
            _ => self.cmp_sql(other).is_eq(),
        }
    }

    /// Hashes so that values of one type that are equal under `eq_sql` hash alike; integers of every width alike,
    /// floats of either width alike.
    pub fn hash_sql<H: Hasher>(&self, state: &mut H) {
        match self {
            Value::Null => state.write_u8(0),
            Value::Bool(value) => state.write_u8(1 + u8::from(*value)),
            Value::Int2(value) => state.write_i64(i64::from(*value)),
            Value::Int4(value) => state.write_i64(i64::from(*value)),
            Value::Int8(value) => state.write_i64(*value),
            Value::Oid(value) => state.write_i64(i64::from(*value)),
            Value::Float4(value) => state.write_u64(float::canonical_bits(f64::from(*value))),
            Value::Float8(value) => state.write_u64(float::canonical_bits(*value)),
            Value::Numeric(value) => value.hash_sql(state),
            Value::Text(value) | Value::Json(value) => value.hash(state),
            Value::Bytea(value) => value.hash(state),
            Value::Date(value) => value.hash(state),
            Value::Time(value) => value.hash(state),
            Value::Timestamp(value) | Value::Timestamptz(value) => value.hash(state),
            Value::Interval(value) => state.write_i128(value.span_micros()),
            Value::Uuid(value) => state.write(value),
            Value::Jsonb(value) => value.hash_sql(state),
            Value::Array(array) => array.hash_sql(state),
            Value::Record(values) => values.iter().for_each(|value| value.hash_sql(state)),
        }
    }

    /// A number per kind, for the order of values that cannot be compared otherwise.
    fn kind(&self) -> u8 {
        match self {
            Value::Bool(_) => 0,
            Value::Int2(_) | Value::Int4(_) | Value::Int8(_) | Value::Oid(_) => 1,
            Value::Float4(_) | Value::Float8(_) => 1,
            Value::Numeric(_) => 1,
            Value::Text(_) => 4,
            Value::Bytea(_) => 5,
            Value::Date(_) => 6,
            Value::Time(_) => 7,
            Value::Timestamp(_) => 8,
            Value::Timestamptz(_) => 9,
            Value::Interval(_) => 10,
            Value::Uuid(_) => 11,
            Value::Json(_) => 12,
            Value::Jsonb(_) => 13,
            Value::Array(_) => 14,
            Value::Record(_) => 15,
            Value::Null => 16,
        }
    }
}

fn cmp_rows(a: &[Value], b: &[Value]) -> Ordering {
    let unequal = a.iter().zip(b).map(|(a, b)| a.cmp_sql(b)).find(|order| order.is_ne());
    unequal.unwrap_or_else(|| a.len().cmp(&b.len()))
}

impl PartialEq for Value {
    fn eq(&self, other: &Value) -> bool {
        match (self, other) {
            (Value::Null, Value::Null) => true,
            (Value::Bool(a), Value::Bool(b)) => a == b,
            (Value::Int2(a), Value::Int2(b)) => a == b,
            (Value::Int4(a), Value::Int4(b)) => a == b,
            (Value::Int8(a), Value::Int8(b)) => a == b,
            (Value::Float4(a), Value::Float4(b)) => a.to_bits() == b.to_bits(),
            (Value::Float8(a), Value::Float8(b)) => a.to_bits() == b.to_bits(),
            (Value::Numeric(a), Value::Numeric(b)) => a == b,
            (Value::Text(a), Value::Text(b)) | (Value::Json(a), Value::Json(b)) => a == b,
            (Value::Bytea(a), Value::Bytea(b)) => a == b,
            (Value::Date(a), Value::Date(b)) => a == b,
            (Value::Time(a), Value::Time(b)) => a == b,
            (Value::Timestamp(a), Value::Timestamp(b)) | (Value::Timestamptz(a), Value::Timestamptz(b)) => {
                a == b
            }
            (Value::Interval(a), Value::Interval(b)) => a == b,
            (Value::Uuid(a), Value::Uuid(b)) => a == b,
            (Value::Jsonb(a), Value::Jsonb(b)) => a == b,
            (Value::Oid(a), Value::Oid(b)) => a == b,
            (Value::Array(a), Value::Array(b)) => a == b,
            (Value::Record(a), Value::Record(b)) => a == b,
            _ => false,
        }
    }
}

impl Eq for Value {}

#[cfg(test)]
mod tests;
