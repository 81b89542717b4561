//! Entries in order: one group is one engine batch.
//!
//! Everything an entry writes goes into the group's [`Overlay`]; what nearly every entry changes (revision, clocks,
//! counters, feed heads) is kept beside it and written once per group. A group that fails leaves no trace.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, atomic::Ordering},
};

use bytes::Bytes;
use hashbrown::HashMap;
use model::{
    command::{Command, Outcome, Rejection},
    id::{PartitionId, Revision, TableId},
    time::LoggedTime,
};

use super::{
    Backfilled, Compiled, Entry, EntryOutcome, Inner, Live, Payload, REMEMBERED_MAX, Remembered, Shard,
    Tables, identity::Judged, load::Staged, overlay::Overlay, switched::Found,
};
use crate::{
    codec::{
        self,
        entry::{Backfill, Body, Descriptors, Stamp},
        state::{self, Claim, Counters, FeedChange, FeedRecord, PartitionState},
    },
    cut,
    error::{Error, Result},
    keyspace::{self, due, family, meta},
};

/// After a partition's first feed record, its feed is looked at so much later.
const FEED_TICK_MICROS: u64 = 3_600 * 1_000_000;

/// What a small command writes: its row, what it leaves in an index, its feed record, its slot.
const WRITES_PER_ENTRY: usize = 4;

/// At most so many rows are added to an index by one entry.
const BACKFILL_ROWS_MAX: usize = 10_000;

impl Shard {
    /// Applies a group of entries that follow what was applied, and answers an outcome for each.
    ///
    /// All of it becomes visible at once. On an error nothing of it is, and the replica must stop.
    pub fn apply(&self, entries: &[Entry<'_>]) -> Result<Vec<EntryOutcome>> {
        self.apply_with(entries, true).map(Option::unwrap_or_default)
    }

    /// The same, but answers none where the engine would have to wait for something; then nothing was applied.
    pub fn try_apply(&self, entries: &[Entry<'_>]) -> Result<Option<Vec<EntryOutcome>>> {
        self.apply_with(entries, false)
    }

    fn apply_with(&self, entries: &[Entry<'_>], may_wait: bool) -> Result<Option<Vec<EntryOutcome>>> {
        let shard = &*self.0;
        let mut remembered = shard.applying.lock();
        if let Some(reason) = self.quarantined() {
            return Err(Error::Quarantined { shard: shard.id, reason });
        }
        let live = shard.live.read().clone();
        let apply = || apply_group(shard, live, &mut remembered, entries, may_wait);
        let applied = catch_unwind(AssertUnwindSafe(apply));
        if !matches!(applied, Ok(Ok(Some(_)))) {
            // What is remembered may be of entries that were not kept.
            *remembered = Remembered::default();
        }
        let applied = match applied {
            Ok(result) => result?,
            Err(panic) => {
                let reason = panic_message(&*panic);
                self.quarantine(reason.clone());
                return Err(Error::Quarantined { shard: shard.id, reason });
            }
        };
        let Some((after, tables, outcomes)) = applied else { return Ok(None) };
        if let Some(tables) = tables {
            *shard.descriptors.write() = tables;
        }
        let (revision, applied) = (after.head.revision.0, after.applied.index());
        *shard.live.write() = after;
        shard.revision.store(revision, Ordering::Release);
        shard.applied.store(applied.map_or(0, |index| index + 1), Ordering::Release);
        Ok(Some(outcomes))
    }
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic".to_owned())
}

type Applied = (Live, Option<Arc<Tables>>, Vec<EntryOutcome>);

fn apply_group(
    shard: &Inner,
    live: Live,
    remembered: &mut Remembered,
    entries: &[Entry<'_>],
    may_wait: bool,
) -> Result<Option<Applied>> {
    let mut group = Group {
        shard,
        live,
        tables: shard.descriptors.read().clone(),
        tables_changed: false,
        overlay: Overlay::new(&shard.keyspace, shard.engine.snapshot(), WRITES_PER_ENTRY * entries.len()),
        remembered,
        counters: HashMap::new(),
        partitions: HashMap::new(),
        switches: Vec::new(),
        buries: false,
    };
    let mut outcomes = Vec::with_capacity(entries.len());
    for entry in entries {
        outcomes.push(group.apply(entry)?);
    }
    let committed = group.commit(may_wait)?;
    Ok(committed.map(|(live, tables)| (live, tables, outcomes)))
}

/// A group of entries on its way into one batch.
pub(super) struct Group<'a> {
    pub(super) shard: &'a Inner,
    pub(super) live: Live,
    pub(super) tables: Arc<Tables>,
    tables_changed: bool,
    pub(super) overlay: Overlay<'a>,
    pub(super) remembered: &'a mut Remembered,
    counters: HashMap<Bytes, Counters>,
    partitions: HashMap<Bytes, PartitionState>,
    /// Generations that the batch makes those of their tables.
    pub(super) switches: Vec<(TableId, PartitionId, Revision)>,
    /// There is something new for the collector.
    buries: bool,
}

impl Group<'_> {
    fn apply(&mut self, entry: &Entry<'_>) -> Result<EntryOutcome> {
        let given = entry.log_id.index;
        if let Some(applied) = self.live.applied.index()
            && given != applied + 1
        {
            return Err(Error::OutOfOrder { shard: self.shard.id, applied, given });
        }
        let outcome = match entry.payload {
            Payload::Blank => EntryOutcome::Done,
            Payload::Membership(membership) => {
                self.live.applied.membership = Bytes::copy_from_slice(membership);
                EntryOutcome::Done
            }
            Payload::Encoded(bytes) => self.entry(&codec::entry::decode(bytes)?)?,
            Payload::Decoded(entry) => self.entry(entry)?,
        };
        self.live.applied.log_id = Some(entry.log_id);
        Ok(outcome)
    }

    fn entry(&mut self, entry: &codec::entry::Entry) -> Result<EntryOutcome> {
        let stamp = &entry.stamp;
        if let Body::Claim { epoch, node, boot, nonce } = entry.body {
            if epoch <= self.live.head.claim.epoch {
                return Ok(EntryOutcome::Fenced);
            }
            self.live.head.claim = Claim { epoch, node, boot, nonce };
            self.advance(stamp.time);
            return Ok(EntryOutcome::Done);
        }
        if stamp.epoch != self.live.head.claim.epoch {
            return Ok(match entry.body {
                Body::Command(_) | Body::Close(_) | Body::Load(_) => {
                    EntryOutcome::Command(Outcome::Rejected(Rejection::Fenced))
                }
                Body::Descriptors(_)
                | Body::Claim { .. }
                | Body::Clock
                | Body::Backfill(_)
                | Body::Expire { .. }
                | Body::RaiseSemantics(_)
                | Body::Part(_)
                | Body::LoadAbort { .. } => EntryOutcome::Fenced,
            });
        }
        self.advance(stamp.time);
        Ok(match &entry.body {
            Body::Command(command) => EntryOutcome::Command(self.command(command, stamp)?),
            Body::Descriptors(descriptors) => {
                self.descriptors(descriptors);
                EntryOutcome::Done
            }
            Body::Claim { .. } | Body::Clock => EntryOutcome::Done,
            Body::Part(part) => {
                self.stage(part);
                EntryOutcome::Done
            }
            Body::Close(close) => EntryOutcome::Command(self.close(close, stamp)?),
            Body::Load(load) => EntryOutcome::Command(self.load(load, stamp)?),
            Body::LoadAbort { partition, number } => {
                self.abort_load(partition, *number)?;
                EntryOutcome::Done
            }
            Body::Backfill(backfill) => EntryOutcome::Backfilled(self.backfill(backfill)?),
            Body::Expire { due, feed } => EntryOutcome::Expired(self.expire(due, *feed)?),
            Body::RaiseSemantics(version) => {
                if *version > model::expr::SEMANTICS {
                    let number = u64::from(*version);
                    return Err(codec::Error::Unknown { what: "the semantics version", number }.into());
                }
                self.live.head.semantics = self.live.head.semantics.max(*version);
                EntryOutcome::Done
            }
        })
    }

    /// The logged clocks go on, never back.
    fn advance(&mut self, time: LoggedTime) {
        let clocks = &mut self.live.head.time;
        clocks.elapsed = clocks.elapsed.max(time.elapsed);
        clocks.wall = clocks.wall.max(time.wall);
    }

    /// At most once, in time, then judged and executed.
    pub(super) fn command(&mut self, command: &Command, stamp: &Stamp) -> Result<Outcome> {
        self.command_with(command, None, stamp)
    }

    /// As [`Group::command`], with the rows of a load.
    pub(super) fn command_with(
        &mut self,
        command: &Command,
        staged: Option<&Staged>,
        stamp: &Stamp,
    ) -> Result<Outcome> {
        let ticket = match self.judge_identity(command)? {
            Judged::Answer(outcome) => return Ok(outcome),
            Judged::Execute(ticket) => ticket,
        };
        let deadline = command.time_left.map(|left| stamp.time.elapsed.saturating_add(left));
        let outcome = if deadline.is_some_and(|deadline| deadline < self.live.head.time.elapsed) {
            Outcome::Rejected(Rejection::DeadlinePassed)
        } else {
            self.execute(command, staged)?
        };
        self.remember(command, ticket, deadline, &outcome)?;
        Ok(outcome)
    }

    fn descriptors(&mut self, descriptors: &Descriptors) {
        let mut dead = Vec::new();
        let tables = Arc::make_mut(&mut self.tables);
        for held in &descriptors.tables {
            let id = held.table.id;
            // A descriptor that came before is not replaced by an older one.
            if tables.tables.get(&id).is_some_and(|known| known.table().version > held.table.version) {
                continue;
            }
            let compiled = Compiled::new(held.clone());
            if let Some(known) = tables.tables.get(&id) {
                for index in known.indexes() {
                    if compiled.find_index(index.id).is_none() {
                        dead.push(keyspace::dead_index_key(id, index.id));
                    }
                }
            }
            let key = keyspace::meta_number_key(meta::TABLE, id.0);
            self.overlay.put(Bytes::copy_from_slice(&key), state::held_to_bytes(held));
            tables.tables.insert(id, Arc::new(compiled));
        }
        for sequence in &descriptors.sequences {
            let key = keyspace::meta_number_key(meta::SEQUENCE, sequence.id.0);
            self.overlay.put(Bytes::copy_from_slice(&key), state::sequence_to_bytes(sequence));
            tables.sequences.insert(sequence.id, Arc::new(sequence.clone()));
        }
        for id in &descriptors.dropped_tables {
            let key = keyspace::meta_number_key(meta::TABLE, id.0);
            self.overlay.delete(Bytes::copy_from_slice(&key));
            dead.push(keyspace::dead_table_key(*id));
            tables.tables.remove(id);
        }
        for id in &descriptors.dropped_sequences {
            let key = keyspace::meta_number_key(meta::SEQUENCE, id.0);
            self.overlay.delete(Bytes::copy_from_slice(&key));
            tables.sequences.remove(id);
        }
        for record in dead {
            self.bury(record);
        }
        self.tables_changed = true;
    }

    fn backfill(&mut self, backfill: &Backfill) -> Result<Backfilled> {
        let Some(table) = self.tables.tables.get(&backfill.table).cloned() else {
            return Ok(Backfilled::Gone);
        };
        let Some(index) = table.find_index(backfill.index).filter(|index| index.building) else {
            return Ok(Backfilled::Gone);
        };
        let partition = &backfill.partition;
        let generation = self.generation(partition, backfill.table)?;
        let rows = keyspace::rows_prefix(partition, backfill.table, generation);
        let prefix =
            keyspace::index_prefix(partition, backfill.table, generation, backfill.index, index.unique);
        let from = [&rows, &*backfill.from].concat();
        let to = model::read::after_prefix(&rows);
        let limit = (backfill.limit as usize).clamp(1, BACKFILL_ROWS_MAX);
        let page = self.overlay.range(&from, to.as_deref(), limit)?;
        for (key, row) in &page {
            let row_key = &key[rows.len()..];
            let view = super::execute::view(row)?;
            let entry = match table.index_key(index, &view, row_key) {
                Ok(Some(entry)) => entry,
                Ok(None) => continue,
                Err(fault) => return Err(Error::damaged(format!("a row of {}: {fault:?}", backfill.table))),
            };
            let full = [&prefix, entry.entry.as_slice()].concat();
            let value = super::read::index_value(&entry, row_key);
            if entry.exclusive
                && let Some(holder) = self.overlay.get(&full)?
                && holder != value
            {
                return Ok(Backfilled::Duplicate(Bytes::copy_from_slice(entry.columns())));
            }
            self.overlay.put(full, value);
        }
        Ok(match page.last() {
            Some((key, _)) if page.len() == limit => {
                Backfilled::Next([&key[rows.len()..], &[0]].concat().into())
            }
            Some(_) | None => Backfilled::End,
        })
    }

    /// The generation of a table's storage as the group sees it.
    pub(super) fn generation(&self, partition: &PartitionId, table: TableId) -> Result<Revision> {
        let own = self.switches.iter().rev().find(|(switched, of, _)| *switched == table && of == partition);
        if let Some((_, _, generation)) = own {
            return Ok(*generation);
        }
        // Nobody else switches: what is settled is what there is.
        let switched = &self.shard.switched;
        let settled = switched.settled();
        if let Found::Known(generation) = switched.find(partition, table, settled) {
            return Ok(generation);
        }
        let generation = match self.overlay.get(&keyspace::storage_key(partition, table))? {
            Some(bytes) => state::decode_revision(&bytes)?,
            None => Revision(0),
        };
        switched.learn(partition, table, generation, settled);
        Ok(generation)
    }

    /// Notes that nobody will see something any more.
    pub(super) fn bury(&mut self, record: Vec<u8>) {
        self.overlay.put(record, Bytes::new());
        self.buries = true;
    }

    /// The counters of a table in a partition; written once, when the group ends. The first use makes the partition one
    /// that the table has rows in.
    pub(super) fn counters(&mut self, partition: &PartitionId, table: TableId) -> Result<&mut Counters> {
        let key = Bytes::from(keyspace::counter_key(partition, table));
        if !self.counters.contains_key(&key) {
            let counters = match self.known_counters(&key)? {
                Some(counters) => counters,
                None => {
                    self.overlay.put(keyspace::partition_key(table, partition), Bytes::new());
                    Counters::default()
                }
            };
            self.counters.insert(key.clone(), counters);
        }
        Ok(self.counters.get_mut(&key).expect("it was put there"))
    }

    /// The counters of a table in a partition, without making it one that the table has rows in.
    pub(super) fn peek_counters(&self, partition: &PartitionId, table: TableId) -> Result<Counters> {
        let key = keyspace::counter_key(partition, table);
        match self.counters.get(key.as_slice()) {
            Some(counters) => Ok(*counters),
            None => Ok(self.known_counters(&key)?.unwrap_or_default()),
        }
    }

    /// Counters as the group found them.
    fn known_counters(&self, key: &[u8]) -> Result<Option<Counters>> {
        if let Some(counters) = self.remembered.counters.get(key) {
            return Ok(Some(*counters));
        }
        Ok(self.overlay.get(key)?.map(|bytes| Counters::decode(&bytes)).transpose()?)
    }

    /// A partition's own state; written once, when the group ends.
    pub(super) fn partition_state(&mut self, partition: &PartitionId) -> Result<&mut PartitionState> {
        let key = Bytes::from(keyspace::counter_key(partition, keyspace::PARTITION_ITSELF));
        if !self.partitions.contains_key(&key) {
            let state = match self.remembered.partitions.get(&key) {
                Some(state) => *state,
                None => match self.overlay.get(&key)? {
                    Some(bytes) => PartitionState::decode(&bytes)?,
                    None => PartitionState::default(),
                },
            };
            self.partitions.insert(key.clone(), state);
        }
        Ok(self.partitions.get_mut(&key).expect("it was put there"))
    }

    /// Adds a record to a partition's feed.
    pub(super) fn feed(&mut self, partition: &PartitionId, changes: Vec<FeedChange>) -> Result<()> {
        let revision = self.live.head.revision;
        let time = self.live.head.time;
        let state = self.partition_state(partition)?;
        let record = FeedRecord { previous: state.feed_last, time, changes };
        state.feed_last = revision;
        state.feed_records += 1;
        if state.feed_due == 0 {
            state.feed_due = time.elapsed.saturating_add(FEED_TICK_MICROS);
            let due = state.feed_due;
            self.overlay.put(keyspace::due_key(due::FEED, due, partition, &[]), Bytes::new());
        }
        let mut key = Vec::with_capacity(32 + partition.as_bytes().len());
        key.extend_from_slice(&keyspace::family_prefix(partition, family::FEED));
        key.extend_from_slice(&revision.0.to_be_bytes());
        self.overlay.put(key, record.to_bytes());
        Ok(())
    }

    /// Puts a partition's feed up to be looked at again.
    pub(super) fn rearm_feed(&mut self, partition: &PartitionId, at_once: bool) -> Result<()> {
        let now = self.live.head.time.elapsed;
        let state = self.partition_state(partition)?;
        state.feed_due = if state.feed_records == 0 {
            0
        } else if at_once {
            now.max(1)
        } else {
            now.saturating_add(FEED_TICK_MICROS)
        };
        let due = state.feed_due;
        if due != 0 {
            self.overlay.put(keyspace::due_key(due::FEED, due, partition, &[]), Bytes::new());
        }
        Ok(())
    }

    /// Everything of the group, as one batch. None, and nothing was written, if it may not wait: where the engine would have to,
    /// and for what switches a table's storage, which is never done at once.
    fn commit(self, may_wait: bool) -> Result<Option<(Live, Option<Arc<Tables>>)>> {
        if !may_wait && !self.switches.is_empty() {
            return Ok(None);
        }
        let keyspace = &self.shard.keyspace;
        let mut batch = self.overlay.into_batch(4 + self.counters.len() + self.partitions.len());
        for (key, counters) in &self.counters {
            batch.put(keyspace, key.clone(), counters.to_bytes());
        }
        for (key, state) in &self.partitions {
            batch.put(keyspace, key.clone(), state.to_bytes());
        }
        let meta_key = |kind| Bytes::copy_from_slice(&keyspace::meta_key(kind));
        if self.shard.applied.load(Ordering::Acquire) == 0 {
            let format = state::revision_to_bytes(Revision(super::FORMAT));
            batch.put(keyspace, meta_key(meta::FORMAT), format);
        }
        batch.put(keyspace, meta_key(meta::HEAD), self.live.head.to_bytes());
        batch.put(keyspace, meta_key(meta::APPLIED), self.live.applied.to_bytes());
        cut::point("apply.before");
        let switches = !self.switches.is_empty();
        if switches {
            self.shard.switched.begin();
        }
        let engine = &self.shard.engine;
        let is_done = if may_wait { engine.commit(batch).map(|()| true) } else { engine.try_commit(batch) };
        if !is_done? {
            return Ok(None);
        }
        if switches {
            self.shard.switched.settle(self.switches);
        }
        if self.buries {
            self.shard.buried.store(true, Ordering::Release);
        }
        cut::point("apply.committed");
        remember(&mut self.remembered.counters, self.counters);
        remember(&mut self.remembered.partitions, self.partitions);
        Ok(Some((self.live, self.tables_changed.then_some(self.tables))))
    }
}

/// Adds what a group left, and keeps the whole bounded.
fn remember<T>(remembered: &mut HashMap<Bytes, T>, left: HashMap<Bytes, T>) {
    if remembered.len() + left.len() > REMEMBERED_MAX {
        remembered.clear();
    }
    remembered.extend(left);
}
