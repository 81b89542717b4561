//! The document that any SQL value becomes: `to_jsonb`.

use super::build::{ArrayBuilder, ObjectBuilder, bool_node, finish, number_node, string_node};
use super::{Jsonb, NULL};
use crate::types::Type;
use crate::value::array::Dimension;
use crate::value::{Array, Context, Numeric, Value, ValueError, text_io};

impl Jsonb {
    /// The document that a SQL value becomes: `to_jsonb`. Records become objects with keys f1, f2, …; a caller that
    /// knows column names uses `ObjectBuilder`.
    pub fn from_value(value: &Value, of: Type, context: &Context) -> Result<Jsonb, ValueError> {
        finish(node_from_value(value, of, context)?)
    }
}

/// The node that a SQL value becomes.
fn node_from_value(value: &Value, of: Type, context: &Context) -> Result<Vec<u8>, ValueError> {
    Ok(match value {
        Value::Null => vec![NULL],
        Value::Bool(value) => bool_node(*value),
        Value::Int2(_) | Value::Int4(_) | Value::Int8(_) if !of.is_oid() => {
            number_node(&Numeric::from(value.as_i64().unwrap_or_default()))
        }
        Value::Numeric(number) => Jsonb::number(number).as_bytes().to_vec(),
        Value::Float4(_) | Value::Float8(_) => {
            let mut text = String::new();
            text_io::write_text(value, of, context, &mut text);
            let number: Numeric = text.parse()?;
            Jsonb::number(&number).as_bytes().to_vec()
        }
        Value::Json(text) => Jsonb::parse(text)?.as_bytes().to_vec(),
        Value::Jsonb(json) => json.as_bytes().to_vec(),
        Value::Array(array) if of.is_array() => array_node(array, context)?,
        Value::Record(values) => {
            let mut object = ObjectBuilder::default();
            for (index, value) in values.iter().enumerate() {
                let natural = value.natural_type().unwrap_or(Type::Text);
                object.set_raw(format!("f{}", index + 1), node_from_value(value, natural, context)?);
            }
            object.into_node()
        }
        Value::Timestamp(_) | Value::Timestamptz(_) => {
            // ISO 8601 with a T, as JSON clients expect and PostgreSQL gives.
            let mut text = String::new();
            text_io::write_text(value, of, context, &mut text);
            string_node(&iso_timestamp(&text))
        }
        _ => {
            let mut text = String::new();
            text_io::write_text(value, of, context, &mut text);
            string_node(&text)
        }
    })
}

/// `2024-01-15 10:00:00+02` to `2024-01-15T10:00:00+02:00`.
pub(crate) fn iso_timestamp(text: &str) -> String {
    let Some((date, time)) = text.split_once(' ') else {
        return text.to_owned();
    };
    let (time, era) = match time.strip_suffix(" BC") {
        Some(time) => (time, " BC"),
        None => (time, ""),
    };
    let whole_hours = time.rfind(['+', '-']).is_some_and(|sign| time.len() - sign == 3);
    format!("{date}T{time}{}{era}", if whole_hours { ":00" } else { "" })
}

fn array_node(array: &Array, context: &Context) -> Result<Vec<u8>, ValueError> {
    if array.is_empty() {
        return Ok(ArrayBuilder::default().into_node());
    }
    let mut values = array.values().iter();
    nested_array(array.dimensions(), &mut values, array.element().as_type(), context)
}

fn nested_array<'v>(
    dimensions: &[Dimension],
    values: &mut impl Iterator<Item = &'v Value>,
    element: Type,
    context: &Context,
) -> Result<Vec<u8>, ValueError> {
    let mut builder = ArrayBuilder::default();
    let (length, inner) =
        dimensions.split_first().map_or((0, dimensions), |(first, inner)| (first.length, inner));
    for _ in 0..length {
        let node = if inner.is_empty() {
            node_from_value(values.next().unwrap_or(&Value::Null), element, context)?
        } else {
            nested_array(inner, values, element, context)?
        };
        builder.push_raw(&node);
    }
    Ok(builder.into_node())
}
