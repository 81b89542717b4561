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
