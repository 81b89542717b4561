//! One column's bytes: fixed-width types little-endian, text as UTF-8, numeric compact, `jsonb` as it is.
//!
//! Arrays: dimensions u8 · (length u32, lower i32) each · nulls ⌈n/8⌉ · ends[n] u32 · data.
//! Records: count u16 · (type OID u32 or 0 for null, length u32, bytes) each.

use std::sync::Arc;

use crate::types::{Scalar, Type};
use crate::value::array::{DIMENSIONS_MAX, Dimension, element_count};
use crate::value::{Array, Bytea, Date, Interval, Jsonb, Numeric, Text, Time, Timestamp, Value};

/// Deepest nesting of records and arrays in a column.
const DEPTH_MAX: usize = 32;

/// Appends a value that is not null as a column of this type; `None` when it does not fit.
#[inline]
pub fn write_value(value: &Value, of: Type, out: &mut Vec<u8>) -> Option<()> {
    write_at(value, of, out, 0)
}

fn write_at(value: &Value, of: Type, out: &mut Vec<u8>, depth: usize) -> Option<()> {
    if depth > DEPTH_MAX || !value.fits(of) {
        return None;
    }
    match value {
        Value::Null => return None,
        Value::Bool(value) => out.push(u8::from(*value)),
        Value::Int2(value) => out.extend_from_slice(&value.to_le_bytes()),
        Value::Int4(value) => out.extend_from_slice(&value.to_le_bytes()),
        Value::Int8(value) => out.extend_from_slice(&value.to_le_bytes()),
        Value::Float4(value) => out.extend_from_slice(&value.to_le_bytes()),
        Value::Float8(value) => out.extend_from_slice(&value.to_le_bytes()),
        Value::Numeric(value) => value.write_compact(out),
        Value::Text(value) | Value::Json(value) => out.extend_from_slice(value.as_bytes()),
        Value::Bytea(value) => out.extend_from_slice(value),
        Value::Date(value) => out.extend_from_slice(&value.days().to_le_bytes()),
        Value::Time(value) => out.extend_from_slice(&value.micros().to_le_bytes()),
        Value::Timestamp(value) | Value::Timestamptz(value) => {
            out.extend_from_slice(&value.micros().to_le_bytes())
        }
        Value::Interval(value) => {
            out.extend_from_slice(&value.months.to_le_bytes());
            out.extend_from_slice(&value.days.to_le_bytes());
            out.extend_from_slice(&value.micros.to_le_bytes());
        }
        Value::Uuid(value) => out.extend_from_slice(value),
        Value::Jsonb(value) => out.extend_from_slice(value.as_bytes()),
        Value::Oid(value) => out.extend_from_slice(&value.to_le_bytes()),
        Value::Array(array) => write_array(array, out, depth)?,
        Value::Record(values) => write_record(values, out, depth)?,
    }
    Some(())
}

fn write_array(array: &Array, out: &mut Vec<u8>, depth: usize) -> Option<()> {
    out.push(array.dimensions().len() as u8);
    for dimension in array.dimensions() {
        out.extend_from_slice(&dimension.length.to_le_bytes());
        out.extend_from_slice(&dimension.lower.to_le_bytes());
    }
    let nulls = out.len();
    let ends = nulls + array.len().div_ceil(8);
    let data = ends + array.len() * 4;
    out.resize(data, 0);
    for (index, value) in array.values().iter().enumerate() {
        if value.is_null() {
            out[nulls + index / 8] |= 1 << (index % 8);
        } else {
            write_at(value, array.element().as_type(), out, depth + 1)?;
        }
        let end = u32::try_from(out.len() - data).ok()?;
        out[ends + index * 4..ends + index * 4 + 4].copy_from_slice(&end.to_le_bytes());
    }
    Some(())
}

fn write_record(values: &[Value], out: &mut Vec<u8>, depth: usize) -> Option<()> {
    out.extend_from_slice(&u16::try_from(values.len()).ok()?.to_le_bytes());
    for value in values {
        let Some(of) = value.natural_type() else {
            out.extend_from_slice(&[0; 8]);
            continue;
        };
        out.extend_from_slice(&of.oid().to_le_bytes());
        let length = out.len();
        out.extend_from_slice(&[0; 4]);
        write_at(value, of, out, depth + 1)?;
        let written = u32::try_from(out.len() - length - 4).ok()?;
        out[length..length + 4].copy_from_slice(&written.to_le_bytes());
    }
    Some(())
}

/// Reads a column of this type that is not null; `None` when the bytes are none.
#[inline]
pub fn read_value(bytes: &[u8], of: Type) -> Option<Value> {
    read_at(bytes, of, 0)
}

fn read_at(bytes: &[u8], of: Type, depth: usize) -> Option<Value> {
    if depth > DEPTH_MAX {
        return None;
    }
    Some(match of {
        Type::Int4 => Value::Int4(i32::from_le_bytes(bytes.try_into().ok()?)),
        Type::Int8 => Value::Int8(i64::from_le_bytes(bytes.try_into().ok()?)),
        Type::Text
        | Type::Varchar
        | Type::Bpchar
        | Type::Name
        | Type::Char
        | Type::Unknown
        | Type::PgNodeTree
        | Type::Tid
        | Type::Void => Value::Text(Text::from(std::str::from_utf8(bytes).ok()?)),
        Type::Numeric => Value::Numeric(Numeric::read_compact(bytes)?),
        Type::Bool => match bytes {
            [0] => Value::Bool(false),
            [1] => Value::Bool(true),
            _ => return None,
        },
        Type::Int2 => Value::Int2(i16::from_le_bytes(bytes.try_into().ok()?)),
        Type::Float4 => Value::Float4(f32::from_le_bytes(bytes.try_into().ok()?)),
        Type::Float8 => Value::Float8(f64::from_le_bytes(bytes.try_into().ok()?)),
        Type::Bytea => Value::Bytea(Bytea::from(bytes)),
        Type::Date => Value::Date(Date::from_days(i32::from_le_bytes(bytes.try_into().ok()?)).ok()?),
        Type::Time => Value::Time(Time::from_micros(i64::from_le_bytes(bytes.try_into().ok()?)).ok()?),
        Type::Timestamp => Value::Timestamp(timestamp(bytes)?),
        Type::Timestamptz => Value::Timestamptz(timestamp(bytes)?),
        Type::Interval => {
            let (months, rest) = bytes.split_first_chunk::<4>()?;
            let (days, micros) = rest.split_first_chunk::<4>()?;
            let micros = i64::from_le_bytes(micros.try_into().ok()?);
            Value::Interval(Interval::new(i32::from_le_bytes(*months), i32::from_le_bytes(*days), micros))
        }
        Type::Uuid => Value::Uuid(bytes.try_into().ok()?),
        Type::Json => Value::Json(Text::from(std::str::from_utf8(bytes).ok()?)),
        Type::Jsonb => Value::Jsonb(Jsonb::from_stored(bytes)),
        Type::Oid
        | Type::Regclass
        | Type::Regtype
        | Type::Regproc
        | Type::Regnamespace
        | Type::Regrole
        | Type::Xid
        | Type::Cid => Value::Oid(u32::from_le_bytes(bytes.try_into().ok()?)),
        Type::Array(element) => read_array(bytes, element, depth)?,
        Type::Int2Vector => read_array(bytes, Scalar::Int2, depth)?,
        Type::OidVector => read_array(bytes, Scalar::Oid, depth)?,
        Type::Vector => read_array(bytes, Scalar::Float4, depth)?,
        Type::Record => read_record(bytes, depth)?,
    })
}

fn timestamp(bytes: &[u8]) -> Option<Timestamp> {
    Timestamp::from_micros(i64::from_le_bytes(bytes.try_into().ok()?)).ok()
}

fn read_array(bytes: &[u8], element: Scalar, depth: usize) -> Option<Value> {
    let (count, mut rest) = bytes.split_first()?;
    if usize::from(*count) > DIMENSIONS_MAX {
        return None;
    }
    let mut dimensions = Vec::with_capacity(usize::from(*count));
    for _ in 0..*count {
        let (length, after) = rest.split_first_chunk::<4>()?;
        let (lower, after) = after.split_first_chunk::<4>()?;
        dimensions.push(Dimension { length: i32::from_le_bytes(*length), lower: i32::from_le_bytes(*lower) });
        rest = after;
    }
    let total = element_count(&dimensions).ok()?;
    if total == 0 {
        let vector = matches!(dimensions.as_slice(), [Dimension { length: 0, lower: 0 }]);
        let array = if vector { Array::from_vector(element, Vec::new()) } else { Array::empty(element) };
        return (rest.is_empty() && (vector || dimensions.is_empty())).then(|| Value::Array(Arc::new(array)));
    }
    let (nulls, rest) = rest.split_at_checked(total.div_ceil(8))?;
    let (ends, data) = rest.split_at_checked(total * 4)?;
    let mut values = Vec::with_capacity(total);
    let mut start = 0;
    for (index, end) in ends.chunks_exact(4).enumerate() {
        let end = u32::from_le_bytes(end.try_into().ok()?) as usize;
        if nulls[index / 8] >> (index % 8) & 1 == 1 {
            values.push(Value::Null);
        } else {
            values.push(read_at(data.get(start..end)?, element.as_type(), depth + 1)?);
        }
        start = end;
    }
    if start != data.len() {
        return None;
    }
    Array::new(element, dimensions, values).ok().map(|array| Value::Array(Arc::new(array)))
}

fn read_record(bytes: &[u8], depth: usize) -> Option<Value> {
    let (count, mut rest) = bytes.split_first_chunk::<2>()?;
    let mut values = Vec::new();
    for _ in 0..u16::from_le_bytes(*count) {
        let (oid, after) = rest.split_first_chunk::<4>()?;
        let (length, after) = after.split_first_chunk::<4>()?;
        let (value, after) = after.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        let oid = u32::from_le_bytes(*oid);
        values.push(match Type::from_oid(oid) {
            Some(of) => read_at(value, of, depth + 1)?,
            None if oid == 0 && value.is_empty() => Value::Null,
            None => return None,
        });
        rest = after;
    }
    rest.is_empty().then(|| Value::Record(Arc::from(values)))
}
