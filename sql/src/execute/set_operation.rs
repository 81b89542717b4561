//! UNION, INTERSECT, EXCEPT.
//!
//! UNION ALL passes rows through, UNION is that under a `Distinct`. INTERSECT and EXCEPT count the right's rows by key, then
//! go through the left; the counts must fit the statement's memory.

use std::sync::Arc;

use model::{Result, Type, port::BoxFuture};

use super::{Operator, Runtime, distinct::Distinct};
use crate::{
    batch::{Batch, Column, key::KeyTable},
    memory::Charge,
    plan::SetKind,
};

/// Starts a set operation.
pub(super) fn open(
    kind: SetKind,
    all: bool,
    left: Box<dyn Operator>,
    right: Box<dyn Operator>,
    types: Vec<Type>,
    runtime: &Runtime,
) -> Box<dyn Operator> {
    match kind {
        SetKind::Union => {
            let append = Box::new(Append { left: Some(left), right });
            if all { append } else { Box::new(Distinct::new(append, types, runtime)) }
        }
        SetKind::Intersect | SetKind::Except => Box::new(Counted {
            runtime: runtime.clone(),
            intersect: kind == SetKind::Intersect,
            all,
            left,
            right: Some(right),
            keys: KeyTable::new(&types),
            counts: Vec::new(),
            charge: runtime.budget.charge("a set operation"),
        }),
    }
}

struct Append {
    left: Option<Box<dyn Operator>>,
    right: Box<dyn Operator>,
}

impl Operator for Append {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Batch>>> {
        Box::pin(async move {
            if let Some(left) = &mut self.left {
                if let Some(batch) = left.next().await? {
                    return Ok(Some(batch));
                }
                self.left = None;
            }
            self.right.next().await
        })
    }
}

struct Counted {
    runtime: Runtime,
    intersect: bool,
    all: bool,
    left: Box<dyn Operator>,
    right: Option<Box<dyn Operator>>,
    keys: KeyTable,
    /// For each key: how many rows of the right are left; with DISTINCT, 0 once it was given.
    counts: Vec<u64>,
    charge: Charge,
}

impl Counted {
    async fn count_right(&mut self, mut right: Box<dyn Operator>) -> Result<()> {
        let mut numbers = Vec::new();
        while let Some(batch) = right.next().await? {
            self.runtime.pace().await?;
            let batch = batch.compact();
            let refs: Vec<&Column> = batch.columns().iter().map(Arc::as_ref).collect();
            self.keys.insert(&refs, batch.len(), false, &mut numbers);
            self.counts.resize(self.keys.len(), 0);
            numbers.iter().for_each(|number| self.counts[*number as usize] += 1);
            self.charge.set(self.keys.heap_bytes() + self.counts.capacity() * 8)?;
        }
        Ok(())
    }

    fn judge(&mut self, batch: Batch) -> Result<Batch> {
        let batch = batch.compact();
        let refs: Vec<&Column> = batch.columns().iter().map(Arc::as_ref).collect();
        let mut numbers = Vec::new();
        let of_right = self.counts.len();
        if self.intersect || self.all {
            self.keys.find(&refs, batch.len(), false, &mut numbers);
        } else {
            // What EXCEPT has given once it gives no more: its own keys join those of the right.
            self.keys.insert(&refs, batch.len(), false, &mut numbers);
            self.counts.resize(self.keys.len(), 0);
            self.charge.set(self.keys.heap_bytes() + self.counts.capacity() * 8)?;
        }
        let mut kept = Vec::new();
        let mut next = of_right as u32;
        for (row, number) in numbers.iter().enumerate() {
            let count = self.counts.get_mut(*number as usize);
            let given = match (self.intersect, self.all, count) {
                (true, _, None) => false,
                (true, true, Some(count)) => count.checked_sub(1).map(|rest| *count = rest).is_some(),
                (true, false, Some(count)) => std::mem::take(count) > 0,
                (false, true, None) => true,
                (false, true, Some(count)) => count.checked_sub(1).map(|rest| *count = rest).is_none(),
                (false, false, _) => {
                    let first = *number == next;
                    next += u32::from(first);
                    first
                }
            };
            if given {
                kept.push(row as u32);
            }
        }
        Ok(batch.select(&kept))
    }
}

impl Operator for Counted {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Batch>>> {
        Box::pin(async move {
            if let Some(right) = self.right.take() {
                self.count_right(right).await?;
            }
            while let Some(batch) = self.left.next().await? {
                self.runtime.pace().await?;
                let batch = self.judge(batch)?;
                if !batch.is_empty() {
                    return Ok(Some(batch));
                }
            }
            Ok(None)
        })
    }
}
