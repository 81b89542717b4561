//! Reads: what the shard holds, now or at a read point.
//!
//! Invariants:
//! - A pass proves that this node leads as the only voter with its claim applied, and every command is answered only after
//!   its batch is visible: so the newest snapshot holds whatever was acknowledged. No call into consensus, no task, no
//!   await lies between pass and row.
//! - What may take long (a large page) is told from what does not, so that the caller can move it off its thread.

use std::sync::Arc;

use bytes::Bytes;
use model::{
    id::{IndexId, PartitionId, TableId},
    port::{LockRequest, Lockable, Locked},
    read::{At, Page, Scan, Stored},
};
use storage::shard::Snapshot;

use super::{Owner, descriptors::Found, refusal};
use crate::{Error, Result, admission::Pass};

impl Owner {
    /// The state a read sees.
    pub(crate) fn snapshot(&self, _pass: &Pass, at: &At) -> Result<Snapshot> {
        match at {
            At::Latest => Ok(self.state().snapshot()),
            At::Point(point) => self.points.find(point, self.epoch(), self.timer.now()),
        }
    }

    /// One row by key.
    pub(crate) fn get(
        &self,
        pass: &Pass,
        partition: &PartitionId,
        table: TableId,
        key: &[u8],
        at: &At,
    ) -> Result<Option<Bytes>> {
        match at {
            At::Latest => Ok(self.state().get(partition, table, key)?),
            At::Point(_) => Ok(self.snapshot(pass, at)?.get(partition, table, key)?),
        }
    }

    /// Whether a read by this index can go ahead at once.
    pub(crate) fn is_ready_for(&self, table: TableId, index: Option<IndexId>) -> bool {
        index.is_none_or(|index| self.find_index(table, index) != Found::Older)
    }

    /// Makes sure that the shard knows an index.
    pub(crate) async fn make_ready_for(&self, table: TableId) -> Result<()> {
        self.bring_to_holder(&[table], &[]).await
    }

    /// Rows by keys, or by keys of a unique index.
    pub(crate) fn get_many(
        &self,
        pass: &Pass,
        partition: &PartitionId,
        table: TableId,
        index: Option<IndexId>,
        keys: &[Bytes],
        at: &At,
    ) -> Result<Vec<Option<Stored>>> {
        if index.is_some_and(|index| self.find_index(table, index) == Found::NoRows) {
            return Ok(vec![None; keys.len()]);
        }
        Ok(self.snapshot(pass, at)?.get_many(partition, table, index, keys)?)
    }

    /// One page of a range.
    pub(crate) fn scan(&self, pass: &Pass, scan: &Scan) -> Result<Page> {
        if scan.index.is_some_and(|index| self.find_index(scan.table, index) == Found::NoRows) {
            return Ok(Page::default());
        }
        Ok(self.snapshot(pass, &scan.at)?.scan(scan)?)
    }

    /// How many rows a table has in a partition.
    pub(crate) fn count(&self, pass: &Pass, partition: &PartitionId, table: TableId, at: &At) -> Result<u64> {
        Ok(self.snapshot(pass, at)?.count(partition, table)?)
    }

    /// Takes locks into a set and reads what lies under them.
    pub(crate) async fn lock(self: &Arc<Self>, pass: &Pass, request: &LockRequest) -> Result<Vec<Locked>> {
        if request.set.epoch != self.epoch() {
            return Err(Error::LocksLost);
        }
        let waits = self.locks.take(request.set, &request.locks, request.wait).await.map_err(refusal)?;
        for (thing, _) in &request.locks {
            if let Lockable::Unique(table, index, _) = thing
                && !self.is_ready_for(*table, Some(*index))
            {
                self.make_ready_for(*table).await?;
            }
        }
        // Read after the last lock was taken: whatever is locked is as it will stay.
        let snapshot = self.snapshot(pass, &At::Latest)?;
        let things = request.locks.iter().map(|(thing, _)| thing);
        things.zip(waits).map(|(thing, waited)| self.under_lock(&snapshot, request, thing, waited)).collect()
    }

    fn under_lock(
        &self,
        snapshot: &Snapshot,
        request: &LockRequest,
        thing: &Lockable,
        waited: Option<bool>,
    ) -> Result<Locked> {
        let Some(waited) = waited else { return Ok(Locked::Skipped) };
        let partition = &request.partition;
        let row = match thing {
            Lockable::Row(table, key) => {
                let row = snapshot.get(partition, *table, key)?;
                row.map(|row| Stored { key: key.clone(), row })
            }
            Lockable::Unique(table, index, _) if self.find_index(*table, *index) == Found::NoRows => None,
            Lockable::Unique(table, index, key) => {
                let found = snapshot.get_many(partition, *table, Some(*index), std::slice::from_ref(key))?;
                found.into_iter().next().flatten()
            }
            Lockable::Table(_) => None,
        };
        Ok(Locked::Held { row, waited })
    }
}
