//! Keys: tuples of values as bytes whose order is the order of the values.
//!
//! The format is frozen and drawn byte by byte in `docs/formats/key.md`. A key is the concatenation of its parts, each
//! self-delimiting, so the bytes of `(a)` are a prefix of the bytes of `(a, b)`.
//!
//! Invariants:
//! - Byte order equals `Value::cmp_sql` order among values of one type, and equal values have equal bytes: 1.0 and
//!   1.00, -0 and 0, `1 mon` and `30 days`, integers of every width, floats of either width.
//! - Descending parts are the same bytes inverted; null has its own byte on either side of all values.
//! - Decoding never panics, and gives back a value equal under `eq_sql`; display scale and interval fields are not
//!   in a key, the row has them.
//!
//! Not here: partition ids (`id`), where keys lie in the engine (`storage::keyspace`).

use std::fmt;
use std::sync::Arc;

use crate::types::Type;
use crate::value::{Value, ValueError};

mod number;
mod read;
#[cfg(test)]
mod tests;

use number::{write_float, write_integer, write_numeric};

/// Closes the elements of an array or record; lower than every part, so shorter sorts first.
const END: u8 = 0x01;
const NULL_FIRST: u8 = 0x02;
const FALSE: u8 = 0x18;
const TRUE: u8 = 0x19;
/// Integers are `INTEGER + n` with n bytes of magnitude, or `INTEGER - n` when negative.
const INTEGER: u8 = 0x28;
const FLOAT: u8 = 0x38;
const NUMERIC: u8 = 0x40;
const TEXT: u8 = 0x50;
const BYTEA: u8 = 0x54;
const DATE: u8 = 0x60;
const TIME: u8 = 0x61;
const TIMESTAMP: u8 = 0x62;
const TIMESTAMPTZ: u8 = 0x63;
const INTERVAL: u8 = 0x64;
const UUID: u8 = 0x70;
const ARRAY: u8 = 0x78;
const RECORD: u8 = 0x7c;
const NULL_LAST: u8 = 0xf0;

/// After 0x00 in a text: the zero byte itself.
const ESCAPED_ZERO: u8 = 0xff;
/// After 0x00 in a text: its end.
const TEXT_END: u8 = 0x01;

/// Deepest nesting of arrays and records in a key.
const DEPTH_MAX: usize = 32;

/// How one column of an index sorts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct KeyPart {
    /// Greatest first.
    pub desc: bool,
    /// Null before all values; PostgreSQL's default is `desc`.
    pub nulls_first: bool,
}

impl KeyPart {
    /// Ascending, null last: PostgreSQL's default.
    pub const ASC: KeyPart = KeyPart { desc: false, nulls_first: false };
    /// Descending, null first: PostgreSQL's default for `DESC`.
    pub const DESC: KeyPart = KeyPart { desc: true, nulls_first: true };
}

/// Why a key cannot be made or read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyError {
    /// Values of this kind have no order-preserving form: `json`, `jsonb`.
    NotAllowed {
        /// The kind's name.
        kind: &'static str,
    },
    /// The bytes are no key of these types.
    Malformed {
        /// Where reading stopped.
        offset: usize,
    },
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyError::NotAllowed { kind } => write!(f, "values of type {kind} cannot be part of a key"),
            KeyError::Malformed { offset } => write!(f, "malformed key at byte {offset}"),
        }
    }
}

impl std::error::Error for KeyError {}

impl From<KeyError> for ValueError {
    fn from(error: KeyError) -> Self {
        let kind = match error {
            KeyError::NotAllowed { .. } => crate::value::ValueErrorKind::NotSupported,
            KeyError::Malformed { .. } => crate::value::ValueErrorKind::InvalidBinary,
        };
        ValueError::new(kind, error.to_string())
    }
}

/// Appends the parts of an ascending key with null last.
pub fn encode_into(out: &mut Vec<u8>, values: &[Value]) -> Result<(), KeyError> {
    values.iter().try_for_each(|value| encode_part(out, value, KeyPart::ASC))
}

/// Appends the parts of a key whose columns sort each in their own way. Columns without a `KeyPart` are ascending.
pub fn encode_parts(out: &mut Vec<u8>, values: &[Value], parts: &[KeyPart]) -> Result<(), KeyError> {
    for (index, value) in values.iter().enumerate() {
        encode_part(out, value, parts.get(index).copied().unwrap_or_default())?;
    }
    Ok(())
}

/// Appends one part. On error `out` is as before.
pub fn encode_part(out: &mut Vec<u8>, value: &Value, part: KeyPart) -> Result<(), KeyError> {
    if value.is_null() {
        out.push(if part.nulls_first { NULL_FIRST } else { NULL_LAST });
        return Ok(());
    }
    let start = out.len();
    if let Err(error) = write_value(out, value, 0) {
        out.truncate(start);
        return Err(error);
    }
    if part.desc {
        out[start..].iter_mut().for_each(|byte| *byte = !*byte);
    }
    Ok(())
}

/// Reads a whole ascending key of these types; bytes left over are an error.
pub fn decode(bytes: &[u8], types: &[Type]) -> Result<Vec<Value>, KeyError> {
    let (values, used) = decode_prefix(bytes, types, &[])?;
    if used != bytes.len() {
        return Err(KeyError::Malformed { offset: used });
    }
    Ok(values)
}

/// Reads the leading parts of a key; says how many bytes they took.
pub fn decode_prefix(
    bytes: &[u8],
    types: &[Type],
    parts: &[KeyPart],
) -> Result<(Vec<Value>, usize), KeyError> {
    let mut values = Vec::with_capacity(types.len());
    let mut used = 0;
    for (index, of) in types.iter().enumerate() {
        let part = parts.get(index).copied().unwrap_or_default();
        let (value, taken) = read::part(&bytes[used..], *of, part)
            .map_err(|read::Stopped(offset)| KeyError::Malformed { offset: used + offset })?;
        values.push(value);
        used += taken;
    }
    Ok((values, used))
}

/// Appends a closed tuple: the parts of an ascending key and an end, so that what follows cannot be mistaken for a part.
pub fn encode_tuple(out: &mut Vec<u8>, values: &[Value]) -> Result<(), KeyError> {
    encode_into(out, values)?;
    out.push(END);
    Ok(())
}

/// Reads a closed tuple of scalars whose types are told by its own tags: integers come back as int8, floats as float8.
/// Bytes left over are an error.
pub fn decode_tuple(bytes: &[u8]) -> Result<Vec<Value>, KeyError> {
    let mut values = Vec::new();
    let mut used = 0;
    loop {
        let malformed = KeyError::Malformed { offset: used };
        let of = match *bytes.get(used).ok_or_else(|| malformed.clone())? {
            END if used + 1 == bytes.len() => return Ok(values),
            FALSE | TRUE => Type::Bool,
            tag if tag.abs_diff(INTEGER) <= 8 => Type::Int8,
            FLOAT => Type::Float8,
            TEXT => Type::Text,
            BYTEA => Type::Bytea,
            DATE => Type::Date,
            TIME => Type::Time,
            TIMESTAMP => Type::Timestamp,
            TIMESTAMPTZ => Type::Timestamptz,
            UUID => Type::Uuid,
            NUMERIC => Type::Numeric,
            _ => return Err(malformed),
        };
        let (value, taken) = read::part(&bytes[used..], of, KeyPart::ASC)
            .map_err(|read::Stopped(offset)| KeyError::Malformed { offset: used + offset })?;
        values.push(value);
        used += taken;
    }
}

/// The least byte string above all strings that begin with `prefix`: the end of a range scan. `None` when there is
/// none, which needs an empty prefix or one of 0xff only.
pub fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != 0xff)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

fn write_value(out: &mut Vec<u8>, value: &Value, depth: usize) -> Result<(), KeyError> {
    match value {
        Value::Null => out.push(NULL_LAST),
        Value::Bool(value) => out.push(if *value { TRUE } else { FALSE }),
        Value::Int2(value) => write_integer(out, i64::from(*value)),
        Value::Int4(value) => write_integer(out, i64::from(*value)),
        Value::Int8(value) => write_integer(out, *value),
        Value::Oid(value) => write_integer(out, i64::from(*value)),
        Value::Float4(value) => write_float(out, f64::from(*value)),
        Value::Float8(value) => write_float(out, *value),
        Value::Numeric(value) => write_numeric(out, value),
        Value::Text(value) => write_escaped(out, TEXT, value.as_bytes()),
        Value::Bytea(value) => write_escaped(out, BYTEA, value),
        Value::Date(value) => {
            out.push(DATE);
            out.extend_from_slice(&(value.days() as u32 ^ 1 << 31).to_be_bytes());
        }
        Value::Time(value) => write_micros(out, TIME, value.micros()),
        Value::Timestamp(value) => write_micros(out, TIMESTAMP, value.micros()),
        Value::Timestamptz(value) => write_micros(out, TIMESTAMPTZ, value.micros()),
        Value::Interval(value) => {
            out.push(INTERVAL);
            // The span needs 74 bits; twelve bytes hold it.
            let sortable = (value.span_micros() + (1 << 95)).to_be_bytes();
            out.extend_from_slice(&sortable[4..]);
        }
        Value::Uuid(value) => {
            out.push(UUID);
            out.extend_from_slice(value);
        }
        Value::Json(_) => return Err(KeyError::NotAllowed { kind: "json" }),
        Value::Jsonb(_) => return Err(KeyError::NotAllowed { kind: "jsonb" }),
        Value::Array(array) => {
            write_elements(out, ARRAY, array.values(), depth)?;
            out.push(array.dimensions().len() as u8);
            for dimension in array.dimensions() {
                out.extend_from_slice(&(dimension.length as u32 ^ 1 << 31).to_be_bytes());
            }
            for dimension in array.dimensions() {
                out.extend_from_slice(&(dimension.lower as u32 ^ 1 << 31).to_be_bytes());
            }
        }
        Value::Record(values) => write_elements(out, RECORD, values, depth)?,
    }
    Ok(())
}

fn write_elements(out: &mut Vec<u8>, tag: u8, values: &[Value], depth: usize) -> Result<(), KeyError> {
    if depth >= DEPTH_MAX {
        return Err(KeyError::NotAllowed { kind: "nested record" });
    }
    out.push(tag);
    values.iter().try_for_each(|value| write_value(out, value, depth + 1))?;
    out.push(END);
    Ok(())
}

fn write_micros(out: &mut Vec<u8>, tag: u8, micros: i64) {
    out.push(tag);
    out.extend_from_slice(&(micros as u64 ^ 1 << 63).to_be_bytes());
}

fn write_escaped(out: &mut Vec<u8>, tag: u8, bytes: &[u8]) {
    out.reserve(bytes.len() + 3);
    out.push(tag);
    let mut rest = bytes;
    while let Some(zero) = rest.iter().position(|byte| *byte == 0) {
        out.extend_from_slice(&rest[..=zero]);
        out.push(ESCAPED_ZERO);
        rest = &rest[zero + 1..];
    }
    out.extend_from_slice(rest);
    out.extend_from_slice(&[0, TEXT_END]);
}

/// A shared slice of values, as records hold them.
fn record(values: Vec<Value>) -> Value {
    Value::Record(Arc::from(values))
}
