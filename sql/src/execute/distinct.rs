//! Rows that differ, and the first row of each run of equal keys.
//!
//! [`Distinct`] keeps the keys it has seen. When they no longer fit, rows with new keys are spilled by a hash of their key,
//! and each part is gone through by itself when the input has ended.

use std::sync::Arc;

use model::{Result, Type, port::BoxFuture};

use super::{Expressions, Operator, Runtime};
use crate::{
    batch::{
        Batch, Column,
        key::{KeyTable, Keys},
    },
    expr::Expr,
    memory::Charge,
    spill,
};

/// Into how many parts rows are spilled.
const PARTS: usize = 32;
/// How often parts are parted again before the statement is refused.
const DEPTH_MAX: u64 = 6;

/// The operator.
pub(super) struct Distinct {
    runtime: Runtime,
    input: Option<Box<dyn Operator>>,
    types: Vec<Type>,
    seen: KeyTable,
    charge: Charge,
    depth: u64,
    spilling: Option<Vec<spill::Writer>>,
    waiting: Vec<(u64, spill::Reader)>,
    reading: Option<spill::Reader>,
}

impl Distinct {
    pub(super) fn new(input: Box<dyn Operator>, types: Vec<Type>, runtime: &Runtime) -> Self {
        Self {
            runtime: runtime.clone(),
            input: Some(input),
            seen: KeyTable::new(&types),
            types,
            charge: runtime.budget.charge("DISTINCT"),
            depth: 0,
            spilling: None,
            waiting: Vec::new(),
            reading: None,
        }
    }

    async fn source(&mut self) -> Result<Option<Batch>> {
        if let Some(reader) = &mut self.reading {
            return reader.next_batch();
        }
        match &mut self.input {
            Some(input) => input.next().await,
            None => Ok(None),
        }
    }

    /// The rows of a batch that were not seen before.
    fn fresh(&mut self, batch: Batch) -> Result<Batch> {
        let batch = batch.compact();
        if batch.width() == 0 {
            // Rows without columns are all equal.
            let first = self.seen.is_empty();
            self.seen.insert(&[], usize::from(first && !batch.is_empty()), false, &mut Vec::new());
            return Ok(batch.slice(0, usize::from(first)));
        }
        let refs: Vec<&Column> = batch.columns().iter().map(Arc::as_ref).collect();
        let mut numbers = Vec::new();
        if self.spilling.is_none() {
            let before = self.seen.len() as u32;
            self.seen.insert(&refs, batch.len(), false, &mut numbers);
            let mut next = before;
            let mut fresh = Vec::new();
            for (row, number) in numbers.iter().enumerate() {
                if *number == next {
                    fresh.push(row as u32);
                    next += 1;
                }
            }
            if !self.charge.try_set(self.seen.heap_bytes()) {
                if self.depth >= DEPTH_MAX {
                    return Err(self.charge.refusal(self.seen.heap_bytes()));
                }
                let files =
                    (0..PARTS).map(|_| self.runtime.spill.create(&self.types)).collect::<Result<Vec<_>>>()?;
                self.spilling = Some(files);
            }
            return Ok(batch.select(&fresh));
        }
        self.seen.find(&refs, batch.len(), false, &mut numbers);
        let hashes = KeyTable::partition_hashes(&refs, batch.len(), self.depth);
        let mut parts: Vec<Vec<u32>> = vec![Vec::new(); PARTS];
        for (row, number) in numbers.iter().enumerate() {
            if *number == u32::MAX {
                parts[(hashes[row] % PARTS as u64) as usize].push(row as u32);
            }
        }
        if let Some(files) = &mut self.spilling {
            for (file, rows) in files.iter_mut().zip(&parts) {
                file.write(&batch.select(rows))?;
            }
        }
        Ok(batch.select(&[]))
    }

    /// Goes on with a spilled part; false if there is none.
    fn next_part(&mut self) -> Result<bool> {
        self.input = None;
        self.reading = None;
        let depth = self.depth + 1;
        for file in self.spilling.take().into_iter().flatten().filter(|file| file.rows() > 0) {
            self.runtime.note(|node| node.spilled += file.bytes());
            self.waiting.push((depth, file.finish()?));
        }
        let Some((depth, reader)) = self.waiting.pop() else { return Ok(false) };
        self.depth = depth;
        self.reading = Some(reader);
        self.seen = KeyTable::new(&self.types);
        self.charge.set(0)?;
        Ok(true)
    }
}

impl Operator for Distinct {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Batch>>> {
        Box::pin(async move {
            loop {
                self.runtime.pace().await?;
                match self.source().await? {
                    Some(batch) => {
                        let fresh = self.fresh(batch)?;
                        if !fresh.is_empty() {
                            return Ok(Some(fresh));
                        }
                    }
                    None if self.next_part()? => {}
                    None => return Ok(None),
                }
            }
        })
    }
}

/// The first row of each run of rows that agree in the keys.
pub(super) struct DistinctOn {
    runtime: Runtime,
    input: Box<dyn Operator>,
    keys: Expressions,
    last: Option<Vec<u8>>,
}

impl DistinctOn {
    pub(super) fn new(input: Box<dyn Operator>, keys: &[Expr], width: usize, runtime: &Runtime) -> Self {
        Self { runtime: runtime.clone(), input, keys: Expressions::new(keys, width), last: None }
    }
}

impl Operator for DistinctOn {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Batch>>> {
        Box::pin(async move {
            while let Some(batch) = self.input.next().await? {
                self.runtime.pace().await?;
                let columns = self.keys.columns(&self.runtime, &batch).await?;
                let refs: Vec<&Column> = columns.iter().map(Arc::as_ref).collect();
                let keys = Keys::of(&refs, super::expressions::EQUALITY, batch.len());
                let mut first = Vec::new();
                for row in 0..batch.len() {
                    if self.last.as_deref() != Some(keys.get(row)) {
                        first.push(row as u32);
                        self.last = Some(keys.get(row).to_vec());
                    }
                }
                if !first.is_empty() {
                    return Ok(Some(batch.select(&first)));
                }
            }
            Ok(None)
        })
    }
}
