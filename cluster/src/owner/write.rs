//! Commands: locks, descriptors, stamp, proposal.
//!
//! Invariants:
//! - An autocommit command takes all its locks in one order (tables, then rows, then unique keys), so that two of them
//!   never wait for each other in a circle.
//! - Locks are given back where the command was applied, before its client hears of it; a client that goes away changes
//!   nothing about that.
//! - What is not proposed had no effect, and its error says so.
//! - Whatever is proposed was admitted by the log first, but for a claim: on a full disk there is room for it.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use bytes::Bytes;
use model::{
    command::{Command, Condition, ENTRY_WRITES_MAX, LockSet, Outcome, Rejection, Write},
    id::TableId,
    load::{Loaded, PART_BYTES},
    port::{LockMode, Lockable},
};
use storage::{
    codec::entry::{self, Body, Close, Entry, encode_command, encode_large},
    log::{Admitted, Use},
    shard::EntryOutcome,
};

use super::{
    Owner,
    lock::{Held, Locks, implied, join},
    refusal,
};
use crate::{
    Error, Result,
    admission::Pass,
    raft::{self, Applied},
};

/// The largest command, in bytes: what one transaction may write.
pub(super) const TRANSACTION_BYTES_MAX: usize = 256 << 20;

/// What a command in flight holds until it is applied.
struct InFlight {
    _locks: Keep,
    _pass: Pass,
    _room: Admitted,
}

/// The locks of a command.
enum Keep {
    /// Its own.
    Command {
        /// Given back when dropped.
        _held: Held,
    },
    /// Those of the transaction it ends.
    Transaction(Arc<Locks>, LockSet),
}

impl Drop for Keep {
    fn drop(&mut self) {
        if let Self::Transaction(locks, set) = self {
            locks.release(*set, None);
        }
    }
}

impl Owner {
    /// Executes a command: waits for its locks, proposes it, and answers what came of it.
    pub(crate) async fn execute(
        self: &Arc<Self>,
        pass: Pass,
        command: &mut Command,
        loaded: Option<&Loaded>,
        lock_wait: Duration,
    ) -> Result<Outcome> {
        let started = self.timer.now();
        let room = room_of(command, loaded);
        self.check_room(loaded, room)?;
        if let Some(missing) = self.bring_for_command(command, loaded).await? {
            return Ok(Outcome::Rejected(Rejection::TableMissing { table: missing }));
        }
        let keep = self.take_locks(command, loaded, lock_wait).await?;
        if let Some(time_left) = &mut command.time_left {
            let waited = u64::try_from((self.timer.now() - started).as_micros()).unwrap_or(u64::MAX);
            *time_left = time_left.saturating_sub(waited);
            if *time_left == 0 {
                return Ok(Outcome::Rejected(Rejection::DeadlinePassed));
            }
        }
        let entry = if let Some(loaded) = loaded {
            self.end_load(command, loaded)?
        } else if command.writes.len() > ENTRY_WRITES_MAX {
            self.stage(command, room).await?
        } else {
            let mut entry = Vec::with_capacity(256);
            encode_command(&mut entry, &self.stamp(), command);
            if entry.len() <= self.entry_bytes_max() {
                Bytes::from(entry)
            } else {
                self.stage(command, room).await?
            }
        };
        let room = self.log.admit(entry.len() as u64, room)?;
        let in_flight: raft::InFlight = Box::new(InFlight { _locks: keep, _pass: pass, _room: room });
        match self.consensus.propose(entry, Some(in_flight)).await {
            Ok(Applied::Shard(EntryOutcome::Command(outcome))) => Ok(outcome),
            Ok(Applied::Shard(_) | Applied::Control(_) | Applied::Nothing) => {
                unreachable!("a command is answered with its outcome")
            }
            Err(refused) => Err(self.refused(refused)),
        }
    }

    /// Stages a command that is larger than an entry, part by part; answers the entry that closes it.
    ///
    /// One at a time per shard, so that what is staged is bounded. A part that is not closed has no effect.
    async fn stage(self: &Arc<Self>, command: &Command, room: Use) -> Result<Bytes> {
        let _turn = self.staging.lock().await;
        if let Some(entry) = self.stage_inserts(command).await? {
            return Ok(entry);
        }
        let mut whole = Vec::new();
        encode_large(&mut whole, command);
        if whole.len() > TRANSACTION_BYTES_MAX {
            return Err(Error::CommandTooLarge {
                given: whole.len(),
                max: TRANSACTION_BYTES_MAX,
                unit: "bytes",
            });
        }
        // It is written once more, with its entries of indexes, when all of it is applied.
        if room == Use::Common && !self.log.has_room(2 * whole.len() as u64)? {
            return Err(Error::Log(storage::log::Error::StorageFull));
        }
        let whole = Bytes::from(whole);
        let number = self.next_number();
        let partition = &command.partition;
        let slices = (0..whole.len()).step_by(PART_BYTES);
        let slices = slices.map(|from| whole.slice(from..whole.len().min(from + PART_BYTES)));
        let parts = self.stage_parts(partition, number, slices, room).await?;
        let close = Close { partition: partition.clone(), number, parts };
        Ok(entry::to_bytes(&Entry { stamp: self.stamp(), body: Body::Close(close) }))
    }

    async fn take_locks(
        self: &Arc<Self>,
        command: &Command,
        loaded: Option<&Loaded>,
        wait: Duration,
    ) -> Result<Keep> {
        let wants = self.wants(command, loaded);
        let Some(set) = command.locks else {
            let held = match self.locks.try_hold(&wants) {
                Some(held) => held,
                None => self.locks.hold(&wants, wait).await.map_err(refusal)?,
            };
            return Ok(Keep::Command { _held: held });
        };
        if set.epoch != self.epoch() {
            return Err(Error::LocksLost);
        }
        self.locks.complete(set, &wants, wait).await.map_err(refusal)?;
        Ok(Keep::Transaction(self.locks.clone(), set))
    }

    /// The locks a command needs, in the order in which all commands take them.
    fn wants(&self, command: &Command, loaded: Option<&Loaded>) -> Vec<(Lockable, LockMode)> {
        let mut wants =
            Vec::with_capacity(2 * command.writes.len().min(ENTRY_WRITES_MAX) + command.conditions.len());
        if command.writes.len() > ENTRY_WRITES_MAX {
            // A large command locks its tables instead of each row: readers go on, other writers of the tables wait.
            let tables: BTreeSet<TableId> = command.writes.iter().filter_map(table_of).collect();
            wants.extend(tables.into_iter().map(|table| (Lockable::Table(table), LockMode::Update)));
        } else {
            for write in &command.writes {
                self.want_for_write(&mut wants, write);
            }
        }
        wants.extend(loaded.map(|loaded| (Lockable::Table(loaded.table), LockMode::Update)));
        for condition in &command.conditions {
            want_for_condition(&mut wants, condition);
        }
        let implied: Vec<_> = wants.iter().filter_map(|(thing, mode)| implied(thing, *mode)).collect();
        wants.extend(implied);
        wants.sort_unstable_by(|(a, _), (b, _)| {
            let table_first = |thing: &Lockable| !matches!(thing, Lockable::Table(_));
            (table_first(a), a).cmp(&(table_first(b), b))
        });
        wants.dedup_by(|(thing, mode), (kept, kept_mode)| {
            let same = thing == kept;
            if same {
                *kept_mode = join(*kept_mode, *mode);
            }
            same
        });
        wants
    }

    fn want_for_write(&self, wants: &mut Vec<(Lockable, LockMode)>, write: &Write) {
        match write {
            Write::Insert { table, key, row } => {
                wants.push((Lockable::Row(*table, key.clone()), LockMode::Update));
                self.want_unique_keys(wants, *table, row);
            }
            Write::Put { table, key, row } => {
                wants.push((Lockable::Row(*table, key.clone()), LockMode::NoKeyUpdate));
                self.want_unique_keys(wants, *table, row);
            }
            Write::Delete { table, key } => {
                wants.push((Lockable::Row(*table, key.clone()), LockMode::Update));
            }
            Write::Program { table, key, .. } => {
                wants.push((Lockable::Row(*table, key.clone()), LockMode::Program));
            }
            Write::Truncate { table } => wants.push((Lockable::Table(*table), LockMode::Update)),
            // A sequence is no part of a transaction: its numbers are never given back.
            Write::Reserve { .. } | Write::SetSequence { .. } => {}
        }
    }

    fn want_unique_keys(&self, wants: &mut Vec<(Lockable, LockMode)>, table: TableId, row: &[u8]) {
        let Some(held) = self.state().held(table) else { return };
        wants.extend(
            held.unique_keys(row)
                .into_iter()
                .map(|(index, key)| (Lockable::Unique(table, index, key), LockMode::Update)),
        );
    }

    /// Refuses what will find no room, before anything waits for it.
    fn check_room(&self, loaded: Option<&Loaded>, room: Use) -> Result<()> {
        if self.log.is_read_only() && room == Use::Common {
            return Err(Error::Log(storage::log::Error::StorageFull));
        }
        // What is being applied must find room: the rows of a load are written again, with their entries of indexes.
        let staged = loaded.map_or(0, |loaded| self.loads.staged(loaded.id.number) as u64);
        if staged > 0 && !self.log.has_room(2 * staged)? {
            return Err(Error::Log(storage::log::Error::StorageFull));
        }
        Ok(())
    }
}

/// While the disk is full, only what makes room is let through.
fn room_of(command: &Command, loaded: Option<&Loaded>) -> Use {
    let frees = |write: &Write| matches!(write, Write::Delete { .. } | Write::Truncate { .. });
    if loaded.is_none() && command.writes.iter().all(frees) { Use::Reserve } else { Use::Common }
}

fn want_for_condition(wants: &mut Vec<(Lockable, LockMode)>, condition: &Condition) {
    match condition {
        // A row that was only read is judged when the command is applied: whoever changes it first goes on, and the other
        // is refused. Waiting here would let two serializable transactions that read each other's rows wait in a circle.
        Condition::RowRevision { .. } => {}
        Condition::RowAbsent { table, key } => {
            wants.push((Lockable::Row(*table, key.clone()), LockMode::Share));
        }
        Condition::RowExists { table, key } => {
            wants.push((Lockable::Row(*table, key.clone()), LockMode::KeyShare));
        }
        Condition::UniqueFree { table, index, key } => {
            wants.push((Lockable::Unique(*table, *index, key.clone()), LockMode::Share));
        }
        // Ranges are not locked: the condition is judged when the command is applied.
        Condition::RangeEmpty { .. } | Condition::RangeDigest { .. } | Condition::TableUntouched { .. } => {}
    }
}

/// The table a write names.
pub(super) fn table_of(write: &Write) -> Option<TableId> {
    match write {
        Write::Insert { table, .. }
        | Write::Put { table, .. }
        | Write::Delete { table, .. }
        | Write::Program { table, .. }
        | Write::Truncate { table } => Some(*table),
        Write::Reserve { .. } | Write::SetSequence { .. } => None,
    }
}

/// The table a condition names.
pub(super) fn table_of_condition(condition: &Condition) -> TableId {
    match condition {
        Condition::RowRevision { table, .. }
        | Condition::RowExists { table, .. }
        | Condition::RowAbsent { table, .. }
        | Condition::UniqueFree { table, .. }
        | Condition::RangeEmpty { table, .. }
        | Condition::RangeDigest { table, .. }
        | Condition::TableUntouched { table, .. } => *table,
    }
}

/// The tables a command names, each once.
pub(super) fn tables_of(command: &Command) -> Vec<TableId> {
    let mut tables: Vec<_> = command.writes.iter().filter_map(table_of).collect();
    tables.extend(command.conditions.iter().map(table_of_condition));
    tables.sort_unstable();
    tables.dedup();
    tables
}
