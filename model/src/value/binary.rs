//! Binary forms of every type, byte for byte as PostgreSQL sends and receives them.
//!
//! Invariants:
//! - Decoding never panics and never allocates more than the bytes at hand justify.
//! - What `encode_binary` writes, `decode_binary` of the same type reads back to an equal value.
//!
//! Not here: text forms (`text_io`), message framing (`server::pg`).

use std::sync::Arc;

use super::array::{DIMENSIONS_MAX, Dimension, element_count};
use super::text_io::split_tid;
use super::{
    Array, Bytea, Date, Interval, Jsonb, Numeric, Text, Time, Timestamp, Value, ValueError, ValueErrorKind,
};
use crate::types::{Scalar, Type};

/// Version byte before a `jsonb` document.
const JSONB_VERSION: u8 = 1;

/// Appends the binary form of a value that is not null; null appends nothing.
pub fn encode_binary(value: &Value, of: Type, out: &mut Vec<u8>) {
    match value {
        Value::Null => {}
        Value::Bool(value) => out.push(u8::from(*value)),
        Value::Int2(value) => out.extend_from_slice(&value.to_be_bytes()),
        Value::Int4(value) => out.extend_from_slice(&value.to_be_bytes()),
        Value::Int8(value) => out.extend_from_slice(&value.to_be_bytes()),
        Value::Float4(value) => out.extend_from_slice(&value.to_be_bytes()),
        Value::Float8(value) => out.extend_from_slice(&value.to_be_bytes()),
        Value::Numeric(value) => value.write_wire(out),
        Value::Text(value) => match of {
            Type::Char => out.push(value.chars().next().map_or(0, |c| c as u32 as u8)),
            Type::Tid => {
                let (block, offset) = split_tid(value).unwrap_or((0, 0));
                out.extend_from_slice(&block.to_be_bytes());
                out.extend_from_slice(&offset.to_be_bytes());
            }
            _ => out.extend_from_slice(value.as_bytes()),
        },
        Value::Json(value) => out.extend_from_slice(value.as_bytes()),
        Value::Bytea(value) => out.extend_from_slice(value),
        Value::Date(value) => out.extend_from_slice(&value.days().to_be_bytes()),
        Value::Time(value) => out.extend_from_slice(&value.micros().to_be_bytes()),
        Value::Timestamp(value) | Value::Timestamptz(value) => {
            out.extend_from_slice(&value.micros().to_be_bytes())
        }
        Value::Interval(value) => {
            out.extend_from_slice(&value.micros.to_be_bytes());
            out.extend_from_slice(&value.days.to_be_bytes());
            out.extend_from_slice(&value.months.to_be_bytes());
        }
        Value::Uuid(value) => out.extend_from_slice(value),
        Value::Jsonb(value) => {
            out.push(JSONB_VERSION);
            out.extend_from_slice(value.to_string().as_bytes());
        }
        Value::Oid(value) => out.extend_from_slice(&value.to_be_bytes()),
        Value::Array(array) if of == Type::Vector => encode_embedding(array, out),
        Value::Array(array) => encode_array(array, out),
        Value::Record(values) => encode_record(values, out),
    }
}

fn encode_embedding(array: &Array, out: &mut Vec<u8>) {
    out.extend_from_slice(&(array.len() as u16).to_be_bytes());
    out.extend_from_slice(&[0, 0]);
    for value in array.values() {
        encode_binary(value, Type::Float4, out);
    }
}

fn encode_array(array: &Array, out: &mut Vec<u8>) {
    let has_null = array.values().iter().any(Value::is_null);
    out.extend_from_slice(&(array.dimensions().len() as i32).to_be_bytes());
    out.extend_from_slice(&i32::from(has_null).to_be_bytes());
    out.extend_from_slice(&array.element().as_type().oid().to_be_bytes());
    for dimension in array.dimensions() {
        out.extend_from_slice(&dimension.length.to_be_bytes());
        out.extend_from_slice(&dimension.lower.to_be_bytes());
    }
    for value in array.values() {
        encode_prefixed(value, array.element().as_type(), out);
    }
}

fn encode_record(values: &[Value], out: &mut Vec<u8>) {
    out.extend_from_slice(&(values.len() as i32).to_be_bytes());
    for value in values {
        let of = value.natural_type().unwrap_or(Type::Text);
        out.extend_from_slice(&of.oid().to_be_bytes());
        encode_prefixed(value, of, out);
    }
}

/// A length, -1 for null, and the value.
fn encode_prefixed(value: &Value, of: Type, out: &mut Vec<u8>) {
    if value.is_null() {
        return out.extend_from_slice(&(-1i32).to_be_bytes());
    }
    let length = out.len();
    out.extend_from_slice(&[0; 4]);
    encode_binary(value, of, out);
    let written = (out.len() - length - 4) as i32;
    out[length..length + 4].copy_from_slice(&written.to_be_bytes());
}

/// Reads a binary form that fills `bytes` wholly.
pub fn decode_binary(of: Type, bytes: &[u8]) -> Result<Value, ValueError> {
    let mut reader = Reader { bytes };
    let value = reader.value(of)?;
    if !reader.bytes.is_empty() {
        return Err(ValueError::invalid_binary());
    }
    Ok(value)
}

struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    fn chunk<const N: usize>(&mut self) -> Result<[u8; N], ValueError> {
        let (chunk, rest) = self.bytes.split_first_chunk::<N>().ok_or_else(ValueError::short_binary)?;
        self.bytes = rest;
        Ok(*chunk)
    }

    fn i32(&mut self) -> Result<i32, ValueError> {
        self.chunk().map(i32::from_be_bytes)
    }

    fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.bytes)
    }

    fn text(&mut self) -> Result<Text, ValueError> {
        decode_text(self.rest()).map(Text::from)
    }

    fn value(&mut self, of: Type) -> Result<Value, ValueError> {
        Ok(match of {
            Type::Bool => Value::Bool(self.chunk::<1>()? != [0]),
            Type::Int2 => Value::Int2(i16::from_be_bytes(self.chunk()?)),
            Type::Int4 => Value::Int4(self.i32()?),
            Type::Int8 => Value::Int8(i64::from_be_bytes(self.chunk()?)),
            Type::Float4 => Value::Float4(f32::from_be_bytes(self.chunk()?)),
            Type::Float8 => Value::Float8(f64::from_be_bytes(self.chunk()?)),
            Type::Numeric => Value::Numeric(Numeric::read_wire(self.rest())?),
            Type::Text | Type::Varchar | Type::Bpchar | Type::Unknown | Type::PgNodeTree => {
                Value::Text(self.text()?)
            }
            Type::Name => {
                let text = self.text()?;
                if text.len() > 63 {
                    return Err(ValueError::new(ValueErrorKind::TooLong, "identifier too long")
                        .with_detail("Identifier must be less than 64 characters."));
                }
                Value::Text(text)
            }
            Type::Char => match self.chunk::<1>()? {
                [0] => Value::text(""),
                [byte] => Value::text(char::from(byte).to_string()),
            },
            Type::Bytea => Value::Bytea(Bytea::from(self.rest())),
            Type::Date => Value::Date(Date::from_days(self.i32()?)?),
            Type::Time => Value::Time(Time::from_micros(i64::from_be_bytes(self.chunk()?))?),
            Type::Timestamp => Value::Timestamp(Timestamp::from_micros(i64::from_be_bytes(self.chunk()?))?),
            Type::Timestamptz => {
                Value::Timestamptz(Timestamp::from_micros(i64::from_be_bytes(self.chunk()?))?)
            }
            Type::Interval => {
                let micros = i64::from_be_bytes(self.chunk()?);
                let days = self.i32()?;
                Value::Interval(Interval::new(self.i32()?, days, micros))
            }
            Type::Uuid => Value::Uuid(self.chunk()?),
            Type::Json => {
                let text = self.text()?;
                super::json::validate(&text)?;
                Value::Json(text)
            }
            Type::Jsonb => {
                let [version] = self.chunk()?;
                if version != JSONB_VERSION {
                    let message = format!("unsupported jsonb version number {version}");
                    return Err(ValueError::new(ValueErrorKind::InvalidBinary, message));
                }
                Value::Jsonb(Jsonb::parse(decode_text(self.rest())?)?)
            }
            Type::Oid
            | Type::Regclass
            | Type::Regtype
            | Type::Regproc
            | Type::Regnamespace
            | Type::Regrole
            | Type::Xid
            | Type::Cid => Value::Oid(u32::from_be_bytes(self.chunk()?)),
            Type::Tid => {
                let block = u32::from_be_bytes(self.chunk()?);
                let offset = u16::from_be_bytes(self.chunk()?);
                Value::text(format!("({block},{offset})"))
            }
            Type::Array(element) => Value::Array(Arc::new(self.array(element)?)),
            Type::Int2Vector => Value::Array(Arc::new(self.array(Scalar::Int2)?)),
            Type::OidVector => Value::Array(Arc::new(self.array(Scalar::Oid)?)),
            Type::Vector => Value::Array(Arc::new(self.embedding()?)),
            Type::Record => {
                let message = "input of anonymous composite types is not implemented";
                return Err(ValueError::new(ValueErrorKind::NotSupported, message));
            }
            Type::Void => Value::text(""),
        })
    }

    fn embedding(&mut self) -> Result<Array, ValueError> {
        let count = u16::from_be_bytes(self.chunk()?);
        self.chunk::<2>()?;
        let mut values = Vec::with_capacity(usize::from(count).min(self.bytes.len() / 4));
        for _ in 0..count {
            values.push(self.value(Type::Float4)?);
        }
        Ok(Array::from_values(Scalar::Float4, values))
    }

    fn array(&mut self, element: Scalar) -> Result<Array, ValueError> {
        let invalid = |message: String| ValueError::new(ValueErrorKind::InvalidBinary, message);
        let count = self.i32()?;
        if count < 0 {
            return Err(invalid(format!("invalid number of dimensions: {count}")));
        }
        if count as usize > DIMENSIONS_MAX {
            let message = format!(
                "number of array dimensions ({count}) exceeds the maximum allowed ({DIMENSIONS_MAX})"
            );
            return Err(ValueError::new(ValueErrorKind::LimitExceeded, message));
        }
        if !matches!(self.i32()?, 0 | 1) {
            return Err(invalid("invalid array flags".to_owned()));
        }
        let sent = u32::from_be_bytes(self.chunk()?);
        if sent != element.as_type().oid() {
            let wanted = element.as_type();
            let found = Type::from_oid(sent).map_or_else(|| sent.to_string(), |of| of.to_string());
            let message = format!(
                "binary data has array element type {sent} ({found}) instead of expected {} ({wanted})",
                wanted.oid()
            );
            return Err(ValueError::new(ValueErrorKind::TypeMismatch, message));
        }
        let mut dimensions = Vec::new();
        for _ in 0..count {
            let length = self.i32()?;
            dimensions.push(Dimension { length, lower: self.i32()? });
        }
        let total = element_count(&dimensions)?;
        // Every element takes four bytes at least.
        if total > self.bytes.len() / 4 {
            return Err(ValueError::short_binary());
        }
        let mut values = Vec::with_capacity(total);
        for _ in 0..total {
            let length = self.i32()?;
            if length == -1 {
                values.push(Value::Null);
                continue;
            }
            let length = usize::try_from(length).map_err(|_| ValueError::short_binary())?;
            let (bytes, rest) = self.bytes.split_at_checked(length).ok_or_else(ValueError::short_binary)?;
            values.push(decode_binary(element.as_type(), bytes)?);
            self.bytes = rest;
        }
        if dimensions == [Dimension { length: 0, lower: 0 }] {
            return Ok(Array::from_vector(element, values));
        }
        Array::new(element, dimensions, values)
    }
}

/// Bytes as text: valid UTF-8 without NUL, else `22021`.
pub fn decode_text(bytes: &[u8]) -> Result<&str, ValueError> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let at = error.valid_up_to();
        let length = bytes.get(at).map_or(1, |first| match first {
            0xc0..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf7 => 4,
            _ => 1,
        });
        ValueError::invalid_utf8(&bytes[at..bytes.len().min(at + length)])
    })?;
    if text.contains('\0') {
        return Err(ValueError::invalid_utf8(&[0]));
    }
    Ok(text)
}
