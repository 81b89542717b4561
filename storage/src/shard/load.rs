//! Loads: rows that were staged part by part, and become visible with one command.
//!
//! Rows of a table that is empty go past the journal and the memtables, in the order of their keys, under a new generation
//! of the table's storage: the command's own revision. They are on disk before the batch that makes the generation the
//! table's, so a crash in between leaves keys that nobody sees, and applying the entry again writes the same ones.
//! Rows of other tables are inserted one by one.
//!
//! Invariants:
//! - Everything is judged before the first row is written: a revision that a rejected command did not use up will be
//!   another command's.
//! - A load is one table's, and the generation is a matter of the entry alone: all replicas make the same.
//!
//! Not here: where the parts come from (`cluster::owner`), how they are staged (`part`).

use bytes::{Bytes, BytesMut};
use model::{
    Code,
    command::{Outcome, Rejection},
    id::{PartitionId, Revision, TableId},
    load::{RowsIter, whole_rows},
    row::{self, RowView},
    time::Timestamp,
};

use super::{
    Compiled,
    apply::Group,
    execute::{Step, failed, indexed, taken, too_large},
    read::index_value,
};
use crate::{
    codec::entry::{Load, Stamp},
    engine::{Engine, Keyspace},
    error::{Error, Result},
    keyspace::{self, INDEX_KEY_BYTES_MAX, ROW_KEY_BYTES_MAX},
};

/// Fewer bytes than this are not worth files of their own.
const BULK_BYTES_MIN: usize = 1 << 20;

/// Rows are written in about as many pieces side by side as they are times so many bytes.
const PIECE_BYTES_MIN: usize = 8 << 20;

/// And there are not more of them.
const PIECES_MAX: usize = 4;

/// The parts of a load.
pub(super) struct Staged {
    pub(super) table: TableId,
    parts: Vec<Bytes>,
}

impl Staged {
    /// Whether there is enough to go past the journal.
    pub(super) fn is_large(&self) -> bool {
        self.parts.iter().map(Bytes::len).sum::<usize>() >= BULK_BYTES_MIN
    }

    /// The rows as they came, each with the part that it lies in.
    pub(super) fn rows(&self) -> impl Iterator<Item = Result<(&Bytes, &[u8], &[u8])>> {
        rows_of(&self.parts)
    }
}

fn rows_of(parts: &[Bytes]) -> impl Iterator<Item = Result<(&Bytes, &[u8], &[u8])>> {
    parts.iter().flat_map(|part| {
        RowsIter::new(part).map(move |row| {
            let (key, row) = row.map_err(|_| Error::damaged("a part of a load"))?;
            Ok((part, key, row))
        })
    })
}

impl Group<'_> {
    /// Judges and executes the command of a load.
    pub(super) fn load(&mut self, load: &Load, stamp: &Stamp) -> Result<Outcome> {
        let epoch = self.live.head.claim.epoch.0;
        let mut parts = Vec::new();
        // A part that ends inside a row, which goes on in the next one.
        let mut cut = BytesMut::new();
        for sequence in 0..load.parts {
            let Some(part) = self.take_part(&load.command.partition, epoch, load.number, sequence)? else {
                // Removed because it took too long: nothing of it was executed.
                return Ok(Outcome::Rejected(Rejection::Fenced));
            };
            let part = if cut.is_empty() {
                part
            } else {
                cut.extend_from_slice(&part);
                cut.split().freeze()
            };
            if whole_rows(&part) == part.len() {
                parts.push(part);
            } else {
                cut = part.try_into_mut().unwrap_or_else(|part| BytesMut::from(&part[..]));
            }
        }
        if !cut.is_empty() {
            return Err(Error::damaged("a load that ends inside a row"));
        }
        self.command_with(&load.command, Some(&Staged { table: load.table, parts }), stamp)
    }
}

/// Rows that were judged and only have to be written.
pub(super) struct Bulk<'a> {
    /// The table's place among the command's.
    pub(super) target: usize,
    /// How many there are.
    pub(super) rows: u64,
    /// Bytes of their keys and of themselves.
    pub(super) bytes: u64,
    order: Order<'a>,
    /// Entries of indexes, full keys in order.
    entries: Vec<(Vec<u8>, Bytes)>,
}

/// The rows in the order of their keys.
enum Order<'a> {
    AsTheyCame(&'a Staged),
    Sorted(Vec<(&'a [u8], &'a [u8])>),
}

impl<'a> Bulk<'a> {
    /// Judges rows for a table that has none.
    pub(super) fn judge(
        staged: &'a Staged,
        target: usize,
        compiled: &Compiled,
        partition: &PartitionId,
        generation: Revision,
    ) -> Step<Self> {
        let (mut rows, mut bytes) = (0, 0);
        let mut ascending = true;
        let mut entries = Vec::new();
        let mut last: Option<&[u8]> = None;
        let prefixes: Vec<Vec<u8>> = compiled
            .indexes()
            .iter()
            .map(|plan| keyspace::index_prefix(partition, staged.table, generation, plan.id, plan.unique))
            .collect();
        for row in staged.rows() {
            let (_, key, row) = row?;
            if key.len() > ROW_KEY_BYTES_MAX {
                return Err(too_large(key.len(), ROW_KEY_BYTES_MAX));
            }
            let view = RowView::new(row).map_err(|error| failed(Code::DataCorrupted, &error.to_string()))?;
            rows += 1;
            bytes += (key.len() + row.len()) as u64;
            ascending &= last.is_none_or(|last| last < key);
            last = Some(key);
            for (plan, prefix) in compiled.indexes().iter().zip(&prefixes) {
                let Some(entry) = compiled.index_key(plan, &view, key).map_err(indexed)? else { continue };
                if entry.columns_bytes > INDEX_KEY_BYTES_MAX {
                    return Err(too_large(entry.columns_bytes, INDEX_KEY_BYTES_MAX));
                }
                let value = index_value(&entry, key);
                entries.push(([prefix, entry.entry.as_slice()].concat(), value));
            }
        }
        let order = if ascending {
            Order::AsTheyCame(staged)
        } else {
            let mut sorted = Vec::with_capacity(rows as usize);
            for row in staged.rows() {
                let (_, key, row) = row?;
                sorted.push((key, row));
            }
            sorted.sort_unstable_by_key(|(key, _)| *key);
            if let Some(pair) = sorted.windows(2).find(|pair| pair[0].0 == pair[1].0) {
                return Err(taken(staged.table, None, pair[0].0));
            }
            Order::Sorted(sorted)
        };
        entries.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        // Entries of rows that may share a key end with the row's own, so equal ones are of an index that is unique.
        if let Some(pair) = entries.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            let of =
                compiled.indexes().iter().zip(&prefixes).find(|(_, prefix)| pair[0].0.starts_with(prefix));
            let (plan, prefix) = of.ok_or_else(|| Error::damaged("an entry of no index"))?;
            return Err(taken(staged.table, Some(plan.id), &pair[0].0[prefix.len()..]));
        }
        Ok(Self { target, rows, bytes, order, entries })
    }

    /// Writes the rows with their revision and time, and the entries of indexes: in pieces of the keys' order, side by side.
    pub(super) fn write(
        &self,
        engine: &Engine,
        keyspace: &Keyspace,
        prefix: &[u8],
        revision: Revision,
        wall: Timestamp,
    ) -> Result<()> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let pieces = (self.bytes as usize / PIECE_BYTES_MIN).clamp(1, processors.min(PIECES_MAX));
        let put_entries = || {
            if self.entries.is_empty() {
                return Ok(());
            }
            engine
                .ingest_from(keyspace, |put| self.entries.iter().try_for_each(|(key, value)| put(key, value)))
        };
        let put_rows = |piece: usize| {
            engine.ingest_from(keyspace, |put| {
                let (mut full, mut stamped) = (prefix.to_vec(), Vec::new());
                self.order.piece(piece, pieces, |key, row| {
                    full.truncate(prefix.len());
                    full.extend_from_slice(key);
                    stamped.clear();
                    stamped.extend_from_slice(row);
                    row::set_revision(&mut stamped, revision.0);
                    row::set_updated_at(&mut stamped, wall.micros());
                    put(&full, &stamped)
                })
            })
        };
        std::thread::scope(|scope| {
            let put_rows = &put_rows;
            let others: Vec<_> = (1..pieces)
                .map(|piece| {
                    let put = move || put_rows(piece);
                    // Where no thread can be started it is done here.
                    std::thread::Builder::new()
                        .name("load".to_owned())
                        .spawn_scoped(scope, put)
                        .map_err(|_| piece)
                })
                .collect();
            let mut done = put_rows(0).and_then(|()| put_entries());
            for other in others {
                done = done.and(match other {
                    // A panic of one is a panic of all.
                    Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
                    Err(piece) => put_rows(piece),
                });
            }
            done
        })
    }
}

impl Order<'_> {
    /// Gives the rows of one of so many pieces, in order.
    fn piece(
        &self,
        piece: usize,
        pieces: usize,
        mut give: impl FnMut(&[u8], &[u8]) -> Result<()>,
    ) -> Result<()> {
        let range = |length: usize| length * piece / pieces..length * (piece + 1) / pieces;
        match self {
            Self::AsTheyCame(staged) => {
                for row in rows_of(&staged.parts[range(staged.parts.len())]) {
                    let (_, key, row) = row?;
                    give(key, row)?;
                }
                Ok(())
            }
            Self::Sorted(sorted) => {
                sorted[range(sorted.len())].iter().try_for_each(|(key, row)| give(key, row))
            }
        }
    }
}
