//! The rows that a statement changes: each once, locked, as they are now.

use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashSet;
use model::{
    Code, Error, Result,
    id::{PartitionId, Revision},
    port::{LockMode, Lockable, Locked},
    read::Stored,
    row::RowView,
    schema::Table,
};

use super::{beside, error::concurrent_update};
use crate::{
    batch::{Batch, stored::Decoder},
    execute::{Expressions, Runtime},
    expr::Expr,
    plan::Target,
    txn::{Base, Isolation},
};

/// Finds and locks the rows of a source.
pub(super) struct Targets {
    runtime: Runtime,
    table: Arc<Table>,
    place: Target,
    mode: LockMode,
    decoder: Decoder,
    condition: Option<Expressions>,
    seen: HashSet<(PartitionId, Bytes)>,
}

/// A row to change.
#[derive(Clone, Debug)]
pub(super) struct Found {
    /// Where.
    pub(super) partition: PartitionId,
    /// The row as it is.
    pub(super) stored: Stored,
    /// What a write of it is based on.
    pub(super) base: Base,
}

/// Rows to change: the old rows' columns, then the source's, row by row beside `found`.
pub(super) struct Rows {
    pub(super) found: Vec<Found>,
    pub(super) input: Batch,
}

impl Targets {
    pub(super) fn new(
        table: &Arc<Table>,
        place: Target,
        mode: LockMode,
        condition: Option<&Expr>,
        source_width: usize,
        runtime: &Runtime,
    ) -> Self {
        Self {
            runtime: runtime.clone(),
            place,
            mode,
            decoder: Decoder::whole(table),
            condition: condition
                .map(|condition| Expressions::condition(condition, table.columns.len() + source_width)),
            seen: HashSet::new(),
            table: Arc::clone(table),
        }
    }

    /// The rows of a batch of the source that are to be changed. A row whose key is null is none, a row that was found
    /// before is not found again.
    pub(super) async fn find(&mut self, source: &Batch) -> Result<Rows> {
        let source = source.clone().compact();
        let mut found = Vec::new();
        let mut kept = Vec::new();
        for row in 0..source.len() {
            let Some((partition, stored)) = self.stored(&source, row)? else { continue };
            if !self.seen.insert((partition.clone(), stored.key.clone())) {
                continue;
            }
            let base = self.base(&partition, &stored)?;
            found.push(Found { partition, stored, base });
            kept.push(row as u32);
        }
        let mut source = source.select(&kept).compact();
        let mut changed = Vec::new();
        if self.runtime.statement.locks_rows() {
            let (survivors, renewed) = self.lock(&mut found).await?;
            if survivors.len() < found.len() {
                found = survivors.iter().map(|row| found[*row as usize].clone()).collect();
                source = source.select(&survivors).compact();
            }
            changed = renewed;
        }
        let input = beside(&self.decode(&found)?, &source);
        let rows = Rows { found, input };
        if changed.contains(&true) { self.judge_again(rows, &changed).await } else { Ok(rows) }
    }

    fn stored(&self, source: &Batch, row: usize) -> Result<Option<(PartitionId, Stored)>> {
        if source.is_null(row, self.place.key) {
            return Ok(None);
        }
        let bytes = |column: usize| {
            source
                .column(column)
                .as_texts()
                .map(|texts| texts.get(source.physical(row)))
                .ok_or_else(|| Error::internal("the place of a row to change is not bytes"))
        };
        let partition = PartitionId::parse(bytes(self.place.partition)?)?;
        let key = Bytes::copy_from_slice(bytes(self.place.key)?);
        let row = Bytes::copy_from_slice(bytes(self.place.row)?);
        Ok(Some((partition, Stored { key, row })))
    }

    fn base(&self, partition: &PartitionId, stored: &Stored) -> Result<Base> {
        match self.runtime.statement.overlay.find_entry(partition, self.table.id, &stored.key) {
            Some(entry) => Ok(entry.base),
            None => Ok(Base::Revision(revision_of(&stored.row)?)),
        }
    }

    fn decode(&self, found: &[Found]) -> Result<Batch> {
        let stored: Vec<Stored> = found.iter().map(|found| found.stored.clone()).collect();
        let anywhere = PartitionId::default_of(self.table.database, self.table.schema);
        let partition = found.first().map_or(&anywhere, |found| &found.partition);
        self.decoder.decode(partition, stored.as_slice())
    }

    /// Locks rows. Answers which are still there, and for each of those whether it is another than was read.
    async fn lock(&self, found: &mut [Found]) -> Result<(Vec<u32>, Vec<bool>)> {
        let (mut survivors, mut renewed) = (Vec::new(), Vec::new());
        let mut from = 0;
        while from < found.len() {
            let partition = found[from].partition.clone();
            let to = found[from..]
                .iter()
                .position(|at| at.partition != partition)
                .map_or(found.len(), |n| from + n);
            let locks = found[from..to]
                .iter()
                .map(|at| (Lockable::Row(self.table.id, at.stored.key.clone()), self.mode))
                .collect();
            let answers = self.runtime.statement.lock(&partition, locks, None).await?;
            for (row, answer) in (from..to).zip(answers) {
                match self.renew(&mut found[row], answer)? {
                    Renewed::Same => renewed.push(false),
                    Renewed::Changed => renewed.push(true),
                    Renewed::Gone => continue,
                }
                survivors.push(row as u32);
            }
            from = to;
        }
        Ok((survivors, renewed))
    }

    fn renew(&self, found: &mut Found, answer: Locked) -> Result<Renewed> {
        let Locked::Held { row, .. } = answer else { return Ok(Renewed::Gone) };
        // What the transaction itself has written nobody else can have changed.
        if self.runtime.statement.overlay.get(&found.partition, self.table.id, &found.stored.key).is_some() {
            return Ok(Renewed::Same);
        }
        let read = revision_of(&found.stored.row)?;
        let now = match &row {
            Some(row) => Some(revision_of(&row.row)?),
            None => None,
        };
        if now == Some(read) {
            return Ok(Renewed::Same);
        }
        if self.runtime.statement.state.isolation != Isolation::ReadCommitted {
            return Err(concurrent_update());
        }
        match (row, now) {
            (Some(row), Some(revision)) => {
                found.stored.row = row.row;
                found.base = Base::Revision(revision);
                Ok(Renewed::Changed)
            }
            _ => Ok(Renewed::Gone),
        }
    }

    /// Leaves out rows that were changed by others and no longer meet the condition.
    async fn judge_again(&mut self, rows: Rows, changed: &[bool]) -> Result<Rows> {
        let Some(condition) = &mut self.condition else { return Ok(rows) };
        let asked: Vec<u32> = (0..changed.len()).filter(|row| changed[*row]).map(|row| row as u32).collect();
        let held = condition.filter(&self.runtime, rows.input.select(&asked)).await?;
        let held = held.physical_rows().into_owned();
        let kept: Vec<u32> = (0..rows.input.len() as u32)
            .filter(|row| !changed[*row as usize] || held.contains(row))
            .collect();
        Ok(Rows {
            found: kept.iter().map(|row| rows.found[*row as usize].clone()).collect(),
            input: rows.input.select(&kept).compact(),
        })
    }
}

enum Renewed {
    Same,
    Changed,
    Gone,
}

pub(super) fn revision_of(row: &[u8]) -> Result<Revision> {
    let view = RowView::new(row).map_err(|fault| Error::new(Code::DataCorrupted, fault.to_string()))?;
    Ok(Revision(view.revision()))
}
