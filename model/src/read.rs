//! Reads: what can be asked of the partitions, and the pages that answer.
//!
//! Invariants:
//! - A page holds whole rows in key order (or reverse) as they are stored; columns are cut out by whoever reads them.
//! - A page is bounded by bytes and rows; `next` says where to go on, none that the range is exhausted.
//! - Reads at one read point see one state of the partition.

use std::{fmt, sync::Arc};

use bytes::Bytes;

use crate::id::{Epoch, IndexId, PartitionId, Revision, ShardId, TableId};

/// Which state is read.
#[derive(Clone, Debug)]
pub enum At {
    /// The newest, linearizable.
    Latest,
    /// The state of a read point.
    Point(ReadPoint),
}

/// A leased snapshot at an owner. Dropping the last clone ends the lease.
#[derive(Clone)]
pub struct ReadPoint {
    /// The shard.
    pub shard: ShardId,
    /// The owner's claim.
    pub epoch: Epoch,
    /// Which of the owner's read points.
    pub id: u64,
    /// The newest revision it sees.
    pub revision: Revision,
    /// Whatever keeps it alive at the owner or the gateway.
    pub lease: Arc<dyn std::any::Any + Send + Sync>,
}

impl fmt::Debug for ReadPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}@{}", self.shard, self.epoch, self.id, self.revision)
    }
}

/// One ordered pass over a table or an index in one partition.
#[derive(Clone, Debug)]
pub struct Scan {
    /// Where.
    pub partition: PartitionId,
    /// The table.
    pub table: TableId,
    /// In which order: none for the primary key's.
    pub index: Option<IndexId>,
    /// From here, inclusive; empty for the start.
    pub from: Bytes,
    /// To here, exclusive; none for the end.
    pub to: Option<Bytes>,
    /// Backwards: from the end of the range.
    pub reverse: bool,
    /// At most so many rows in a page.
    pub rows_max: usize,
    /// At most so many bytes in a page (one row is always given).
    pub bytes_max: usize,
    /// Which state.
    pub at: At,
}

/// Rows of one scan or multi-get, as they are stored.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// The rows in order.
    pub rows: Rows,
    /// Where the next page starts: the `from` of a forward scan, the `to` of a reverse one.
    pub next: Option<Bytes>,
}

/// A stored row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Its key inside the table.
    pub key: Bytes,
    /// The row, read with [`crate::row::RowView`].
    pub row: Bytes,
}

/// Stored rows, one behind the other in one allocation.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    bytes: Bytes,
    /// Where each row's key ends and where the row itself ends.
    ends: Vec<(usize, usize)>,
}

impl Rows {
    /// How many there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The key of a row.
    #[inline]
    pub fn key(&self, row: usize) -> &[u8] {
        &self.bytes[self.start(row)..self.ends[row].0]
    }

    /// A row, read with [`crate::row::RowView`].
    #[inline]
    pub fn row(&self, row: usize) -> &[u8] {
        let (key_end, end) = self.ends[row];
        &self.bytes[key_end..end]
    }

    /// A row with its key, to keep.
    pub fn stored(&self, row: usize) -> Stored {
        let (key_end, end) = self.ends[row];
        Stored { key: self.bytes.slice(self.start(row)..key_end), row: self.bytes.slice(key_end..end) }
    }

    /// All rows with their keys, to keep.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Stored> + '_ {
        (0..self.len()).map(|row| self.stored(row))
    }

    fn start(&self, row: usize) -> usize {
        row.checked_sub(1).map_or(0, |before| self.ends[before].1)
    }
}

impl FromIterator<Stored> for Rows {
    fn from_iter<I: IntoIterator<Item = Stored>>(rows: I) -> Self {
        let mut builder = RowsBuilder::default();
        rows.into_iter().for_each(|stored| builder.push(&stored.key, &stored.row));
        builder.finish()
    }
}

/// Puts [`Rows`] together.
#[derive(Debug, Default)]
pub struct RowsBuilder {
    bytes: Vec<u8>,
    ends: Vec<(usize, usize)>,
}

impl RowsBuilder {
    /// Room for so many rows in so many bytes.
    pub fn with_capacity(rows: usize, bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes), ends: Vec::with_capacity(rows) }
    }

    /// Appends a row.
    #[inline]
    pub fn push(&mut self, key: &[u8], row: &[u8]) {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(row);
        self.ends.push((key_end, self.bytes.len()));
    }

    /// How many rows there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is no row.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// How many bytes they have.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The key of the last row.
    pub fn last_key(&self) -> Option<&[u8]> {
        let (key_end, _) = self.ends.last()?;
        let start = self.ends.len().checked_sub(2).map_or(0, |before| self.ends[before].1);
        Some(&self.bytes[start..*key_end])
    }

    /// The rows.
    pub fn finish(self) -> Rows {
        Rows { bytes: self.bytes.into(), ends: self.ends }
    }
}

/// The first key after every key that starts with `prefix`; none if there is none.
pub fn after_prefix(prefix: &[u8]) -> Option<Bytes> {
    let last = prefix.iter().rposition(|byte| *byte != 0xff)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_rows_are_what_was_put_in() {
        let mut builder = RowsBuilder::default();
        assert_eq!(builder.last_key(), None);
        builder.push(b"a", b"first");
        assert_eq!(builder.last_key(), Some(b"a".as_slice()));
        builder.push(b"", b"second");
        assert_eq!(builder.last_key(), Some(b"".as_slice()));
        builder.push(b"ccc", b"");
        assert_eq!((builder.len(), builder.bytes(), builder.last_key()), (3, 15, Some(b"ccc".as_slice())));
        let rows = builder.finish();
        let shown: Vec<_> = rows.iter().map(|stored| (stored.key.to_vec(), stored.row.to_vec())).collect();
        let pair = |key: &[u8], row: &[u8]| (key.to_vec(), row.to_vec());
        assert_eq!(shown, [pair(b"a", b"first"), pair(b"", b"second"), pair(b"ccc", b"")]);
        assert_eq!((rows.key(2), rows.row(1)), (b"ccc".as_slice(), b"second".as_slice()));
    }

    #[test]
    fn the_end_of_a_prefix_lies_behind_all_it_starts() {
        assert_eq!(after_prefix(b"ab").as_deref(), Some(b"ac".as_slice()));
        assert_eq!(after_prefix(&[1, 0xff]).as_deref(), Some([2].as_slice()));
        assert_eq!(after_prefix(&[0xff]), None);
    }
}
