//! The newest catalog this node knows, and since when plans on each of its tables fit.
//!
//! Invariants:
//! - A published catalog is never replaced by an older one.
//! - `since` of a table is the first catalog version whose plans still fit it: a plan from before would write rows, or keep
//!   up indexes, by a description that no longer holds. Every plan of this process is made on a catalog it published, so
//!   what happened before it started needs no memory.

use std::sync::Arc;

use arc_swap::ArcSwap;
use hashbrown::HashMap;
use model::{
    catalog::{Catalog, Change, Object, ObjectId},
    id::{CatalogVersion, SequenceId, TableId},
    schema::{Column, Table},
};
use parking_lot::Mutex;

/// One catalog with the memory of what changed.
#[derive(Clone, Debug)]
pub(crate) struct Descriptors {
    catalog: Arc<Catalog>,
    since: HashMap<TableId, CatalogVersion>,
    first: CatalogVersion,
}

impl Descriptors {
    fn new(catalog: Arc<Catalog>) -> Self {
        let first = catalog.version();
        Self { catalog, since: HashMap::new(), first }
    }

    /// The catalog.
    pub(crate) fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    /// The first catalog version whose plans fit the table as it is.
    pub(crate) fn since(&self, table: TableId) -> CatalogVersion {
        self.since.get(&table).copied().unwrap_or(self.first)
    }

    fn next(&self, catalog: Arc<Catalog>) -> Self {
        let mut since = self.since.clone();
        since.retain(|table, _| catalog.table(*table).is_some());
        for table in catalog.tables() {
            let before = self.catalog.table(table.id);
            if before.is_none_or(|before| !Arc::ptr_eq(before, table) && is_restrictive(before, table)) {
                since.insert(table.id, catalog.version());
            }
        }
        Self { catalog, since, first: self.first }
    }
}

/// Where the newest catalog is published.
#[derive(Debug)]
pub(crate) struct Board {
    newest: ArcSwap<Descriptors>,
    publishing: Mutex<()>,
}

impl Board {
    pub(crate) fn new(catalog: Arc<Catalog>) -> Self {
        Self { newest: ArcSwap::from_pointee(Descriptors::new(catalog)), publishing: Mutex::new(()) }
    }

    /// The newest catalog.
    pub(crate) fn newest(&self) -> Arc<Descriptors> {
        self.newest.load_full()
    }

    /// Publishes a catalog, unless a newer one is there.
    pub(crate) fn publish(&self, catalog: Arc<Catalog>) {
        let _one_at_a_time = self.publishing.lock();
        let newest = self.newest.load();
        if catalog.version() > newest.catalog.version() || catalog.next_id() > newest.catalog.next_id() {
            self.newest.store(Arc::new(newest.next(catalog)));
        }
    }
}

/// Whether plans on the old descriptor no longer fit the new one.
///
/// Names, comments, owners and defaults may change, and nullable columns and indexes-to-be may come, under plans that are
/// on their way; anything else is restrictive. An index that comes must be kept up by writes, but that is the work of
/// `apply`, which goes by the shard's descriptor and not by the plan's.
pub(crate) fn is_restrictive(old: &Table, new: &Table) -> bool {
    let same_shape = old.primary_key == new.primary_key
        && old.partition_by == new.partition_by
        && old.checks == new.checks
        && old.foreign_keys == new.foreign_keys
        && old.kind == new.kind;
    if !same_shape || new.columns.len() < old.columns.len() {
        return true;
    }
    let column_changed = |(old, new): (&Column, &Column)| {
        old.data_type != new.data_type
            || old.typmod != new.typmod
            || old.dropped != new.dropped
            || old.hidden != new.hidden
            || (new.not_null && !old.not_null)
    };
    let column_demands = |column: &Column| column.not_null || column.hidden;
    let index_changed = old.indexes.iter().any(|index| {
        new.find_index(index.id).is_none_or(|now| {
            now.parts != index.parts
                || now.unique != index.unique
                || now.predicate != index.predicate
                || now.nulls_not_distinct != index.nulls_not_distinct
        })
    });
    old.columns.iter().zip(&new.columns).any(column_changed)
        || new.columns[old.columns.len()..].iter().any(column_demands)
        || index_changed
}

/// The tables and sequences that a change touches and that a shard may hold.
pub(crate) fn touched(change: &Change) -> (Vec<TableId>, Vec<SequenceId>) {
    let mut tables = Vec::new();
    let mut sequences = Vec::new();
    for object in &change.put {
        match object {
            Object::Table(table) => tables.push(table.id),
            Object::Sequence(sequence) => sequences.push(sequence.id),
            Object::Database(_) | Object::Schema(_) | Object::View(_) | Object::Role(_) => {}
        }
    }
    for id in &change.drop {
        match id {
            ObjectId::Table(table) => tables.push(*table),
            ObjectId::Sequence(sequence) => sequences.push(*sequence),
            ObjectId::Database(_) | ObjectId::Schema(_) | ObjectId::View(_) | ObjectId::Role(_) => {}
        }
    }
    (tables, sequences)
}
