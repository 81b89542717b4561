//! Values as JSON: what JSON can hold exactly is itself, everything else is its text.
//!
//! `bigint`, `numeric` and non-finite floats are strings, because many readers of JSON keep numbers as doubles.

use model::{
    Type, Value,
    request::Column,
    value::{Context, text_io},
};
use serde_json::Value as Json;

/// One row as an array.
pub(crate) fn row(values: &[Value], columns: &[Column]) -> model::Result<Json> {
    let context = Context::default();
    let cells: model::Result<Vec<Json>> =
        values.iter().zip(columns).map(|(value, column)| cell(value, column.data_type, &context)).collect();
    Ok(Json::Array(cells?))
}

fn cell(value: &Value, of: Type, context: &Context) -> model::Result<Json> {
    Ok(match value {
        Value::Null => Json::Null,
        Value::Bool(truth) => Json::Bool(*truth),
        Value::Int2(number) => Json::from(*number),
        Value::Int4(number) => Json::from(*number),
        Value::Float8(number) if number.is_finite() => Json::from(*number),
        Value::Json(_) | Value::Jsonb(_) => {
            let text = text_io::to_text(value, of, context).unwrap_or_default();
            serde_json::from_str(&text)
                .map_err(|error| model::Error::internal(format!("stored JSON does not parse: {error}")))?
        }
        other => text_io::to_text(other, of, context).map_or(Json::Null, Json::String),
    })
}
