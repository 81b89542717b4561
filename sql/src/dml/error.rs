//! The violations a changed row may meet, with PostgreSQL's messages, details and fields.
//!
//! Invariants:
//! - A detail shows values only of columns that the role may read.

use model::{
    Code, Error, Value,
    access::Privilege,
    catalog::Catalog,
    command::Rejection,
    error::Object,
    id::{IndexId, RoleId},
    key,
    schema::{Column, Table},
    value::{self, text_io},
};

use crate::{context::Context, rights};

/// How many characters of a value a detail shows.
const VALUE_CHARACTERS_MAX: usize = 64;

/// Who is told.
#[derive(Clone, Copy, Debug)]
pub struct Viewer<'a> {
    /// The catalog, for names and rights.
    pub catalog: &'a Catalog,
    /// Whose rights count.
    pub role: RoleId,
}

impl<'a> Viewer<'a> {
    pub(super) fn of(context: &'a Context) -> Self {
        Self { catalog: &context.catalog, role: context.current_user }
    }

    fn sees(&self, table: &Table, columns: &[&Column]) -> bool {
        let columns = columns.iter().map(|column| column.number).collect();
        rights::may_with_columns(self.catalog, self.role, table.id, Privilege::Select, &columns)
    }
}

/// `23505` for a key of a unique index, none for the primary key's, with the values of its columns.
pub fn unique_violation(
    viewer: Viewer<'_>,
    table: &Table,
    index: Option<IndexId>,
    values: &[Value],
) -> Error {
    let Some(index) = index.or(table.primary_key).and_then(|id| table.find_index(id)) else {
        return Error::new(Code::UniqueViolation, "duplicate key value violates unique constraint");
    };
    let columns: Vec<&Column> = index.parts.iter().map(|part| table.column(part.column)).collect();
    let error = Error::new(
        Code::UniqueViolation,
        format!("duplicate key value violates unique constraint \"{}\"", index.name),
    );
    let key = viewer.sees(table, &columns).then(|| key_text(&columns, values));
    detailed(error, key.map(|key| format!("Key {key} already exists."))).with_object(constraint(
        viewer.catalog,
        table,
        &index.name,
    ))
}

/// As [`unique_violation`], from the key's bytes as a rejection names it.
pub fn unique_violation_by_key(
    viewer: Viewer<'_>,
    table: &Table,
    index: Option<IndexId>,
    key: &[u8],
) -> Error {
    let parts =
        index.or(table.primary_key).and_then(|id| table.find_index(id)).map_or(&[][..], |index| &index.parts);
    let types: Vec<_> = parts.iter().map(|part| table.column(part.column).data_type).collect();
    let orders: Vec<_> = parts.iter().map(|part| part.order).collect();
    let values = key::decode_prefix(key, &types, &orders).map(|(values, _)| values).unwrap_or_default();
    unique_violation(viewer, table, index, &values)
}

/// The rejection of a command in words of the statement.
pub(crate) fn rejection_error(viewer: Viewer<'_>, rejection: &Rejection) -> Error {
    match rejection {
        Rejection::UniqueViolation { table, index, key } => match viewer.catalog.table(*table) {
            Some(table) => unique_violation_by_key(viewer, table, *index, key),
            None => rejection.to_error(),
        },
        Rejection::DescriptorChanged { table } => match viewer.catalog.table(*table) {
            Some(table) => Error::new(
                rejection.to_error().code(),
                format!("table \"{}\" was changed since the statement was planned", table.name),
            ),
            None => rejection.to_error(),
        },
        other => other.to_error(),
    }
}

/// `23502`.
pub(super) fn not_null_violation(viewer: Viewer<'_>, table: &Table, column: &Column, row: &[Value]) -> Error {
    let message = format!(
        "null value in column \"{}\" of relation \"{}\" violates not-null constraint",
        column.name, table.name
    );
    let mut object = constraint(viewer.catalog, table, "");
    object.constraint = None;
    object.column = Some(column.name.clone());
    detailed(Error::new(Code::NotNullViolation, message), failing_row(viewer, table, row)).with_object(object)
}

/// `23514`.
pub(super) fn check_violation(viewer: Viewer<'_>, table: &Table, name: &str, row: &[Value]) -> Error {
    let message = format!("new row for relation \"{}\" violates check constraint \"{name}\"", table.name);
    detailed(Error::new(Code::CheckViolation, message), failing_row(viewer, table, row))
        .with_object(constraint(viewer.catalog, table, name))
}

/// `23503` for a row without a parent.
pub(super) fn no_parent(
    viewer: Viewer<'_>,
    table: &Table,
    name: &str,
    columns: &[&Column],
    values: &[Value],
    parent: &Table,
) -> Error {
    let message =
        format!("insert or update on table \"{}\" violates foreign key constraint \"{name}\"", table.name);
    let key = viewer.sees(table, columns).then(|| key_text(columns, values));
    let detail = key.map(|key| format!("Key {key} is not present in table \"{}\".", parent.name));
    detailed(Error::new(Code::ForeignKeyViolation, message), detail).with_object(constraint(
        viewer.catalog,
        table,
        name,
    ))
}

/// `23503` for a row that others refer to.
pub(super) fn still_referenced(
    viewer: Viewer<'_>,
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
    let key = viewer.sees(parent, columns).then(|| key_text(columns, values));
    let detail = key.map(|key| format!("Key {key} is still referenced from table \"{}\".", child.name));
    detailed(Error::new(Code::ForeignKeyViolation, message), detail).with_object(constraint(
        viewer.catalog,
        child,
        name,
    ))
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

/// `Failing row contains (1, null).`, or `(a, c) = (1, null)` where not all columns may be read, or nothing.
fn failing_row(viewer: Viewer<'_>, table: &Table, row: &[Value]) -> Option<String> {
    let shown = table.columns.iter().zip(row).filter(|(column, _)| !column.dropped && !column.hidden);
    let mut shown: Vec<(&Column, &Value)> = shown.collect();
    shown.sort_by_key(|(column, _)| column.place());
    let shown = shown.into_iter().map(|(column, value)| (column, shortened(text_of(value, column))));
    let (columns, values): (Vec<&Column>, Vec<String>) = shown.unzip();
    if viewer.sees(table, &columns) {
        return Some(format!("Failing row contains ({}).", values.join(", ")));
    }
    let (names, values): (Vec<&str>, Vec<String>) = columns
        .into_iter()
        .zip(values)
        .filter(|(column, _)| viewer.sees(table, &[column]))
        .map(|(column, value)| (column.name.as_str(), value))
        .unzip();
    (!names.is_empty())
        .then(|| format!("Failing row contains ({}) = ({}).", names.join(", "), values.join(", ")))
}

fn detailed(error: Error, detail: Option<String>) -> Error {
    match detail {
        Some(detail) => error.with_detail(detail),
        None => error,
    }
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
