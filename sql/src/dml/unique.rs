//! Who holds a key: among what the transaction has written, and among stored rows.
//!
//! Invariants:
//! - What the transaction has written is seen before what is stored; a stored row that it has changed or removed holds
//!   only what it holds now.
//! - A key that the transaction itself adds to rows that are there has no index yet: its rows are found by a scan.
//! - In an explicit transaction every other key that is taken is locked before it is looked at. In autocommit stored rows are
//!   looked at only where the statement must know (ON CONFLICT); else the command's own checks decide.

use std::sync::Arc;

use bytes::Bytes;
use hashbrown::{HashMap, HashSet};
use model::{
    Error, Result, Value,
    id::{IndexId, PartitionId},
    key,
    port::{LockMode, Lockable, Locked},
    read::{Scan, Stored},
    schema::{Index, IndexState, Table},
};

use super::{
    NewRow,
    error::{Viewer, unique_violation},
    target::revision_of,
};
use crate::{
    execute::{Runtime, whole_row},
    txn::Base,
};

/// Bytes of a page of rows.
const PAGE_BYTES: usize = 1 << 20;
/// Rows of a page.
const PAGE_ROWS: usize = 1_024;

/// A key that only one row may have.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct UniqueKey {
    pub(super) partition: PartitionId,
    /// None for the primary key.
    pub(super) index: Option<IndexId>,
    pub(super) key: Bytes,
}

/// The row that holds a key.
#[derive(Clone, Debug)]
pub(super) struct Holder {
    pub(super) stored: Stored,
    pub(super) base: Base,
    /// This very statement wrote it.
    pub(super) of_statement: bool,
}

/// Looks keys of one table up.
pub(super) struct Unique {
    runtime: Runtime,
    table: Arc<Table>,
    indexes: Vec<Index>,
    /// What was found among stored rows.
    stored: HashMap<UniqueKey, Option<Stored>>,
    /// Rows the transaction has written that may hold a key of a secondary index.
    own: HashMap<UniqueKey, Vec<Bytes>>,
    overlay_noted: HashSet<PartitionId>,
}

impl Unique {
    pub(super) fn new(table: &Arc<Table>, runtime: &Runtime) -> Self {
        let secondary = table.indexes.iter().filter(|index| {
            // What others build is not asked: `apply` judges by it all the same.
            index.unique
                && Some(index.id) != table.primary_key
                && (index.state == IndexState::Ready || is_own_key(index))
        });
        Self {
            indexes: secondary.cloned().collect(),
            table: Arc::clone(table),
            runtime: runtime.clone(),
            stored: HashMap::new(),
            own: HashMap::new(),
            overlay_noted: HashSet::new(),
        }
    }

    /// Whether there are unique indexes besides the primary key.
    pub(super) fn has_secondary(&self) -> bool {
        !self.indexes.is_empty()
    }

    /// The keys a row has: the primary key's first. The values are not looked at without secondary indexes.
    pub(super) fn keys_of(&self, row: &NewRow, values: &[Value]) -> Result<Vec<UniqueKey>> {
        let mut keys = Vec::with_capacity(1 + self.indexes.len());
        let own = UniqueKey { partition: row.partition.clone(), index: None, key: row.key.clone() };
        keys.push(own);
        for index in &self.indexes {
            if let Some(key) = secondary_key(index, values)? {
                keys.push(UniqueKey { partition: row.partition.clone(), index: Some(index.id), key });
            }
        }
        Ok(keys)
    }

    /// Locks keys (in an explicit transaction) and reads the stored rows that hold them.
    pub(super) async fn look_up(&mut self, keys: &[UniqueKey], mode: LockMode) -> Result<()> {
        let statement = Arc::clone(&self.runtime.statement);
        let table = self.table.id;
        let mut wanted: Vec<UniqueKey> =
            keys.iter().filter(|key| !self.stored.contains_key(*key)).cloned().collect();
        wanted.sort_by(|a, b| (&a.partition, a.index, &a.key).cmp(&(&b.partition, b.index, &b.key)));
        wanted.dedup();
        let mut from = 0;
        while from < wanted.len() {
            let (partition, index) = (wanted[from].partition.clone(), wanted[from].index);
            let same = |key: &UniqueKey| key.partition == partition && key.index == index;
            let to = wanted[from..].iter().position(|key| !same(key)).map_or(wanted.len(), |n| from + n);
            let keys = wanted[from..to].iter().map(|key| key.key.clone());
            let own = index.and_then(|id| self.indexes.iter().find(|at| at.id == id && is_own_key(at)));
            let found: Vec<Option<Stored>> = if let Some(index) = own {
                self.scan_for(&partition, index, &wanted[from..to]).await?
            } else if statement.locks_rows() {
                let locks = keys.map(|key| match index {
                    None => (Lockable::Row(table, key), mode),
                    Some(index) => (Lockable::Unique(table, index, key), mode),
                });
                let answers = statement.lock(&partition, locks.collect(), None).await?;
                answers
                    .into_iter()
                    .map(|answer| match answer {
                        Locked::Held { row, .. } => row,
                        Locked::Skipped => None,
                    })
                    .collect()
            } else {
                let at = statement.at(&partition).await?;
                statement.dispatch.get_many(&partition, table, index, keys.collect(), &at).await?
            };
            for (key, found) in wanted[from..to].iter().zip(found) {
                self.stored.insert(key.clone(), found);
            }
            from = to;
        }
        Ok(())
    }

    /// The stored rows that hold keys of an index which is not there before COMMIT: the whole table is looked at. The
    /// transaction keeps other writers away from it.
    async fn scan_for(
        &self,
        partition: &PartitionId,
        index: &Index,
        wanted: &[UniqueKey],
    ) -> Result<Vec<Option<Stored>>> {
        let statement = &self.runtime.statement;
        let places: HashMap<&Bytes, usize> =
            wanted.iter().enumerate().map(|(place, key)| (&key.key, place)).collect();
        let mut found = vec![None; wanted.len()];
        let at = statement.at(partition).await?;
        let mut from = Bytes::new();
        loop {
            self.runtime.pace().await?;
            let page = statement
                .dispatch
                .scan(Scan {
                    partition: partition.clone(),
                    table: self.table.id,
                    index: None,
                    from,
                    to: None,
                    reverse: false,
                    rows_max: PAGE_ROWS,
                    bytes_max: PAGE_BYTES,
                    at: at.clone(),
                })
                .await?;
            for stored in page.rows.iter() {
                if statement.overlay.get(partition, self.table.id, &stored.key).is_some() {
                    continue;
                }
                let key = secondary_key(index, &whole_row(&self.table, &stored.row)?)?;
                if let Some(place) = key.and_then(|key| places.get(&key).copied()) {
                    found[place] = Some(stored);
                }
            }
            match page.next {
                Some(next) => from = next,
                None => return Ok(found),
            }
        }
    }

    /// The row that holds a key, as far as it was looked up.
    pub(super) fn holder(&mut self, key: &UniqueKey) -> Result<Option<Holder>> {
        match key.index {
            None => self.primary_holder(key),
            Some(index) => self.secondary_holder(key, index),
        }
    }

    fn primary_holder(&self, key: &UniqueKey) -> Result<Option<Holder>> {
        if let Some(known) = self.written(&key.partition, &key.key) {
            return Ok(known);
        }
        match self.stored.get(key) {
            Some(Some(stored)) => Ok(Some(stored_holder(stored)?)),
            Some(None) | None => Ok(None),
        }
    }

    fn secondary_holder(&mut self, key: &UniqueKey, index: IndexId) -> Result<Option<Holder>> {
        self.note_overlay(&key.partition)?;
        for row_key in self.own.get(key).cloned().unwrap_or_default() {
            // What was noted may have changed since.
            if let Some(Some(holder)) = self.written(&key.partition, &row_key)
                && self.index_key(index, &holder.stored.row)?.as_ref() == Some(&key.key)
            {
                return Ok(Some(holder));
            }
        }
        match self.stored.get(key) {
            Some(Some(stored)) if self.written(&key.partition, &stored.key).is_none() => {
                Ok(Some(stored_holder(stored)?))
            }
            _ => Ok(None),
        }
    }

    /// A row that the transaction has written: outer none if it has not, inner none if it removed it.
    fn written(&self, partition: &PartitionId, key: &Bytes) -> Option<Option<Holder>> {
        let statement = &self.runtime.statement;
        let (row, of_statement) = match statement.written(partition, self.table.id, key) {
            Some(row) => (row, true),
            None => (statement.overlay.get(partition, self.table.id, key)?.cloned(), false),
        };
        let base = statement
            .overlay
            .find_entry(partition, self.table.id, key)
            .map_or(Base::Absent, |entry| entry.base);
        Some(row.map(|row| Holder { stored: Stored { key: key.clone(), row }, base, of_statement }))
    }

    /// Notes a row that the statement has written.
    pub(super) fn note(&mut self, keys: &[UniqueKey], row_key: &Bytes) {
        for key in keys.iter().filter(|key| key.index.is_some()) {
            self.own.entry(key.clone()).or_default().push(row_key.clone());
        }
    }

    fn note_overlay(&mut self, partition: &PartitionId) -> Result<()> {
        if self.indexes.is_empty() || !self.overlay_noted.insert(partition.clone()) {
            return Ok(());
        }
        let overlay = Arc::clone(&self.runtime.statement.overlay);
        for (row_key, entry) in overlay.table(partition, self.table.id).into_iter().flatten() {
            let Some(row) = &entry.row else { continue };
            let values = whole_row(&self.table, row)?;
            for index in &self.indexes {
                if let Some(key) = secondary_key(index, &values)? {
                    let key = UniqueKey { partition: partition.clone(), index: Some(index.id), key };
                    self.own.entry(key).or_default().push(row_key.clone());
                }
            }
        }
        Ok(())
    }

    fn index_key(&self, index: IndexId, row: &[u8]) -> Result<Option<Bytes>> {
        let values = whole_row(&self.table, row)?;
        match self.indexes.iter().find(|at| at.id == index) {
            Some(index) => secondary_key(index, &values),
            None => Ok(None),
        }
    }

    /// Refuses a row whose keys another row holds (`23505`). `itself` is the key of the row it replaces.
    pub(super) fn refuse_taken(
        &mut self,
        keys: &[UniqueKey],
        values: impl Fn() -> Vec<Value>,
        itself: Option<&Bytes>,
    ) -> Result<()> {
        for key in keys {
            let Some(holder) = self.holder(key)? else { continue };
            if itself == Some(&holder.stored.key) {
                continue;
            }
            let index = key.index.or(self.table.primary_key).and_then(|id| self.table.find_index(id));
            let parts = index.map_or(&[][..], |index| &index.parts);
            let values = values();
            let taken: Vec<Value> =
                parts.iter().map(|part| values[usize::from(part.column.0) - 1].clone()).collect();
            let context = self.runtime.context.lock();
            return Err(unique_violation(Viewer::of(&context), &self.table, key.index, &taken));
        }
        Ok(())
    }
}

/// Whether an index is of a key that the transaction itself adds to rows that are there: COMMIT builds it.
pub(super) fn is_own_key(index: &Index) -> bool {
    index.state == IndexState::Building && index.constraint.is_some()
}

fn stored_holder(stored: &Stored) -> Result<Holder> {
    let base = Base::Revision(revision_of(&stored.row)?);
    Ok(Holder { stored: stored.clone(), base, of_statement: false })
}

/// The key of a row in a unique index; none if the row is not in it, or has a null that makes it differ from all others.
fn secondary_key(index: &Index, values: &[Value]) -> Result<Option<Bytes>> {
    let value = |number: model::id::ColumnNumber| &values[usize::from(number.0) - 1];
    if index.predicate.is_some_and(|column| value(column).as_bool() != Some(true)) {
        return Ok(None);
    }
    if !index.nulls_not_distinct && index.parts.iter().any(|part| value(part.column).is_null()) {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    for part in &index.parts {
        key::encode_part(&mut bytes, value(part.column), part.order)
            .map_err(|fault| Error::internal(fault.to_string()))?;
    }
    Ok(Some(bytes.into()))
}
