//! One command: its conditions judged on the state before, then its writes, all or nothing.
//!
//! Writes are collected first and judged as a whole: a unique key is free if nobody has it when all of the command is done,
//! so that `UPDATE t SET id = id + 1` over neighbouring rows is one command. Only then anything reaches the group.

use std::sync::Arc;

use bytes::Bytes;
use hashbrown::{HashMap, HashSet};
use model::{
    Code,
    command::{Command, Condition, Effect, Outcome, Receipt, Rejection, Write},
    expr::Program,
    id::{ColumnNumber, IndexId, PartitionId, Revision, SequenceId, TableId},
    read::after_prefix,
    row::{self, RowView},
    schema::Sequence,
};

use super::{
    Compiled,
    apply::Group,
    load::{Bulk, Staged},
    read::{index_value, revision_of, split_index_value},
    table::{IndexFault, IndexKey},
};
use crate::{
    codec::state::{self, FeedChange, FeedKind, SequenceState},
    error::{Error, Result},
    keyspace::{self, INDEX_KEY_BYTES_MAX, ROW_KEY_BYTES_MAX, meta},
};

/// How many rows a range digest covers at most.
const DIGEST_ROWS_MAX: usize = 1_000;

/// Up to so many touched rows are found by looking at each.
const LINEAR_MAX: usize = 8;

/// Looks at a stored row.
pub(super) fn view(row: &[u8]) -> Result<RowView<'_>> {
    RowView::new(row).map_err(|error| Error::damaged(format!("a stored row: {error}")))
}

/// Why a command ends early: the data says no, or the environment does.
pub(super) enum Stop {
    No(Rejection),
    Fault(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Fault(error)
    }
}

impl From<Rejection> for Stop {
    fn from(rejection: Rejection) -> Self {
        Self::No(rejection)
    }
}

pub(super) type Step<T> = std::result::Result<T, Stop>;

/// A table that a command reads or writes.
struct Target {
    id: TableId,
    compiled: Arc<Compiled>,
    generation: Revision,
    /// What its rows start with.
    rows: Vec<u8>,
    /// The command empties it first.
    truncated: bool,
    /// Rows at the truncation.
    truncated_rows: u64,
}

/// A row that a command touched.
struct Touched {
    target: usize,
    key: Bytes,
    before: Option<Bytes>,
    after: Option<Bytes>,
    /// It was added onto a row that is still there; a later delete takes that one away.
    added_onto: Option<Bytes>,
}

/// A command at work.
struct Work<'g, 'a> {
    group: &'g mut Group<'a>,
    partition: &'g PartitionId,
    catalog: model::id::CatalogVersion,
    revision: Revision,
    targets: Vec<Target>,
    touched: Vec<Touched>,
    /// Where a row is in `touched`, once there are many.
    places: HashMap<(usize, Bytes), usize>,
    sequences: Vec<(SequenceId, SequenceState)>,
}

impl Group<'_> {
    /// Judges and executes a command.
    pub(super) fn execute(&mut self, command: &Command, staged: Option<&Staged>) -> Result<Outcome> {
        let revision = Revision(self.live.head.revision.0 + 1);
        let mut work = Work {
            group: self,
            partition: &command.partition,
            catalog: command.catalog,
            revision,
            targets: Vec::new(),
            touched: Vec::with_capacity(command.writes.len().min(64)),
            places: HashMap::new(),
            sequences: Vec::new(),
        };
        match work.run(command, staged) {
            Ok(effects) => Ok(Outcome::Applied(Receipt { revision, effects })),
            Err(Stop::No(rejection)) => Ok(Outcome::Rejected(rejection)),
            Err(Stop::Fault(error)) => Err(error),
        }
    }
}

impl Work<'_, '_> {
    fn run(&mut self, command: &Command, staged: Option<&Staged>) -> Step<Vec<Effect>> {
        for condition in &command.conditions {
            self.judge(condition)?;
        }
        let mut effects = Vec::with_capacity(command.writes.len());
        for write in &command.writes {
            let effect = self.write(write)?;
            effects.push(effect);
        }
        let mut bulk = None;
        if let Some(staged) = staged {
            bulk = self.load(staged, &mut effects)?;
        }
        self.judge_added()?;
        self.publish(bulk)?;
        Ok(effects)
    }

    /// Adds the rows of a load. Those that go past the batch are only judged here, and answered.
    fn load<'s>(&mut self, staged: &'s Staged, effects: &mut Vec<Effect>) -> Step<Option<Bulk<'s>>> {
        let at = self.target(staged.table)?;
        let target = &self.targets[at];
        let empty = target.truncated || self.group.peek_counters(self.partition, target.id)?.rows == 0;
        if empty && self.touched.is_empty() && staged.is_large() {
            let bulk = Bulk::judge(staged, at, &target.compiled, self.partition, self.revision)?;
            self.truncate(staged.table)?;
            effects.push(Effect::Rows(bulk.rows));
            return Ok(Some(bulk));
        }
        let mut rows = 0;
        for row in staged.rows() {
            let (part, key, row) = row?;
            self.insert(staged.table, &part.slice_ref(key), row)?;
            rows += 1;
        }
        effects.push(Effect::Rows(rows));
        Ok(None)
    }

    fn insert(&mut self, table: TableId, key: &Bytes, row: &[u8]) -> Step<()> {
        let at = self.touch(table, key)?;
        let row = self.stamp(row)?;
        let touched = &mut self.touched[at];
        if touched.added_onto.is_some() {
            return Err(taken(table, None, key));
        }
        if touched.after.is_some() {
            touched.added_onto = Some(row);
        } else {
            touched.after = Some(row);
        }
        Ok(())
    }

    /// The place of a table among the command's, with its descriptor checked.
    fn target(&mut self, id: TableId) -> Step<usize> {
        if let Some(at) = self.targets.iter().position(|target| target.id == id) {
            return Ok(at);
        }
        let Some(compiled) = self.group.tables.tables.get(&id).cloned() else {
            return Err(Rejection::TableMissing { table: id }.into());
        };
        if self.catalog < compiled.held().since {
            return Err(Rejection::DescriptorChanged { table: id }.into());
        }
        let generation = self.group.generation(self.partition, id)?;
        let rows = keyspace::rows_prefix(self.partition, id, generation);
        let target = Target { id, compiled, generation, rows, truncated: false, truncated_rows: 0 };
        self.targets.push(target);
        Ok(self.targets.len() - 1)
    }

    /// A row as it is before the command.
    fn stored(&self, target: usize, key: &[u8]) -> Result<Option<Bytes>> {
        let rows = &self.targets[target].rows;
        let mut full = Vec::with_capacity(rows.len() + key.len());
        full.extend_from_slice(rows);
        full.extend_from_slice(key);
        self.group.overlay.get(&full)
    }

    fn judge(&mut self, condition: &Condition) -> Step<()> {
        match condition {
            // A row that is looked at is most often written next, so it is remembered as touched.
            Condition::RowRevision { table, key, revision } => {
                let at = self.touch(*table, key)?;
                match &self.touched[at].before {
                    Some(row) if revision_of(row)? == *revision => Ok(()),
                    Some(_) | None => Err(Rejection::RowChanged { table: *table, key: key.clone() }.into()),
                }
            }
            Condition::RowExists { table, key } => {
                let at = self.touch(*table, key)?;
                match self.touched[at].before {
                    Some(_) => Ok(()),
                    None => Err(Rejection::RowMissing { table: *table, key: key.clone() }.into()),
                }
            }
            Condition::RowAbsent { table, key } => {
                let at = self.touch(*table, key)?;
                match self.touched[at].before {
                    None => Ok(()),
                    Some(_) => Err(taken(*table, None, key)),
                }
            }
            Condition::UniqueFree { table, index, key } => {
                let target = self.target(*table)?;
                let there = match self.index_prefix(target, *index)? {
                    None => self.stored(target, key)?.is_some(),
                    Some(prefix) => self.group.overlay.contains(&[&prefix, &**key].concat())?,
                };
                if there { Err(taken(*table, Some(*index), key)) } else { Ok(()) }
            }
            Condition::RangeEmpty { table, index, from, to } => {
                let target = self.target(*table)?;
                match self.range(target, *index, from, to, 1)?.is_empty() {
                    true => Ok(()),
                    false => Err(Rejection::RangeChanged { table: *table }.into()),
                }
            }
            Condition::RangeDigest { table, index, from, to, digest } => {
                let target = self.target(*table)?;
                let rows = self.range(target, *index, from, to, DIGEST_ROWS_MAX + 1)?;
                let mut pairs = Vec::with_capacity(rows.len());
                for (key, row) in &rows {
                    pairs.push((&**key, revision_of(row)?));
                }
                if rows.len() > DIGEST_ROWS_MAX || model::command::range_digest(pairs) != *digest {
                    return Err(Rejection::RangeChanged { table: *table }.into());
                }
                Ok(())
            }
            Condition::TableUntouched { table, since } => {
                self.target(*table)?;
                let counters = self.group.peek_counters(self.partition, *table)?;
                if counters.last_write > *since {
                    return Err(Rejection::RangeChanged { table: *table }.into());
                }
                Ok(())
            }
        }
    }

    /// What the entries of an index start with; none for the order of the rows themselves.
    fn index_prefix(&self, target: usize, index: IndexId) -> Step<Option<Vec<u8>>> {
        let Target { id, compiled, generation, .. } = &self.targets[target];
        if compiled.is_primary(index) {
            return Ok(None);
        }
        match compiled.find_index(index) {
            Some(plan) => {
                Ok(Some(keyspace::index_prefix(self.partition, *id, *generation, index, plan.unique)))
            }
            None => Err(Rejection::DescriptorChanged { table: *id }.into()),
        }
    }

    /// Rows of a range in the order of an access path, as they are before the command.
    fn range(
        &self,
        target: usize,
        index: Option<IndexId>,
        from: &[u8],
        to: &[u8],
        limit: usize,
    ) -> Step<Vec<(Bytes, Bytes)>> {
        let prefix = match index {
            Some(index) => self.index_prefix(target, index)?,
            None => None,
        };
        let rows = &self.targets[target].rows;
        let base = prefix.as_deref().unwrap_or(rows);
        let end = if to.is_empty() { after_prefix(base) } else { Some([base, to].concat().into()) };
        let found = self.group.overlay.range(&[base, from].concat(), end.as_deref(), limit)?;
        let mut pairs = Vec::with_capacity(found.len());
        for (key, value) in found {
            let suffix = key.slice(base.len()..);
            if prefix.is_none() {
                pairs.push((suffix, value));
                continue;
            }
            let row_key = Bytes::copy_from_slice(split_index_value(&suffix, &value)?);
            let row = self.stored(target, &row_key)?;
            let row = row.ok_or_else(|| Error::damaged("an index entry without its row"))?;
            pairs.push((row_key, row));
        }
        Ok(pairs)
    }

    /// The place of a row among the touched, with what it was before.
    fn touch(&mut self, table: TableId, key: &Bytes) -> Step<usize> {
        let target = self.target(table)?;
        if key.len() > ROW_KEY_BYTES_MAX {
            return Err(too_large(key.len(), ROW_KEY_BYTES_MAX));
        }
        let known = if self.touched.len() <= LINEAR_MAX {
            self.touched.iter().position(|row| row.target == target && row.key == *key)
        } else {
            self.places.get(&(target, key.clone())).copied()
        };
        if let Some(at) = known {
            return Ok(at);
        }
        let before = if self.targets[target].truncated { None } else { self.stored(target, key)? };
        let at = self.touched.len();
        let row = Touched { target, key: key.clone(), after: before.clone(), before, added_onto: None };
        self.touched.push(row);
        if self.touched.len() == LINEAR_MAX + 1 {
            self.index_places();
        } else if at > LINEAR_MAX {
            self.places.insert((target, key.clone()), at);
        }
        Ok(at)
    }

    fn index_places(&mut self) {
        self.places.clear();
        self.places
            .extend(self.touched.iter().enumerate().map(|(at, row)| ((row.target, row.key.clone()), at)));
    }

    fn write(&mut self, write: &Write) -> Step<Effect> {
        match write {
            Write::Insert { table, key, row } => {
                self.insert(*table, key, row)?;
                Ok(Effect::Rows(1))
            }
            Write::Put { table, key, row } => {
                let at = self.touch(*table, key)?;
                let row = self.stamp(row)?;
                let touched = &mut self.touched[at];
                if touched.added_onto.is_some() {
                    return Err(taken(*table, None, key));
                }
                touched.after = Some(row);
                Ok(Effect::Rows(1))
            }
            Write::Delete { table, key } => {
                let at = self.touch(*table, key)?;
                let touched = &mut self.touched[at];
                let there = touched.after.is_some();
                touched.after = touched.added_onto.take();
                Ok(Effect::Rows(u64::from(there)))
            }
            Write::Program { table, key, program, returning } => {
                self.program(*table, key, program, *returning)
            }
            Write::Truncate { table } => self.truncate(*table),
            Write::Reserve { sequence, count } => self.reserve(*sequence, *count),
            Write::SetSequence { sequence, value, called } => {
                self.sequence_of(*sequence)?;
                self.set_sequence(*sequence, SequenceState { value: *value, called: *called });
                Ok(Effect::Rows(1))
            }
        }
    }

    /// A row with this command's revision and time in it.
    fn stamp(&self, row: &[u8]) -> Step<Bytes> {
        if let Err(error) = RowView::new(row) {
            let message = error.to_string();
            return Err(Rejection::Program { code: Code::DataCorrupted, message }.into());
        }
        let mut row = row.to_vec();
        row::set_revision(&mut row, self.revision.0);
        row::set_updated_at(&mut row, self.group.live.head.time.wall.micros());
        Ok(row.into())
    }

    fn program(&mut self, table: TableId, key: &Bytes, program: &Program, returning: bool) -> Step<Effect> {
        let at = self.touch(table, key)?;
        let Touched { target, after, .. } = &self.touched[at];
        let Some(row) = after else { return Ok(Effect::Rows(0)) };
        let compiled = &self.targets[*target].compiled;
        let looked = view(row)?;
        let damaged =
            |error: row::RowError| Stop::Fault(Error::damaged(format!("a row of {table}: {error}")));
        let mut values = compiled.decode(&looked).map_err(damaged)?;
        let column = |number: ColumnNumber| values.get(usize::from(number.0).wrapping_sub(1)).cloned();
        let assigned = match program.run(&column) {
            Ok(Some(assigned)) => assigned,
            Ok(None) => return Ok(Effect::Rows(0)),
            Err(error) => return Err(failed(error.code(), error.message())),
        };
        for (number, value) in assigned {
            let place = usize::from(number.0).wrapping_sub(1);
            let Some(described) = compiled.table().columns.get(place) else {
                return Err(Rejection::DescriptorChanged { table }.into());
            };
            if value.is_null() && described.not_null {
                let message = format!(
                    "null value in column \"{}\" of relation \"{}\" violates not-null constraint",
                    described.name,
                    compiled.table().name
                );
                return Err(failed(Code::NotNullViolation, &message));
            }
            values[place] = value;
        }
        let mut encoded = Vec::with_capacity(row.len() + 16);
        if let Err(error) = row::encode(&values, compiled.types(), &mut encoded) {
            return Err(failed(Code::DatatypeMismatch, &error.to_string()));
        }
        let row = self.stamp(&encoded)?;
        self.touched[at].after = Some(row.clone());
        Ok(if returning { Effect::Row(row) } else { Effect::Rows(1) })
    }

    fn truncate(&mut self, table: TableId) -> Step<Effect> {
        let at = self.target(table)?;
        let mut rows = 0;
        if !self.targets[at].truncated {
            rows = self.group.peek_counters(self.partition, table)?.rows;
        }
        // Rows this command added or took away before count as it left them.
        for row in self.touched.iter().filter(|row| row.target == at) {
            rows = rows + u64::from(row.after.is_some()) - u64::from(row.before.is_some());
        }
        self.touched.retain(|row| row.target != at);
        if self.touched.len() > LINEAR_MAX {
            self.index_places();
        }
        let target = &mut self.targets[at];
        if !target.truncated {
            target.truncated = true;
            target.truncated_rows = rows;
        }
        Ok(Effect::Rows(rows))
    }

    fn sequence_of(&self, id: SequenceId) -> Step<Arc<Sequence>> {
        let held = self.group.tables.sequences.get(&id).cloned();
        // Sequences and tables share one number space, so the number says which is missing.
        held.ok_or_else(|| Rejection::TableMissing { table: TableId(id.0) }.into())
    }

    fn set_sequence(&mut self, id: SequenceId, state: SequenceState) {
        match self.sequences.iter_mut().find(|(known, _)| *known == id) {
            Some((_, known)) => *known = state,
            None => self.sequences.push((id, state)),
        }
    }

    fn reserve(&mut self, id: SequenceId, count: u32) -> Step<Effect> {
        let sequence = self.sequence_of(id)?;
        let known = self.sequences.iter().find(|(known, _)| *known == id).map(|(_, state)| *state);
        let state = match known {
            Some(state) => state,
            None => match self.group.overlay.get(&keyspace::sequence_key(self.partition, id))? {
                Some(bytes) => SequenceState::decode(&bytes).map_err(Error::from)?,
                None => SequenceState { value: sequence.start, called: false },
            },
        };
        let Some((first, given)) = next_numbers(&sequence, state, count) else {
            return Err(Rejection::SequenceExhausted { sequence: id }.into());
        };
        let last = first + sequence.increment * i64::from(given - 1);
        self.set_sequence(id, SequenceState { value: last, called: true });
        Ok(Effect::Reserved { first, count: given })
    }

    /// An insert onto a row that nothing in the command took away is a duplicate.
    fn judge_added(&self) -> Step<()> {
        match self.touched.iter().find(|row| row.added_onto.is_some()) {
            Some(row) => Err(taken(self.targets[row.target].id, None, &row.key)),
            None => Ok(()),
        }
    }

    /// Everything the command did goes into the group; unique keys are judged before the first of it.
    fn publish(&mut self, bulk: Option<Bulk<'_>>) -> Step<()> {
        for target in self.targets.iter_mut().filter(|target| target.truncated) {
            target.generation = self.revision;
            target.rows = keyspace::rows_prefix(self.partition, target.id, self.revision);
        }
        let indexed = self.index_changes()?;
        if let Some(bulk) = &bulk {
            let (shard, wall) = (self.group.shard, self.group.live.head.time.wall);
            let prefix = &self.targets[bulk.target].rows;
            bulk.write(&shard.engine, &shard.keyspace, prefix, self.revision, wall)?;
            self.group.overlay.stand_on(shard.engine.snapshot());
        }
        self.group.live.head.revision = self.revision;
        self.publish_truncations()?;
        if let Some(bulk) = &bulk {
            let counters = self.group.counters(self.partition, self.targets[bulk.target].id)?;
            (counters.rows, counters.bytes) = (bulk.rows, bulk.bytes);
        }
        for change in indexed {
            match change.value {
                Some(value) => self.group.overlay.put(change.key, value),
                None => self.group.overlay.delete(change.key),
            }
        }
        self.publish_rows()?;
        for (id, state) in std::mem::take(&mut self.sequences) {
            self.group.overlay.put(keyspace::sequence_key(self.partition, id), state.to_bytes());
        }
        self.publish_feed()
    }

    fn publish_truncations(&mut self) -> Step<()> {
        for target in self.targets.iter().filter(|target| target.truncated) {
            let (table, partition) = (target.id, self.partition);
            let old = self.group.generation(partition, table)?;
            // Before the batch is visible: a reader that sees it must look the generation up.
            self.group.shard.switched.note(table);
            self.group.switches.push((table, partition.clone(), self.revision));
            let key = keyspace::meta_number_key(meta::SWITCHED, table.0);
            self.group.overlay.put(Bytes::copy_from_slice(&key), Bytes::new());
            let generation = state::revision_to_bytes(self.revision);
            self.group.overlay.put(keyspace::storage_key(partition, table), generation);
            self.group.bury(keyspace::dead_storage_key(partition, table, old));
            let revision = self.revision;
            let counters = self.group.counters(partition, table)?;
            (counters.rows, counters.bytes, counters.last_write) = (0, 0, revision);
        }
        Ok(())
    }

    fn publish_rows(&mut self) -> Step<()> {
        let mut deltas: Vec<(i64, i64, bool)> = vec![(0, 0, false); self.targets.len()];
        for row in &self.touched {
            let (rows, bytes, written) = &mut deltas[row.target];
            if row.before.is_none() && row.after.is_none() {
                continue;
            }
            *written |= row.before != row.after;
            let size =
                |value: &Option<Bytes>| value.as_ref().map_or(0, |value| value.len() + row.key.len()) as i64;
            *rows += i64::from(row.after.is_some()) - i64::from(row.before.is_some());
            *bytes += size(&row.after) - size(&row.before);
            if row.before == row.after {
                continue;
            }
            let prefix = &self.targets[row.target].rows;
            let mut full = Vec::with_capacity(prefix.len() + row.key.len());
            full.extend_from_slice(prefix);
            full.extend_from_slice(&row.key);
            match &row.after {
                Some(value) => self.group.overlay.put(full, value.clone()),
                None => self.group.overlay.delete(full),
            }
        }
        for (target, (rows, bytes, written)) in deltas.into_iter().enumerate() {
            if !written {
                continue;
            }
            let (table, revision) = (self.targets[target].id, self.revision);
            let counters = self.group.counters(self.partition, table)?;
            counters.rows = counters.rows.saturating_add_signed(rows);
            counters.bytes = counters.bytes.saturating_add_signed(bytes);
            counters.last_write = revision;
        }
        Ok(())
    }

    fn publish_feed(&mut self) -> Step<()> {
        let mut changes = Vec::new();
        for target in self.targets.iter().filter(|target| target.truncated && target.compiled.table().feed) {
            changes.push(FeedChange { table: target.id, kind: FeedKind::Replaced, key: Bytes::new() });
        }
        for row in &self.touched {
            let target = &self.targets[row.target];
            if !target.compiled.table().feed || target.truncated {
                continue;
            }
            let kind = match (&row.before, &row.after) {
                (None, Some(_)) => FeedKind::Inserted,
                (Some(_), None) => FeedKind::Deleted,
                (Some(before), Some(after)) if before != after => FeedKind::Updated,
                (Some(_), Some(_)) | (None, None) => continue,
            };
            changes.push(FeedChange { table: target.id, kind, key: row.key.clone() });
        }
        if !changes.is_empty() {
            self.group.feed(self.partition, changes)?;
        }
        Ok(())
    }

    /// The changes of all secondary indexes, after their unique keys were judged.
    fn index_changes(&self) -> Step<Vec<IndexChange>> {
        let mut added: Vec<(usize, IndexId, IndexKey, &Bytes)> = Vec::new();
        let mut removed: HashSet<Bytes> = HashSet::new();
        let mut changes = Vec::new();
        for row in &self.touched {
            let target = &self.targets[row.target];
            if row.before == row.after || target.compiled.indexes().is_empty() {
                continue;
            }
            for plan in target.compiled.indexes() {
                let key_of = |value: &Option<Bytes>| -> Step<Option<IndexKey>> {
                    let Some(value) = value else { return Ok(None) };
                    target.compiled.index_key(plan, &view(value)?, &row.key).map_err(indexed)
                };
                let (before, after) = (key_of(&row.before)?, key_of(&row.after)?);
                if before == after {
                    continue;
                }
                let prefix = keyspace::index_prefix(
                    self.partition,
                    target.id,
                    target.generation,
                    plan.id,
                    plan.unique,
                );
                if let Some(before) = before {
                    let key = Bytes::from([&prefix, before.entry.as_slice()].concat());
                    // While an index is being built, a row that it does not reach yet may have the key of one it has.
                    let others = plan.building
                        && before.exclusive
                        && self.group.overlay.get(&key)? != Some(index_value(&before, &row.key));
                    if !others {
                        removed.insert(key.clone());
                        changes.push(IndexChange { key, value: None });
                    }
                }
                if let Some(after) = after {
                    if after.columns_bytes > INDEX_KEY_BYTES_MAX {
                        return Err(too_large(after.columns_bytes, INDEX_KEY_BYTES_MAX));
                    }
                    added.push((row.target, plan.id, after, &row.key));
                }
            }
        }
        let mut exclusive: HashSet<Bytes> = HashSet::new();
        for (at, index, key, row_key) in added {
            let target = &self.targets[at];
            let unique = target.compiled.find_index(index).is_some_and(|plan| plan.unique);
            let prefix = keyspace::index_prefix(self.partition, target.id, target.generation, index, unique);
            let full = Bytes::from([&prefix, key.entry.as_slice()].concat());
            if key.exclusive {
                let held = !removed.contains(&full) && self.group.overlay.contains(&full)?;
                if held || !exclusive.insert(full.clone()) {
                    return Err(taken(target.id, Some(index), key.columns()));
                }
            }
            // Behind all removals, so that a key that one row gives up and another takes stays.
            changes.push(IndexChange { key: full, value: Some(index_value(&key, row_key)) });
        }
        Ok(changes)
    }
}

/// One write of an index.
struct IndexChange {
    key: Bytes,
    value: Option<Bytes>,
}

pub(super) fn taken(table: TableId, index: Option<IndexId>, key: &[u8]) -> Stop {
    Rejection::UniqueViolation { table, index, key: Bytes::copy_from_slice(key) }.into()
}

/// A row that has no place in an index.
pub(super) fn indexed(fault: IndexFault) -> Stop {
    match fault {
        IndexFault::Row(error) => failed(Code::DataCorrupted, &error.to_string()),
        IndexFault::Unordered(error) => failed(Code::UndefinedFunction, &error.to_string()),
    }
}

pub(super) fn too_large(bytes: usize, bytes_max: usize) -> Stop {
    Rejection::TooLarge { bytes: bytes as u64, bytes_max: bytes_max as u64 }.into()
}

pub(super) fn failed(code: Code, message: &str) -> Stop {
    Rejection::Program { code, message: message.to_owned() }.into()
}

/// The next numbers of a sequence: the first, and how many there are up to the one asked for; none at its end.
fn next_numbers(sequence: &Sequence, state: SequenceState, count: u32) -> Option<(i64, u32)> {
    let step = sequence.increment;
    if step == 0 {
        return None;
    }
    let inside = |number: i64| (sequence.min..=sequence.max).contains(&number);
    let next = if state.called {
        state.value.checked_add(step).filter(|next| inside(*next))
    } else {
        Some(state.value)
    };
    let first = match next {
        Some(first) => first,
        None if sequence.cycle && step > 0 => sequence.min,
        None if sequence.cycle => sequence.max,
        None => return None,
    };
    let room = if step > 0 { sequence.max.abs_diff(first) } else { first.abs_diff(sequence.min) };
    let fitting = u32::try_from(room / step.unsigned_abs()).unwrap_or(u32::MAX - 1) + 1;
    Some((first, count.max(1).min(fitting)))
}
