//! Merge join: both sides are ordered by their keys, ascending, nulls last.
//!
//! Of the right only the rows of one key are held. If those do not fit the statement's memory it is refused.

use std::sync::Arc;

use model::{Result, port::BoxFuture};

use super::{Matches, Shape, pairs};
use crate::{
    batch::{Batch, Column, concat, key::Keys},
    execute::{Expressions, Operator, Runtime},
    expr::Expr,
    memory::Charge,
    plan::{Join, JoinKind},
};

/// The operator.
pub(super) struct Merge {
    runtime: Runtime,
    shape: Shape,
    left: Box<dyn Operator>,
    left_keys: Expressions,
    right: Cursor,
    group: Option<Group>,
    charge: Charge,
}

/// The right, row by row.
struct Cursor {
    input: Box<dyn Operator>,
    keys: Expressions,
    batch: Option<(Batch, Keys)>,
    row: usize,
    ended: bool,
}

/// The rows of the right with one key.
struct Group {
    key: Vec<u8>,
    rows: Batch,
}

impl Cursor {
    /// Makes sure that there is a present row with a key that is not null; false at the end.
    async fn settle(&mut self, runtime: &Runtime) -> Result<bool> {
        loop {
            if let Some((batch, keys)) = &self.batch {
                while self.row < batch.len() && keys.has_null(self.row) {
                    self.row += 1;
                }
                if self.row < batch.len() {
                    return Ok(true);
                }
                self.batch = None;
            }
            if self.ended {
                return Ok(false);
            }
            runtime.pace().await?;
            match self.input.next().await? {
                None => self.ended = true,
                Some(batch) if batch.is_empty() => {}
                Some(batch) => {
                    let batch = batch.compact();
                    let columns = self.keys.columns(runtime, &batch).await?;
                    let refs: Vec<&Column> = columns.iter().map(Arc::as_ref).collect();
                    let keys = Keys::of(&refs, &[], batch.len());
                    self.batch = Some((batch, keys));
                    self.row = 0;
                }
            }
        }
    }

    fn key(&self) -> &[u8] {
        self.batch.as_ref().map_or(&[], |(_, keys)| keys.get(self.row))
    }
}

impl Merge {
    pub(super) fn new(
        join: &Join,
        left: Box<dyn Operator>,
        right: Box<dyn Operator>,
        runtime: &Runtime,
    ) -> Self {
        let shape = Shape::new(join);
        let (left_keys, right_keys): (Vec<Expr>, Vec<Expr>) = join.keys.iter().cloned().unzip();
        let right_keys = Expressions::new(&right_keys, shape.right_types.len());
        Self {
            runtime: runtime.clone(),
            left_keys: Expressions::new(&left_keys, shape.left_types.len()),
            shape,
            left,
            right: Cursor { input: right, keys: right_keys, batch: None, row: 0, ended: false },
            group: None,
            charge: runtime.budget.charge("a merge join"),
        }
    }

    /// Moves the right to a key: its group is there afterwards if the right has that key.
    async fn seek(&mut self, key: &[u8]) -> Result<bool> {
        if let Some(group) = &self.group {
            if group.key == key {
                return Ok(true);
            }
            if group.key.as_slice() > key {
                return Ok(false);
            }
        }
        while self.right.settle(&self.runtime).await? {
            if self.right.key() >= key {
                break;
            }
            self.right.row += 1;
        }
        if !self.right.settle(&self.runtime).await? {
            self.group = None;
            return Ok(false);
        }
        if self.right.key() != key {
            return Ok(false);
        }
        let mut pieces = Vec::new();
        let mut held = 0;
        while self.right.settle(&self.runtime).await? && self.right.key() == key {
            let Some((batch, keys)) = &self.right.batch else { break };
            let from = self.right.row;
            let to = (from..batch.len()).find(|row| keys.get(*row) != key).unwrap_or(batch.len());
            let piece = batch.slice(from, to - from).compact();
            held += piece.heap_bytes();
            self.charge.set(held)?;
            pieces.push(piece);
            self.right.row = to;
        }
        self.group = Some(Group { key: key.to_vec(), rows: concat(&pieces, &self.shape.right_types) });
        Ok(true)
    }

    async fn join_batch(&mut self, left: Batch) -> Result<Vec<Batch>> {
        let columns = self.left_keys.columns(&self.runtime, &left).await?;
        let refs: Vec<&Column> = columns.iter().map(Arc::as_ref).collect();
        let keys = Keys::of(&refs, &[], left.len());
        let mut matches = Matches::new(left.len(), self.shape.kind);
        let mut made = Vec::new();
        for row in 0..left.len() {
            if keys.has_null(row) || !self.seek(keys.get(row)).await? {
                continue;
            }
            let Some(group) = &self.group else { continue };
            let right = group.rows.clone();
            let right_rows: Vec<u32> = (0..right.len() as u32).collect();
            let left_rows = vec![row as u32; right.len()];
            let judged = self.shape.judge(&self.runtime, &left, &left_rows, &right, &right_rows).await?;
            let kept = judged.unwrap_or(right_rows);
            for _ in &kept {
                matches.note(row as u32)?;
            }
            if self.shape.gives_pairs() && !kept.is_empty() {
                made.push(pairs(&left, &left_rows[..kept.len()], &right, &kept));
            }
        }
        match self.shape.kind {
            JoinKind::Left | JoinKind::Single => {
                let rows = matches.rows(false);
                if !rows.is_empty() {
                    made.push(self.shape.left_alone(&left, &rows));
                }
            }
            JoinKind::Semi => made.push(left.select(&matches.rows(true))),
            JoinKind::Anti => made.push(left.select(&matches.rows(false))),
            JoinKind::Inner | JoinKind::Right | JoinKind::Full | JoinKind::NullAwareAnti => {}
        }
        Ok(made)
    }
}

impl Operator for Merge {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Batch>>> {
        Box::pin(async move {
            while let Some(batch) = self.left.next().await? {
                self.runtime.pace().await?;
                let made = self.join_batch(batch.compact()).await?;
                if made.iter().any(|batch| !batch.is_empty()) {
                    let types = made[0].columns().iter().map(|column| column.ty()).collect::<Vec<_>>();
                    return Ok(Some(concat(&made, &types)));
                }
            }
            Ok(None)
        })
    }
}
