//! The violations a changed row may meet, with PostgreSQL's messages, details and fields.

use model::{
    Code, Error, Value,
    catalog::Catalog,
    command::Rejection,
    error::Object,
    id::IndexId,
    key,
    schema::{Column, Table},
    value::{self, text_io},
};

/// How many characters of a value a detail shows.
const VALUE_CHARACTERS_MAX: usize = 64;

/// `23505` for a key of a unique index, none for the primary key's, with the values of its columns.
pub fn unique_violation(catalog: &Catalog, table: &Table, index: Option<IndexId>, values: &[Value]) -> Error {
    let Some(index) = index.or(table.primary_key).and_then(|id| table.find_index(id)) else {
        return Error::new(Code::UniqueViolation, "duplicate key value violates unique constraint");
    };
    let columns: Vec<&Column> = index.parts.iter().map(|part| table.column(part.column)).collect();
    Error::new(
        Code::UniqueViolation,
        format!("duplicate key value violates unique constraint \"{}\"", index.name),
    )
    .with_detail(format!("Key {} already exists.", key_text(&columns, values)))
    .with_object(constraint(catalog, table, &index.name))
}

/// As [`unique_violation`], from the key's bytes as a rejection names it.
pub fn unique_violation_by_key(
    catalog: &Catalog,
    table: &Table,
    index: Option<IndexId>,
    key: &[u8],
) -> Error {
    let parts =
        index.or(table.primary_key).and_then(|id| table.find_index(id)).map_or(&[][..], |index| &index.parts);
    let types: Vec<_> = parts.iter().map(|part| table.column(part.column).data_type).collect();
    let orders: Vec<_> = parts.iter().map(|part| part.order).collect();
    let values = key::decode_prefix(key, &types, &orders).map(|(values, _)| values).unwrap_or_default();
    unique_violation(catalog, table, index, &values)
}

/// The rejection of a command in words of the statement.
pub(crate) fn rejection_error(catalog: &Catalog, rejection: &Rejection) -> Error {
    match rejection {
        Rejection::UniqueViolation { table, index, key } => match catalog.table(*table) {
            Some(table) => unique_violation_by_key(catalog, table, *index, key),
            None => rejection.to_error(),
        },
        other => other.to_error(),
    }
}

/// `23502`.
pub(super) fn not_null_violation(catalog: &Catalog, table: &Table, column: &Column, row: &[Value]) -> Error {
    let message = format!(
        "null value in column \"{}\" of relation \"{}\" violates not-null constraint",
        column.name, table.name
    );
    let mut object = constraint(catalog, table, "");
    object.constraint = None;
    object.column = Some(column.name.clone());
    Error::new(Code::NotNullViolation, message).with_detail(failing_row(table, row)).with_object(object)
}

/// `23514`.
pub(super) fn check_violation(catalog: &Catalog, table: &Table, name: &str, row: &[Value]) -> Error {
    let message = format!("new row for relation \"{}\" violates check constraint \"{name}\"", table.name);
    Error::new(Code::CheckViolation, message)
        .with_detail(failing_row(table, row))
        .with_object(constraint(catalog, table, name))
}

/// `23503` for a row without a parent.
pub(super) fn no_parent(
    catalog: &Catalog,
    table: &Table,
    name: &str,
    columns: &[&Column],
    values: &[Value],
    parent: &Table,
) -> Error {
    let message =
        format!("insert or update on table \"{}\" violates foreign key constraint \"{name}\"", table.name);
    Error::new(Code::ForeignKeyViolation, message)
        .with_detail(format!(
            "Key {} is not present in table \"{}\".",
            key_text(columns, values),
            parent.name
        ))
        .with_object(constraint(catalog, table, name))
}

/// `23503` for a row that others refer to.
pub(super) fn still_referenced(
    catalog: &Catalog,
    parent: &Table,
    name: &str,
    columns: &[&Column],
    values: &[Value],
    child: &Table,
) -> Error {
    let message = format!(
        "update or delete on table \"{}\" violates foreign key constraint \"{name}\" on table \"{}\"",
        parent.name, child.name
    );
    Error::new(Code::ForeignKeyViolation, message)
        .with_detail(format!(
            "Key {} is still referenced from table \"{}\".",
            key_text(columns, values),
            child.name
        ))
        .with_object(constraint(catalog, child, name))
}

/// `21000` for a row that ON CONFLICT meets twice.
pub(super) fn second_time(command: &str) -> Error {
    Error::new(Code::CardinalityViolation, format!("{command} command cannot affect row a second time")).with_hint(
        "Ensure that no rows proposed for insertion within the same command have duplicate constrained values.",
    )
}

/// `40001`.
pub(super) fn concurrent_update() -> Error {
    Error::new(Code::SerializationFailure, "could not serialize access due to concurrent update")
}

fn constraint(catalog: &Catalog, table: &Table, name: &str) -> Object {
    Object {
        schema: catalog.schema(table.schema).map(|schema| schema.name.clone()),
        table: Some(table.name.clone()),
        column: None,
        data_type: None,
        constraint: Some(name.to_owned()),
    }
}

/// `(a, b)=(1, x)`.
fn key_text(columns: &[&Column], values: &[Value]) -> String {
    let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
    let texts: Vec<String> =
        columns.iter().zip(values).map(|(column, value)| text_of(value, column)).collect();
    format!("({})=({})", names.join(", "), texts.join(", "))
}

/// `Failing row contains (1, null).`
fn failing_row(table: &Table, row: &[Value]) -> String {
    let shown = table.columns.iter().zip(row).filter(|(column, _)| !column.dropped && !column.hidden);
    let mut shown: Vec<(&Column, &Value)> = shown.collect();
    shown.sort_by_key(|(column, _)| column.place());
    let texts: Vec<String> =
        shown.into_iter().map(|(column, value)| shortened(text_of(value, column))).collect();
    format!("Failing row contains ({}).", texts.join(", "))
}

fn text_of(value: &Value, column: &Column) -> String {
    if value.is_null() {
        return "null".to_owned();
    }
    let mut text = String::new();
    text_io::write_text(value, column.data_type, &value::Context::default(), &mut text);
    text
}

fn shortened(text: String) -> String {
    match text.char_indices().nth(VALUE_CHARACTERS_MAX) {
        None => text,
        Some((at, _)) => format!("{}...", &text[..at]),
    }
}
