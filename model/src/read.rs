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
    pub rows: Vec<Stored>,
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
    fn the_end_of_a_prefix_lies_behind_all_it_starts() {
        assert_eq!(after_prefix(b"ab").as_deref(), Some(b"ac".as_slice()));
        assert_eq!(after_prefix(&[1, 0xff]).as_deref(), Some([2].as_slice()));
        assert_eq!(after_prefix(&[0xff]), None);
    }
}
