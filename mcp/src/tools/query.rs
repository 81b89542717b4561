//! `db_query`: one read-only SQL statement.
//!
//! Invariants:
//! - Read-only is decided by the engine on the plan (`25006`), whatever the text looks like.
//! - A result is cut at `max_rows` and at [`RESULT_BYTES_MAX`]; `truncated` says so.

use std::sync::Arc;

use model::{
    port::Handler,
    request::{Parameter, Query, Request, Response},
};
use rmcp::model::{CallToolResult, JsonObject, Tool, ToolAnnotations};
use serde::Deserialize;
use serde_json::{Value as Json, json};

use crate::{encode, error};

/// The tool's name.
pub(crate) const NAME: &str = "db_query";

/// The longest statement, in bytes.
const SQL_BYTES_MAX: usize = 32 * 1024;

/// Rows of a result unless `max_rows` says fewer or more.
const ROWS_DEFAULT: usize = 100;

/// The most rows a caller can ask for.
const ROWS_MAX: usize = 1_000;

/// Where a result is cut, in bytes of its JSON: about 25,000 tokens, the smallest limit among hosts.
const RESULT_BYTES_MAX: usize = 48 * 1024;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    sql: String,
    #[serde(default)]
    params: Vec<Json>,
    max_rows: Option<usize>,
}

/// What the tool is, for `tools/list`.
pub(crate) fn tool() -> Tool {
    let input = json!({
        "type": "object",
        "properties": {
            "sql": {"type": "string", "description": "One SQL statement that only reads. Parameters are $1, $2, …"},
            "params": {
                "type": "array",
                "items": {"type": ["string", "number", "boolean", "null"]},
                "description": "Values of $1, $2, … in order."
            },
            "max_rows": {"type": "integer", "minimum": 1, "maximum": ROWS_MAX, "default": ROWS_DEFAULT}
        },
        "required": ["sql"],
        "additionalProperties": false
    });
    let output = json!({
        "type": "object",
        "properties": {
            "columns": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"name": {"type": "string"}, "type": {"type": "string"}},
                    "required": ["name", "type"]
                }
            },
            "rows": {"type": "array", "items": {"type": "array"}},
            "row_count": {"type": "integer"},
            "truncated": {"type": "boolean"},
            "error": {"type": "object", "additionalProperties": true}
        }
    });
    Tool::new(
        NAME,
        "Runs one read-only SQL statement and returns its rows. Anything that would write is refused.",
        object(input),
    )
    .with_title("Query")
    .with_raw_output_schema(Arc::new(object(output)))
    .with_annotations(
        ToolAnnotations::new().read_only(true).destructive(false).idempotent(true).open_world(false),
    )
}

fn object(schema: Json) -> JsonObject {
    match schema {
        Json::Object(object) => object,
        other => unreachable!("a schema is an object, not {other}"),
    }
}

/// Runs the statement in the caller's session.
pub(crate) async fn call(session: Arc<dyn Handler>, arguments: JsonObject) -> CallToolResult {
    match run(session, arguments).await {
        Ok(result) => CallToolResult::structured(result),
        Err(refused) => CallToolResult::structured_error(error::body(&refused)),
    }
}

async fn run(session: Arc<dyn Handler>, arguments: JsonObject) -> model::Result<Json> {
    let arguments: Arguments = serde_json::from_value(Json::Object(arguments))
        .map_err(|refused| error::arguments(format!("arguments of {NAME}: {refused}")))?;
    if arguments.sql.len() > SQL_BYTES_MAX {
        return Err(error::arguments(format!("sql is longer than {SQL_BYTES_MAX} bytes")));
    }
    let rows_max = arguments.max_rows.unwrap_or(ROWS_DEFAULT);
    if !(1..=ROWS_MAX).contains(&rows_max) {
        return Err(error::arguments(format!("max_rows is between 1 and {ROWS_MAX}")));
    }
    let query = Query {
        text: arguments.sql,
        parameters: arguments.params.iter().map(parameter).collect::<model::Result<_>>()?,
        read_only: true,
        command_id: None,
    };
    match session.handle(Request::Query(query)).await? {
        Response::Rows(rows) => collect(rows, rows_max).await,
        Response::Done(done) => Ok(json!({
            "columns": [], "rows": [], "row_count": done.rows, "truncated": false,
        })),
        Response::Batch(_) | Response::CommandStatus(_) => {
            Err(model::Error::internal("a query was answered as something else"))
        }
    }
}

fn parameter(value: &Json) -> model::Result<Parameter> {
    Ok(match value {
        Json::Null => Parameter::Null,
        Json::Bool(truth) => Parameter::Text(truth.to_string()),
        Json::Number(number) => Parameter::Text(number.to_string()),
        Json::String(text) => Parameter::Text(text.clone()),
        Json::Array(_) | Json::Object(_) => {
            return Err(error::arguments("a parameter is a string, a number, a boolean or null".to_owned()));
        }
    })
}

async fn collect(mut rows: model::request::Rows, rows_max: usize) -> model::Result<Json> {
    let columns: Vec<Json> = rows
        .columns
        .iter()
        .map(|column| json!({"name": column.name, "type": column.data_type.name_with(column.typmod)}))
        .collect();
    let mut out: Vec<Json> = Vec::new();
    let mut bytes = 0;
    let mut truncated = false;
    // One row more than wanted is asked for, to know whether there are more.
    'pages: while let Some(page) = rows.source.next(rows_max + 1 - out.len()).await? {
        for row in page {
            if out.len() == rows_max || bytes > RESULT_BYTES_MAX {
                truncated = true;
                break 'pages;
            }
            let row = encode::row(&row, &rows.columns)?;
            bytes += row.to_string().len();
            out.push(row);
        }
    }
    Ok(json!({"columns": columns, "row_count": out.len(), "rows": out, "truncated": truncated}))
}
