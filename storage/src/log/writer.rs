//! What writes the log: one at a time, the log's thread or its driver.
//!
//! Invariants:
//! - Sync group g + 1 is written only after g is synced; a group never spans segments.
//! - A callback hears Ok only after the sync that covers its last record. After the first failed write or sync nobody
//!   hears Ok again, and the sync is not tried again.
//! - `metas` is the state of all groups at the writer's place in the log, so that the head of a segment is exactly what
//!   replaying the segments before it gives.
//! - A segment is freed only when the records that made it free are synced.
//!
//! Not here: making and freeing segments (`keeper`).

use std::ops::ControlFlow;
use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::Mutex;

use super::index::Place;
use super::keeper::Take;
use super::meta::{self, Metas};
#[cfg(any(test, feature = "faults"))]
use super::options::Plant;
use super::options::{Priority, RESERVE};
use super::queue::{Batch, Then};
use super::record::{self, Body, Kind, Stamp};
use super::recover::Tail;
use super::segment::{DATA, Segment};
use super::shared::{Counters, Shared};
use super::{Callback, Error, GroupId};
use crate::cut;

/// Buffers larger than this are given back instead of kept for the next batch.
const SPARE_BYTES_MAX: usize = 8 << 20;
/// What a driver writes and syncs at once. More would keep it from its other work for longer than a sync does anyway.
const DRIVEN_BYTES_MAX: u64 = 256 << 10;

pub(crate) struct Writer {
    shared: Arc<Shared>,
    segment: Arc<Segment>,
    position: u64,
    sync_group: u64,
    lsn: u64,
    metas: Metas,
    sealed: bool,
    placed: Vec<Placed>,
    /// The ticket after the last one that is synced.
    synced_ticket: u64,
    /// Something became dead: segments may have become free.
    frees: bool,
    /// Segments below the second are free once all tickets below the first are synced.
    release: Option<(u64, u64)>,
    last_sync_of: HashMap<GroupId, u64>,
    /// The buffer of the batch before.
    spare: Vec<u8>,
}

/// An entry of the group that was just written.
struct Placed {
    group: GroupId,
    index: u64,
    ticket: u64,
    place: Place,
    copy: bool,
}

impl Writer {
    pub(crate) fn new(
        shared: Arc<Shared>,
        segment: Arc<Segment>,
        tail: &Tail,
        metas: Metas,
        sealed: bool,
    ) -> Writer {
        Writer {
            shared,
            segment,
            position: tail.offset,
            sync_group: tail.sync_group,
            lsn: tail.lsn,
            metas,
            sealed,
            placed: Vec::new(),
            synced_ticket: 1,
            frees: true,
            release: None,
            last_sync_of: HashMap::new(),
            spare: Vec::new(),
        }
    }

    /// After a torn tail: goes on with a sync group above every number seen, if there is room to say so. (There always
    /// is but after a long row of crashes at one place; what was torn is zeroed and synced already.)
    pub(crate) fn resume(&mut self, tail: &Tail) -> Result<(), Error> {
        let Some(torn) = tail.torn_sync_group else { return Ok(()) };
        let mut bytes = Vec::new();
        record::encode(GroupId(0), &Body::Resume { sync_group: self.sync_group, lsn: self.lsn }, &mut bytes);
        if self.position == DATA || self.position + bytes.len() as u64 > self.segment.bytes {
            return Ok(());
        }
        self.sync_group = self.sync_group.max(torn);
        self.write(&mut bytes, 0)
    }

    /// What the thread does until the log is closed or has failed.
    pub(crate) fn run(writer: &Mutex<Writer>, shared: &Shared) {
        if shared.options.priority == Priority::Auto {
            raise_priority();
        }
        while let Some(then) = shared.queue.wait(shared.options.seal_after) {
            if writer.lock().attend(then).is_break() {
                return;
            }
        }
    }

    /// Writes what waits until nothing does.
    fn attend(&mut self, mut then: Then) -> ControlFlow<()> {
        let shared = self.shared.clone();
        while let Some(batch) = shared.queue.take(std::mem::take(&mut self.spare), self.sealed, then) {
            self.step(batch, then)?;
            if then == Then::Close {
                for callback in shared.queue.end(Error::Closed) {
                    callback(Err(Error::Closed));
                }
                return ControlFlow::Break(());
            }
            then = Then::Continue;
        }
        ControlFlow::Continue(())
    }

    /// What the driver does: as `attend`, but what takes longer than one sync is left to the thread.
    pub(crate) fn drive(&mut self) {
        let shared = self.shared.clone();
        loop {
            let bytes_max = self.room().min(DRIVEN_BYTES_MAX);
            let spare = std::mem::take(&mut self.spare);
            let Some(batch) = shared.queue.take_little(spare, self.sealed, bytes_max) else { return };
            if self.step(batch, Then::Continue).is_break() {
                return;
            }
        }
    }

    fn step(&mut self, batch: Batch, then: Then) -> ControlFlow<()> {
        match self.batch(batch).and_then(|records| {
            if then != Then::Continue && !self.sealed {
                self.seal()?;
            }
            Ok(records)
        }) {
            Ok(records) => {
                if records.capacity() <= SPARE_BYTES_MAX {
                    self.spare = records;
                }
            }
            Err(error) => {
                self.shared.fail(error);
                return ControlFlow::Break(());
            }
        }
        self.free_segments();
        self.shared.evict();
        ControlFlow::Continue(())
    }

    fn batch(&mut self, batch: Batch) -> Result<Vec<u8>, Error> {
        let Batch { mut records, first_ticket, callbacks } = batch;
        let mut waiting = Waiting { callbacks: callbacks.into_iter().peekable() };
        let result = self.groups(&mut records, first_ticket, &mut waiting);
        if let Err(error) = result {
            let error = self.shared.fail(error);
            waiting.tell(usize::MAX, &Err(error.clone()));
            return Err(error);
        }
        waiting.tell(usize::MAX, &Ok(()));
        records.clear();
        Ok(records)
    }

    /// Writes a batch in one or more sync groups.
    fn groups(&mut self, records: &mut [u8], mut ticket: u64, waiting: &mut Waiting) -> Result<(), Error> {
        let batch_bytes_max = self.shared.options.batch_bytes_max;
        let mut start = 0;
        while start < records.len() {
            if self.position == DATA {
                self.head()?;
            }
            let room = self.remaining() as usize;
            let mut end = start;
            let mut count = 0;
            while end < records.len() {
                let (size, _, _) = record::peek(&records[end..]);
                let total = end - start + size;
                if total > room || (total > batch_bytes_max && end > start) {
                    break;
                }
                end += size;
                count += 1;
            }
            if end == start {
                self.rotate()?;
                continue;
            }
            #[cfg(any(test, feature = "faults"))]
            if self.shared.options.plant == Plant::AckBeforeSync {
                waiting.tell(end, &Ok(()));
            }
            self.write(&mut records[start..end], ticket)?;
            ticket += count;
            self.synced_ticket = ticket;
            self.shared.queue.written(end - start, self.room());
            self.place();
            waiting.tell(end, &Ok(()));
            start = end;
        }
        Ok(())
    }

    /// Stamps, writes and syncs one sync group.
    fn write(&mut self, records: &mut [u8], first_ticket: u64) -> Result<(), Error> {
        self.sync_group += 1;
        self.placed.clear();
        let counters = &self.shared.counters;
        let mut entries = 0;
        let mut groups = 0;
        let mut at = 0;
        let mut ticket = first_ticket;
        while at < records.len() {
            let (size, kind, group) = record::peek(&records[at..]);
            let record = &mut records[at..];
            let last = record.len() == size;
            let record = &mut record[..size];
            self.lsn += 1;
            let stamp = Stamp {
                seed: self.segment.seed,
                segment: self.segment.number,
                sync_group: self.sync_group,
                lsn: self.lsn,
                last,
            };
            record::stamp(record, stamp);
            let kind = Kind::find(kind).expect("the queue holds records that we encoded");
            if let Kind::Append | Kind::Rewrite = kind {
                let (id, _, _) = record::entry(record::body_of(record)).expect("we encoded this entry");
                let offset = u32::try_from(self.position).expect("segments are at most 1 GiB") + at as u32;
                let place = Place { segment: self.segment.number, offset, bytes: size as u32 };
                self.placed.push(Placed {
                    group,
                    index: id.index,
                    ticket,
                    place,
                    copy: kind == Kind::Rewrite,
                });
                self.frees |= kind == Kind::Rewrite;
                entries += u64::from(kind == Kind::Append);
            } else {
                let body = record::decode(kind, record::body_of(record)).expect("we encoded this record");
                let fits = meta::apply(&mut self.metas, group, &body);
                debug_assert!(fits, "{body:?} does not fit the state of group {group}");
                self.frees |= matches!(
                    kind,
                    Kind::Purge | Kind::Truncate | Kind::GroupDrop | Kind::SnapshotInstalled | Kind::Begin
                );
            }
            if self.last_sync_of.insert(group, self.sync_group) != Some(self.sync_group) {
                groups += 1;
            }
            ticket += 1;
            at += size;
        }
        cut::point("log.before-write");
        self.segment.file.write_all_at(records, self.position).map_err(Error::io("write"))?;
        cut::point("log.before-sync");
        self.sync()?;
        cut::point("log.synced");
        self.position += records.len() as u64;
        self.sealed = false;
        Counters::add(&counters.entries, entries);
        Counters::add(&counters.bytes, records.len() as u64);
        Counters::add(&counters.syncs, 1);
        Counters::add(&counters.group_syncs, groups);
        Ok(())
    }

    /// Bytes left for records in this segment.
    fn remaining(&self) -> u64 {
        (self.segment.bytes - RESERVE).saturating_sub(self.position)
    }

    /// As `remaining`, counting a head that is still to be written, of which only the bound is known.
    pub(crate) fn room(&self) -> u64 {
        let head = if self.position == DATA { self.shared.options.head_bytes_max() as u64 } else { 0 };
        self.remaining().saturating_sub(head)
    }

    fn sync(&self) -> Result<(), Error> {
        let synced = self.segment.file.sync_data();
        #[cfg(any(test, feature = "faults"))]
        if synced.is_err() && self.shared.options.plant == Plant::RetrySync {
            return self.segment.file.sync_data().map_err(Error::io("sync"));
        }
        synced.map_err(Error::io("sync"))
    }

    /// Tells the groups where their entries are.
    fn place(&mut self) {
        // Stable: within a group the order stays. One lock per group and sync, not per entry.
        self.placed.sort_by_key(|placed| placed.group);
        for of_group in self.placed.chunk_by(|a, b| a.group == b.group) {
            let Some(group) = self.shared.find_group(of_group[0].group) else { continue };
            let mut group = group.lock();
            for placed in of_group {
                if placed.copy {
                    group.moved(placed.index, placed.place);
                } else {
                    group.placed(placed.index, placed.ticket, placed.place);
                }
            }
        }
        self.placed.clear();
    }

    /// The head of a segment: the state of all groups, so that older segments are needed for their entries only.
    fn head(&mut self) -> Result<(), Error> {
        let groups = u32::try_from(self.metas.len()).expect("groups are numbered with 32 bits");
        let mut bytes = Vec::new();
        record::encode(GroupId(0), &Body::SegmentStart { groups }, &mut bytes);
        for (group, meta) in &self.metas {
            record::encode(*group, &Body::GroupState(meta.clone()), &mut bytes);
        }
        if DATA + bytes.len() as u64 + RESERVE > self.segment.bytes {
            return Err(Error::TooManyGroups);
        }
        self.write(&mut bytes, 0)?;
        self.placed.clear();
        Ok(())
    }

    fn seal(&mut self) -> Result<(), Error> {
        let mut bytes = Vec::new();
        record::encode(GroupId(0), &Body::Seal, &mut bytes);
        if self.position == DATA || self.position + bytes.len() as u64 > self.segment.bytes {
            // Nothing to seal, or no room: the next segment's head does it.
            self.sealed = true;
            return Ok(());
        }
        self.write(&mut bytes, 0)?;
        self.sealed = true;
        Counters::add(&self.shared.counters.seals, 1);
        Ok(())
    }

    fn rotate(&mut self) -> Result<(), Error> {
        let next = loop {
            match self.shared.keeper.take_ready(self.segment.number) {
                Take::Ready(segment) => break segment,
                Take::Full if self.shared.queue.is_closing() => return Err(Error::StorageFull),
                Take::Full => {}
                Take::Stopped(error) => return Err(error),
            }
        };
        self.segment = next;
        cut::point("segment.taken");
        self.position = DATA;
        self.frees = true;
        self.shared.queue.rotated(self.room());
        Ok(())
    }

    /// Hands segments that became free to the keeper, as soon as what made them free is synced.
    fn free_segments(&mut self) {
        while self.frees || self.release.is_some() {
            let (ticket, below) = *self.release.get_or_insert_with(|| {
                self.frees = false;
                find_free(&self.shared, self.segment.number)
            });
            if ticket > self.synced_ticket && !self.planted_free_before_sync() {
                return;
            }
            self.release = None;
            self.shared.keeper.release(below);
        }
    }

    fn planted_free_before_sync(&self) -> bool {
        #[cfg(any(test, feature = "faults"))]
        return self.shared.options.plant == Plant::FreeBeforeSync;
        #[cfg(not(any(test, feature = "faults")))]
        false
    }
}

/// The ticket below which all must be synced, and the segment below which nobody needs anything then.
fn find_free(shared: &Shared, current: u64) -> (u64, u64) {
    let mut below = current;
    {
        let groups = shared.groups.read();
        for group in groups.values() {
            if let Some(pinned) = group.lock().index.pinned().keys().next() {
                below = below.min(*pinned);
            }
        }
    }
    // Read after the groups: whatever made a segment free up to now has a lower ticket.
    (shared.queue.next_ticket(), below)
}

/// Who waits for a batch, in order.
struct Waiting {
    callbacks: std::iter::Peekable<std::vec::IntoIter<(usize, Callback)>>,
}

impl Waiting {
    fn tell(&mut self, upto: usize, result: &Result<(), Error>) {
        while let Some((_, callback)) = self.callbacks.next_if(|(end, _)| *end <= upto) {
            callback(result.clone());
        }
    }
}

/// Asks for real-time scheduling: on a busy machine a normal thread waits for the next tick after every sync.
fn raise_priority() {
    use thread_priority::unix::{
        RealtimeThreadSchedulePolicy, ThreadSchedulePolicy, set_thread_priority_and_policy, thread_native_id,
    };
    use thread_priority::{ThreadPriority, ThreadPriorityValue};

    let lowest = ThreadPriorityValue::try_from(1).map(ThreadPriority::Crossplatform);
    let policy = ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::Fifo);
    let raised =
        lowest.is_ok_and(|lowest| set_thread_priority_and_policy(thread_native_id(), lowest, policy).is_ok());
    if !raised {
        tracing::info!("real-time scheduling of the log writer is not permitted");
    }
}
