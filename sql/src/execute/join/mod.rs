//! Joins: pairs of rows of two inputs.
//!
//! Invariants:
//! - A null key equals nothing. What must hold of a pair besides its keys is asked of every pair before it counts.
//! - A row of the left is judged (matched or not) only when all its pairs were looked at; a row of the right at the end.
//!
//! Files: `hash` a table of the right, by parts on disk if it does not fit · `nested` every pair · `merge` two ordered
//! inputs.

mod hash;
mod merge;
mod nested;

use std::sync::Arc;

use model::{Result, Type};

use super::{Expressions, Operator, Runtime, expressions::too_many_rows, types_of};
use crate::{
    batch::{Batch, Column, NO_ROW},
    plan::{Join, JoinKind},
};

/// Starts a hash join.
pub(super) fn hash(
    join: &Join,
    left: Box<dyn Operator>,
    right: Box<dyn Operator>,
    runtime: &Runtime,
) -> Box<dyn Operator> {
    Box::new(hash::HashJoin::new(join, left, right, runtime))
}

/// Starts a nested loop; one with equalities is a hash join.
pub(super) fn nested(
    join: &Join,
    left: Box<dyn Operator>,
    right: Box<dyn Operator>,
    runtime: &Runtime,
) -> Box<dyn Operator> {
    if !join.keys.is_empty() {
        return hash(join, left, right, runtime);
    }
    Box::new(nested::Nested::new(join, left, right, runtime))
}

/// Starts a merge join; kinds that give rows of the right without a partner are hash joins.
pub(super) fn merge(
    join: &Join,
    left: Box<dyn Operator>,
    right: Box<dyn Operator>,
    runtime: &Runtime,
) -> Box<dyn Operator> {
    match join.kind {
        JoinKind::Right | JoinKind::Full | JoinKind::NullAwareAnti => hash(join, left, right, runtime),
        JoinKind::Inner | JoinKind::Left | JoinKind::Semi | JoinKind::Anti | JoinKind::Single => {
            Box::new(merge::Merge::new(join, left, right, runtime))
        }
    }
}

/// What all joins know of their inputs.
struct Shape {
    kind: JoinKind,
    left_types: Vec<Type>,
    right_types: Vec<Type>,
    residual: Option<Expressions>,
}

impl Shape {
    fn new(join: &Join) -> Self {
        let (left_types, right_types) = (types_of(&join.left), types_of(&join.right));
        let width = left_types.len() + right_types.len();
        Self {
            kind: join.kind,
            residual: join.residual.as_ref().map(|residual| Expressions::condition(residual, width)),
            left_types,
            right_types,
        }
    }

    /// The pairs for which the residual holds: places in the lists. None if there is no residual and all count.
    async fn judge(
        &mut self,
        runtime: &Runtime,
        left: &Batch,
        left_rows: &[u32],
        right: &Batch,
        right_rows: &[u32],
    ) -> Result<Option<Vec<u32>>> {
        let Some(residual) = &mut self.residual else { return Ok(None) };
        let pairs = pairs(left, left_rows, right, right_rows);
        let kept = residual.filter(runtime, pairs).await?;
        Ok(Some(kept.physical_rows().into_owned()))
    }

    /// Whether pairs themselves are given, not only rows of the left.
    fn gives_pairs(&self) -> bool {
        self.kind.gives_right()
    }

    /// Rows of the left with nulls on the right.
    fn left_alone(&self, left: &Batch, rows: &[u32]) -> Batch {
        let left = left.select(rows).compact();
        let mut columns = left.columns().to_vec();
        columns.extend(nulls(&self.right_types, rows.len()));
        Batch::new(columns, rows.len())
    }

    /// Rows of the right with nulls on the left.
    fn right_alone(&self, right: &Batch, rows: &[u32]) -> Batch {
        let mut columns: Vec<Arc<Column>> = nulls(&self.left_types, rows.len()).collect();
        columns.extend(right.select(rows).compact().columns().iter().cloned());
        Batch::new(columns, rows.len())
    }
}

fn nulls(types: &[Type], rows: usize) -> impl Iterator<Item = Arc<Column>> {
    types.iter().map(move |ty| {
        let mut column = Column::with_capacity(*ty, rows);
        column.push_nulls(rows);
        Arc::new(column)
    })
}

/// Pairs of rows of two batches without selections.
pub(super) fn pairs(left: &Batch, left_rows: &[u32], right: &Batch, right_rows: &[u32]) -> Batch {
    debug_assert!(!right_rows.contains(&NO_ROW));
    let mut columns = Vec::with_capacity(left.width() + right.width());
    columns.extend(left.columns().iter().map(|column| Arc::new(column.gather(left_rows))));
    columns.extend(right.columns().iter().map(|column| Arc::new(column.gather(right_rows))));
    Batch::new(columns, left_rows.len())
}

/// What is known of the rows of one batch of the left.
struct Matches {
    matched: Vec<bool>,
    single: bool,
}

impl Matches {
    fn new(rows: usize, kind: JoinKind) -> Self {
        Self { matched: vec![false; rows], single: kind == JoinKind::Single }
    }

    /// Notes a pair (`21000` for a second one where one is due).
    fn note(&mut self, row: u32) -> Result<()> {
        let before = std::mem::replace(&mut self.matched[row as usize], true);
        if before && self.single {
            return Err(too_many_rows());
        }
        Ok(())
    }

    fn rows(&self, matched: bool) -> Vec<u32> {
        let rows = self.matched.iter().enumerate().filter(|(_, at)| **at == matched);
        rows.map(|(row, _)| row as u32).collect()
    }
}
