//! Which tables have a storage generation other than 0 somewhere, and which one, so that a read need not look it up.
//!
//! A generation is remembered with the number of the switch that made it. A reader knows it from here only if that switch
//! was visible before its snapshot was taken and no other can have become visible in between; else it looks it up.
//!
//! Invariants:
//! - A table is here before the batch that switches it is visible, and stays.
//! - Switches are numbered in the order in which they become visible; `begun` grows before the batch of one is committed,
//!   `settled` when it is visible and remembered.

use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashMap;
use model::id::{PartitionId, Revision, TableId};
use parking_lot::RwLock;

/// The switched tables of a shard.
pub(super) struct Switched {
    begun: AtomicU64,
    settled: AtomicU64,
    /// Of each table, the generation in one partition: the one that was switched last, or read first.
    tables: RwLock<HashMap<TableId, Option<Known>>>,
}

struct Known {
    partition: PartitionId,
    generation: Revision,
    switch: u64,
}

/// What is known of a generation.
pub(super) enum Found {
    /// It is this one.
    Known(Revision),
    /// It has to be looked up.
    Unknown,
}

impl Switched {
    pub(super) fn new(tables: impl IntoIterator<Item = TableId>) -> Self {
        Self {
            begun: AtomicU64::new(0),
            settled: AtomicU64::new(0),
            tables: RwLock::new(tables.into_iter().map(|table| (table, None)).collect()),
        }
    }

    /// Whether a table has a generation other than 0 in any partition.
    pub(super) fn contains(&self, table: TableId) -> bool {
        self.tables.read().contains_key(&table)
    }

    /// Notes a table that is going to be switched.
    pub(super) fn note(&self, table: TableId) {
        self.tables.write().entry(table).or_insert(None);
    }

    /// Every switch up to this number is seen by a snapshot that is taken now.
    pub(super) fn settled(&self) -> u64 {
        self.settled.load(Ordering::Acquire)
    }

    /// A batch with switches is going to be committed.
    pub(super) fn begin(&self) {
        self.begun.fetch_add(1, Ordering::AcqRel);
    }

    /// The batch of the last [`Switched::begin`] is visible.
    pub(super) fn settle(&self, switches: Vec<(TableId, PartitionId, Revision)>) {
        let mut tables = self.tables.write();
        let switch = self.begun.load(Ordering::Acquire);
        for (table, partition, generation) in switches {
            tables.insert(table, Some(Known { partition, generation, switch }));
        }
        self.settled.store(switch, Ordering::Release);
    }

    /// The generation that a snapshot sees which was taken after `settled` was asked for.
    pub(super) fn find(&self, partition: &PartitionId, table: TableId, settled: u64) -> Found {
        // Asked before the table is looked at: what settles later cannot have been visible to the snapshot.
        let quiet = self.is_quiet();
        match self.tables.read().get(&table) {
            None => Found::Known(Revision(0)),
            Some(Some(known)) if quiet && known.switch <= settled && known.partition == *partition => {
                Found::Known(known.generation)
            }
            Some(_) => Found::Unknown,
        }
    }

    /// Remembers what such a snapshot was found to see.
    pub(super) fn learn(&self, partition: &PartitionId, table: TableId, generation: Revision, settled: u64) {
        if !matches!(self.tables.read().get(&table), Some(None)) {
            return;
        }
        let mut tables = self.tables.write();
        if let Some(known @ None) = tables.get_mut(&table)
            && self.is_quiet()
            && self.settled() == settled
        {
            *known = Some(Known { partition: partition.clone(), generation, switch: settled });
        }
    }

    fn is_quiet(&self) -> bool {
        let settled = self.settled();
        self.begun.load(Ordering::Acquire) == settled
    }
}

#[cfg(test)]
mod tests {
    use model::id::{DatabaseId, SchemaId};

    use super::*;

    const TABLE: TableId = TableId(7);

    fn partition(schema: u32) -> PartitionId {
        PartitionId::default_of(DatabaseId(1), SchemaId(schema))
    }

    fn known(switched: &Switched, schema: u32, settled: u64) -> Option<u64> {
        match switched.find(&partition(schema), TABLE, settled) {
            Found::Known(generation) => Some(generation.0),
            Found::Unknown => None,
        }
    }

    #[test]
    fn a_switch_is_known_to_snapshots_that_were_taken_when_it_had_settled() {
        let switched = Switched::new([]);
        let before = switched.settled();
        assert_eq!(known(&switched, 1, before), Some(0));
        switched.note(TABLE);
        assert_eq!(known(&switched, 1, before), None);
        switched.begin();
        let during = switched.settled();
        assert_eq!(known(&switched, 1, during), None);
        switched.settle(vec![(TABLE, partition(1), Revision(5))]);
        // It may see the switch or not: it was taken while the batch was on its way.
        assert_eq!(known(&switched, 1, during), None);
        let after = switched.settled();
        assert_eq!(known(&switched, 1, after), Some(5));
        assert_eq!(known(&switched, 2, after), None);
        // The next one may be visible already to a snapshot that is taken now.
        switched.begin();
        assert_eq!(known(&switched, 1, after), None);
        switched.settle(vec![(TABLE, partition(1), Revision(9))]);
        assert_eq!(known(&switched, 1, after), None);
        assert_eq!(known(&switched, 1, switched.settled()), Some(9));
    }

    #[test]
    fn what_was_looked_up_is_remembered_unless_a_switch_came_in_between() {
        let switched = Switched::new([TABLE]);
        let before = switched.settled();
        switched.begin();
        switched.learn(&partition(1), TABLE, Revision(3), before);
        assert_eq!(known(&switched, 1, before), None);
        switched.settle(vec![(TableId(8), partition(1), Revision(4))]);
        switched.learn(&partition(1), TABLE, Revision(3), before);
        assert_eq!(known(&switched, 1, before), None);
        let now = switched.settled();
        switched.learn(&partition(1), TABLE, Revision(3), now);
        assert_eq!(known(&switched, 1, now), Some(3));
    }
}
