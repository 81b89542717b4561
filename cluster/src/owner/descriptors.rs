//! Descriptors: how a shard comes to hold the tables its commands and reads need.
//!
//! Invariants:
//! - A command is proposed only when the shard holds each of its tables in the catalog's newest version, as far as this
//!   node knows it; `apply` judges the rest.
//! - One entry at a time brings descriptors into a shard: whoever comes second finds them there.

use std::sync::Arc;

use model::{
    command::{Command, Write},
    id::{IndexId, SequenceId, TableId},
    load::Loaded,
    schema::Sequence,
};
use storage::{
    codec::entry::{Body, Descriptors as Entry, Held},
    log::Use,
    shard::Compiled,
};

use super::{
    Owner,
    write::{table_of, table_of_condition, tables_of},
};
use crate::{Result, catalog::Descriptors};

impl Owner {
    /// Brings what a command needs; answers a table that is gone.
    pub(super) async fn bring_for_command(
        &self,
        command: &Command,
        loaded: Option<&Loaded>,
    ) -> Result<Option<TableId>> {
        let descriptors = self.board.newest();
        // Most commands need nothing: no list is made for what the shard holds already.
        let mut last = None;
        let mut held = |table| {
            last == Some(table) || {
                last = Some(table);
                self.holds_newest(&descriptors, table)
            }
        };
        let writes = command.writes.iter().all(|write| table_of(write).is_some_and(&mut held));
        if loaded.is_none()
            && writes
            && command.conditions.iter().all(|condition| held(table_of_condition(condition)))
        {
            return Ok(None);
        }
        let mut tables = tables_of(command);
        tables.extend(loaded.map(|loaded| loaded.table));
        if let Some(gone) = tables.iter().find(|table| descriptors.catalog().table(**table).is_none()) {
            return Ok(Some(*gone));
        }
        let sequences: Vec<_> = command.writes.iter().filter_map(sequence_of).collect();
        self.bring(&tables, &sequences).await?;
        Ok(None)
    }

    /// Brings the newest descriptors of tables and sequences, as far as they are not here.
    pub(crate) async fn bring(&self, tables: &[TableId], sequences: &[SequenceId]) -> Result<()> {
        if self.missing(&self.board.newest(), tables, sequences) == Entry::default() {
            return Ok(());
        }
        for table in tables {
            if self.state().held(*table).is_none() {
                self.control.register(self.shard, *table).await?;
            }
        }
        let _one_at_a_time = self.bringing.lock().await;
        // Looked at under the lock: a change that was published before is seen, one that comes later waits for the lock.
        let missing = self.missing(&self.board.newest(), tables, sequences);
        if missing != Entry::default() {
            self.propose(Body::Descriptors(missing), Use::Reserve).await?;
        }
        Ok(())
    }

    /// Brings the newest descriptors of those of the tables and sequences that the shard holds in an older version, and
    /// drops those that are gone.
    pub(crate) async fn bring_to_holder(&self, tables: &[TableId], sequences: &[SequenceId]) -> Result<()> {
        let _one_at_a_time = self.bringing.lock().await;
        let state = self.state();
        let tables: Vec<_> = tables.iter().copied().filter(|id| state.held(*id).is_some()).collect();
        let sequences: Vec<_> =
            sequences.iter().copied().filter(|id| state.held_sequence(*id).is_some()).collect();
        drop(state);
        let descriptors = self.board.newest();
        let catalog = descriptors.catalog();
        let mut entry = self.missing(&descriptors, &tables, &sequences);
        entry.dropped_tables = tables.into_iter().filter(|id| catalog.table(*id).is_none()).collect();
        entry.dropped_sequences =
            sequences.into_iter().filter(|id| catalog.sequence(*id).is_none()).collect();
        if entry != Entry::default() {
            self.propose(Body::Descriptors(entry), Use::Reserve).await?;
        }
        Ok(())
    }

    /// How a read by an index finds it.
    pub(super) fn find_index(&self, table: TableId, index: IndexId) -> Found {
        match self.state().held(table) {
            None => Found::NoRows,
            Some(held) if held.table().find_index(index).is_some() => Found::Held,
            Some(_) => Found::Older,
        }
    }

    fn missing(&self, descriptors: &Descriptors, tables: &[TableId], sequences: &[SequenceId]) -> Entry {
        let catalog = descriptors.catalog();
        let stale = tables.iter().filter(|id| !self.holds_newest(descriptors, **id));
        let tables = stale
            .filter_map(|id| catalog.table(*id))
            .map(|table| Held { table: table.as_ref().clone(), since: descriptors.since(table.id) })
            .collect();
        let sequences = sequences
            .iter()
            .filter_map(|id| catalog.sequence(*id))
            .filter(|sequence| !is_held(self.state().held_sequence(sequence.id), sequence))
            .map(|sequence| sequence.as_ref().clone())
            .collect();
        Entry { tables, sequences, ..Entry::default() }
    }

    fn holds_newest(&self, descriptors: &Descriptors, table: TableId) -> bool {
        let version = |held: &Compiled| held.table().version;
        match (self.state().held(table), descriptors.catalog().table(table)) {
            (Some(held), Some(newest)) => version(&held) >= newest.version,
            (None, _) | (_, None) => false,
        }
    }
}

/// How a read by an index finds it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Found {
    /// The shard keeps the index.
    Held,
    /// The shard holds an older descriptor, without it.
    Older,
    /// The shard never had a row of the table.
    NoRows,
}

fn is_held(held: Option<Arc<Sequence>>, newest: &Sequence) -> bool {
    held.is_some_and(|held| *held == *newest)
}

fn sequence_of(write: &Write) -> Option<SequenceId> {
    match write {
        Write::Reserve { sequence, .. } | Write::SetSequence { sequence, .. } => Some(*sequence),
        Write::Insert { .. }
        | Write::Put { .. }
        | Write::Delete { .. }
        | Write::Program { .. }
        | Write::Truncate { .. } => None,
    }
}
