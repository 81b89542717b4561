//! System relations: `pg_catalog` and `information_schema` as ordinary relations computed from the catalog snapshot.
//!
//! Invariants:
//! - A relation is one entry of [`relations`]: its columns and a function that makes its rows. Binder, planner and executor
//!   know nothing else of it.
//! - OIDs are stable: those of our objects are their ids, those of built-in types and functions are PostgreSQL's.

mod cluster;
pub(crate) mod definition;
mod empty;
mod information;
mod relations;
mod types;
mod views;

use model::{
    Result, Type, Value,
    id::RoleId,
    schema::{Column, Index, Table},
    types::Scalar as Element,
    value::Array,
};
use xxhash_rust::xxh3::xxh3_64;

use crate::{context::Context, functions::RowIterator};

pub(crate) use types::{arguments as function_arguments, find_function, result as function_result};

/// `pg_namespace.oid` of `pg_catalog`.
pub(crate) const PG_CATALOG: u32 = 11;
/// `pg_namespace.oid` of `information_schema`.
pub(crate) const INFORMATION_SCHEMA: u32 = 13_000;
/// The role that owns what the server itself made.
pub(crate) const OWNER: RoleId = model::catalog::ADMIN;

/// A system relation.
pub struct Relation {
    /// `pg_catalog` or `information_schema`.
    pub schema: &'static str,
    /// Its name.
    pub name: &'static str,
    /// Its `pg_class.oid`.
    pub oid: u32,
    /// Its columns.
    pub columns: &'static [(&'static str, Type)],
    /// Its rows, all columns.
    pub rows: fn(&mut Context) -> Result<RowIterator>,
}

impl std::fmt::Debug for Relation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.schema, self.name)
    }
}

/// All system relations.
pub fn relations() -> impl Iterator<Item = &'static Relation> {
    RELATIONS.iter().copied().flatten()
}

/// The relation with this name.
pub fn find(schema: &str, name: &str) -> Option<&'static Relation> {
    relations().find(|relation| relation.schema == schema && relation.name == name)
}

const RELATIONS: &[&[Relation]] = &[
    cluster::RELATIONS,
    relations::RELATIONS,
    types::RELATIONS,
    views::RELATIONS,
    empty::RELATIONS,
    information::RELATIONS,
];

/// The name of the system relation with this OID.
pub(crate) fn relation_name(oid: u32) -> Option<&'static str> {
    relations().find(|relation| relation.oid == oid).map(|relation| relation.name)
}

/// The OID of the system relation with this name.
pub(crate) fn find_relation(name: &str) -> Option<u32> {
    relations().find(|relation| relation.name == name).map(|relation| relation.oid)
}

/// Rows that are all there.
fn rows(rows: Vec<Vec<Value>>) -> Result<RowIterator> {
    Ok(Box::new(rows.into_iter().map(Ok)))
}

fn text(text: impl AsRef<str>) -> Value {
    Value::text(text.as_ref())
}

fn maybe_text(text: Option<&String>) -> Value {
    text.map_or(Value::Null, |text| Value::text(text.as_str()))
}

fn oid(oid: u32) -> Value {
    Value::Oid(oid)
}

fn flag(flag: bool) -> Value {
    Value::Bool(flag)
}

fn int4(number: i32) -> Value {
    Value::Int4(number)
}

fn int2(number: i16) -> Value {
    Value::Int2(number)
}

fn vector(element: Element, values: Vec<Value>) -> Value {
    Value::Array(Array::from_vector(element, values).into())
}

fn list(element: Element, values: Vec<Value>) -> Value {
    Value::Array(Array::from_values(element, values).into())
}

/// A number for what has a name but no id of its own: constraints, defaults. Stable, and above all object ids.
pub(crate) fn derived_oid(of: u32, kind: &str, name: &str) -> u32 {
    0x8000_0000 | xxh3_64(format!("{of}/{kind}/{name}").as_bytes()) as u32
}

/// All schemas as `pg_namespace` knows them: (oid, name, owner).
pub(crate) fn namespaces(context: &Context) -> Vec<(u32, String, RoleId)> {
    let ours = context
        .catalog
        .schemas(context.database)
        .map(|schema| (schema.id.0, schema.name.clone(), schema.owner));
    let system = [
        (PG_CATALOG, "pg_catalog".to_owned(), OWNER),
        (INFORMATION_SCHEMA, "information_schema".to_owned(), OWNER),
    ];
    system.into_iter().chain(ours).collect()
}

/// The tables of the session's database; of the temporary ones its own.
fn tables(context: &Context) -> Vec<std::sync::Arc<Table>> {
    let is_seen = |table: &&std::sync::Arc<Table>| {
        table.database == context.database
            && (table.temporary.is_none() || table.temporary == context.temporary)
    };
    context.catalog.tables().filter(is_seen).cloned().collect()
}

/// The columns a client may see, with their place in `pg_attribute`.
fn columns_of(table: &Table) -> impl Iterator<Item = &Column> {
    let mut columns: Vec<&Column> = table.columns.iter().filter(|column| !column.hidden).collect();
    columns.sort_by_key(|column| column.place());
    columns.into_iter()
}

/// The columns of an index as clients see them: hidden ones, which hold an expression's value, are 0.
fn index_columns(table: &Table, index: &Index) -> Vec<i16> {
    let number = |part: &model::schema::IndexPart| {
        let column = table.column(part.column);
        if column.hidden { 0 } else { column.place().0 as i16 }
    };
    index.parts.iter().map(number).collect()
}
