//! The write buffer of an open transaction: rows as they will be, over rows as they are stored.
//!
//! Invariants:
//! - One entry per row that was written; it remembers what the row was based on, so that COMMIT can say what must still
//!   hold, and a second write of the same row keeps the first base.
//! - Savepoints are marks in an undo list: rolling back to one restores every entry exactly.
//! - A statement reads the overlay as it was when the statement began: what it writes is put in at its end.
//!
//! Not here: locks and commands (`txn`).

use std::{
    collections::{BTreeMap, btree_map},
    ops::Bound,
};

use bytes::Bytes;
use model::{
    command::Condition,
    id::{PartitionId, Revision, TableId},
    read::Stored,
};

/// What a written row was based on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Base {
    /// There was no row.
    Absent,
    /// There was a row of this revision.
    Revision(Revision),
    /// It was not looked at: put or removed whatever was there.
    Any,
}

/// A row that was written.
#[derive(Clone, PartialEq, Debug)]
pub struct Entry {
    /// What it was based on.
    pub base: Base,
    /// The row as it will be; none if it is removed.
    pub row: Option<Bytes>,
}

/// Where a row is.
pub type Place = (PartitionId, TableId);

/// The rows a transaction has written and not yet committed.
#[derive(Clone, Debug, Default)]
pub struct Overlay {
    tables: BTreeMap<Place, BTreeMap<Bytes, Entry>>,
    truncated: BTreeMap<Place, ()>,
    undo: Vec<Undo>,
    /// Nothing of it is ever rolled back by itself.
    without_undo: bool,
    bytes: usize,
    required: Vec<Condition>,
}

#[derive(Clone, Debug)]
enum Undo {
    Entry(Place, Bytes, Option<Entry>),
    Truncated(Place, BTreeMap<Bytes, Entry>, bool),
}

/// A place in the undo list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark(usize);

impl Overlay {
    /// What one statement writes: it is taken as a whole, or dropped.
    pub fn of_statement() -> Self {
        Self { without_undo: true, ..Self::default() }
    }

    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.tables.values().all(BTreeMap::is_empty) && self.truncated.is_empty()
    }

    /// Bytes of keys and rows held.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// What was written in one table of one partition, by key.
    pub fn table(&self, partition: &PartitionId, table: TableId) -> Option<&BTreeMap<Bytes, Entry>> {
        self.tables.get(&(partition.clone(), table)).filter(|rows| !rows.is_empty())
    }

    /// Whether the table was emptied before what [`Overlay::table`] holds was written.
    pub fn is_truncated(&self, partition: &PartitionId, table: TableId) -> bool {
        !self.truncated.is_empty() && self.truncated.contains_key(&(partition.clone(), table))
    }

    /// Whether anything of a table was written, in any partition.
    pub fn touches(&self, table: TableId) -> bool {
        self.tables.iter().any(|((_, at), rows)| *at == table && !rows.is_empty())
            || self.truncated.keys().any(|(_, at)| *at == table)
    }

    /// The partitions in which a table was written.
    pub fn partitions_of(&self, table: TableId) -> Vec<PartitionId> {
        let written = self.tables.iter().filter(|((_, at), rows)| *at == table && !rows.is_empty());
        written.map(|((partition, _), _)| partition.clone()).collect()
    }

    /// All tables that were written.
    pub fn tables(&self) -> impl Iterator<Item = TableId> {
        let written = self.tables.iter().filter(|(_, rows)| !rows.is_empty()).map(|((_, table), _)| *table);
        written.chain(self.truncated.keys().map(|(_, table)| *table))
    }

    /// All partitions that were written.
    pub fn partitions(&self) -> Vec<PartitionId> {
        let mut all: Vec<_> =
            self.tables.iter().filter(|(_, rows)| !rows.is_empty()).map(|((at, _), _)| at.clone()).collect();
        all.extend(self.truncated.keys().map(|(at, _)| at.clone()));
        all.sort();
        all.dedup();
        all
    }

    /// One row, if it was written: `Some(None)` says it was removed.
    pub fn get(&self, partition: &PartitionId, table: TableId, key: &[u8]) -> Option<Option<&Bytes>> {
        if self.tables.is_empty() && self.truncated.is_empty() {
            return None;
        }
        let place = (partition.clone(), table);
        match self.tables.get(&place).and_then(|rows| rows.get(key)) {
            Some(entry) => Some(entry.row.as_ref()),
            None => self.truncated.contains_key(&place).then_some(None),
        }
    }

    /// What is known of a written row's base.
    pub fn find_entry(&self, partition: &PartitionId, table: TableId, key: &[u8]) -> Option<&Entry> {
        self.tables.get(&(partition.clone(), table))?.get(key)
    }

    /// Writes a row; `row` none removes it. A later write of a row keeps the base of the first.
    pub fn write(
        &mut self,
        partition: &PartitionId,
        table: TableId,
        key: Bytes,
        base: Base,
        row: Option<Bytes>,
    ) {
        let place = (partition.clone(), table);
        self.bytes += key.len() + row.as_ref().map_or(0, Bytes::len);
        if self.without_undo {
            match self.tables.entry(place).or_default().entry(key) {
                btree_map::Entry::Vacant(vacant) => drop(vacant.insert(Entry { base, row })),
                btree_map::Entry::Occupied(mut known) => known.get_mut().row = row,
            }
            return;
        }
        let rows = self.tables.entry(place.clone()).or_default();
        let previous = rows.get(&key).cloned();
        let base = previous.as_ref().map_or(base, |entry| entry.base);
        rows.insert(key.clone(), Entry { base, row });
        self.undo.push(Undo::Entry(place, key, previous));
    }

    /// Adds what must hold when the rows are committed, besides what they were based on. Only an autocommit statement's
    /// buffer has it: in a block, locks stand for it.
    pub fn require(&mut self, condition: Condition) {
        self.required.push(condition);
    }

    /// What [`Overlay::require`] was given.
    pub fn take_required(&mut self) -> Vec<Condition> {
        std::mem::take(&mut self.required)
    }

    /// Empties a table.
    pub fn truncate(&mut self, partition: &PartitionId, table: TableId) {
        let place = (partition.clone(), table);
        let rows = self.tables.remove(&place).unwrap_or_default();
        let before = self.truncated.insert(place.clone(), ()).is_some();
        if self.without_undo {
            return;
        }
        self.undo.push(Undo::Truncated(place, rows, before));
    }

    /// Takes in what a statement wrote.
    pub fn absorb(&mut self, other: Overlay) {
        for ((partition, table), ()) in other.truncated {
            self.truncate(&partition, table);
        }
        for ((partition, table), rows) in other.tables {
            for (key, entry) in rows {
                self.write(&partition, table, key, entry.base, entry.row);
            }
        }
    }

    /// The present place in the undo list.
    pub fn mark(&self) -> Mark {
        Mark(self.undo.len())
    }

    /// Undoes everything after a mark.
    pub fn roll_back(&mut self, to: Mark) {
        while self.undo.len() > to.0 {
            match self.undo.pop() {
                Some(Undo::Entry(place, key, previous)) => {
                    let rows = self.tables.entry(place).or_default();
                    match previous {
                        Some(entry) => rows.insert(key, entry),
                        None => rows.remove(&key),
                    };
                }
                Some(Undo::Truncated(place, rows, before)) => {
                    if !before {
                        self.truncated.remove(&place);
                    }
                    self.tables.insert(place, rows);
                }
                None => break,
            }
        }
    }

    /// Every written row and emptied table: truncations come first.
    pub fn into_parts(self) -> (Vec<Place>, impl Iterator<Item = (Place, Bytes, Entry)>) {
        let truncated = self.truncated.into_keys().collect();
        let rows = self
            .tables
            .into_iter()
            .flat_map(|(place, rows)| rows.into_iter().map(move |(key, entry)| (place.clone(), key, entry)));
        (truncated, rows)
    }

    /// Merges one page of the primary key's order with what was written in that range. `from` and `to` are the page's own
    /// range: where it started, and where the next page starts (none at the end of the scan).
    ///
    /// Rows that were written replace stored ones, removed ones go, new ones come in order.
    pub fn merge(
        &self,
        place: &Place,
        page: Vec<Stored>,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        reverse: bool,
    ) -> Vec<Stored> {
        let page = if self.truncated.contains_key(place) { Vec::new() } else { page };
        let Some(rows) = self.tables.get(place).filter(|rows| !rows.is_empty()) else { return page };
        if is_empty_range(from, to) {
            return page;
        }
        let written = rows.range::<[u8], _>((from, to));
        let mut merged = Vec::with_capacity(page.len());
        let mut stored = page.into_iter().peekable();
        let mut put =
            |stored: &mut std::iter::Peekable<std::vec::IntoIter<Stored>>, key: &Bytes, entry: &Entry| {
                let before = |at: &Stored| if reverse { at.key > *key } else { at.key < *key };
                while let Some(row) = stored.next_if(before) {
                    merged.push(row);
                }
                stored.next_if(|at| at.key == *key);
                if let Some(row) = &entry.row {
                    merged.push(Stored { key: key.clone(), row: row.clone() });
                }
            };
        if reverse {
            written.rev().for_each(|(key, entry)| put(&mut stored, key, entry));
        } else {
            written.for_each(|(key, entry)| put(&mut stored, key, entry));
        }
        merged.extend(stored);
        merged
    }
}

/// Whether `BTreeMap::range` would refuse the range.
fn is_empty_range(from: Bound<&[u8]>, to: Bound<&[u8]>) -> bool {
    match (from, to) {
        (Bound::Included(a), Bound::Included(b)) => a > b,
        (Bound::Included(a), Bound::Excluded(b)) | (Bound::Excluded(a), Bound::Included(b)) => a >= b,
        (Bound::Excluded(a), Bound::Excluded(b)) => a >= b,
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
    }
}

#[cfg(test)]
mod tests {
    use model::id::{DatabaseId, SchemaId};

    use super::*;

    fn place() -> Place {
        (PartitionId::default_of(DatabaseId(1), SchemaId(2)), TableId(3))
    }

    fn key(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }

    fn stored(text: &'static str) -> Stored {
        Stored { key: key(text), row: key("stored") }
    }

    fn merged(overlay: &Overlay, page: Vec<Stored>, reverse: bool) -> Vec<(Bytes, Bytes)> {
        let rows = overlay.merge(&place(), page, Bound::Unbounded, Bound::Unbounded, reverse);
        rows.into_iter().map(|row| (row.key, row.row)).collect()
    }

    #[test]
    fn a_page_is_seen_through_what_was_written() {
        let (partition, table) = place();
        let mut overlay = Overlay::default();
        overlay.write(&partition, table, key("b"), Base::Revision(Revision(1)), None);
        overlay.write(&partition, table, key("c"), Base::Revision(Revision(1)), Some(key("new")));
        overlay.write(&partition, table, key("d"), Base::Absent, Some(key("new")));
        let page = vec![stored("a"), stored("b"), stored("c"), stored("e")];
        let expected = [("a", "stored"), ("c", "new"), ("d", "new"), ("e", "stored")];
        let expected: Vec<_> = expected.iter().map(|(k, row)| (key(k), key(row))).collect();
        assert_eq!(merged(&overlay, page.clone(), false), expected);
        let backwards: Vec<_> = expected.into_iter().rev().collect();
        assert_eq!(merged(&overlay, page.into_iter().rev().collect(), true), backwards);
    }

    #[test]
    fn rolling_back_to_a_mark_restores_every_row() {
        let (partition, table) = place();
        let mut overlay = Overlay::default();
        overlay.write(&partition, table, key("a"), Base::Absent, Some(key("1")));
        let mark = overlay.mark();
        overlay.write(&partition, table, key("a"), Base::Absent, Some(key("2")));
        overlay.truncate(&partition, table);
        overlay.write(&partition, table, key("b"), Base::Absent, Some(key("3")));
        assert!(overlay.is_truncated(&partition, table));
        overlay.roll_back(mark);
        assert_eq!(
            merged(&overlay, vec![stored("x")], false),
            vec![(key("a"), key("1")), (key("x"), key("stored"))]
        );
    }
}
