//! Loads: rows that come before the command which adds them, so that nobody has to hold them all.
//!
//! Invariants:
//! - What is staged has no effect before its command is applied. It dies with the claim under which it was begun.
//! - What one load stages is bounded, and what all of a shard do.
//! - A load that is given up is removed from the state; if its gateway cannot say so any more, a sweep removes it.
//!
//! Not here: what apply makes of it (`storage::shard`).

use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use hashbrown::HashMap;
use model::{
    command::{Command, ENTRY_BYTES_MAX, ENTRY_WRITES_MAX, Write},
    id::{PartitionId, TableId},
    load::{LoadId, Loaded, PART_BYTES, Rows},
    port::BoxFuture,
};
use parking_lot::Mutex;
use storage::{
    codec::entry::{self, Body, Entry, Load, Part},
    cut,
    log::Use,
    shard::EntryOutcome,
};

use super::{Owner, write::TRANSACTION_BYTES_MAX};
use crate::{Error, Result, admission::Pass, raft::Applied};

/// What all loads of a shard may have staged.
const STAGED_BYTES_MAX: usize = 1 << 30;

/// What the entry of a load has beside its command, at most.
const LOAD_BYTES: usize = 64;

/// Parts of one command that are on their way at once.
const PARTS_AHEAD: usize = 2;

/// The open loads of this claim: how many bytes each has staged.
#[derive(Debug, Default)]
pub(super) struct Loads(Mutex<HashMap<u64, usize>>);

impl Loads {
    fn begin(&self, number: u64) {
        self.0.lock().insert(number, 0);
    }

    fn add(&self, number: u64, bytes: usize) -> Result<()> {
        let mut loads = self.0.lock();
        let all: usize = loads.values().sum();
        let own = loads.get_mut(&number).ok_or(Error::LoadLost)?;
        let given = *own + bytes;
        if given > TRANSACTION_BYTES_MAX {
            return Err(Error::CommandTooLarge { given, max: TRANSACTION_BYTES_MAX, unit: "bytes" });
        }
        if all + bytes > STAGED_BYTES_MAX {
            return Err(Error::TooMany { what: "bytes of loads that are not done", max: STAGED_BYTES_MAX });
        }
        *own = given;
        Ok(())
    }

    /// What one has staged.
    pub(super) fn staged(&self, number: u64) -> usize {
        self.0.lock().get(&number).copied().unwrap_or_default()
    }

    fn end(&self, number: u64) {
        self.0.lock().remove(&number);
    }

    /// A new claim: those of older ones are dead.
    pub(super) fn clear(&self) {
        self.0.lock().clear();
    }
}

impl Owner {
    /// Begins a load.
    pub(crate) fn begin_load(&self, _pass: &Pass) -> LoadId {
        let load = LoadId { epoch: self.epoch(), number: self.next_number() };
        self.loads.begin(load.number);
        load
    }

    /// Stages rows of a load.
    pub(crate) async fn load(
        self: Arc<Self>,
        _pass: Pass,
        partition: PartitionId,
        load: LoadId,
        sequence: u32,
        rows: Bytes,
    ) -> Result<()> {
        if load.epoch != self.epoch() {
            return Err(Error::LoadLost);
        }
        self.loads.add(load.number, rows.len())?;
        self.stage_part(Part { partition, number: load.number, sequence, bytes: rows }, Use::Common).await
    }

    /// Gives a load up.
    pub(crate) async fn abort_load(&self, partition: PartitionId, load: LoadId) -> Result<()> {
        if load.epoch != self.epoch() {
            return Ok(());
        }
        self.loads.end(load.number);
        self.propose(Body::LoadAbort { partition, number: load.number }, Use::Reserve).await.map(drop)
    }

    /// The entry that ends a load with its command.
    pub(super) fn end_load(&self, command: &Command, loaded: &Loaded) -> Result<Bytes> {
        if loaded.id.epoch != self.epoch() {
            return Err(Error::LoadLost);
        }
        self.loads.end(loaded.id.number);
        let Loaded { id, parts, table } = *loaded;
        let load = Load { number: id.number, parts, table, command: command.clone() };
        let entry = entry::to_bytes(&Entry { stamp: self.stamp(), body: Body::Load(load) });
        let max = self.entry_bytes_max();
        if entry.len() > max {
            return Err(Error::CommandTooLarge { given: entry.len(), max, unit: "bytes" });
        }
        Ok(entry)
    }

    /// The largest entry that this log takes.
    pub(super) fn entry_bytes_max(&self) -> usize {
        ENTRY_BYTES_MAX.min(self.log.payload_bytes_max())
    }

    /// Stages the rows that a large command inserts, if nothing but a little else is in it: answers the entry that ends the
    /// load. None if the command is of another kind.
    pub(super) async fn stage_inserts(self: &Arc<Self>, command: &Command) -> Result<Option<Bytes>> {
        let Some((table, from)) = inserts(&command.writes) else { return Ok(None) };
        let head = Command { writes: command.writes[..from].to_vec(), ..without_writes(command) };
        let mut encoded = Vec::new();
        entry::encode_command(&mut encoded, &self.stamp(), &head);
        if encoded.len() + LOAD_BYTES > self.entry_bytes_max() {
            return Ok(None);
        }
        let rows = || command.writes[from..].iter().filter_map(inserted);
        let given: usize = rows().map(|(key, row)| key.len() + row.len() + 6).sum();
        if given > TRANSACTION_BYTES_MAX {
            return Err(Error::CommandTooLarge { given, max: TRANSACTION_BYTES_MAX, unit: "bytes" });
        }
        if !self.log.has_room(2 * given as u64)? {
            return Err(Error::Log(storage::log::Error::StorageFull));
        }
        let number = self.next_number();
        let mut rest = rows().peekable();
        let buffers = std::iter::from_fn(|| {
            rest.peek()?;
            let mut buffer = Rows::with_capacity(PART_BYTES);
            while let Some((key, row)) = rest.next_if(|(key, row)| {
                buffer.is_empty() || buffer.bytes() + key.len() + row.len() + 6 <= PART_BYTES
            }) {
                let put = |out: &mut Vec<u8>| {
                    out.extend_from_slice(row);
                    Ok::<_, std::convert::Infallible>(())
                };
                let Ok(()) = buffer.push(key, put);
            }
            Some(buffer)
        });
        let parts = buffers.flat_map(Rows::into_parts);
        let parts = self.stage_parts(&command.partition, number, parts, Use::Common).await?;
        let loaded = Loaded { id: LoadId { epoch: self.epoch(), number }, parts, table };
        self.end_load(&head, &loaded).map(Some)
    }

    /// Stages parts in order; answers how many there were. On an error none stays.
    pub(super) async fn stage_parts(
        &self,
        partition: &PartitionId,
        number: u64,
        parts: impl Iterator<Item = Bytes> + Send,
        room: Use,
    ) -> Result<u32> {
        let parts = (0..).zip(parts).map(|(sequence, bytes)| Part {
            partition: partition.clone(),
            number,
            sequence,
            bytes,
        });
        let staged = stream::iter(parts)
            .map(|part| -> BoxFuture<'_, Result<()>> { Box::pin(self.stage_part(part, room)) })
            .buffered(PARTS_AHEAD)
            .try_fold(0, |count, ()| async move { Ok(count + 1) })
            .await;
        if staged.is_err() {
            // If that fails too, a sweep removes them.
            let _ =
                self.propose(Body::LoadAbort { partition: partition.clone(), number }, Use::Reserve).await;
        }
        staged
    }

    /// Proposes a part; it is staged when this returns.
    async fn stage_part(&self, part: Part, room: Use) -> Result<()> {
        let entry = entry::to_bytes(&Entry { stamp: self.stamp(), body: Body::Part(part) });
        let room = self.log.admit(entry.len() as u64, room)?;
        match self.consensus.propose(entry, Some(Box::new(room))).await {
            Ok(Applied::Shard(EntryOutcome::Done)) => {
                cut::point("large.staged");
                Ok(())
            }
            // Another claim came in between: nothing was executed.
            Ok(Applied::Shard(_) | Applied::Control(_) | Applied::Nothing) => {
                Err(Error::NotServing { shard: self.shard })
            }
            Err(refused) => Err(self.refused(refused)),
        }
    }
}

fn without_writes(command: &Command) -> Command {
    let Command { identity, time_left, ref partition, principal, catalog, locks, ref conditions, writes: _ } =
        *command;
    Command {
        identity,
        time_left,
        partition: partition.clone(),
        principal,
        catalog,
        locks,
        conditions: conditions.clone(),
        writes: Vec::new(),
    }
}

fn inserted(write: &Write) -> Option<(&[u8], &[u8])> {
    match write {
        Write::Insert { key, row, .. } => Some((key, row)),
        Write::Put { .. }
        | Write::Delete { .. }
        | Write::Program { .. }
        | Write::Truncate { .. }
        | Write::Reserve { .. }
        | Write::SetSequence { .. } => None,
    }
}

/// From where on all writes are inserts into one table, and which; none if more comes before them than fits an entry.
fn inserts(writes: &[Write]) -> Option<(TableId, usize)> {
    let Some(Write::Insert { table, .. }) = writes.last() else { return None };
    let others = |write: &Write| !matches!(write, Write::Insert { table: of, .. } if of == table);
    let from = writes.iter().rposition(others).map_or(0, |last| last + 1);
    (from <= ENTRY_WRITES_MAX && from < writes.len()).then_some((*table, from))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn insert(table: u32) -> Write {
        Write::Insert { table: TableId(table), key: Bytes::new(), row: Bytes::new() }
    }

    #[test]
    fn only_the_inserts_at_the_end_that_are_of_one_table_are_staged_as_rows() {
        assert_eq!(inserts(&[insert(1), insert(1)]), Some((TableId(1), 0)));
        assert_eq!(inserts(&[insert(1), insert(2), insert(2)]), Some((TableId(2), 1)));
        let truncate = || Write::Truncate { table: TableId(1) };
        assert_eq!(inserts(&[truncate(), insert(1)]), Some((TableId(1), 1)));
        assert_eq!(inserts(&[insert(1), truncate()]), None);
        assert_eq!(inserts(&[]), None);
        let much: Vec<Write> = (0..=ENTRY_WRITES_MAX).map(|_| truncate()).chain([insert(1)]).collect();
        assert_eq!(inserts(&much), None);
    }

    #[test]
    fn what_is_staged_is_bounded_for_one_and_for_all() {
        let loads = Loads::default();
        assert!(matches!(loads.add(1, 1), Err(Error::LoadLost)));
        for number in 0..4 {
            loads.begin(number);
            loads.add(number, TRANSACTION_BYTES_MAX).unwrap();
            assert!(matches!(loads.add(number, 1), Err(Error::CommandTooLarge { .. })));
        }
        loads.begin(4);
        assert!(matches!(loads.add(4, 1), Err(Error::TooMany { .. })));
        loads.end(0);
        loads.add(4, 1).unwrap();
    }
}
