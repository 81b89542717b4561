//! Foreign keys inside a partition: parents must be there, children follow or forbid.
//!
//! Invariants:
//! - Both are judged at the end of the statement, over what is stored and what the transaction and the statement have
//!   written, so rows of one statement may refer to each other.
//! - A parent that was found stays: in an explicit transaction its row is locked FOR KEY SHARE, in autocommit the command
//!   requires it. That no child came in between is likewise required.
//! - A key with a null refers to nothing (MATCH SIMPLE).

use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashSet;
use model::{
    Error, Result, Value,
    command::Condition,
    id::{ColumnNumber, IndexId, PartitionId},
    key,
    port::{BoxFuture, LockMode, Lockable, Locked},
    read::{self, At, Stored},
    schema::{ForeignKey, Index, IndexState, Referential, Table},
};

use super::{
    NewRow, RowWriter,
    error::{Viewer, concurrent_update, no_parent, still_referenced},
    target::revision_of,
    unique::{Unique, UniqueKey, is_own_key},
    update::{Change, apply_changes},
};
use crate::{
    batch::Batch,
    execute::{KeyBytes, Runtime, whole_row},
    txn::{Base, Isolation},
};

/// Bytes of a page of children.
const PAGE_BYTES: usize = 1 << 20;
/// Rows of a page of children.
const PAGE_ROWS: usize = 1_024;

/// What a table needs to know to write rows that the planner did not see: of children that follow their parent, of COPY.
pub trait TableRules: Send + Sync {
    /// What each new row goes through.
    fn rules(&self, table: &Arc<Table>) -> Result<crate::plan::RowRules>;
    /// What fills a column when nothing is given, of the column's type; none for null.
    fn default(&self, table: &Arc<Table>, column: ColumnNumber) -> Result<Option<crate::expr::Expr>>;
}

/// The foreign keys of and to one table, and what a statement has done to them.
pub(super) struct Foreign {
    runtime: Runtime,
    table: Arc<Table>,
    /// Child table and which of its foreign keys.
    incoming: Vec<(Arc<Table>, ForeignKey)>,
    wanted: HashSet<Wanted>,
    gone: Vec<Gone>,
}

/// A parent that must be there.
#[derive(PartialEq, Eq, Hash)]
struct Wanted {
    partition: PartitionId,
    foreign_key: usize,
    /// The key's bytes in the parent's index.
    key: Bytes,
    values: Vec<HashableValue>,
}

/// A value as a set sees it: by representation, which is enough to ask twice less often.
#[derive(Clone, PartialEq, Eq)]
struct HashableValue(Value);

impl std::hash::Hash for HashableValue {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.hash_sql(state);
    }
}

/// A key of a parent that is no more.
struct Gone {
    partition: PartitionId,
    /// Which of the incoming foreign keys.
    incoming: usize,
    old: Vec<Value>,
    /// The key it became, if the row was changed.
    new: Option<Vec<Value>>,
}

/// A child with what it is based on.
struct Child {
    stored: Stored,
    base: Base,
    values: Vec<Value>,
}

impl Foreign {
    pub(super) fn new(table: &Arc<Table>, runtime: &Runtime) -> Self {
        let catalog = Arc::clone(&runtime.context.lock().catalog);
        let mut incoming = Vec::new();
        for child in catalog.tables() {
            let to_us = child.foreign_keys.iter().filter(|key| key.parent == table.id);
            incoming.extend(to_us.map(|key| (Arc::clone(child), key.clone())));
        }
        Self {
            runtime: runtime.clone(),
            table: Arc::clone(table),
            incoming,
            wanted: HashSet::new(),
            gone: Vec::new(),
        }
    }

    /// Notes new rows.
    pub(super) fn note_new(&mut self, rows: &Batch, made: &[NewRow]) -> Result<()> {
        if self.table.foreign_keys.is_empty() {
            return Ok(());
        }
        let mut values = Vec::new();
        for (row, new) in made.iter().enumerate() {
            rows.read_row(row, &mut values);
            self.want(&new.partition, &values, None)?;
        }
        Ok(())
    }

    /// Notes a changed row.
    pub(super) fn note_change(
        &mut self,
        partition: &PartitionId,
        before: &Batch,
        after: &Batch,
        row: usize,
        _new: &NewRow,
    ) -> Result<()> {
        if self.table.foreign_keys.is_empty() && self.incoming.is_empty() {
            return Ok(());
        }
        let (old, new) = (before.row(row), after.row(row));
        self.want(partition, &new, Some(&old))?;
        for (incoming, (_, key)) in self.incoming.iter().enumerate() {
            let (was, is) = (pick(&old, &key.parent_columns), pick(&new, &key.parent_columns));
            let same = was.iter().zip(&is).all(|(was, is)| was.eq_sql(is));
            if !same && !was.iter().any(Value::is_null) {
                self.gone.push(Gone { partition: partition.clone(), incoming, old: was, new: Some(is) });
            }
        }
        Ok(())
    }

    /// Notes a removed row: the first columns of a row of a batch.
    pub(super) fn note_removed(&mut self, partition: &PartitionId, rows: &Batch, row: usize) -> Result<()> {
        if self.incoming.is_empty() {
            return Ok(());
        }
        let old = rows.row(row);
        for (incoming, (_, key)) in self.incoming.iter().enumerate() {
            let was = pick(&old, &key.parent_columns);
            if !was.iter().any(Value::is_null) {
                self.gone.push(Gone { partition: partition.clone(), incoming, old: was, new: None });
            }
        }
        Ok(())
    }

    fn want(&mut self, partition: &PartitionId, values: &[Value], before: Option<&[Value]>) -> Result<()> {
        let catalog = Arc::clone(&self.runtime.context.lock().catalog);
        for (number, foreign_key) in self.table.foreign_keys.iter().enumerate() {
            let wanted = pick(values, &foreign_key.columns);
            if wanted.iter().any(Value::is_null) {
                continue;
            }
            let unchanged = |before: &[Value]| {
                pick(before, &foreign_key.columns).iter().zip(&wanted).all(|(was, is)| was.eq_sql(is))
            };
            if before.is_some_and(unchanged) {
                continue;
            }
            let parent = parent_of(&catalog, foreign_key)?;
            let index = parent_index(&parent, foreign_key)?;
            let key = index_key(index, &foreign_key.parent_columns, &wanted)?;
            self.wanted.insert(Wanted {
                partition: partition.clone(),
                foreign_key: number,
                key,
                values: wanted.into_iter().map(HashableValue).collect(),
            });
        }
        Ok(())
    }

    /// Judges everything that was noted, and lets children follow.
    pub(super) async fn finish(&mut self) -> Result<()> {
        for gone in std::mem::take(&mut self.gone) {
            self.runtime.pace().await?;
            self.follow(gone).await?;
        }
        let wanted: Vec<Wanted> = std::mem::take(&mut self.wanted).into_iter().collect();
        if !wanted.is_empty() {
            self.find_parents(wanted).await?;
        }
        Ok(())
    }

    async fn find_parents(&self, wanted: Vec<Wanted>) -> Result<()> {
        let catalog = Arc::clone(&self.runtime.context.lock().catalog);
        let statement = Arc::clone(&self.runtime.statement);
        for (number, foreign_key) in self.table.foreign_keys.iter().enumerate() {
            let mine: Vec<&Wanted> = wanted.iter().filter(|wanted| wanted.foreign_key == number).collect();
            if mine.is_empty() {
                continue;
            }
            let parent = parent_of(&catalog, foreign_key)?;
            let index = parent_index(&parent, foreign_key)?.id;
            let index = (Some(index) != parent.primary_key).then_some(index);
            let keys: Vec<UniqueKey> = mine
                .iter()
                .map(|at| UniqueKey { partition: at.partition.clone(), index, key: at.key.clone() })
                .collect();
            let mut parents = Unique::new(&parent, &self.runtime);
            parents.look_up(&keys, LockMode::KeyShare).await?;
            for (key, wanted) in keys.iter().zip(mine) {
                let Some(holder) = parents.holder(key)? else {
                    let columns: Vec<_> =
                        foreign_key.columns.iter().map(|number| self.table.column(*number)).collect();
                    let values: Vec<Value> = wanted.values.iter().map(|value| value.0.clone()).collect();
                    let context = self.runtime.context.lock();
                    return Err(no_parent(
                        Viewer::of(&context),
                        &self.table,
                        &foreign_key.name,
                        &columns,
                        &values,
                        &parent,
                    ));
                };
                let Base::Revision(revision) = holder.base else { continue };
                if holder.of_statement {
                    continue;
                }
                let (table, row_key) = (parent.id, holder.stored.key);
                if statement.locks_rows() {
                    if index.is_some() {
                        let lock = (Lockable::Row(table, row_key), LockMode::KeyShare);
                        statement.lock(&key.partition, vec![lock], None).await?;
                    }
                } else if index.is_none() {
                    statement.require(&key.partition, Condition::RowExists { table, key: row_key })?;
                } else {
                    statement
                        .require(&key.partition, Condition::RowRevision { table, key: row_key, revision })?;
                }
            }
        }
        Ok(())
    }

    /// What becomes of the children of a key that is no more.
    async fn follow(&self, gone: Gone) -> Result<()> {
        let (child, foreign_key) = &self.incoming[gone.incoming];
        // Another row may have taken the key in the same statement.
        if self.is_back(&gone, foreign_key).await? {
            return Ok(());
        }
        let action = if gone.new.is_some() { foreign_key.on_update } else { foreign_key.on_delete };
        let children = self.children(child, foreign_key, &gone).await?;
        if children.is_empty() {
            return Ok(());
        }
        let replace = match (action, &gone.new) {
            (Referential::NoAction, _) => {
                let columns: Vec<_> =
                    foreign_key.parent_columns.iter().map(|number| self.table.column(*number)).collect();
                let context = self.runtime.context.lock();
                let viewer = Viewer::of(&context);
                return Err(still_referenced(
                    viewer,
                    &self.table,
                    &foreign_key.name,
                    &columns,
                    &gone.old,
                    child,
                ));
            }
            (Referential::Cascade, None) => return self.remove(child, &gone.partition, children).await,
            (Referential::Cascade, Some(new)) => new.clone(),
            (Referential::SetNull, _) => vec![Value::Null; foreign_key.columns.len()],
            (Referential::SetDefault, _) => self.defaults(child, foreign_key).await?,
        };
        self.change(child, foreign_key, &gone.partition, children, &replace).await
    }

    async fn is_back(&self, gone: &Gone, foreign_key: &ForeignKey) -> Result<bool> {
        let index = parent_index(&self.table, foreign_key)?;
        let key = index_key(index, &foreign_key.parent_columns, &gone.old)?;
        let index = (Some(index.id) != self.table.primary_key).then_some(index.id);
        let key = UniqueKey { partition: gone.partition.clone(), index, key };
        // Only what this transaction wrote can have brought it back; nothing stored is looked up here.
        Ok(Unique::new(&self.table, &self.runtime).holder(&key)?.is_some_and(|holder| holder.of_statement))
    }

    async fn defaults(&self, child: &Arc<Table>, foreign_key: &ForeignKey) -> Result<Vec<Value>> {
        let mut values = Vec::with_capacity(foreign_key.columns.len());
        for column in &foreign_key.columns {
            values.push(match self.runtime.rules.default(child, *column)? {
                None => Value::Null,
                Some(expr) => crate::execute::evaluate_patiently(&self.runtime, &expr, &[]).await?,
            });
        }
        Ok(values)
    }

    /// The rows that refer to a key, locked in an explicit transaction.
    async fn children(
        &self,
        child: &Arc<Table>,
        foreign_key: &ForeignKey,
        gone: &Gone,
    ) -> Result<Vec<Child>> {
        let statement = &self.runtime.statement;
        let partition = &gone.partition;
        let refers = |values: &[Value]| {
            pick(values, &foreign_key.columns)
                .iter()
                .zip(&gone.old)
                .all(|(value, old)| !value.is_null() && value.eq_sql(old))
        };
        let mut children = Vec::new();
        for (key, row) in self.written(child, partition) {
            let Some(row) = row else { continue };
            let values = whole_row(child, &row)?;
            if refers(&values) {
                let base = statement
                    .overlay
                    .find_entry(partition, child.id, &key)
                    .map_or(Base::Absent, |entry| entry.base);
                children.push(Child { stored: Stored { key, row }, base, values });
            }
        }
        let written: HashSet<Bytes> =
            self.written(child, partition).into_iter().map(|(key, _)| key).collect();
        let mut stored_any = false;
        let point = statement.read_point(partition).await?;
        let (index, range) = child_range(child, foreign_key, &gone.old)?;
        let mut from = range.from.clone();
        loop {
            self.runtime.pace().await?;
            let page = statement
                .dispatch
                .scan(read::Scan {
                    partition: partition.clone(),
                    table: child.id,
                    index: index.filter(|index| Some(*index) != child.primary_key),
                    from,
                    to: range.to.clone(),
                    reverse: false,
                    rows_max: PAGE_ROWS,
                    bytes_max: PAGE_BYTES,
                    at: At::Point(point.clone()),
                })
                .await?;
            for stored in page.rows.iter() {
                stored_any = true;
                if written.contains(&stored.key) {
                    continue;
                }
                let values = whole_row(child, &stored.row)?;
                if refers(&values) {
                    let base = Base::Revision(revision_of(&stored.row)?);
                    children.push(Child { stored, base, values });
                }
            }
            match page.next {
                Some(next) => from = next,
                None => break,
            }
        }
        if statement.locks_rows() {
            return self.lock_children(child, partition, children, &refers).await;
        }
        let condition = match (index, stored_any, range.to) {
            (Some(index), false, Some(to)) => Condition::RangeEmpty {
                table: child.id,
                index: (Some(index) != child.primary_key).then_some(index),
                from: range.from,
                to,
            },
            _ => Condition::TableUntouched { table: child.id, since: point.revision },
        };
        statement.require(partition, condition)?;
        Ok(children)
    }

    async fn lock_children(
        &self,
        child: &Table,
        partition: &PartitionId,
        children: Vec<Child>,
        refers: &(dyn Fn(&[Value]) -> bool + Sync),
    ) -> Result<Vec<Child>> {
        let statement = &self.runtime.statement;
        if children.is_empty() {
            return Ok(children);
        }
        let locks = children
            .iter()
            .map(|at| (Lockable::Row(child.id, at.stored.key.clone()), LockMode::Update))
            .collect();
        let answers = statement.lock(partition, locks, None).await?;
        let mut kept = Vec::with_capacity(children.len());
        for (mut at, answer) in children.into_iter().zip(answers) {
            let Base::Revision(read) = at.base else {
                kept.push(at);
                continue;
            };
            let Locked::Held { row: Some(now), .. } = answer else { continue };
            let revision = revision_of(&now.row)?;
            if revision != read {
                if statement.state.isolation != Isolation::ReadCommitted {
                    return Err(concurrent_update());
                }
                at.values = whole_row(child, &now.row)?;
                at.stored = now;
                at.base = Base::Revision(revision);
                if !refers(&at.values) {
                    continue;
                }
            }
            kept.push(at);
        }
        Ok(kept)
    }

    /// The rows of a child that the transaction and the statement have written, as they are now.
    fn written(&self, child: &Table, partition: &PartitionId) -> Vec<(Bytes, Option<Bytes>)> {
        let statement = &self.runtime.statement;
        let mut rows: std::collections::BTreeMap<Bytes, Option<Bytes>> = statement
            .overlay
            .table(partition, child.id)
            .into_iter()
            .flatten()
            .map(|(key, entry)| (key.clone(), entry.row.clone()))
            .collect();
        statement.with_writes(|writes| {
            for (key, entry) in writes.table(partition, child.id).into_iter().flatten() {
                rows.insert(key.clone(), entry.row.clone());
            }
        });
        rows.into_iter().collect()
    }

    /// Children go with their parent, and their own children as those say.
    fn remove<'a>(
        &'a self,
        child: &'a Arc<Table>,
        partition: &'a PartitionId,
        rows: Vec<Child>,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let mut foreign = Foreign::new(child, &self.runtime);
            let types = child.column_types();
            for row in rows {
                self.runtime.statement.write(partition, child.id, row.stored.key, row.base, None)?;
                foreign.note_removed(partition, &Batch::from_rows(&types, &[row.values]), 0)?;
            }
            foreign.finish().await
        })
    }

    /// Children get other values in their foreign key.
    fn change<'a>(
        &'a self,
        child: &'a Arc<Table>,
        foreign_key: &'a ForeignKey,
        partition: &'a PartitionId,
        rows: Vec<Child>,
        replace: &'a [Value],
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let rules = self.runtime.rules.rules(child)?;
            let mut writer = RowWriter::new(child, &rules, &self.runtime);
            let mut unique = Unique::new(child, &self.runtime);
            let mut foreign = Foreign::new(child, &self.runtime);
            let types = child.column_types();
            let before: Vec<Vec<Value>> = rows.iter().map(|row| row.values.clone()).collect();
            let mut after = before.clone();
            for row in &mut after {
                for (column, value) in foreign_key.columns.iter().zip(replace) {
                    row[usize::from(column.0) - 1] = value.clone();
                }
            }
            let changes: Vec<Change> = rows
                .into_iter()
                .map(|row| Change { partition: partition.clone(), stored: row.stored, base: row.base })
                .collect();
            let (before, after) = (Batch::from_rows(&types, &before), Batch::from_rows(&types, &after));
            apply_changes(&self.runtime, &mut writer, &mut unique, &mut foreign, &changes, &before, after)
                .await?;
            foreign.finish().await
        })
    }
}

fn pick(values: &[Value], columns: &[ColumnNumber]) -> Vec<Value> {
    columns.iter().map(|number| values[usize::from(number.0) - 1].clone()).collect()
}

fn parent_of(catalog: &model::catalog::Catalog, foreign_key: &ForeignKey) -> Result<Arc<Table>> {
    let parent = catalog.table(foreign_key.parent).cloned();
    parent
        .ok_or_else(|| Error::internal(format!("the parent of foreign key \"{}\" is gone", foreign_key.name)))
}

/// The unique index over exactly the referred columns, if need be one that the transaction itself adds.
fn parent_index<'a>(parent: &'a Table, foreign_key: &ForeignKey) -> Result<&'a Index> {
    let fits = |index: &&Index| {
        index.unique
            && index.predicate.is_none()
            && index.parts.len() == foreign_key.parent_columns.len()
            && index.parts.iter().all(|part| foreign_key.parent_columns.contains(&part.column))
    };
    let find =
        |is_there: fn(&Index) -> bool| parent.indexes.iter().filter(fits).find(|index| is_there(index));
    let found = parent.key().filter(fits).or_else(|| find(|index| index.state == IndexState::Ready));
    found.or_else(|| find(is_own_key)).ok_or_else(|| {
        Error::internal(format!("foreign key \"{}\" refers to no unique index", foreign_key.name))
    })
}

/// The bytes of an index key from values given per column.
fn index_key(index: &Index, columns: &[ColumnNumber], values: &[Value]) -> Result<Bytes> {
    let mut bytes = Vec::new();
    for part in &index.parts {
        let Some(place) = columns.iter().position(|column| *column == part.column) else { break };
        key::encode_part(&mut bytes, &values[place], part.order)
            .map_err(|fault| Error::internal(fault.to_string()))?;
    }
    Ok(bytes.into())
}

/// Where the children of a key lie: an index that begins with the foreign key's columns, else the whole table.
fn child_range(
    child: &Table,
    foreign_key: &ForeignKey,
    values: &[Value],
) -> Result<(Option<IndexId>, KeyBytes)> {
    let count = foreign_key.columns.len();
    let fits = |index: &&Index| {
        index.state == IndexState::Ready
            && index.predicate.is_none()
            && index.parts.len() >= count
            && index.parts[..count].iter().all(|part| foreign_key.columns.contains(&part.column))
    };
    match child.indexes.iter().find(fits) {
        None => Ok((None, KeyBytes::all())),
        Some(index) => {
            let key = index_key(index, &foreign_key.columns, values)?;
            Ok((Some(index.id), KeyBytes::of_prefix(key.to_vec())))
        }
    }
}
