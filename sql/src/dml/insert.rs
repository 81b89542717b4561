//! INSERT.

use std::sync::Arc;

use bytes::Bytes;
use model::{
    Result, Value,
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

/// The operator.
pub struct Insert {
    runtime: Runtime,
    node: usize,
    table: Arc<Table>,
    source: Option<Box<dyn Operator>>,
    writer: RowWriter,
    unique: Unique,
    foreign: Foreign,
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
            writer: RowWriter::new(table, &plan.rules, runtime),
            unique: Unique::new(table, runtime),
            foreign: Foreign::new(table, runtime),
            conflict: plan.on_conflict.as_ref().map(|on| Conflict::new(on, table, runtime)),
            returning: Returning::new(plan.returning.as_deref(), table.columns.len(), runtime),
            table: Arc::clone(table),
        }
    }

    async fn run(&mut self, mut source: Box<dyn Operator>) -> Result<()> {
        while let Some(batch) = source.next().await? {
            self.runtime.pace().await?;
            if batch.is_empty() {
                continue;
            }
            let rows = self.writer.complete(batch).await?;
            let made = self.writer.encode(&rows, None)?;
            match self.conflict.take() {
                None => self.insert(&rows, &made).await?,
                Some(mut conflict) => {
                    let changed = conflict
                        .run(&mut self.writer, &mut self.unique, &mut self.foreign, &rows, &made)
                        .await?;
                    self.runtime.count_affected(self.node, changed.len() as u64);
                    self.returning.add(&self.runtime, &changed).await?;
                    self.conflict = Some(conflict);
                }
            }
            check_size(&self.runtime)?;
        }
        self.foreign.finish().await
    }

    async fn insert(&mut self, rows: &Batch, made: &[NewRow]) -> Result<()> {
        let keys = claims(&self.unique, rows, made)?;
        if self.runtime.statement.locks_rows() {
            let all: Vec<UniqueKey> = keys.iter().flatten().cloned().collect();
            self.unique.look_up(&all, LockMode::Update).await?;
        }
        let mut values = Vec::new();
        for (row, (new, keys)) in made.iter().zip(&keys).enumerate() {
            rows.read_row(row, &mut values);
            self.unique.refuse_taken(keys, &values, None)?;
            put_new(&self.runtime, &self.table, new)?;
            self.unique.note(keys, &new.key);
        }
        self.foreign.note_new(rows, made)?;
        self.runtime.count_affected(self.node, made.len() as u64);
        self.returning.add(&self.runtime, rows).await
    }
}

/// The unique keys of each row.
pub(super) fn claims(unique: &Unique, rows: &Batch, made: &[NewRow]) -> Result<Vec<Vec<UniqueKey>>> {
    let mut values: Vec<Value> = Vec::new();
    made.iter()
        .enumerate()
        .map(|(row, new)| {
            rows.read_row(row, &mut values);
            unique.keys_of(new, &values)
        })
        .collect()
}

/// Buffers a row under a key that no row has.
pub(super) fn put_new(runtime: &Runtime, table: &Table, new: &NewRow) -> Result<()> {
    let row: Bytes = new.row.clone();
    runtime.statement.write(&new.partition, table.id, new.key.clone(), Base::Absent, Some(row))
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
