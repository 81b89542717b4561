//! The collector: takes away what nobody sees any more — rows of a truncated storage, of a dropped table or index.
//!
//! Ids and generations are never used again, so each node does it in its own time, without the log; hashes leave out what waits
//! for it. Where there is much, the engine's files that hold nothing else go first, as they are; the rest goes page by page.

use std::{ops::Bound, sync::atomic::Ordering};

use bytes::Bytes;
use model::id::{IndexId, PartitionId, Revision, TableId};

use super::Shard;
use crate::{
    engine::{Batch, Snapshot},
    error::{Error, Result},
    keyspace::{self, dead, family, meta, region},
};

/// How many keys one call takes away at most, so that the batch stays small.
const KEYS_MAX: usize = 2_000;

/// What a record of something dead says.
enum Dead {
    Storage(PartitionId, TableId, Revision),
    Table(TableId),
    Index(TableId, IndexId),
}

/// What one call takes away.
struct Page {
    snapshot: Snapshot,
    /// Only keys behind this one are looked at: the engine passes over what was taken away before key by key.
    from: Bytes,
    keys: Vec<Bytes>,
    /// The last of them that is not a record.
    last: Bytes,
}

impl Shard {
    /// Whether there may be something to collect that was not there when this was asked before.
    pub fn take_buried(&self) -> bool {
        self.0.buried.swap(false, Ordering::AcqRel)
    }

    /// Takes away up to 2,000 keys that nobody sees any more; answers how many. 0 means that there is nothing left to do.
    pub fn collect(&self) -> Result<usize> {
        let mut passed = self.0.collected.lock();
        let snapshot = self.0.engine.snapshot();
        let Some(first) = snapshot.prefix(&self.0.keyspace, &[region::META, meta::DEAD]).next() else {
            return Ok(0);
        };
        let (record, _) = first?.into_bytes();
        let dead = parse(&record).ok_or_else(|| Error::damaged("a record for the collector"))?;
        let from = std::mem::take(&mut *passed);
        let is_first = from.is_empty();
        let (mut page, mut done) = self.page(&dead, snapshot, from)?;
        if is_first && !done {
            for prefix in self.prefixes(&dead, &page.snapshot)? {
                self.0.engine.drop_files(&self.0.keyspace, &prefix)?;
            }
            (page, done) = self.page(&dead, self.0.engine.snapshot(), Bytes::new())?;
        }
        // A pass that began behind what was taken away before is followed by one from the start, which ends it.
        let is_whole = page.from.is_empty();
        if done && is_whole {
            page.keys.push(record);
        }
        let mut batch = Batch::with_capacity(page.keys.len());
        let count = page.keys.len();
        for key in page.keys {
            batch.delete(&self.0.keyspace, key);
        }
        self.0.engine.commit(batch)?;
        if !done {
            *passed = page.last;
        }
        Ok(count + usize::from(done && !is_whole))
    }

    /// The next keys of something dead, and whether they are the last.
    fn page(&self, dead: &Dead, snapshot: Snapshot, from: Bytes) -> Result<(Page, bool)> {
        let mut page = Page { snapshot, from, keys: Vec::new(), last: Bytes::new() };
        let done = match dead {
            Dead::Storage(partition, table, generation) => {
                self.storage_keys(&mut page, partition, *table, Some(*generation))?
            }
            Dead::Table(table) => self.table_keys(&mut page, *table)?,
            Dead::Index(table, index) => self.index_keys(&mut page, *table, *index)?,
        };
        Ok((page, done))
    }

    /// What all keys of something dead begin with, but for its records.
    fn prefixes(&self, dead: &Dead, snapshot: &Snapshot) -> Result<Vec<Vec<u8>>> {
        let mut all = Vec::new();
        match dead {
            Dead::Storage(partition, table, generation) => {
                all.extend(storage_prefixes(partition, *table, Some(*generation)));
            }
            Dead::Table(table) => {
                for (partition, _) in self.listed(snapshot, *table)? {
                    all.extend(storage_prefixes(&partition, *table, None));
                }
            }
            Dead::Index(table, index) => {
                for (partition, _) in self.listed(snapshot, *table)? {
                    all.extend(self.index_prefixes(&partition, *table, *index, snapshot)?);
                }
            }
        }
        Ok(all)
    }

    fn index_prefixes(
        &self,
        partition: &PartitionId,
        table: TableId,
        index: IndexId,
        snapshot: &Snapshot,
    ) -> Result<[Vec<u8>; 2]> {
        let generation = self.storage_generation(partition, table, snapshot)?;
        Ok([false, true].map(|unique| keyspace::index_prefix(partition, table, generation, index, unique)))
    }

    /// Adds keys with a prefix until there are enough; answers whether those were all.
    fn take(&self, page: &mut Page, prefix: &[u8]) -> Result<bool> {
        let end = model::read::after_prefix(prefix);
        if end.as_deref().is_some_and(|end| page.from.as_ref() >= end) {
            return Ok(true);
        }
        let from = if page.from.as_ref() > prefix {
            Bound::Excluded(page.from.as_ref())
        } else {
            Bound::Included(prefix)
        };
        let end = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        for pair in page.snapshot.range(&self.0.keyspace, from, end) {
            if page.keys.len() >= KEYS_MAX {
                return Ok(false);
            }
            page.last = Bytes::copy_from_slice(pair?.key());
            page.keys.push(page.last.clone());
        }
        Ok(true)
    }

    /// Keys of one generation of a table's storage in a partition, or of all of them.
    fn storage_keys(
        &self,
        page: &mut Page,
        partition: &PartitionId,
        table: TableId,
        generation: Option<Revision>,
    ) -> Result<bool> {
        for prefix in storage_prefixes(partition, table, generation) {
            if !self.take(page, &prefix)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn table_keys(&self, page: &mut Page, table: TableId) -> Result<bool> {
        for (partition, listed) in self.listed(&page.snapshot, table)? {
            if !self.storage_keys(page, &partition, table, None)? {
                return Ok(false);
            }
            page.keys.push(keyspace::storage_key(&partition, table).into());
            page.keys.push(keyspace::counter_key(&partition, table).into());
            // Last, so that a page that was cut short finds the partition again.
            page.keys.push(listed);
            if page.keys.len() >= KEYS_MAX {
                return Ok(false);
            }
        }
        page.keys.push(Bytes::copy_from_slice(&keyspace::meta_number_key(meta::SWITCHED, table.0)));
        Ok(true)
    }

    fn index_keys(&self, page: &mut Page, table: TableId, index: IndexId) -> Result<bool> {
        for (partition, _) in self.listed(&page.snapshot, table)? {
            for prefix in self.index_prefixes(&partition, table, index, &page.snapshot)? {
                if !self.take(page, &prefix)? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// The partitions on a table's list, with the keys of the list.
    fn listed(&self, snapshot: &Snapshot, table: TableId) -> Result<Vec<(PartitionId, Bytes)>> {
        let prefix = keyspace::partitions_prefix(table);
        let mut found = Vec::new();
        for pair in snapshot.prefix(&self.0.keyspace, &prefix) {
            let (key, _) = pair?.into_bytes();
            let partition = keyspace::split_partition(&key[prefix.len()..])
                .and_then(|(_, canonical, _)| PartitionId::parse(canonical).ok());
            let partition = partition.ok_or_else(|| Error::damaged("a record of a table's partitions"))?;
            found.push((partition, key));
        }
        Ok(found)
    }
}

/// What the keys of one generation of a table's storage begin with, or those of all generations.
fn storage_prefixes(partition: &PartitionId, table: TableId, generation: Option<Revision>) -> [Vec<u8>; 3] {
    [family::ROW, family::INDEX, family::UNIQUE].map(|family| match generation {
        Some(generation) => keyspace::index_family_prefix(partition, table, generation, family),
        None => {
            let mut prefix = keyspace::family_prefix(partition, family);
            prefix.extend_from_slice(&table.0.to_be_bytes());
            prefix
        }
    })
}

fn parse(record: &[u8]) -> Option<Dead> {
    let (kind, rest) = record.get(2..)?.split_first()?;
    let number = |at: usize| rest.get(at..)?.first_chunk::<4>().map(|bytes| u32::from_be_bytes(*bytes));
    match *kind {
        dead::STORAGE => {
            let (_, canonical, rest) = keyspace::split_partition(rest)?;
            let (table, generation, _) = keyspace::split_storage(rest)?;
            Some(Dead::Storage(PartitionId::parse(canonical).ok()?, table, generation))
        }
        dead::TABLE => Some(Dead::Table(TableId(number(0)?))),
        dead::INDEX => Some(Dead::Index(TableId(number(0)?), IndexId(number(4)?))),
        _ => None,
    }
}
