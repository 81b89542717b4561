//! A range of the primary key that is read whole, in one call.
//!
//! Invariants:
//! - A direct range means exactly what its batch plan means: it has no filter, and gives columns as they are stored.
//! - What turns out to be long is left to the batch plan, and so are the next [`PATIENCE`] runs: what was read of it in vain
//!   stays a small part of the whole.

use std::sync::atomic::{AtomicU32, Ordering};

use model::{
    Error, Result, Value,
    port::Dispatch,
    read::{At, Scan},
};

use super::Direct;
use crate::{
    execute::key_range_of,
    expr::{Expr, Kind},
    plan::{Access, KeyRange, Node, Partitions, Plan},
};

/// Rows and bytes that are read in one call.
const ROWS_MAX: usize = 256;
const BYTES_MAX: usize = 64 << 10;
/// How often a range that was longer is not tried again.
const PATIENCE: u32 = 32;

/// A statement that reads a range of rows by their keys.
#[derive(Debug)]
pub(crate) struct DirectRange {
    rows: Direct,
    range: KeyRange,
    reverse: bool,
    /// How often it is still not tried.
    patience: AtomicU32,
}

impl DirectRange {
    /// The direct form of a plan, if it has one.
    pub(crate) fn find(plan: &Plan) -> Option<Self> {
        let (scan, picked) = match &plan.node {
            Node::Scan(scan) => (scan, None),
            Node::Project { input, expressions } => match &input.node {
                Node::Scan(scan) => {
                    (scan, Some(expressions.iter().map(Expr::as_column).collect::<Option<Vec<usize>>>()?))
                }
                _ => return None,
            },
            _ => return None,
        };
        let Access::Range { index: None, range } = &scan.access else { return None };
        let bounds = range.lower.iter().chain(&range.upper).map(|(expr, _)| expr);
        let mut simple = range.prefix.iter().chain(bounds).map(|expr| &expr.kind);
        if scan.filter.is_some()
            || !matches!(scan.partitions, Partitions::Default)
            || !simple.all(|kind| matches!(kind, Kind::Parameter(_) | Kind::Constant(_)))
        {
            return None;
        }
        let columns = match picked {
            Some(places) => places.into_iter().map(|place| scan.columns[place]).collect(),
            None => scan.columns.clone(),
        };
        Some(Self {
            rows: Direct::of(&scan.table, scan.table.key()?.parts.clone(), columns),
            range: range.clone(),
            reverse: scan.reverse,
            patience: AtomicU32::new(0),
        })
    }

    /// Whose rows it reads.
    pub(crate) fn rows(&self) -> &Direct {
        &self.rows
    }

    /// The values of all rows, one row behind the other, and their number; none if the batch plan must be taken.
    pub(crate) fn read(&self, dispatch: &dyn Dispatch, parameters: &[Value]) -> Option<(Vec<Value>, usize)> {
        let waits = self.patience.load(Ordering::Relaxed);
        if waits > 0 {
            self.patience.store(waits - 1, Ordering::Relaxed);
            return None;
        }
        let value = |expr: &Expr| match &expr.kind {
            Kind::Constant(value) => Ok(value.clone()),
            Kind::Parameter(number) => {
                parameters.get(*number).cloned().ok_or_else(|| Error::internal("a parameter without a value"))
            }
            _ => Err(Error::internal("a direct bound is a constant or a parameter")),
        };
        let range = key_range_of(&self.rows.parts, &self.range, value).ok()?;
        let Some(range) = range.filter(|range| !range.is_empty()) else { return Some((Vec::new(), 0)) };
        let page = dispatch.scan(Scan {
            partition: self.rows.partition.clone(),
            table: self.rows.table.id,
            index: None,
            from: range.from,
            to: range.to,
            reverse: self.reverse,
            rows_max: ROWS_MAX,
            bytes_max: BYTES_MAX,
            at: At::Latest,
        });
        let page = page.here()?.ok()?;
        if page.next.is_some() {
            self.patience.store(PATIENCE, Ordering::Relaxed);
            return None;
        }
        let mut values = Vec::with_capacity(page.rows.len() * self.rows.columns.len());
        let read: Result<()> =
            page.rows.iter().try_for_each(|stored| self.rows.read(&stored.key, &stored.row, &mut values));
        read.ok()?;
        Some((values, page.rows.len()))
    }
}
