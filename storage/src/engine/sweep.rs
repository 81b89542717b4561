//! Sweeps: ordered passes over large ranges, block by block.
//!
//! The library's iterator makes two shared slices of every pair and sends each through a heap: 250 ns per pair. A sweep
//! walks the blocks of the tables itself and lends out what lies in them: 20 ns. It reads what the pinned version of the
//! library writes (its table format 3) through the library's own block cache.
//!
//! Invariants:
//! - A sweep gives what a range of the same snapshot gives, in the same order; a differential test keeps it so.
//! - A compaction keeps of a key what the newest state and the open snapshots need *in the version of the tables that each of
//!   them began with*. So a sweep reads the newest version only if it is the one from before the snapshot, and the memtable
//!   and the tables only if nothing is on its way from one to the other. Else the library's iterator is asked, which finds
//!   the old version.
//! - Damaged blocks are an error, never a panic and never a wrong pair.

use std::{
    fs::File,
    io::{BufReader, Seek as _, SeekFrom},
    ops::Bound,
    sync::Arc,
};

use fjall::{AbstractTree as _, Keyspace, Slice, Snapshot};
use lsm_tree::{
    GlobalTableId, InternalValue, Memtable, SeqNo, Table, ValueType,
    table::{
        Block, BlockHandle, BlockOffset, IndexBlock,
        block::{BlockType, Header},
    },
};

use super::lsm::{self, read_failure};
use crate::error::{Error, Result};

/// Bytes behind the pairs of a data block: counts and places of its indexes.
const TRAILER_BYTES: usize = 31;
/// Where a pair's kind would stand, behind the last one.
const END_OF_PAIRS: u8 = 255;
/// What is read at once of a table that is not in the cache.
const READ_BYTES: usize = 64 << 10;

/// Which tables a keyspace had at some time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Tables {
    keyspace: u64,
    version: u64,
}

impl Tables {
    pub(super) fn of(keyspace: &Keyspace) -> Self {
        Self { keyspace: keyspace.id(), version: keyspace.tree.current_version().id() }
    }
}

/// Gives the pairs of a range in order to `take`, until it answers false. Answers whether the range came to its end. With
/// the snapshot comes what tables there were before it.
pub(super) fn sweep(
    (snapshot, before): (&Snapshot, Option<Tables>),
    keyspace: &Keyspace,
    (from, to): (&[u8], Option<&[u8]>),
    mut take: impl FnMut(&[u8], &[u8]) -> bool,
) -> Result<bool> {
    let Some((memtable, runs)) = sources(keyspace, before, from, to) else {
        let to = to.map_or(Bound::Unbounded, Bound::Excluded);
        for guard in lsm::range(snapshot, keyspace, Bound::Included(from), to) {
            let (key, value) = lsm::pair(guard)?;
            if !take(&key, &value) {
                return Ok(false);
            }
        }
        return Ok(true);
    };
    let seen = snapshot.seqno();
    let mut cursors = Vec::with_capacity(runs.len() + 1);
    cursors.push(Cursor::Memtable(Written::new(&memtable, seen, from, to)));
    for tables in &runs {
        cursors.push(Cursor::Run(Run::new(keyspace.tree.id(), tables, seen, from, to)?));
    }
    merge(cursors, |entry| match entry.kind {
        ValueType::Value => Ok(take(entry.key, entry.value)),
        ValueType::Tombstone | ValueType::WeakTombstone => Ok(true),
        ValueType::Indirection => match lsm::get(snapshot, keyspace, entry.key)? {
            Some(value) => Ok(take(entry.key, &value)),
            None => Err(damaged("a separated value is not there")),
        },
    })
}

#[cfg(test)]
pub(super) fn is_possible(keyspace: &Keyspace, before: Option<Tables>) -> bool {
    sources(keyspace, before, &[], None).is_some()
}

/// The memtable and, run by run, the tables that hold all there is of a range for a snapshot before which there were these
/// tables; none if they changed or a memtable is being flushed.
fn sources(
    keyspace: &Keyspace,
    before: Option<Tables>,
    from: &[u8],
    to: Option<&[u8]>,
) -> Option<(Arc<Memtable>, Vec<Vec<Table>>)> {
    let (before, tree) = (before?, &keyspace.tree);
    let active = || tree.get_version_history_lock().latest_version().active_memtable;
    let memtable = active();
    if tree.sealed_memtable_count() > 0 {
        return None;
    }
    let version = tree.current_version();
    if before != (Tables { keyspace: keyspace.id(), version: version.id() }) {
        return None;
    }
    let mut runs = Vec::new();
    for run in version.iter_levels().flat_map(|level| level.iter()) {
        let overlaps = |table: &&Table| {
            let range = &table.metadata.key_range;
            **range.max() >= *from && to.is_none_or(|to| **range.min() < *to)
        };
        let tables: Vec<Table> = run.iter().filter(overlaps).cloned().collect();
        if !tables.is_empty() {
            runs.push(tables);
        }
    }
    // The same memtable before and after: none was sealed in between, so that nothing has gone from it into tables.
    Arc::ptr_eq(&memtable, &active()).then(|| (memtable, joined(runs)))
}

/// Makes one run of those that follow each other, as the pieces of a load do: what is one run needs no merging.
fn joined(mut runs: Vec<Vec<Table>>) -> Vec<Vec<Table>> {
    fn range(table: Option<&Table>) -> Option<&lsm_tree::KeyRange> {
        table.map(|table| &table.metadata.key_range)
    }
    runs.sort_by(|a, b| {
        let first = |run: &[Table]| range(run.first()).map(|range| range.min().clone());
        first(a).cmp(&first(b))
    });
    let mut joined: Vec<Vec<Table>> = Vec::with_capacity(runs.len());
    for run in runs {
        let first = range(run.first()).map(|range| range.min());
        let ends_before = |known: &&mut Vec<Table>| range(known.last()).map(|range| range.max()) < first;
        match joined.iter_mut().find(ends_before) {
            Some(known) => known.extend(run),
            None => joined.push(run),
        }
    }
    joined
}

/// One version of a pair.
struct Entry<'a> {
    key: &'a [u8],
    kind: ValueType,
    value: &'a [u8],
}

/// An ordered pass over one source, standing on a version that the snapshot sees.
enum Cursor<'a> {
    Memtable(Written<'a>),
    Run(Run<'a>),
}

impl Cursor<'_> {
    /// Goes to the next version; false behind the last one.
    fn advance(&mut self) -> Result<bool> {
        match self {
            Self::Memtable(written) => Ok(written.advance()),
            Self::Run(run) => run.advance(),
        }
    }

    fn entry(&self) -> Entry<'_> {
        match self {
            Self::Memtable(written) => {
                let (key, _, kind, value) = &written.here;
                Entry { key, kind: *kind, value }
            }
            Self::Run(run) => Entry { key: &run.key, kind: run.kind, value: &run.block[run.value.clone()] },
        }
    }

    fn key(&self) -> &[u8] {
        match self {
            Self::Memtable(written) => &written.here.0,
            Self::Run(run) => &run.key,
        }
    }

    fn sequence(&self) -> SeqNo {
        match self {
            Self::Memtable(written) => written.here.1,
            Self::Run(run) => run.sequence,
        }
    }
}

/// Gives the newest version of each key, in order, until `give` answers false.
fn merge(cursors: Vec<Cursor<'_>>, mut give: impl FnMut(Entry<'_>) -> Result<bool>) -> Result<bool> {
    let mut open = Vec::with_capacity(cursors.len());
    for mut cursor in cursors {
        if cursor.advance()? {
            open.push(cursor);
        }
    }
    // The key that was decided last: its other versions are older ones.
    let mut decided: Option<Vec<u8>> = None;
    loop {
        let order = |at: &usize| (open[*at].key(), std::cmp::Reverse(open[*at].sequence()));
        let Some(first) = (0..open.len()).min_by(|a, b| order(a).cmp(&order(b))) else { return Ok(true) };
        open.swap(0, first);
        let Some((cursor, others)) = open.split_first_mut() else { return Ok(true) };
        let bound = others.iter().map(Cursor::key).min();
        let ended = loop {
            let entry = cursor.entry();
            if decided.as_deref() != Some(entry.key) {
                let decided = decided.get_or_insert_default();
                decided.clear();
                decided.extend_from_slice(entry.key);
                if !give(entry)? {
                    return Ok(false);
                }
            }
            if !cursor.advance()? {
                break true;
            }
            if bound.is_some_and(|bound| cursor.key() >= bound) {
                break false;
            }
        };
        if ended {
            open.swap_remove(0);
        }
    }
}

type Version = (Slice, SeqNo, ValueType, Slice);

/// A pass over the memtable.
struct Written<'a> {
    versions: Box<dyn Iterator<Item = Version> + 'a>,
    here: Version,
}

impl<'a> Written<'a> {
    fn new(memtable: &'a Memtable, seen: SeqNo, from: &[u8], to: Option<&'a [u8]>) -> Self {
        // The newest version of a key comes first. The library has no empty keys.
        let first = |key| InternalValue::from_components(key, b"", SeqNo::MAX, ValueType::Tombstone).key;
        let start = if from.is_empty() { Bound::Unbounded } else { Bound::Included(first(from)) };
        let versions = memtable
            .items
            .range((start, Bound::Unbounded))
            .take_while(move |entry| to.is_none_or(|to| *entry.key().user_key < *to))
            .filter(move |entry| entry.key().seqno < seen)
            .map(|entry| {
                let key = entry.key();
                (key.user_key.clone(), key.seqno, key.value_type, entry.value().clone())
            });
        let nothing = (Slice::from(b""), 0, ValueType::Tombstone, Slice::from(b""));
        Self { versions: Box::new(versions), here: nothing }
    }

    fn advance(&mut self) -> bool {
        match self.versions.next() {
            Some(version) => {
                self.here = version;
                true
            }
            None => false,
        }
    }
}

/// A pass over a run: tables that follow each other.
struct Run<'a> {
    tree: u64,
    tables: std::slice::Iter<'a, Table>,
    table: Option<&'a Table>,
    seen: SeqNo,
    from: &'a [u8],
    to: Option<&'a [u8]>,
    /// Whether keys before `from` may still come.
    before: bool,
    /// Whether the table may hold keys from `to` on.
    behind: bool,
    /// Where the next block lies in the table's file.
    offset: u64,
    /// Where its data blocks end.
    end: u64,
    /// The file and where it stands, once a block was not in the cache.
    file: Option<(BufReader<File>, u64)>,
    block: Slice,
    /// Where the next pair lies in the block.
    at: usize,
    /// Every so many pairs a key is written out; those between share its beginning.
    interval: usize,
    until_whole: usize,
    whole: std::ops::Range<usize>,
    key: Vec<u8>,
    sequence: SeqNo,
    kind: ValueType,
    value: std::ops::Range<usize>,
}

impl<'a> Run<'a> {
    fn new(
        tree: u64,
        tables: &'a [Table],
        seen: SeqNo,
        from: &'a [u8],
        to: Option<&'a [u8]>,
    ) -> Result<Self> {
        let mut run = Self {
            tree,
            tables: tables.iter(),
            table: None,
            seen,
            from,
            to,
            before: false,
            behind: false,
            offset: 0,
            end: 0,
            file: None,
            block: Slice::from(b""),
            at: 0,
            interval: 1,
            until_whole: 0,
            whole: 0..0,
            key: Vec::new(),
            sequence: 0,
            kind: ValueType::Tombstone,
            value: 0..0,
        };
        run.open_table()?;
        if let Some(table) = run.table
            && *from > **table.metadata.key_range.min()
        {
            run.before = true;
            run.offset = run.seek(table)?.unwrap_or(run.end);
        }
        Ok(run)
    }

    fn open_table(&mut self) -> Result<bool> {
        self.table = self.tables.next();
        self.offset = 0;
        self.file = None;
        let Some(table) = self.table else { return Ok(false) };
        // Data comes first; what comes next depends on the table.
        let regions = &table.regions;
        let others = [regions.index, regions.filter_tli, regions.filter, regions.linked_blob_files];
        let starts = others.into_iter().flatten().chain([regions.tli, regions.metadata]);
        self.end = starts.map(|region| *region.offset()).min().unwrap_or(0);
        self.behind = self.to.is_some_and(|to| **table.metadata.key_range.max() >= *to);
        Ok(true)
    }

    /// Where the first block lies that ends at `from` or behind it.
    fn seek(&self, table: &Table) -> Result<Option<u64>> {
        let find = |index: &IndexBlock| {
            let mut handles = index.iter();
            handles.seek(self.from, SeqNo::MAX).then(|| handles.next()).flatten()
        };
        let top = self.index(table, table.regions.tli)?;
        let found = match (find(&top), table.regions.index) {
            // The top lists parts of the index.
            (Some(part), Some(_)) => find(&self.index(table, BlockHandle::new(part.offset, part.size))?),
            (found, _) => found,
        };
        Ok(found.map(|handle| *handle.offset))
    }

    fn index(&self, table: &Table, handle: BlockHandle) -> Result<IndexBlock> {
        let id = GlobalTableId::from((self.tree, table.id()));
        let block = match table.cache.get_block(id, handle.offset()) {
            Some(block) => block,
            None => {
                let file = File::open(&*table.path).map_err(io_failure)?;
                let block = Block::from_file(&file, handle, table.metadata.index_block_compression)
                    .map_err(failure)?;
                table.cache.insert_block(id, handle.offset(), block.clone());
                block
            }
        };
        match block.header.block_type {
            BlockType::Index => Ok(IndexBlock::new(block)),
            BlockType::Data | BlockType::Filter | BlockType::Meta => Err(damaged("a block is no index")),
        }
    }

    /// Goes to the next block; false behind the last one of the last table.
    fn open_block(&mut self) -> Result<bool> {
        let table = loop {
            match self.table {
                None => return Ok(false),
                Some(table) if self.offset < self.end => break table,
                Some(_) => {
                    self.open_table()?;
                }
            }
        };
        let id = GlobalTableId::from((self.tree, table.id()));
        let block = match table.cache.get_block(id, BlockOffset(self.offset)) {
            Some(block) => block,
            None => {
                let block = self.read_block(table)?;
                table.cache.insert_block(id, BlockOffset(self.offset), block.clone());
                block
            }
        };
        if block.header.block_type != BlockType::Data {
            return Err(damaged("a block holds no pairs"));
        }
        self.offset += Header::serialized_len() as u64 + u64::from(block.header.data_length);
        self.block = block.data;
        let trailer = self.block.len().checked_sub(TRAILER_BYTES).ok_or_else(torn)?;
        self.interval = usize::from(self.block[trailer]).max(1);
        self.at = 0;
        self.until_whole = 0;
        Ok(true)
    }

    fn read_block(&mut self, table: &Table) -> Result<Block> {
        let mut open = match self.file.take() {
            Some((file, at)) if at == self.offset => file,
            Some((mut file, _)) => {
                file.seek(SeekFrom::Start(self.offset)).map_err(io_failure)?;
                file
            }
            None => {
                let mut file = File::open(&*table.path).map_err(io_failure)?;
                file.seek(SeekFrom::Start(self.offset)).map_err(io_failure)?;
                BufReader::with_capacity(READ_BYTES, file)
            }
        };
        let block = Block::from_reader(&mut open, table.metadata.data_block_compression).map_err(failure)?;
        let end = self.offset + Header::serialized_len() as u64 + u64::from(block.header.data_length);
        self.file = Some((open, end));
        Ok(block)
    }

    /// Goes to the next version that the snapshot sees.
    #[inline]
    fn advance(&mut self) -> Result<bool> {
        loop {
            match self.block.get(self.at) {
                None | Some(&END_OF_PAIRS) => {
                    if !self.open_block()? {
                        return Ok(false);
                    }
                    continue;
                }
                Some(_) => self.parse().ok_or_else(torn)?,
            }
            if self.before {
                if *self.key < *self.from {
                    continue;
                }
                self.before = false;
            }
            if self.behind && self.to.is_some_and(|to| *self.key >= *to) {
                return Ok(false);
            }
            if self.sequence < self.seen {
                return Ok(true);
            }
        }
    }

    /// Reads the pair at `at`: kind, sequence number, key, value.
    #[inline]
    fn parse(&mut self) -> Option<()> {
        let mut rest = Rest { bytes: &self.block, at: self.at };
        self.kind = ValueType::try_from(rest.byte()?).ok()?;
        self.sequence = rest.number()? + self.table?.global_seqno();
        if self.until_whole == 0 {
            self.until_whole = self.interval;
            self.whole = rest.range()?;
            self.key.clear();
            self.key.extend_from_slice(&self.block[self.whole.clone()]);
        } else {
            let shared = usize::try_from(rest.number()?).ok()?;
            let own = rest.range()?;
            self.key.clear();
            self.key.extend_from_slice(self.block.get(self.whole.clone())?.get(..shared)?);
            self.key.extend_from_slice(&self.block[own]);
        }
        self.until_whole -= 1;
        self.value = if self.kind.is_tombstone() { 0..0 } else { rest.range()? };
        self.at = rest.at;
        Some(())
    }
}

/// Bytes that are read from front to back.
struct Rest<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Rest<'_> {
    #[inline]
    fn byte(&mut self) -> Option<u8> {
        let byte = self.bytes.get(self.at)?;
        self.at += 1;
        Some(*byte)
    }

    /// Seven bits a byte, the lowest first.
    #[inline]
    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    /// A length, and where the bytes of that length lie.
    #[inline]
    fn range(&mut self) -> Option<std::ops::Range<usize>> {
        let length = usize::try_from(self.number()?).ok()?;
        let end = self.at.checked_add(length).filter(|end| *end <= self.bytes.len())?;
        let range = self.at..end;
        self.at = end;
        Some(range)
    }
}

fn torn() -> Error {
    damaged("a block ends too early")
}

fn damaged(what: &str) -> Error {
    Error::EngineDamaged { message: what.to_owned() }
}

fn failure(error: lsm_tree::Error) -> Error {
    read_failure(fjall::Error::Storage(error))
}

fn io_failure(error: std::io::Error) -> Error {
    read_failure(fjall::Error::Io(error))
}
