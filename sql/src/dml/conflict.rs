//! `INSERT … ON CONFLICT`: each new row either is inserted, or left out, or changes the row that holds one of its keys.
//!
//! Rows are taken one after the other, so that a later one meets an earlier one: for DO NOTHING it is left out, for DO
//! UPDATE it is `21000`.

use std::sync::Arc;

use model::{
    Result, Type, Value,
    command::Condition,
    id::{ColumnNumber, IndexId},
    port::LockMode,
    schema::Table,
};

use super::{
    NewRow, RowWriter,
    error::{concurrent_update, second_time},
    foreign::Foreign,
    insert::{claims, put_new},
    unique::{Holder, Unique, UniqueKey},
    update::{Change, apply_changes},
};
use crate::{
    batch::{Batch, concat},
    execute::{Expressions, KeyBytes, Runtime, whole_row},
    expr::Expr,
    plan::{ConflictAction, OnConflict},
    txn::{Base, Isolation},
};

/// What is done with new rows whose keys are taken.
pub(super) struct Conflict {
    runtime: Runtime,
    table: Arc<Table>,
    indexes: Vec<IndexId>,
    update: Option<Update>,
    types: Vec<Type>,
}

struct Update {
    places: Vec<ColumnNumber>,
    values: Expressions,
    condition: Option<Expressions>,
}

impl Conflict {
    pub(super) fn new(on: &OnConflict, table: &Arc<Table>, runtime: &Runtime) -> Self {
        let width = 2 * table.columns.len();
        let update = match &on.action {
            ConflictAction::Nothing => None,
            ConflictAction::Update { assignments, condition } => {
                let (places, values): (Vec<ColumnNumber>, Vec<Expr>) = assignments.iter().cloned().unzip();
                Some(Update {
                    places,
                    values: Expressions::new(&values, width),
                    condition: condition.as_ref().map(|condition| Expressions::condition(condition, width)),
                })
            }
        };
        Self {
            runtime: runtime.clone(),
            table: Arc::clone(table),
            indexes: on.indexes.clone(),
            update,
            types: table.column_types(),
        }
    }

    /// Inserts or changes; answers the rows as they became.
    pub(super) async fn run(
        &mut self,
        writer: &mut RowWriter,
        unique: &mut Unique,
        foreign: &mut Foreign,
        rows: &Batch,
        made: &[NewRow],
    ) -> Result<Batch> {
        let keys = claims(unique, rows, made)?;
        let all: Vec<UniqueKey> = keys.iter().flatten().cloned().collect();
        unique.look_up(&all, LockMode::Update).await?;
        let mut changed = Vec::new();
        let mut values = Vec::new();
        for (row, (new, keys)) in made.iter().zip(&keys).enumerate() {
            rows.read_row(row, &mut values);
            match self.holder(unique, keys)? {
                None => {
                    unique.refuse_taken(keys, || values.clone(), None)?;
                    self.require_free(keys)?;
                    put_new(&self.runtime, &self.table, new)?;
                    unique.note(keys, &new.key);
                    let one = rows.slice(row, 1).compact();
                    foreign.note_new(&one, std::slice::from_ref(new))?;
                    changed.push(one);
                }
                Some(holder) => {
                    if let Some(one) = self.change(writer, unique, foreign, new, &values, holder).await? {
                        changed.push(one);
                    }
                }
            }
        }
        Ok(concat(&changed, &self.types))
    }

    fn is_meant(&self, key: &UniqueKey) -> bool {
        let index = key.index.or(self.table.primary_key);
        self.indexes.is_empty() || index.is_some_and(|index| self.indexes.contains(&index))
    }

    fn holder(&self, unique: &mut Unique, keys: &[UniqueKey]) -> Result<Option<Holder>> {
        for key in keys.iter().filter(|key| self.is_meant(key)) {
            if let Some(holder) = unique.holder(key)? {
                return Ok(Some(holder));
            }
        }
        Ok(None)
    }

    /// In autocommit: the keys must still be free when the command is applied. Stated as empty ranges, because those make
    /// the session run the statement again, where a taken key would be the client's error.
    fn require_free(&self, keys: &[UniqueKey]) -> Result<()> {
        let statement = &self.runtime.statement;
        if statement.locks_rows() {
            return Ok(());
        }
        for key in keys.iter().filter(|key| self.is_meant(key)) {
            let range = match key.index {
                None => {
                    KeyBytes { from: key.key.clone(), to: Some([key.key.as_ref(), &[0]].concat().into()) }
                }
                Some(_) => KeyBytes::of_prefix(key.key.to_vec()),
            };
            let Some(to) = range.to else { continue };
            let condition =
                Condition::RangeEmpty { table: self.table.id, index: key.index, from: range.from, to };
            statement.require(&key.partition, condition)?;
        }
        Ok(())
    }

    async fn change(
        &mut self,
        writer: &mut RowWriter,
        unique: &mut Unique,
        foreign: &mut Foreign,
        new: &NewRow,
        excluded: &[Value],
        holder: Holder,
    ) -> Result<Option<Batch>> {
        let Some(update) = &mut self.update else { return Ok(None) };
        if holder.of_statement {
            return Err(second_time("ON CONFLICT DO UPDATE"));
        }
        let statement = &self.runtime.statement;
        if let Base::Revision(revision) = holder.base
            && statement.state.isolation != Isolation::ReadCommitted
            && revision > statement.read_point(&new.partition).await?.revision
        {
            // The row is newer than what this transaction sees.
            return Err(concurrent_update());
        }
        let old = whole_row(&self.table, &holder.stored.row)?;
        let both: Vec<Value> = old.iter().chain(excluded).cloned().collect();
        let types: Vec<Type> = self.types.iter().chain(&self.types).copied().collect();
        if let Some(condition) = &mut update.condition
            && !condition.holds(&self.runtime, &both, &types).await?
        {
            return Ok(None);
        }
        let values = update.values.row(&self.runtime, &both, &types).await?;
        let mut row = old.clone();
        for (place, value) in update.places.iter().zip(values) {
            row[usize::from(place.0) - 1] = value;
        }
        let change = Change { partition: new.partition.clone(), stored: holder.stored, base: holder.base };
        let after = Batch::from_rows(&self.types, &[row]);
        let before = Batch::from_rows(&self.types, &[old]);
        let after = apply_changes(&self.runtime, writer, unique, foreign, &[change], &before, after).await?;
        Ok(Some(after))
    }
}
