//! Building an index over rows that are there already, while they are being written.
//!
//! Invariants:
//! - Before the first row is looked at, every shard that holds the table keeps the index up for new writes; shards that
//!   come to hold it later do so from their first row. So the pages that are added by log entries are all that is missing.
//! - The index is `Ready` only when every page of every partition was added; a duplicate makes it `Invalid`.
//! - A build that is broken off leaves the index `Building`; building again goes over all pages once more, to the same end.

use std::sync::Arc;

use bytes::Bytes;
use model::{
    Code,
    catalog::{Catalog, Change, Expected, Object, ObjectId},
    id::{IndexId, PartitionId, TableId},
    read::At,
    schema::{IndexState, Table},
};
use storage::{codec::entry::Backfill, shard::Backfilled};

use super::Inner;
use crate::{Error, Result, owner::Owner};

/// Rows in one page: a page is applied in one go, so it bounds how long other commands wait behind it.
const PAGE_ROWS: u32 = 1_000;

/// What a build came to in one shard.
enum Built {
    /// All its rows are in the index.
    Whole,
    /// Two of its rows have the same key.
    Duplicate,
    /// The index is gone.
    Gone,
}

impl Inner {
    pub(super) async fn build_index(&self, table: TableId, index: IndexId) -> Result<Arc<Catalog>> {
        let descriptors = self.board.newest();
        let missing = || Error::NoIndex { table, index };
        let descriptor = descriptors.catalog().table(table).ok_or_else(missing)?;
        match descriptor.find_index(index).ok_or_else(missing)?.state {
            IndexState::Ready => return Ok(descriptors.catalog().clone()),
            IndexState::Invalid => return Err(missing()),
            IndexState::Building => {}
        }
        self.tell_holders(&[table], &[]).await?;
        for owner in &self.owners {
            match build_in_shard(owner, table, index).await? {
                Built::Whole => {}
                Built::Gone => return Err(missing()),
                Built::Duplicate => {
                    self.settle(table, index, IndexState::Invalid).await?;
                    let name =
                        descriptor.find_index(index).map(|index| index.name.as_str()).unwrap_or_default();
                    let message = format!("could not create unique index \"{name}\"");
                    let error = model::Error::new(Code::UniqueViolation, message);
                    return Err(Error::Refused(error.with_detail("Two rows have the same key.")));
                }
            }
        }
        self.settle(table, index, IndexState::Ready).await
    }

    /// Says in the catalog what became of a build. The table may change in other ways meanwhile.
    async fn settle(&self, table: TableId, index: IndexId, state: IndexState) -> Result<Arc<Catalog>> {
        loop {
            let descriptors = self.board.newest();
            let missing = || Error::NoIndex { table, index };
            let before = descriptors.catalog().table(table).ok_or_else(missing)?;
            let mut after: Table = before.as_ref().clone();
            let settled = after.indexes.iter_mut().find(|found| found.id == index).ok_or_else(missing)?;
            settled.state = state;
            after.version += 1;
            let change = Change {
                expect: vec![(ObjectId::Table(table), Some(Expected::TableVersion(before.version)))],
                put: vec![Object::Table(after)],
                ..Change::default()
            };
            match self.change_catalog(change).await {
                Err(Error::Refused(error)) if error.code() == Code::SerializationFailure => {}
                answer => return answer,
            }
        }
    }
}

async fn build_in_shard(owner: &Arc<Owner>, table: TableId, index: IndexId) -> Result<Built> {
    if owner.state().held(table).is_none() {
        return Ok(Built::Whole);
    }
    let pass = owner.admission().enter_shard(owner.admission().view())?;
    let partitions = owner.snapshot(&pass, &At::Latest)?.partitions(table)?;
    for partition in partitions {
        match build_in_partition(owner, &partition, table, index).await? {
            Built::Whole => {}
            other => return Ok(other),
        }
    }
    Ok(Built::Whole)
}

async fn build_in_partition(
    owner: &Owner,
    partition: &PartitionId,
    table: TableId,
    index: IndexId,
) -> Result<Built> {
    let mut from = Bytes::new();
    loop {
        let page = Backfill { partition: partition.clone(), table, index, from, limit: PAGE_ROWS };
        match owner.backfill(page).await? {
            Backfilled::Next(next) => from = next,
            Backfilled::End => return Ok(Built::Whole),
            Backfilled::Duplicate(_) => return Ok(Built::Duplicate),
            Backfilled::Gone => return Ok(Built::Gone),
        }
    }
}
