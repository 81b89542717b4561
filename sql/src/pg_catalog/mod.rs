//! System relations: `pg_catalog` and `information_schema` as ordinary relations computed from the catalog snapshot.
//!
//! Invariants:
//! - A relation is one entry of [`relations`]: its columns and a function that makes its rows. Binder, planner and executor
//!   know nothing else of it.
//! - OIDs are stable: those of our objects are their ids, those of built-in types and functions are PostgreSQL's.

use model::{Result, Type};

use crate::{context::Context, functions::RowIterator};

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

const RELATIONS: &[&[Relation]] = &[];

/// The name of the system relation with this OID.
pub(crate) fn relation_name(oid: u32) -> Option<&'static str> {
    relations().find(|relation| relation.oid == oid).map(|relation| relation.name)
}

/// The OID of the system relation with this name.
pub(crate) fn find_relation(name: &str) -> Option<u32> {
    relations().find(|relation| relation.name == name).map(|relation| relation.oid)
}
