//! INSERT.

use std::sync::Arc;

use model::{
    Result, Value,
    load::Rows,
    port::{BoxFuture, LockMode},
    schema::Table,
};

use super::{
    NewRow, Returning, RowWriter, check_size,
    conflict::Conflict,
    foreign::Foreign,
    unique::{Unique, UniqueKey},
};
use crate::{
    batch::Batch,
    execute::{Operator, Runtime},
    plan,
    txn::Base,
};

/// Puts new rows into a table: what INSERT and COPY share.
pub struct Inserter {
    pub(super) runtime: Runtime,
    pub(super) table: Arc<Table>,
    pub(super) writer: RowWriter,
    pub(super) unique: Unique,
    pub(super) foreign: Foreign,
    rows: u64,
    /// The row of the last batch whose key is taken.
    refused: Option<usize>,
}

impl Inserter {
    /// For rows of a table.
    pub fn new(table: &Arc<Table>, rules: &plan::RowRules, runtime: &Runtime) -> Self {
        Self {
            runtime: runtime.clone(),
            writer: RowWriter::new(table, rules, runtime),
            unique: Unique::new(table, runtime),
            foreign: Foreign::new(table, runtime),
            table: Arc::clone(table),
            rows: 0,
            refused: None,
        }
    }

    /// Puts in whole rows; answers them as they became.
    pub async fn insert(&mut self, rows: Batch) -> Result<Batch> {
        let rows = self.writer.complete(rows).await?;
        let made = self.writer.encode(&rows, None)?;
        self.put(&rows, &made).await?;
        Ok(rows)
    }

    /// As [`Inserter::insert`], but whole rows go in their stored form into a buffer. Keys are not judged: whoever applies
    /// the rows does.
    pub async fn stage(&mut self, rows: Batch, into: &mut Rows) -> Result<()> {
        let rows = self.writer.complete(rows).await?;
        self.writer.encode_into(&rows, into)
    }

    /// Whether whole rows would be refused by themselves, whatever keys are taken.
    pub async fn judge(&mut self, rows: Batch) -> Result<()> {
        let rows = self.writer.complete(rows).await?;
        self.writer.encode(&rows, None).map(drop)
    }

    /// The row of the batch that was refused, if it was for a key that is taken.
    pub fn take_refused(&mut self) -> Option<usize> {
        self.refused.take()
    }

    async fn put(&mut self, rows: &Batch, made: &[NewRow]) -> Result<()> {
        self.rows += made.len() as u64;
        if self.table.key().is_none() && !self.unique.has_secondary() {
            // Ids were made for them: nobody else has them, and the lock of one keeps the table.
            if self.runtime.statement.locks_rows()
                && let Some(first) = made.first()
            {
                self.unique.look_up(&self.unique.keys_of(first, &[])?, LockMode::Update).await?;
            }
            for new in made {
                put_new(&self.runtime, &self.table, new)?;
            }
            return self.foreign.note_new(rows, made);
        }
        let keys = claims(&self.unique, rows, made)?;
        if self.runtime.statement.locks_rows() {
            let all: Vec<UniqueKey> = keys.iter().flatten().cloned().collect();
            self.unique.look_up(&all, LockMode::Update).await?;
        }
        for (row, (new, keys)) in made.iter().zip(&keys).enumerate() {
            let free = self.unique.refuse_taken(keys, || rows.row(row), None);
            if let Err(error) = free.and_then(|()| put_new(&self.runtime, &self.table, new)) {
                self.refused = Some(row);
                return Err(error);
            }
            self.unique.note(keys, &new.key);
        }
        self.foreign.note_new(rows, made)
    }

    /// Judges what can only be judged at the end.
    pub async fn finish(&mut self) -> Result<()> {
        self.foreign.finish().await
    }

    /// Rows put in since [`Inserter::begin_commit`].
    pub fn rows_since_commit(&self) -> u64 {
        self.rows
    }

    /// What was put in so far is committed.
    pub fn begin_commit(&mut self) {
        self.rows = 0;
        self.unique = Unique::new(&self.table, &self.runtime);
    }
}

/// The operator.
pub struct Insert {
    runtime: Runtime,
    node: usize,
    source: Option<Box<dyn Operator>>,
    inserter: Inserter,
    conflict: Option<Conflict>,
    returning: Returning,
}

impl Insert {
    /// Inserts the rows of a source.
    pub fn new(node: usize, plan: &plan::Insert, source: Box<dyn Operator>, runtime: &Runtime) -> Self {
        let table = &plan.table;
        Self {
            runtime: runtime.clone(),
            node,
            source: Some(source),
            inserter: Inserter::new(table, &plan.rules, runtime),
            conflict: plan.on_conflict.as_ref().map(|on| Conflict::new(on, table, runtime)),
            returning: Returning::new(plan.returning.as_deref(), table.columns.len(), runtime),
        }
    }

    async fn run(&mut self, mut source: Box<dyn Operator>) -> Result<()> {
        while let Some(batch) = source.next().await? {
            self.runtime.pace().await?;
            if batch.is_empty() {
                continue;
            }
            let changed = match &mut self.conflict {
                None => self.inserter.insert(batch).await?,
                Some(conflict) => {
                    let inserter = &mut self.inserter;
                    let rows = inserter.writer.complete(batch).await?;
                    let made = inserter.writer.encode(&rows, None)?;
                    conflict
                        .run(&mut inserter.writer, &mut inserter.unique, &mut inserter.foreign, &rows, &made)
                        .await?
                }
            };
            self.runtime.count_affected(self.node, changed.len() as u64);
            self.returning.add(&self.runtime, &changed).await?;
            check_size(&self.runtime)?;
        }
        self.inserter.finish().await
    }
}

/// The unique keys of each row.
pub(super) fn claims(unique: &Unique, rows: &Batch, made: &[NewRow]) -> Result<Vec<Vec<UniqueKey>>> {
    let mut values: Vec<Value> = Vec::new();
    made.iter()
        .enumerate()
        .map(|(row, new)| {
            if unique.has_secondary() {
                rows.read_row(row, &mut values);
            }
            unique.keys_of(new, &values)
        })
        .collect()
}

/// Buffers a row under a key that no row has.
pub(super) fn put_new(runtime: &Runtime, table: &Table, new: &NewRow) -> Result<()> {
    runtime.statement.write(&new.partition, table.id, new.key.clone(), Base::Absent, Some(new.row.clone()))
}

impl Operator for Insert {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Batch>>> {
        Box::pin(async move {
            if let Some(source) = self.source.take() {
                self.run(source).await?;
            }
            Ok(self.returning.finish())
        })
    }
}
