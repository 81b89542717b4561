//! UPDATE: the rows of a source with new values. A row whose key changes goes and comes back under its new key.

use std::sync::Arc;

use bytes::Bytes;
use model::{
    Error, Result, Type, Value,
    id::{ColumnNumber, PartitionId},
    port::{BoxFuture, LockMode},
    read::Stored,
    schema::Table,
};

use super::{
    NewRow, Returning, RowWriter, beside, check_size,
    foreign::Foreign,
    target::{Rows, Targets},
    unique::{Unique, UniqueKey},
};
use crate::{
    batch::{Batch, Column},
    execute::{Expressions, Operator, Runtime},
    expr::Expr,
    plan,
    txn::Base,
};

/// The operator.
pub struct Update {
    runtime: Runtime,
    node: usize,
    table: Arc<Table>,
    source: Option<Box<dyn Operator>>,
    targets: Targets,
    assigned: Assignments,
    writer: RowWriter,
    unique: Unique,
    foreign: Foreign,
    returning: Returning,
}

/// New values of columns.
pub(super) struct Assignments {
    places: Vec<usize>,
    values: Expressions,
}

/// A row that is changed, as it was.
pub(super) struct Change {
    pub(super) partition: PartitionId,
    pub(super) stored: Stored,
    pub(super) base: Base,
}

impl Assignments {
    /// Over rows of so many columns.
    pub(super) fn new(assignments: &[(ColumnNumber, Expr)], width: usize) -> Self {
        let (places, values): (Vec<usize>, Vec<Expr>) =
            assignments.iter().map(|(number, expr)| (usize::from(number.0) - 1, expr.clone())).unzip();
        Self { places, values: Expressions::new(&values, width) }
    }

    /// The first `columns` columns of the input with new values.
    pub(super) async fn apply(&mut self, runtime: &Runtime, input: &Batch, columns: usize) -> Result<Batch> {
        let made = self.values.columns(runtime, input).await?;
        let mut after = input.columns()[..columns].to_vec();
        for (place, column) in self.places.iter().zip(made) {
            after[*place] = column;
        }
        Ok(Batch::new(after, input.len()))
    }
}

/// What lock a change of these columns takes: keys that others refer to, or that are unique, ask for the strongest.
pub(super) fn lock_mode(table: &Table, assigned: impl Iterator<Item = ColumnNumber>) -> LockMode {
    let in_key = |number: ColumnNumber| {
        table.indexes.iter().any(|index| index.unique && index.parts.iter().any(|part| part.column == number))
    };
    if assigned.into_iter().any(in_key) { LockMode::Update } else { LockMode::NoKeyUpdate }
}

impl Update {
    /// Changes the rows of a source.
    pub fn new(
        node: usize,
        plan: &plan::Update,
        source: Box<dyn Operator>,
        source_types: Vec<Type>,
        runtime: &Runtime,
    ) -> Self {
        let table = &plan.table;
        let width = table.columns.len() + source_types.len();
        let mode = lock_mode(table, plan.assignments.iter().map(|(number, _)| *number));
        Self {
            runtime: runtime.clone(),
            node,
            source: Some(source),
            targets: Targets::new(
                table,
                plan.target,
                mode,
                plan.condition.as_ref(),
                source_types.len(),
                runtime,
            ),
            assigned: Assignments::new(&plan.assignments, width),
            writer: RowWriter::new(table, &plan.rules, runtime),
            unique: Unique::new(table, runtime),
            foreign: Foreign::new(table, runtime),
            returning: Returning::new(plan.returning.as_deref(), width, runtime),
            table: Arc::clone(table),
        }
    }

    async fn run(&mut self, mut source: Box<dyn Operator>) -> Result<()> {
        let columns = self.table.columns.len();
        let mut moved = Vec::new();
        while let Some(batch) = source.next().await? {
            self.runtime.pace().await?;
            let Rows { found, input } = self.targets.find(&batch).await?;
            if found.is_empty() {
                continue;
            }
            let after = self.assigned.apply(&self.runtime, &input, columns).await?;
            let before = input.project(&(0..columns).collect::<Vec<_>>());
            let beside_it = input.project(&(columns..input.width()).collect::<Vec<_>>());
            let changes: Vec<Change> = found
                .into_iter()
                .map(|found| Change { partition: found.partition, stored: found.stored, base: found.base })
                .collect();
            let (after, new) = remove_and_change(
                &self.runtime,
                &mut self.writer,
                &mut self.unique,
                &mut self.foreign,
                &changes,
                &before,
                after,
            )
            .await?;
            moved.extend(new);
            self.runtime.count_affected(self.node, after.len() as u64);
            self.returning.add(&self.runtime, &beside(&after, &beside_it)).await?;
            check_size(&self.runtime)?;
            let buffered = self.runtime.statement.buffered_bytes();
            if self.runtime.piece_bytes_max.is_some_and(|piece| buffered >= piece) {
                break;
            }
        }
        add_moved(&self.runtime, &self.table, &mut self.unique, moved).await?;
        self.foreign.finish().await
    }
}

/// A row that waits for its place until all rows of the statement have left theirs.
pub(super) struct Moved {
    new: NewRow,
    keys: Vec<UniqueKey>,
    values: Vec<Value>,
}

/// Changes rows whose keys may have changed at once; answers the rows as they became.
pub(super) async fn apply_changes(
    runtime: &Runtime,
    writer: &mut RowWriter,
    unique: &mut Unique,
    foreign: &mut Foreign,
    changes: &[Change],
    before: &Batch,
    after: Batch,
) -> Result<Batch> {
    let table = Arc::clone(writer.table());
    let (after, moved) = remove_and_change(runtime, writer, unique, foreign, changes, before, after).await?;
    add_moved(runtime, &table, unique, moved).await?;
    Ok(after)
}

/// Buffers changed rows. Rows with a new key are taken from their old place and answered.
async fn remove_and_change(
    runtime: &Runtime,
    writer: &mut RowWriter,
    unique: &mut Unique,
    foreign: &mut Foreign,
    changes: &[Change],
    before: &Batch,
    after: Batch,
) -> Result<(Batch, Vec<Moved>)> {
    let table = Arc::clone(writer.table());
    let after = writer.complete(after).await?;
    let mut keys = Column::with_capacity(Type::Bytea, changes.len());
    changes.iter().for_each(|change| keys.push_bytes(&change.stored.key));
    let made = writer.encode(&after, Some(&keys))?;
    let (mut old_values, mut values) = (Vec::new(), Vec::new());
    let mut claims: Vec<Vec<UniqueKey>> = Vec::with_capacity(made.len());
    for (row, (change, new)) in changes.iter().zip(&made).enumerate() {
        if new.partition != change.partition {
            return Err(Error::unsupported(
                "changing a partition column is not supported",
                "Delete the row and insert it into the other partition.",
            ));
        }
        before.read_row(row, &mut old_values);
        after.read_row(row, &mut values);
        let old =
            NewRow { partition: change.partition.clone(), key: change.stored.key.clone(), row: Bytes::new() };
        let held = unique.keys_of(&old, &old_values)?;
        let mut wanted = unique.keys_of(new, &values)?;
        wanted.retain(|key| !held.contains(key));
        claims.push(wanted);
    }
    if runtime.statement.locks_rows() {
        let all: Vec<UniqueKey> = claims.iter().flatten().cloned().collect();
        unique.look_up(&all, LockMode::Update).await?;
    }
    let mut moved = Vec::new();
    for (row, ((change, new), keys)) in changes.iter().zip(made).zip(claims).enumerate() {
        after.read_row(row, &mut values);
        let write = |key: Bytes, row: Option<Bytes>| {
            runtime.statement.write(&change.partition, table.id, key, change.base, row)
        };
        if new.key == change.stored.key {
            let secondary: Vec<UniqueKey> = keys.iter().filter(|key| key.index.is_some()).cloned().collect();
            if runtime.statement.locks_rows() {
                unique.refuse_taken(&secondary, || values.clone(), Some(&new.key))?;
            }
            write(new.key.clone(), Some(new.row.clone()))?;
            unique.note(&secondary, &new.key);
            foreign.note_change(&change.partition, before, &after, row, &new)?;
        } else {
            write(change.stored.key.clone(), None)?;
            foreign.note_change(&change.partition, before, &after, row, &new)?;
            moved.push(Moved { new, keys, values: values.clone() });
        }
    }
    Ok((after, moved))
}

async fn add_moved(runtime: &Runtime, table: &Table, unique: &mut Unique, moved: Vec<Moved>) -> Result<()> {
    for Moved { new, keys, values } in moved {
        unique.refuse_taken(&keys, || values.clone(), None)?;
        runtime.statement.write(
            &new.partition,
            table.id,
            new.key.clone(),
            Base::Absent,
            Some(new.row.clone()),
        )?;
        unique.note(&keys, &new.key);
    }
    Ok(())
}

impl Operator for Update {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Batch>>> {
        Box::pin(async move {
            if let Some(source) = self.source.take() {
                self.run(source).await?;
            }
            Ok(self.returning.finish())
        })
    }
}
