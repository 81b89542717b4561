//! `SELECT … FOR UPDATE` and its siblings: locks the rows that pass through.
//!
//! Invariants:
//! - A row is given only when all its locks are held. After waiting for another transaction the row is read again, its
//!   columns are made new and its condition is asked again; under REPEATABLE READ a changed row is `40001`.
//! - In autocommit nothing is locked: the statement ends with its own command, and no later one could rely on it.

use std::sync::Arc;

use bytes::Bytes;
use model::{
    Code, Error, Result, Type,
    id::PartitionId,
    port::{BoxFuture, Lockable, Locked, Wait},
    read::Stored,
};

use super::{Expressions, Operator, Runtime};
use crate::{
    batch::{Batch, Column, stored::Decoder},
    plan::{self, LockWait, RowLock},
    txn::Isolation,
};

/// The operator.
pub(super) struct LockRows {
    runtime: Runtime,
    input: Box<dyn Operator>,
    tables: Vec<RowLock>,
    condition: Option<Expressions>,
    /// Rows that wait to be locked, and the next of them.
    waiting: Option<(Batch, usize)>,
}

/// What became of a row when it was locked.
enum Outcome {
    Same,
    Changed(Bytes),
    LeftOut,
}

impl LockRows {
    pub(super) fn new(
        plan: &plan::LockRows,
        input: Box<dyn Operator>,
        width: usize,
        runtime: &Runtime,
    ) -> Self {
        Self {
            runtime: runtime.clone(),
            input,
            tables: plan.tables.clone(),
            condition: plan.condition.as_ref().map(|condition| Expressions::condition(condition, width)),
            waiting: None,
        }
    }

    /// Locks one row; none if it is left out.
    async fn lock(&mut self, mut one: Batch) -> Result<Option<Batch>> {
        let mut changed = false;
        for at in 0..self.tables.len() {
            match self.lock_one(&one, at).await? {
                Outcome::Same => {}
                Outcome::LeftOut => return Ok(None),
                Outcome::Changed(stored) => {
                    one = self.renew(&one, at, stored)?;
                    changed = true;
                }
            }
        }
        if changed && let Some(condition) = &mut self.condition {
            one = condition.filter(&self.runtime, one).await?;
        }
        Ok((!one.is_empty()).then_some(one))
    }

    fn place(&self, one: &Batch, at: usize) -> Result<Option<(PartitionId, Bytes, Bytes)>> {
        let target = self.tables[at].target;
        if one.is_null(0, target.key) {
            return Ok(None);
        }
        let bytes = |column: usize| {
            let texts = one.column(column).as_texts();
            texts
                .map(|texts| texts.get(0))
                .ok_or_else(|| Error::internal("the place of a row to lock is not bytes"))
        };
        Ok(Some((
            PartitionId::parse(bytes(target.partition)?)?,
            Bytes::copy_from_slice(bytes(target.key)?),
            Bytes::copy_from_slice(bytes(target.row)?),
        )))
    }

    async fn lock_one(&mut self, one: &Batch, at: usize) -> Result<Outcome> {
        let Some((partition, key, read)) = self.place(one, at)? else { return Ok(Outcome::Same) };
        let lock = &self.tables[at];
        let statement = &self.runtime.statement;
        let wait = match lock.wait {
            LockWait::Wait => None,
            LockWait::Never => Some(Wait::Never),
            LockWait::Skip => Some(Wait::Skip),
        };
        let asked = vec![(Lockable::Row(lock.table.id, key.clone()), lock.mode)];
        let answers = match statement.lock(&partition, asked, wait).await {
            Err(error) if error.code() == Code::LockNotAvailable && lock.wait == LockWait::Never => {
                let message = format!("could not obtain lock on row in relation \"{}\"", lock.table.name);
                return Err(Error::new(Code::LockNotAvailable, message));
            }
            answers => answers?,
        };
        let Some(Locked::Held { row, .. }) = answers.into_iter().next() else { return Ok(Outcome::LeftOut) };
        if statement.overlay.get(&partition, lock.table.id, &key).is_some() {
            return Ok(Outcome::Same);
        }
        match row {
            Some(now) if now.row == read => Ok(Outcome::Same),
            _ if statement.state.isolation != Isolation::ReadCommitted => Err(Error::new(
                Code::SerializationFailure,
                "could not serialize access due to concurrent update",
            )),
            Some(now) => Ok(Outcome::Changed(now.row)),
            None => Ok(Outcome::LeftOut),
        }
    }

    /// The row with the columns that came from a table made new.
    fn renew(&self, one: &Batch, at: usize, stored: Bytes) -> Result<Batch> {
        let Some((partition, key, _)) = self.place(one, at)? else { return Ok(one.clone()) };
        let lock = &self.tables[at];
        let wanted: Vec<plan::ScanColumn> = lock.columns.iter().map(|(_, what)| *what).collect();
        let made = Decoder::new(&lock.table, &wanted)
            .decode(&partition, [Stored { key, row: stored.clone() }].as_slice())?;
        let mut columns = one.columns().to_vec();
        for ((place, _), column) in lock.columns.iter().zip(made.columns()) {
            columns[*place] = Arc::clone(column);
        }
        let mut row = Column::with_capacity(Type::Bytea, 1);
        row.push_bytes(&stored);
        columns[lock.target.row] = Arc::new(row);
        Ok(Batch::new(columns, 1))
    }
}

impl Operator for LockRows {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Batch>>> {
        Box::pin(async move {
            loop {
                let Some((batch, row)) = self.waiting.take() else {
                    let Some(batch) = self.input.next().await? else { return Ok(None) };
                    if !self.runtime.statement.locks_rows() {
                        return Ok(Some(batch));
                    }
                    self.waiting = Some((batch.compact(), 0));
                    continue;
                };
                if row >= batch.len() {
                    continue;
                }
                self.runtime.pace().await?;
                let one = batch.slice(row, 1).compact();
                self.waiting = Some((batch, row + 1));
                // One by one, so that a LIMIT above locks no row that it does not give.
                if let Some(one) = self.lock(one).await? {
                    return Ok(Some(one));
                }
            }
        })
    }
}
