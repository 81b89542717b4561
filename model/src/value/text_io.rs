//! Text forms of every type: what a literal means, and what a client is shown.
//!
//! Invariants:
//! - Messages and SQLSTATEs are PostgreSQL's.
//! - What `write_text` writes, `parse` of the same type and context reads back to an equal value.
//!
//! Types that name catalog objects (`regclass`, …) are read and written here as numbers only; names need the catalog,
//! which is `sql`'s. Binary forms: `binary`.

mod arrays;
mod scalars;

use std::fmt::Write;
use std::sync::Arc;

use super::datetime::{self, write_date, write_interval, write_time, write_timestamp, write_timestamptz};
use super::{ByteaOutput, Context, Value, ValueError, float};
use crate::types::{Scalar, Type, Typmod};

pub use arrays::{parse_array, write_array};
pub use scalars::{apply_typmod, parse_bool, parse_bytea, parse_uuid, truncate_name};

pub(crate) use scalars::split_tid;
use scalars::{parse_integer, parse_oid, parse_text, parse_tid};

/// Reads a text as a value of a type and fits it into the modifier, as a literal or a text parameter is read.
pub fn parse(of: Type, typmod: Typmod, text: &str, context: &Context) -> Result<Value, ValueError> {
    if text.contains('\0') {
        return Err(ValueError::invalid_utf8(&[0]));
    }
    Ok(match of {
        Type::Bool => Value::Bool(parse_bool(text)?),
        Type::Int2 => Value::Int2(parse_integer(text, "smallint")?),
        Type::Int4 => Value::Int4(parse_integer(text, "integer")?),
        Type::Int8 => Value::Int8(parse_integer(text, "bigint")?),
        Type::Float4 => {
            Value::Float4(float::parse_f32(text).map_err(|refused| float_error(refused, "real", text))?)
        }
        Type::Float8 => Value::Float8(
            float::parse_f64(text).map_err(|refused| float_error(refused, "double precision", text))?,
        ),
        Type::Numeric => Value::Numeric(text.parse::<super::Numeric>()?.with_typmod(typmod)?),
        Type::Text
        | Type::Varchar
        | Type::Bpchar
        | Type::Name
        | Type::Char
        | Type::Unknown
        | Type::PgNodeTree => Value::Text(parse_text(text, of, typmod)?),
        Type::Bytea => Value::Bytea(parse_bytea(text)?),
        Type::Date => Value::Date(datetime::parse_date(text, context)?),
        Type::Time => {
            let time = datetime::parse_time(text, context)?;
            Value::Time(typmod.precision(of).map_or(time, |digits| time.rounded(digits)))
        }
        Type::Timestamp => {
            let timestamp = datetime::parse_timestamp(text, context)?;
            Value::Timestamp(typmod.precision(of).map_or(timestamp, |digits| timestamp.rounded(digits)))
        }
        Type::Timestamptz => {
            let timestamp = datetime::parse_timestamptz(text, context)?;
            Value::Timestamptz(typmod.precision(of).map_or(timestamp, |digits| timestamp.rounded(digits)))
        }
        Type::Interval => Value::Interval(datetime::parse_interval(text, typmod)?),
        Type::Uuid => Value::Uuid(parse_uuid(text)?),
        Type::Json => {
            super::json::validate(text)?;
            Value::Json(text.into())
        }
        Type::Jsonb => Value::Jsonb(super::Jsonb::parse(text)?),
        Type::Oid
        | Type::Regclass
        | Type::Regtype
        | Type::Regproc
        | Type::Regnamespace
        | Type::Regrole
        | Type::Xid
        | Type::Cid => Value::Oid(parse_oid(text, of)?),
        Type::Tid => Value::Text(parse_tid(text)?),
        Type::Array(element) => Value::Array(Arc::new(parse_array(element, typmod, text, context)?)),
        Type::Int2Vector => Value::Array(Arc::new(arrays::parse_vector(Scalar::Int2, text, context)?)),
        Type::OidVector => Value::Array(Arc::new(arrays::parse_vector(Scalar::Oid, text, context)?)),
        Type::Vector => Value::Array(Arc::new(arrays::parse_embedding(typmod, text)?)),
        Type::Void => Value::text(""),
        Type::Record => {
            let message = "input of anonymous composite types is not implemented";
            return Err(ValueError::new(super::ValueErrorKind::NotSupported, message));
        }
    })
}

fn float_error(refused: float::Refused, type_name: &str, text: &str) -> ValueError {
    match refused {
        float::Refused::Syntax => ValueError::invalid_text(type_name, text),
        float::Refused::Range => {
            let message = format!("\"{}\" is out of range for type {type_name}", text.trim());
            ValueError::new(super::ValueErrorKind::OutOfRange, message)
        }
    }
}

/// Appends the text form of a value that is not null. Null appends nothing: its form is the protocol's matter.
pub fn write_text(value: &Value, of: Type, context: &Context, out: &mut String) {
    // Writing to a String cannot fail.
    match value {
        Value::Null => {}
        Value::Bool(value) => out.push(if *value { 't' } else { 'f' }),
        Value::Int2(value) => {
            let _ = write!(out, "{value}");
        }
        Value::Int4(value) => {
            let _ = write!(out, "{value}");
        }
        Value::Int8(value) => {
            let _ = write!(out, "{value}");
        }
        Value::Float4(value) => float::write_f32(*value, out),
        Value::Float8(value) => float::write_f64(*value, out),
        Value::Numeric(value) => value.write_text(out),
        Value::Text(value) if of == Type::Char => scalars::write_char(value, out),
        Value::Text(value) | Value::Json(value) => out.push_str(value),
        Value::Bytea(value) => match context.bytea_output {
            ByteaOutput::Hex => scalars::write_hex(value, out),
            ByteaOutput::Escape => scalars::write_escaped(value, out),
        },
        Value::Date(value) => write_date(*value, out),
        Value::Time(value) => write_time(*value, out),
        Value::Timestamp(value) => write_timestamp(*value, out),
        Value::Timestamptz(value) => write_timestamptz(*value, &context.zone, out),
        Value::Interval(value) => write_interval(*value, out),
        Value::Uuid(value) => scalars::write_uuid(value, out),
        Value::Jsonb(value) => value.root().write_text(out),
        Value::Oid(value) => {
            let _ = write!(out, "{value}");
        }
        Value::Array(array) => match of {
            Type::Int2Vector | Type::OidVector => arrays::write_vector(array, ' ', context, out),
            Type::Vector => {
                out.push('[');
                arrays::write_vector(array, ',', context, out);
                out.push(']');
            }
            _ => write_array(array, context, out),
        },
        Value::Record(values) => arrays::write_record(values, context, out),
    }
}

/// The text form of a value; `None` for null.
pub fn to_text(value: &Value, of: Type, context: &Context) -> Option<String> {
    if value.is_null() {
        return None;
    }
    let mut out = String::new();
    write_text(value, of, context, &mut out);
    Some(out)
}
