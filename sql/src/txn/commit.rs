//! From buffered writes to the conditions and writes of one command.
//!
//! Invariants:
//! - What frees unique keys comes before what takes them: truncations, removals, changed rows, new rows.

use bytes::Bytes;
use model::{
    command::{Condition, Write},
    id::{PartitionId, TableId},
};

use super::overlay::{Base, Entry, Overlay};

/// The parts of one command.
type Parts = (Vec<Condition>, Vec<Write>);

/// What a command must check and do so that the partition becomes what the overlay says. All of it lies in one partition.
pub fn command_parts(mut overlay: Overlay) -> (Option<PartitionId>, Parts) {
    let mut conditions = overlay.take_required();
    let (truncated, rows) = overlay.into_parts();
    let mut partition = truncated.first().map(|(at, _)| at.clone());
    let mut writes: Vec<_> = truncated.into_iter().map(|(_, table)| Write::Truncate { table }).collect();
    let mut changed = Vec::new();
    let mut new = Vec::new();
    for ((at, table), key, entry) in rows {
        partition.get_or_insert(at);
        row_parts(table, key, entry, &mut conditions, &mut writes, &mut changed, &mut new);
    }
    writes.append(&mut changed);
    writes.append(&mut new);
    (partition, (conditions, writes))
}

fn row_parts(
    table: TableId,
    key: Bytes,
    entry: Entry,
    conditions: &mut Vec<Condition>,
    removed: &mut Vec<Write>,
    changed: &mut Vec<Write>,
    new: &mut Vec<Write>,
) {
    if let Base::Revision(revision) = entry.base {
        conditions.push(Condition::RowRevision { table, key: key.clone(), revision });
    }
    match (entry.base, entry.row) {
        (Base::Absent, None) => {}
        (Base::Absent, Some(row)) => new.push(Write::Insert { table, key, row }),
        (Base::Revision(_) | Base::Any, Some(row)) => changed.push(Write::Put { table, key, row }),
        (Base::Revision(_) | Base::Any, None) => removed.push(Write::Delete { table, key }),
    }
}
