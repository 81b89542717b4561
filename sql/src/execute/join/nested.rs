//! Nested loop: every pair is looked at. The right is kept in memory, or in a spill file that is read once per batch of the
//! left.

use std::sync::Arc;

use model::{Result, port::BoxFuture};

use super::{Matches, Shape};
use crate::{
    batch::{Batch, ROWS, concat},
    execute::{Operator, Runtime},
    memory::Charge,
    plan::{Join, JoinKind},
    spill,
};

/// The operator.
pub(super) struct Nested {
    runtime: Runtime,
    shape: Shape,
    left: Box<dyn Operator>,
    right: Option<Box<dyn Operator>>,
    held: Vec<Batch>,
    file: Option<spill::Reader>,
    /// For each row of the right: whether it has a partner; empty if nobody asks.
    right_matched: Vec<bool>,
    charge: Charge,
    current: Option<Current>,
    leftovers: Option<(usize, usize)>,
    done: bool,
}

/// A batch of the left with the batch of the right it is being paired with.
struct Current {
    left: Batch,
    right: Option<Batch>,
    right_number: usize,
    /// Rows of the right before the present batch.
    right_base: usize,
    row: usize,
    matches: Matches,
}

impl Nested {
    pub(super) fn new(
        join: &Join,
        left: Box<dyn Operator>,
        right: Box<dyn Operator>,
        runtime: &Runtime,
    ) -> Self {
        Self {
            runtime: runtime.clone(),
            shape: Shape::new(join),
            left,
            right: Some(right),
            held: Vec::new(),
            file: None,
            right_matched: Vec::new(),
            charge: runtime.budget.charge("a nested loop"),
            current: None,
            leftovers: None,
            done: false,
        }
    }

    fn keeps_right(&self) -> bool {
        matches!(self.shape.kind, JoinKind::Right | JoinKind::Full)
    }

    async fn read_right(&mut self, mut right: Box<dyn Operator>) -> Result<()> {
        let mut writer: Option<spill::Writer> = None;
        let mut bytes = 0;
        let mut rows = 0;
        while let Some(batch) = right.next().await? {
            self.runtime.pace().await?;
            if batch.is_empty() {
                continue;
            }
            let batch = batch.compact();
            rows += batch.len();
            if let Some(writer) = &mut writer {
                writer.write(&batch)?;
                continue;
            }
            bytes += batch.heap_bytes();
            self.held.push(batch);
            if !self.charge.try_set(bytes) {
                let mut file = self.runtime.spill.create(&self.shape.right_types)?;
                for batch in self.held.drain(..) {
                    file.write(&batch)?;
                }
                self.charge.set(0)?;
                writer = Some(file);
            }
        }
        if let Some(writer) = writer {
            self.file = Some(writer.finish()?);
        } else if !self.held.is_empty() {
            // Fewer, larger batches make longer loops.
            let whole = concat(&self.held, &self.shape.right_types);
            self.held =
                (0..whole.len()).step_by(ROWS).map(|from| whole.slice(from, ROWS).compact()).collect();
        }
        if self.keeps_right() {
            self.right_matched = vec![false; rows];
        }
        Ok(())
    }

    fn right_batch(&mut self, number: usize) -> Result<Option<Batch>> {
        match &mut self.file {
            None => Ok(self.held.get(number).cloned()),
            Some(file) => {
                if number == 0 {
                    file.rewind()?;
                }
                file.next_batch()
            }
        }
    }

    /// The next pairs of the present batches; none when they are done.
    async fn step(&mut self, current: &mut Current) -> Result<Option<Batch>> {
        loop {
            if current.right.is_none() {
                current.right = self.right_batch(current.right_number)?;
                current.row = 0;
                if current.right.is_none() {
                    return Ok(None);
                }
            }
            let Some(right) = current.right.clone() else { return Ok(None) };
            if current.row >= current.left.len() {
                current.right_base += right.len();
                current.right_number += 1;
                current.right = None;
                continue;
            }
            self.runtime.pace().await?;
            let row = current.row as u32;
            current.row += 1;
            let decided = current.matches.matched[row as usize] && !self.shape.gives_pairs();
            if decided {
                continue;
            }
            let left = current.left.select(&vec![row; right.len()]).compact();
            let mut columns = left.columns().to_vec();
            columns.extend(right.columns().iter().map(Arc::clone));
            let mut pairs = Batch::new(columns, right.len());
            if let Some(residual) = &mut self.shape.residual {
                pairs = residual.filter(&self.runtime, pairs).await?;
            }
            if pairs.is_empty() {
                continue;
            }
            for _ in 0..if self.shape.kind == JoinKind::Single { pairs.len() } else { 1 } {
                current.matches.note(row)?;
            }
            if self.keeps_right() {
                for at in pairs.physical_rows().iter() {
                    self.right_matched[current.right_base + *at as usize] = true;
                }
            }
            if self.shape.gives_pairs() {
                return Ok(Some(pairs));
            }
        }
    }

    fn finish_left(&self, current: &Current) -> Option<Batch> {
        let rows = match self.shape.kind {
            JoinKind::Inner | JoinKind::Right => return None,
            JoinKind::Left | JoinKind::Full | JoinKind::Single => {
                let rows = current.matches.rows(false);
                return (!rows.is_empty()).then(|| self.shape.left_alone(&current.left, &rows));
            }
            JoinKind::Semi => current.matches.rows(true),
            JoinKind::Anti | JoinKind::NullAwareAnti => current.matches.rows(false),
        };
        (!rows.is_empty()).then(|| current.left.select(&rows))
    }

    fn next_leftovers(&mut self) -> Result<Option<Batch>> {
        let Some((number, base)) = self.leftovers else { return Ok(None) };
        let Some(right) = self.right_batch(number)? else {
            self.leftovers = None;
            self.done = true;
            return Ok(None);
        };
        self.leftovers = Some((number + 1, base + right.len()));
        let rows: Vec<u32> =
            (0..right.len()).filter(|row| !self.right_matched[base + row]).map(|row| row as u32).collect();
        Ok(Some(self.shape.right_alone(&right, &rows)))
    }
}

impl Operator for Nested {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Batch>>> {
        Box::pin(async move {
            if let Some(right) = self.right.take() {
                self.read_right(right).await?;
            }
            loop {
                if self.done {
                    return Ok(None);
                }
                if let Some(mut current) = self.current.take() {
                    if let Some(batch) = self.step(&mut current).await? {
                        self.current = Some(current);
                        return Ok(Some(batch));
                    }
                    if let Some(batch) = self.finish_left(&current) {
                        return Ok(Some(batch));
                    }
                }
                if self.leftovers.is_some() {
                    if let Some(batch) = self.next_leftovers()? {
                        return Ok(Some(batch));
                    }
                    continue;
                }
                match self.left.next().await? {
                    Some(batch) if batch.is_empty() => {}
                    Some(batch) => {
                        let left = batch.compact();
                        let matches = Matches::new(left.len(), self.shape.kind);
                        self.current = Some(Current {
                            left,
                            right: None,
                            right_number: 0,
                            right_base: 0,
                            row: 0,
                            matches,
                        });
                    }
                    None if self.keeps_right() => self.leftovers = Some((0, 0)),
                    None => self.done = true,
                }
            }
        })
    }
}
