//! Common table expressions that are computed once, and working tables of recursions.
//!
//! Invariants:
//! - An expression is computed when it is first read, and only once; one that changes rows is run to its end before the
//!   statement's own rows are given, in the order in which they were written.
//! - The rows are held in memory and charged; what does not fit is `53200`.

use std::{collections::HashMap, sync::Arc};

use model::{Error, Result, Value, port::BoxFuture};
use parking_lot::Mutex;

use super::{Operator, Runtime, open as open_plan, types_of};
use crate::{
    batch::Batch,
    memory::Charge,
    plan::{CommonTable, Plan},
};

/// Where the tables of one statement are found, by number.
#[derive(Default)]
pub(super) struct Shelf {
    tables: Mutex<HashMap<usize, Entry>>,
}

#[derive(Clone)]
enum Entry {
    /// Computed by whoever asks first; the lock is held while it is.
    Pending(Arc<tokio::sync::Mutex<Pending>>),
    /// The rows of a recursion's last round.
    Working(Arc<Vec<Batch>>),
}

struct Pending {
    plan: Arc<Plan>,
    /// What is handed in where it was written, which may be further out than where it is read.
    outer: Arc<[Value]>,
    rows: Option<Arc<Rows>>,
}

/// The rows of an expression.
struct Rows {
    batches: Vec<Batch>,
    _charge: Charge,
}

impl Shelf {
    pub(super) fn put_working(&self, id: usize, rows: Arc<Vec<Batch>>) {
        self.tables.lock().insert(id, Entry::Working(rows));
    }

    fn put_pending(&self, common: &CommonTable, outer: &Arc<[Value]>) {
        let pending = Pending { plan: Arc::new(common.plan.clone()), outer: Arc::clone(outer), rows: None };
        self.tables.lock().insert(common.id, Entry::Pending(Arc::new(tokio::sync::Mutex::new(pending))));
    }

    fn get(&self, id: usize) -> Result<Entry> {
        let found = self.tables.lock().get(&id).cloned();
        found.ok_or_else(|| Error::internal(format!("common table {id} is not there")))
    }
}

async fn rows_of(runtime: &Runtime, pending: &tokio::sync::Mutex<Pending>) -> Result<Arc<Rows>> {
    let mut pending = pending.lock().await;
    if let Some(rows) = &pending.rows {
        return Ok(Arc::clone(rows));
    }
    let mut operator = open_plan(&pending.plan, &runtime.with_outer(Arc::clone(&pending.outer)))?;
    let mut charge = runtime.budget.charge("a common table expression");
    let mut batches = Vec::new();
    while let Some(batch) = operator.next().await? {
        if !batch.is_empty() {
            let batch = batch.compact();
            charge.add(batch.heap_bytes())?;
            batches.push(batch);
        }
    }
    debug_assert!(batches.iter().all(|batch| batch.width() == types_of(&pending.plan).len()));
    let rows = Arc::new(Rows { batches, _charge: charge });
    pending.rows = Some(Arc::clone(&rows));
    Ok(rows)
}

/// Starts a plan with its common table expressions.
pub(super) fn open(
    expressions: &[CommonTable],
    input: &Plan,
    runtime: &Runtime,
) -> Result<Box<dyn Operator>> {
    for common in expressions {
        runtime.shelf.put_pending(common, &runtime.outer);
    }
    let writing = expressions.iter().filter(|common| common.writes).map(|common| common.id).collect();
    Ok(Box::new(With { runtime: runtime.clone(), writing, input: open_plan(input, runtime)? }))
}

struct With {
    runtime: Runtime,
    writing: Vec<usize>,
    input: Box<dyn Operator>,
}

impl Operator for With {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Batch>>> {
        Box::pin(async move {
            for id in std::mem::take(&mut self.writing) {
                if let Entry::Pending(pending) = self.runtime.shelf.get(id)? {
                    rows_of(&self.runtime, &pending).await?;
                }
            }
            self.input.next().await
        })
    }
}

/// Reads a common table expression, or a working table.
pub(super) struct CteScan {
    runtime: Runtime,
    id: usize,
    at: usize,
    rows: Option<Source>,
}

enum Source {
    Rows(Arc<Rows>),
    Working(Arc<Vec<Batch>>),
}

impl CteScan {
    pub(super) fn new(id: usize, runtime: &Runtime) -> Self {
        Self { runtime: runtime.clone(), id, at: 0, rows: None }
    }
}

impl Operator for CteScan {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Batch>>> {
        Box::pin(async move {
            if self.rows.is_none() {
                self.rows = Some(match self.runtime.shelf.get(self.id)? {
                    Entry::Working(rows) => Source::Working(rows),
                    Entry::Pending(pending) => Source::Rows(rows_of(&self.runtime, &pending).await?),
                });
            }
            let batch = match &self.rows {
                Some(Source::Rows(rows)) => rows.batches.get(self.at),
                Some(Source::Working(rows)) => rows.get(self.at),
                None => None,
            };
            self.at += 1;
            Ok(batch.cloned())
        })
    }
}
