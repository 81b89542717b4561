//! What the planner knows of tables: exact row counts from their counters, distinct values and bounds from ANALYZE.
//!
//! Invariants:
//! - Statistics only steer the choice of a plan. Without any, every table is taken to have [`ROWS_UNKNOWN`] rows.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use model::{
    Value,
    id::{ColumnNumber, TableId},
    schema::Table,
};
use parking_lot::RwLock;

/// How many rows a table of which nothing is known is taken to have.
pub(crate) const ROWS_UNKNOWN: f64 = 1_000.0;

/// How few rows a table is taken to have at least: a plan outlives the moment it was made in, and a table that is small now
/// may not be small when it runs, so a key is always better than reading everything.
const ROWS_FLOOR: f64 = 100.0;

/// What is known of a table.
#[derive(Clone, Debug, Default)]
pub(crate) struct TableStatistics {
    pub(crate) rows: f64,
    pub(crate) columns: BTreeMap<ColumnNumber, ColumnStatistics>,
}

/// What is known of a column.
#[derive(Clone, Debug, Default)]
pub(crate) struct ColumnStatistics {
    /// How many different values.
    pub(crate) distinct: f64,
    /// The share of nulls.
    pub(crate) nulls: f64,
    pub(crate) min: Option<Value>,
    pub(crate) max: Option<Value>,
}

/// What is known when a statement is planned.
#[derive(Clone, Debug, Default)]
pub(crate) struct Statistics {
    tables: BTreeMap<TableId, Arc<TableStatistics>>,
    /// Columns that are unique by themselves.
    keys: BTreeSet<(TableId, ColumnNumber)>,
}

impl Statistics {
    pub(crate) fn set(&mut self, table: TableId, statistics: Arc<TableStatistics>) {
        self.tables.insert(table, statistics);
    }

    /// Notes which columns of a table are unique by themselves.
    pub(crate) fn describe(&mut self, table: &Table) {
        for index in table.indexes.iter().filter(|index| index.unique && index.predicate.is_none()) {
            if let [part] = &index.parts[..] {
                self.keys.insert((table.id, part.column));
            }
        }
    }

    /// Whether a column is unique by itself, as far as was noted.
    pub(crate) fn is_key(&self, table: TableId, column: ColumnNumber) -> bool {
        self.keys.contains(&(table, column))
    }

    /// Rows of a table.
    pub(crate) fn rows(&self, table: TableId) -> f64 {
        self.tables.get(&table).map_or(ROWS_UNKNOWN, |table| table.rows.max(ROWS_FLOOR))
    }

    /// What is known of a column.
    pub(crate) fn column(&self, table: TableId, column: ColumnNumber) -> Option<&ColumnStatistics> {
        self.tables.get(&table)?.columns.get(&column)
    }
}

/// What the server knows of all tables, kept between statements.
#[derive(Debug, Default)]
pub(crate) struct Known {
    tables: RwLock<BTreeMap<TableId, (std::time::Duration, Arc<TableStatistics>)>>,
}

impl Known {
    /// What is known of a table, and when (on the monotonic clock) its rows were counted.
    pub(crate) fn find(&self, table: TableId) -> Option<(std::time::Duration, Arc<TableStatistics>)> {
        self.tables.read().get(&table).cloned()
    }

    /// Notes the number of rows, keeping what ANALYZE found.
    pub(crate) fn set_rows(
        &self,
        table: TableId,
        rows: f64,
        at: std::time::Duration,
    ) -> Arc<TableStatistics> {
        let mut tables = self.tables.write();
        let columns = tables.get(&table).map(|(_, known)| known.columns.clone()).unwrap_or_default();
        let known = Arc::new(TableStatistics { rows, columns });
        tables.insert(table, (at, known.clone()));
        known
    }

    /// Notes what ANALYZE found.
    pub(crate) fn set(&self, table: TableId, statistics: TableStatistics, at: std::time::Duration) {
        self.tables.write().insert(table, (at, Arc::new(statistics)));
    }
}
