//! INSERT, UPDATE, DELETE and MERGE: from a source's rows to rows in the statement's write buffer.
//!
//! The life of a changed row:
//!
//! 1. `target`: the rows to change are taken from the source, each once; in an explicit transaction they are locked and,
//!    if another transaction was waited for, read again and judged again.
//! 2. `rows`: new values go through generated and hidden columns, NOT NULL and CHECK, and are encoded.
//! 3. `unique`: keys are looked for among what the transaction has written, and under locks among stored rows.
//! 4. `foreign`: parents must be there, children follow or forbid.
//! 5. The rows go into the statement's own buffer (`txn::Statement`), which its scans do not see.
//!
//! Invariants:
//! - The source is drained before the statement ends; nothing of it sees what the statement writes.
//! - Removals come before additions, so that keys may wander between rows of one UPDATE.
//! - In autocommit what must hold is left to the command's conditions; the session runs the statement again if they fail.
//!
//! Not here: the command (`txn`), which rows are read (`execute`).

mod conflict;
mod delete;
mod error;
mod foreign;
mod insert;
mod merge;
mod row_id;
mod rows;
mod target;
mod unique;
mod update;

pub use delete::Delete;
pub(crate) use error::rejection_error;
pub use error::{Viewer, unique_violation, unique_violation_by_key};
pub use foreign::TableRules;
pub use insert::{Insert, Inserter};
pub use merge::Merge;
pub use row_id::RowIds;
pub use rows::{NewRow, RowWriter};
pub use update::Update;

use std::sync::Arc;

use model::{Result, Type};

use crate::{
    batch::{Batch, concat},
    execute::{Expressions, Runtime},
    expr::Expr,
    memory::Charge,
};

/// What RETURNING gives: gathered while the statement changes rows, given when it has.
struct Returning {
    expressions: Option<Expressions>,
    types: Vec<Type>,
    batches: Vec<Batch>,
    charge: Charge,
}

impl Returning {
    fn new(expressions: Option<&[Expr]>, width: usize, runtime: &Runtime) -> Self {
        Self {
            types: expressions.unwrap_or_default().iter().map(|expr| expr.ty).collect(),
            expressions: expressions.map(|list| Expressions::new(list, width)),
            batches: Vec::new(),
            charge: runtime.budget.charge("RETURNING"),
        }
    }

    /// Takes in changed rows with what stands beside them.
    async fn add(&mut self, runtime: &Runtime, rows: &Batch) -> Result<()> {
        let Some(expressions) = &mut self.expressions else { return Ok(()) };
        if rows.is_empty() {
            return Ok(());
        }
        let batch = Batch::new(expressions.columns(runtime, rows).await?, rows.len());
        self.charge.add(batch.heap_bytes())?;
        self.batches.push(batch);
        Ok(())
    }

    fn finish(&mut self) -> Option<Batch> {
        if self.batches.is_empty() {
            return None;
        }
        Some(concat(&std::mem::take(&mut self.batches), &self.types))
    }
}

/// Two batches side by side: as many rows, the columns of both.
fn beside(left: &Batch, right: &Batch) -> Batch {
    let (left, right) = (left.clone().compact(), right.clone().compact());
    let mut columns = left.columns().to_vec();
    columns.extend(right.columns().iter().map(Arc::clone));
    Batch::new(columns, left.len())
}

/// Ends a changing statement that holds more than a transaction may.
pub(crate) fn check_size(runtime: &Runtime) -> Result<()> {
    runtime.statement.check_size(runtime.transaction_bytes_max)
}
