//! Reads: one moment of a shard, asked by key, by range, by count.
//!
//! A get builds one key and asks the engine once; a table that was never truncated costs no look-up of its storage. A scan
//! puts the rows of a page into one allocation.

use std::ops::Bound;

use bytes::Bytes;
use model::{
    id::{CommandId, IndexId, NodeId, PartitionId, Revision, RoleId, SequenceId, TableId},
    read::{Page, RowsBuilder, Scan, Stored, after_prefix},
};

use super::{Shard, switched::Found};
use crate::{
    codec::state::{Counters, FeedRecord, Head, Named, PartitionState, SequenceState, Slot},
    engine,
    error::{Error, Result},
    keyspace::{self, family, meta},
};

/// Pages of so many rows and more are read by a sweep.
const SWEEP_ROWS_MIN: usize = 512;
/// For how many rows a page has room from the start, at most.
const PAGE_ROWS_AT_FIRST: usize = 4_096;
/// And for how many bytes a row.
const ROW_BYTES_AT_FIRST: usize = 160;

/// One moment of a shard's state. Holding it keeps old versions of rows alive.
#[derive(Clone)]
pub struct Snapshot {
    shard: Shard,
    engine: engine::Snapshot,
    /// Switches of storage up to this number are seen.
    settled: u64,
}

/// A page of a partition's feed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FeedPage {
    /// Records up to this revision were trimmed; a reader from before it must read its tables again.
    pub floor: Revision,
    /// The newest record of the feed.
    pub last: Revision,
    /// The records in order.
    pub records: Vec<(Revision, FeedRecord)>,
}

impl Snapshot {
    pub(super) fn new(shard: Shard, engine: engine::Snapshot, settled: u64) -> Self {
        Self { shard, engine, settled }
    }

    /// The shard it is of.
    pub fn shard(&self) -> &Shard {
        &self.shard
    }

    pub(super) fn engine(&self) -> &engine::Snapshot {
        &self.engine
    }

    fn read(&self, key: &[u8]) -> Result<Option<Bytes>> {
        self.engine.get(&self.shard.0.keyspace, key)
    }

    /// Revision, clocks and claim at this moment.
    pub fn head(&self) -> Result<Head> {
        match self.read(&keyspace::meta_key(meta::HEAD))? {
            Some(bytes) => Ok(Head::decode(&bytes)?),
            None => Ok(Head::default()),
        }
    }

    /// The newest revision it sees.
    pub fn revision(&self) -> Result<Revision> {
        let Some(sequence) = self.engine.sequence() else { return Ok(self.head()?.revision) };
        if let Some((known, revision)) = *self.shard.0.seen.lock()
            && known == sequence
        {
            return Ok(revision);
        }
        let revision = self.head()?.revision;
        *self.shard.0.seen.lock() = Some((sequence, revision));
        Ok(revision)
    }

    /// The generation of a table's storage in a partition.
    pub fn storage_generation(&self, partition: &PartitionId, table: TableId) -> Result<Revision> {
        let switched = &self.shard.0.switched;
        match switched.find(partition, table, self.settled) {
            Found::Known(generation) => Ok(generation),
            Found::Unknown => {
                let generation = self.shard.storage_generation(partition, table, &self.engine)?;
                switched.learn(partition, table, generation, self.settled);
                Ok(generation)
            }
        }
    }

    /// One row by key.
    pub fn get(&self, partition: &PartitionId, table: TableId, key: &[u8]) -> Result<Option<Bytes>> {
        let generation = self.storage_generation(partition, table)?;
        self.read(&keyspace::row_key(partition, table, generation, key))
    }

    /// Rows by key, or by keys of a unique index; one place per key.
    pub fn get_many(
        &self,
        partition: &PartitionId,
        table: TableId,
        index: Option<IndexId>,
        keys: &[Bytes],
    ) -> Result<Vec<Option<Stored>>> {
        let generation = self.storage_generation(partition, table)?;
        let mut row = keyspace::rows_prefix(partition, table, generation);
        let rows_prefix = row.len();
        let mut entry = match self.path(table, index)? {
            Path::Rows => None,
            Path::Nowhere => return Ok(vec![None; keys.len()]),
            Path::Index { id, unique } => {
                Some(keyspace::index_prefix(partition, table, generation, id, unique))
            }
        };
        let entry_prefix = entry.as_ref().map_or(0, Vec::len);
        let mut found = Vec::with_capacity(keys.len());
        for key in keys {
            let row_key = match &mut entry {
                None => Some(key.clone()),
                Some(entry) => {
                    entry.truncate(entry_prefix);
                    entry.extend_from_slice(key);
                    match self.read(entry)? {
                        Some(value) => Some(row_key_of(key, &value)?),
                        None => None,
                    }
                }
            };
            found.push(match row_key {
                None => None,
                Some(row_key) => {
                    row.truncate(rows_prefix);
                    row.extend_from_slice(&row_key);
                    self.read(&row)?.map(|row| Stored { key: row_key, row })
                }
            });
        }
        Ok(found)
    }

    /// One page of a range of rows, in the order of their keys or of an index. `scan.at` is not looked at.
    pub fn scan(&self, scan: &Scan) -> Result<Page> {
        let generation = self.storage_generation(&scan.partition, scan.table)?;
        match self.path(scan.table, scan.index)? {
            Path::Nowhere => Ok(Page::default()),
            Path::Rows => {
                let prefix = keyspace::rows_prefix(&scan.partition, scan.table, generation);
                self.scan_rows(scan, &prefix)
            }
            Path::Index { id, unique } => {
                let prefix = keyspace::index_prefix(&scan.partition, scan.table, generation, id, unique);
                let rows = keyspace::rows_prefix(&scan.partition, scan.table, generation);
                self.scan_index(scan, &prefix, rows)
            }
        }
    }

    /// What to go by for an index.
    fn path(&self, table: TableId, index: Option<IndexId>) -> Result<Path> {
        let Some(id) = index else { return Ok(Path::Rows) };
        // A table that was never written here is not held here.
        let Some(compiled) = self.shard.held(table) else { return Ok(Path::Nowhere) };
        if compiled.is_primary(id) {
            return Ok(Path::Rows);
        }
        match compiled.find_index(id) {
            Some(index) => Ok(Path::Index { id, unique: index.unique }),
            None => Err(Error::IndexMissing { table, index: id }),
        }
    }

    fn pass(&self, scan: &Scan, prefix: &[u8]) -> Pass {
        let from = [prefix, &scan.from].concat();
        let iter = match (&scan.to, after_prefix(prefix)) {
            (Some(to), _) => {
                let to = [prefix, to].concat();
                self.engine.range(&self.shard.0.keyspace, Bound::Included(&from), Bound::Excluded(&to))
            }
            (None, Some(to)) => {
                self.engine.range(&self.shard.0.keyspace, Bound::Included(&from), Bound::Excluded(&to))
            }
            (None, None) => {
                self.engine.range(&self.shard.0.keyspace, Bound::Included(&from), Bound::Unbounded)
            }
        };
        Pass { iter, reverse: scan.reverse }
    }

    fn scan_rows(&self, scan: &Scan, prefix: &[u8]) -> Result<Page> {
        let mut page = PageBuilder::new(scan);
        if !scan.reverse && scan.rows_max >= SWEEP_ROWS_MIN {
            let from = [prefix, &scan.from].concat();
            let to = match &scan.to {
                Some(to) => Some([prefix, to].concat()),
                None => after_prefix(prefix).map(Vec::from),
            };
            let take = |key: &[u8], row: &[u8]| {
                let goes_on = !page.is_full();
                if goes_on {
                    page.push(key.get(prefix.len()..).unwrap_or_default(), row);
                }
                goes_on
            };
            let ended = self.engine.sweep(&self.shard.0.keyspace, &from, to.as_deref(), take)?;
            let next = if ended { None } else { page.rows.last_key().map(|key| scan.next_after(key)) };
            return Ok(page.finish(next));
        }
        let mut pass = self.pass(scan, prefix);
        while !page.is_full() {
            let Some(pair) = pass.next() else {
                return Ok(page.finish(None));
            };
            let pair = pair?;
            page.push(pair.key().get(prefix.len()..).unwrap_or_default(), pair.value());
        }
        let next = match pass.next().transpose()? {
            Some(_) => page.rows.last_key().map(|key| scan.next_after(key)),
            None => None,
        };
        Ok(page.finish(next))
    }

    fn scan_index(&self, scan: &Scan, prefix: &[u8], mut row: Vec<u8>) -> Result<Page> {
        let rows_prefix = row.len();
        let mut pass = self.pass(scan, prefix);
        let mut page = PageBuilder::new(scan);
        let mut last: Option<engine::Pair> = None;
        while !page.is_full() {
            let Some(pair) = pass.next() else {
                return Ok(page.finish(None));
            };
            let pair = pair?;
            let entry = &pair.key()[prefix.len()..];
            row.truncate(rows_prefix);
            row.extend_from_slice(split_index_value(entry, pair.value())?);
            let Some(value) = self.read(&row)? else {
                return Err(Error::damaged(format!("an entry of index {:?} has no row", scan.index)));
            };
            page.push(&row[rows_prefix..], &value);
            last = Some(pair);
        }
        let next = match (pass.next().transpose()?, last) {
            (Some(_), Some(last)) => Some(scan.next_after(&last.key()[prefix.len()..])),
            (Some(_), None) | (None, _) => None,
        };
        Ok(page.finish(next))
    }

    /// Rows, bytes and last write of a table in a partition.
    pub fn counters(&self, partition: &PartitionId, table: TableId) -> Result<Counters> {
        match self.read(&keyspace::counter_key(partition, table))? {
            Some(bytes) => Ok(Counters::decode(&bytes)?),
            None => Ok(Counters::default()),
        }
    }

    /// How many rows a table has in a partition.
    pub fn count(&self, partition: &PartitionId, table: TableId) -> Result<u64> {
        Ok(self.counters(partition, table)?.rows)
    }

    /// The partitions in which a table has, or had, rows.
    pub fn partitions(&self, table: TableId) -> Result<Vec<PartitionId>> {
        let prefix = keyspace::partitions_prefix(table);
        let mut found = Vec::new();
        for pair in self.engine.prefix(&self.shard.0.keyspace, &prefix) {
            let pair = pair?;
            let partition = keyspace::split_partition(&pair.key()[prefix.len()..])
                .and_then(|(_, canonical, _)| PartitionId::parse(canonical).ok());
            found.push(partition.ok_or_else(|| Error::damaged("a record of a table's partitions"))?);
        }
        Ok(found)
    }

    /// What is remembered of a named command.
    pub fn receipt(
        &self,
        principal: RoleId,
        partition: &PartitionId,
        id: CommandId,
    ) -> Result<Option<Named>> {
        match self.read(&keyspace::receipt_key(partition, principal, id))? {
            Some(bytes) => Ok(Some(Named::decode(&bytes)?)),
            None => Ok(None),
        }
    }

    /// The last use of a gateway's slot.
    pub fn slot(&self, node: NodeId, slot: u16) -> Result<Option<Slot>> {
        match self.read(&keyspace::slot_key(node, slot))? {
            Some(bytes) => Ok(Some(Slot::decode(&bytes)?)),
            None => Ok(None),
        }
    }

    /// Where a sequence stands; none if it was never used here.
    pub fn sequence(&self, partition: &PartitionId, sequence: SequenceId) -> Result<Option<SequenceState>> {
        match self.read(&keyspace::sequence_key(partition, sequence))? {
            Some(bytes) => Ok(Some(SequenceState::decode(&bytes)?)),
            None => Ok(None),
        }
    }

    /// What a partition keeps of itself.
    pub fn partition_state(&self, partition: &PartitionId) -> Result<PartitionState> {
        match self.read(&keyspace::counter_key(partition, keyspace::PARTITION_ITSELF))? {
            Some(bytes) => Ok(PartitionState::decode(&bytes)?),
            None => Ok(PartitionState::default()),
        }
    }

    /// Up to `records_max` records of a partition's feed after a revision.
    pub fn feed(&self, partition: &PartitionId, after: Revision, records_max: usize) -> Result<FeedPage> {
        let state = self.partition_state(partition)?;
        let mut page = FeedPage { floor: state.feed_floor, last: state.feed_last, records: Vec::new() };
        let start = Revision(after.max(state.feed_floor).0.saturating_add(1));
        let from = keyspace::feed_key(partition, start);
        let end = after_prefix(&keyspace::family_prefix(partition, family::FEED));
        let to = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let range = self.engine.range(&self.shard.0.keyspace, Bound::Included(&from), to);
        for pair in range.take(records_max) {
            let (key, value) = pair?.into_bytes();
            let revision = key.last_chunk::<8>().map(|bytes| Revision(u64::from_be_bytes(*bytes)));
            let revision = revision.ok_or_else(|| Error::damaged("a key of a feed"))?;
            page.records.push((revision, FeedRecord::decode(&value)?));
        }
        Ok(page)
    }

    /// Up to `keys_max` keys of due work of a kind ([`keyspace::due`]), due from `from` to `until` inclusive.
    pub fn due(&self, kind: u8, from: u64, until: u64, keys_max: usize) -> Result<Vec<Bytes>> {
        let start = keyspace::due_bound(kind, from);
        let end = match until.checked_add(1) {
            Some(end) => Bytes::copy_from_slice(&keyspace::due_bound(kind, end)),
            None => after_prefix(&start[..2]).expect("no kind is 255"),
        };
        let range = self.engine.range(&self.shard.0.keyspace, Bound::Included(&start), Bound::Excluded(&end));
        range.take(keys_max).map(|pair| Ok(pair?.into_bytes().0)).collect()
    }

    /// Up to `limit` (key, revision) pairs of a range on an access path, in order: what a digest is made of.
    pub fn range_revisions(
        &self,
        partition: &PartitionId,
        table: TableId,
        index: Option<IndexId>,
        from: &Bytes,
        to: &Bytes,
        limit: usize,
    ) -> Result<Vec<(Bytes, Revision)>> {
        let scan = Scan {
            partition: partition.clone(),
            table,
            index,
            from: from.clone(),
            to: Some(to.clone()),
            reverse: false,
            rows_max: limit,
            bytes_max: usize::MAX,
            at: model::read::At::Latest,
        };
        let rows = self.scan(&scan)?.rows;
        rows.iter().map(|stored| Ok((stored.key, revision_of(&stored.row)?))).collect()
    }
}

/// The revision that wrote a row.
pub(super) fn revision_of(row: &[u8]) -> Result<Revision> {
    let view = model::row::RowView::new(row).map_err(|error| Error::damaged(format!("a row: {error}")))?;
    Ok(Revision(view.revision()))
}

/// The row's key in the value of an index entry: behind a 0 it is the value's rest, behind a 1 and the length of the
/// index's columns it is the entry's rest.
pub(super) fn split_index_value<'a>(entry: &'a [u8], value: &'a [u8]) -> Result<&'a [u8]> {
    let key = match value.split_first() {
        Some((0, key)) => Some(key),
        Some((1, length)) => {
            let length = length.try_into().map(u32::from_le_bytes).ok();
            length.and_then(|length| entry.get(length as usize..))
        }
        Some(_) | None => None,
    };
    key.ok_or_else(|| Error::damaged("the value of an index entry"))
}

/// The same, to keep.
fn row_key_of(entry: &[u8], value: &Bytes) -> Result<Bytes> {
    match value.first() {
        Some(0) => Ok(value.slice(1..)),
        Some(_) | None => split_index_value(entry, value).map(Bytes::copy_from_slice),
    }
}

/// The value of an index entry.
pub(super) fn index_value(key: &super::table::IndexKey, row_key: &[u8]) -> Bytes {
    let mut value = Vec::with_capacity(5 + row_key.len());
    if key.exclusive {
        value.push(0);
        value.extend_from_slice(row_key);
    } else {
        value.push(1);
        value.extend_from_slice(&(key.columns_bytes as u32).to_le_bytes());
    }
    value.into()
}

/// What a read goes by.
enum Path {
    /// The rows themselves.
    Rows,
    /// The entries of an index.
    Index { id: IndexId, unique: bool },
    /// The table has no rows here.
    Nowhere,
}

struct Pass {
    iter: engine::Iter,
    reverse: bool,
}

impl Pass {
    fn next(&mut self) -> Option<Result<engine::Pair>> {
        if self.reverse { self.iter.next_back() } else { self.iter.next() }
    }
}

trait NextAfter {
    /// Where a scan goes on behind a key: the `from` of a forward scan, the `to` of a reverse one.
    fn next_after(&self, key: &[u8]) -> Bytes;
}

impl NextAfter for Scan {
    fn next_after(&self, key: &[u8]) -> Bytes {
        let mut next = Vec::with_capacity(key.len() + 1);
        next.extend_from_slice(key);
        if !self.reverse {
            next.push(0);
        }
        next.into()
    }
}

/// A page that grows until it is full.
struct PageBuilder {
    rows: RowsBuilder,
    rows_max: usize,
    bytes_max: usize,
}

impl PageBuilder {
    fn new(scan: &Scan) -> Self {
        // A page that can hold nothing would never get anywhere.
        let rows_max = scan.rows_max.max(1);
        let (rows, bytes) = if rows_max < SWEEP_ROWS_MIN {
            (rows_max.min(64), 1 << 10)
        } else {
            let rows = rows_max.min(PAGE_ROWS_AT_FIRST);
            (rows, rows * ROW_BYTES_AT_FIRST)
        };
        let rows = RowsBuilder::with_capacity(rows, scan.bytes_max.min(bytes));
        Self { rows, rows_max, bytes_max: scan.bytes_max }
    }

    fn is_full(&self) -> bool {
        self.rows.len() >= self.rows_max || (!self.rows.is_empty() && self.rows.bytes() >= self.bytes_max)
    }

    fn push(&mut self, key: &[u8], row: &[u8]) {
        self.rows.push(key, row);
    }

    fn finish(self, next: Option<Bytes>) -> Page {
        Page { rows: self.rows.finish(), next }
    }
}
