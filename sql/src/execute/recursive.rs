//! Recursive unions: a first plan, then another again and again over what the last round gave.
//!
//! Invariants:
//! - Each round sees exactly the rows of the round before. The recursion ends with the first round that gives none.
//! - With UNION a row that was given before is left out, and so not seen by the next round.

use std::sync::Arc;

use model::{Result, Type, port::BoxFuture};

use super::{Operator, Runtime, open};
use crate::{
    batch::{Batch, Column, key::KeyTable},
    memory::Charge,
    plan::Plan,
};

/// The operator.
pub(super) struct Recursive {
    runtime: Runtime,
    id: usize,
    round: Option<Box<dyn Operator>>,
    recursive: Arc<Plan>,
    seen: Option<KeyTable>,
    gathered: Vec<Batch>,
    charge: Charge,
}

impl Recursive {
    pub(super) fn new(
        id: usize,
        initial: Box<dyn Operator>,
        recursive: &Plan,
        all: bool,
        types: Vec<Type>,
        runtime: &Runtime,
    ) -> Self {
        Self {
            runtime: runtime.clone(),
            id,
            round: Some(initial),
            recursive: Arc::new(recursive.clone()),
            seen: (!all).then(|| KeyTable::new(&types)),
            gathered: Vec::new(),
            charge: runtime.budget.charge("a recursive query"),
        }
    }

    fn fresh(&mut self, batch: Batch) -> Batch {
        let Some(seen) = &mut self.seen else { return batch };
        let refs: Vec<&Column> = batch.columns().iter().map(Arc::as_ref).collect();
        let mut next = seen.len() as u32;
        let mut numbers = Vec::new();
        seen.insert(&refs, batch.len(), false, &mut numbers);
        let mut fresh = Vec::new();
        for (row, number) in numbers.iter().enumerate() {
            if *number == next {
                fresh.push(row as u32);
                next += 1;
            }
        }
        batch.select(&fresh).compact()
    }
}

impl Operator for Recursive {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Batch>>> {
        Box::pin(async move {
            loop {
                self.runtime.pace().await?;
                let Some(round) = &mut self.round else { return Ok(None) };
                match round.next().await? {
                    Some(batch) => {
                        let batch = self.fresh(batch.compact());
                        if batch.is_empty() {
                            continue;
                        }
                        self.gathered.push(batch.clone());
                        let held = self.gathered.iter().map(Batch::heap_bytes).sum::<usize>();
                        self.charge.set(held + self.seen.as_ref().map_or(0, KeyTable::heap_bytes))?;
                        return Ok(Some(batch));
                    }
                    None if self.gathered.is_empty() => self.round = None,
                    None => {
                        let rows = Arc::new(std::mem::take(&mut self.gathered));
                        self.runtime.shelf.put_working(self.id, rows);
                        self.round = Some(open(&self.recursive, &self.runtime)?);
                    }
                }
            }
        })
    }
}
