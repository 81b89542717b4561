//! The one durable log of a node, shared by all its Raft groups.
//!
//! The life of an append:
//! 1. [`Log::append`] encodes the entries into the queue and keeps them in memory: they can be read (and replicated)
//!    from now on.
//! 2. The writer, on its own thread or on the driver's, takes all that waits, stamps it, writes it with one call and syncs it
//!    with one call: a *sync group*, shared by whatever groups had something to say.
//! 3. The groups learn where their entries lie, [`Log::synced_index`] moves up, and all callbacks run.
//! 4. [`Log::purge_upto`] makes entries dead; a segment without live entries becomes the next segment.
//!
//! Invariants:
//! - What a callback heard Ok of survives power loss. What nobody heard of may vanish, a whole sync group at a time.
//! - Damage to what was synced is refused at open or at read, naming segment and offset; only a sync group that was
//!   never completed is cut off.
//! - After the first failed write or sync nothing is accepted any more.
//! - Open, close and the directory's lock happen once per process; a second close does nothing.
//!
//! Votes and payloads are bytes to the log. Not here: Raft (`cluster::raft` converts), and the applied state
//! (`engine`). The bytes are drawn in `docs/formats/log.md`.

pub mod bench;
mod error;
pub mod files;
mod group;
mod index;
mod keeper;
mod meta;
mod open;
mod options;
mod queue;
mod read;
mod record;
mod recover;
mod segment;
mod shared;
#[cfg(test)]
mod tests;
mod types;
mod writer;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};

pub use error::Error;
use files::{Directory, Files};
use group::Group;
use index::Index;
use meta::Meta;
use open::{Handle, state_of};
#[cfg(any(test, feature = "faults"))]
pub use options::Plant;
use options::VOTE_BYTES_MAX;
pub use options::{Identity, LowWater, OnFatal, Options, Priority};
use queue::Push;
pub use queue::Use;
use read::Reader;
use record::{Body, ENTRY_HEADER, size_of_record};
use shared::{Counters, Shared};
use types::INDEX_MAX;
pub use types::{Callback, Entry, GroupId, GroupInit, GroupState, LogId, Recovered, Stats};

/// A handle to the log; clones are the same log. The last one that is dropped closes it.
///
/// ```
/// use storage::log::{Entry, GroupId, GroupInit, Identity, Log, LogId, Options};
///
/// # fn main() -> Result<(), storage::log::Error> {
/// # let directory = tempfile::tempdir().expect("a directory");
/// let identity = Identity { cluster: 1, node: 1, incarnation: 0x1db7_93c5 };
/// let (log, recovered) = Log::open(directory.path(), Options::default(), identity)?;
/// assert!(recovered.created);
///
/// let group = GroupId(1);
/// log.create_group(group, GroupInit::default(), Box::new(|_| {}))?;
/// let id = LogId { term: 1, node: 1, index: 0 };
/// let (durable, wait) = std::sync::mpsc::channel();
/// log.append(
///     group,
///     vec![Entry { id, kind: 0, payload: "hello".into() }],
///     Box::new(move |result| durable.send(result).expect("somebody waits")),
/// )?;
/// wait.recv().expect("every callback runs")?;
/// assert_eq!(log.synced_index(group)?, Some(0));
/// log.close();
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Log {
    handle: Arc<Handle>,
}

impl Log {
    /// Opens the log in a directory, or begins one.
    ///
    /// Nothing on disk is changed until the whole log was read and found good.
    pub fn open(path: &Path, options: Options, identity: Identity) -> Result<(Log, Recovered), Error> {
        let directory = Directory::open(path).map_err(Error::io("open log directory"))?;
        Log::open_files(Arc::new(directory), options, identity)
    }

    /// Opens the log on any kind of files.
    pub fn open_files(
        files: Arc<dyn Files>,
        options: Options,
        identity: Identity,
    ) -> Result<(Log, Recovered), Error> {
        open::open(files, options, identity)
    }

    /// Reads the whole log in a directory as opening does, and changes nothing: for looking at a log that is not in use,
    /// or that does not open.
    pub fn inspect(path: &Path, identity: Identity) -> Result<Recovered, Error> {
        if !path.is_dir() {
            return Err(Error::Missing);
        }
        let directory = Directory::open(path).map_err(Error::io("open log directory"))?;
        open::inspect(&directory, &identity)
    }

    /// Makes a group.
    pub fn create_group(&self, group: GroupId, init: GroupInit, callback: Callback) -> Result<(), Error> {
        let shared = self.shared();
        let mut meta = Meta { vote: init.vote, membership: init.membership, ..Meta::default() };
        if let Some(last) = init.last {
            check_index(group, last.index)?;
            meta.purge(last);
        }
        self.check_vote(meta.vote.as_deref().unwrap_or_default())?;
        self.check_head(group, meta.encoded_len())?;
        let mut groups = shared.groups.write();
        if groups.contains_key(&group) {
            return Err(Error::GroupExists(group));
        }
        let mut push = shared.queue.push()?;
        push.record(group, &Body::GroupCreate(meta.clone()));
        groups.insert(group, Arc::new(Mutex::new(Group::new(meta, Index::default(), None))));
        push.wait_with(callback);
        Ok(())
    }

    /// Removes a group with all its entries.
    pub fn drop_group(&self, group: GroupId, callback: Callback) -> Result<(), Error> {
        let shared = self.shared();
        let mut groups = shared.groups.write();
        let Some(state) = groups.get(&group).cloned() else { return Err(Error::NoGroup(group)) };
        let mut state = state.lock();
        let mut push = shared.queue.push()?;
        push.forget_committed(group);
        push.record(group, &Body::GroupDrop);
        push.wait_with(callback);
        shared.cache_bytes.fetch_sub(state.drop_all(), Ordering::Relaxed);
        groups.remove(&group);
        Ok(())
    }

    /// Adds entries to a group's log. They can be read at once; the callback runs when all are durable.
    ///
    /// Refused with [`Error::StorageFull`] while the disk has no room for the next segment. Blocks while the queue is
    /// over its bound.
    pub fn append(&self, group: GroupId, entries: Vec<Entry>, callback: Callback) -> Result<(), Error> {
        self.append_using(Use::Common, group, entries, callback)
    }

    /// Lets a proposal of so many bytes in, whose entry is going to be [`append_reserved`](Log::append_reserved): there is
    /// room for it until what is answered is dropped, which is to be when it was applied. A full disk refuses here, with
    /// [`Error::StorageFull`], and nowhere behind.
    pub fn admit(&self, bytes: u64, to_use: Use) -> Result<Admitted, Error> {
        self.shared().admit(bytes, to_use)?;
        Ok(Admitted { shared: self.handle.shared.clone(), bytes })
    }

    /// Whether so many bytes may be written to the disk and it still counts as one with room.
    pub fn has_room(&self, bytes: u64) -> Result<bool, Error> {
        self.shared().has_room(bytes)
    }

    /// The largest payload an entry can have.
    #[must_use]
    pub fn payload_bytes_max(&self) -> usize {
        self.shared().options.record_bytes_max() - ENTRY_HEADER
    }

    /// As [`append`](Log::append), but goes on when the disk is full, from the room that was made ahead: for what was
    /// [`admit`](Log::admit)ted, and for what Raft must not be refused. It is never refused for want of room; what finds
    /// none waits for it in memory.
    pub fn append_reserved(
        &self,
        group: GroupId,
        entries: Vec<Entry>,
        callback: Callback,
    ) -> Result<(), Error> {
        self.append_using(Use::Reserve, group, entries, callback)
    }

    fn append_using(
        &self,
        to_use: Use,
        group: GroupId,
        entries: Vec<Entry>,
        callback: Callback,
    ) -> Result<(), Error> {
        let shared = self.shared();
        let bytes_max = shared.options.record_bytes_max();
        let mut bytes = 0;
        for entry in &entries {
            check_size(ENTRY_HEADER + entry.payload.len(), bytes_max)?;
            bytes += size_of_record(ENTRY_HEADER + entry.payload.len());
        }
        shared.queue.wait_for_room(bytes, to_use)?;
        let lock = shared.get_group(group)?;
        let mut state = live(&lock, group)?;
        if let Some(first) = entries.first() {
            let expected = state.index.end();
            let continues =
                first.id.index == expected || (state.index.is_empty() && first.id.index > expected);
            if !continues {
                return Err(Error::NotContiguous { group, expected, found: first.id.index });
            }
        }
        if let Some(last) = entries.last() {
            check_index(group, last.id.index)?;
        }
        for pair in entries.windows(2) {
            let expected = pair[0].id.index + 1;
            if pair[1].id.index != expected {
                return Err(Error::NotContiguous { group, expected, found: pair[1].id.index });
            }
        }
        let cached = state.cache_bytes();
        let mut push = shared.queue.push()?;
        if let Some(first) = entries.first()
            && first.id.index != state.index.end()
        {
            push.record(group, &Body::Begin { index: first.id.index });
            state.begin(first.id.index);
        }
        for entry in entries {
            let ticket =
                push.record(group, &Body::Append { id: entry.id, kind: entry.kind, payload: &entry.payload });
            state.append(entry, ticket);
        }
        shared.cache_bytes.fetch_add(state.cache_bytes() - cached, Ordering::Relaxed);
        push.wait_with(callback);
        Counters::add(&shared.counters.appends, 1);
        Ok(())
    }

    /// Saves the group's vote. It must not be sent to anybody before the callback.
    pub fn save_vote(&self, group: GroupId, vote: Bytes, callback: Callback) -> Result<(), Error> {
        self.check_vote(&vote)?;
        self.change(group, |state, push| {
            push.record(group, &Body::Vote(&vote));
            state.meta.vote = Some(vote);
            Ok(())
        })?
        .wait_with(callback);
        Ok(())
    }

    /// Removes the entries after `keep`; `None` removes all.
    pub fn truncate_after(
        &self,
        group: GroupId,
        keep: Option<LogId>,
        callback: Callback,
    ) -> Result<(), Error> {
        self.change(group, |state, push| {
            let from = keep.map_or(state.meta.floor, |keep| keep.index.saturating_add(1));
            if from < state.meta.floor {
                return Err(Error::OutOfRange { group, index: from });
            }
            if from < state.index.end() {
                push.record(group, &Body::Truncate { from });
                state.truncate(from, keep);
            }
            Ok(())
        })?
        .wait_with(callback);
        Ok(())
    }

    /// Removes the entries up to and including `upto`. Their state must be durable elsewhere.
    pub fn purge_upto(&self, group: GroupId, upto: LogId, callback: Callback) -> Result<(), Error> {
        check_index(group, upto.index)?;
        self.change(group, |state, push| {
            if state.meta.is_purged_by(upto) {
                push.record(group, &Body::Purge { upto });
                state.purge(upto);
            }
            Ok(())
        })?
        .wait_with(callback);
        Ok(())
    }

    /// Notes how far the group's log is committed. Nobody waits for it: it rides with the next sync.
    pub fn save_committed(&self, group: GroupId, upto: LogId) -> Result<(), Error> {
        self.change(group, |state, _| {
            state.meta.committed = Some(upto);
            Ok(())
        })?
        .committed(group, upto);
        Ok(())
    }

    /// Notes of which applied indexes the engine's state is durable. Groups that are not named keep theirs.
    pub fn checkpoint(&self, applied: &BTreeMap<GroupId, u64>, callback: Callback) -> Result<(), Error> {
        let shared = self.shared();
        check_size(applied.len() * 16, shared.options.record_bytes_max())?;
        let mut push = {
            let groups = shared.groups.read();
            if let Some(group) = applied.keys().find(|group| !groups.contains_key(*group)) {
                return Err(Error::NoGroup(*group));
            }
            for (group, index) in applied {
                groups[group].lock().meta.applied = Some(*index);
            }
            shared.queue.push()?
        };
        let applied = applied.iter().map(|(group, index)| (*group, *index)).collect();
        push.record(GroupId(0), &Body::Checkpoint { applied });
        push.wait_with(callback);
        Ok(())
    }

    /// Notes that the group's state was replaced by a snapshot of everything up to `upto`; entries up to there are gone.
    /// Later ones stay: if they do not follow from the snapshot, the caller truncates them first. `data` is kept for the
    /// caller in the group's state.
    pub fn snapshot_installed(
        &self,
        group: GroupId,
        upto: LogId,
        data: Bytes,
        callback: Callback,
    ) -> Result<(), Error> {
        check_index(group, upto.index)?;
        self.check_head(group, data.len())?;
        self.change(group, |state, push| {
            if upto.index + 1 < state.meta.floor {
                return Err(Error::OutOfRange { group, index: upto.index });
            }
            push.record(group, &Body::SnapshotInstalled { upto, data: &data });
            state.meta.install(upto, data);
            state.forget_below_floor();
            Ok(())
        })?
        .wait_with(callback);
        Ok(())
    }

    /// The state of a group, as last asked for; all of it is durable once the callbacks ran.
    pub fn state(&self, group: GroupId) -> Result<GroupState, Error> {
        let lock = self.shared().get_group(group)?;
        let state = live(&lock, group)?;
        Ok(state_of(&state))
    }

    /// All groups, in order.
    #[must_use]
    pub fn groups(&self) -> Vec<GroupId> {
        let mut groups: Vec<_> = self.shared().groups.read().keys().copied().collect();
        groups.sort_unstable();
        groups
    }

    /// The last durable index of a group, counting what was purged. State must not be applied beyond it.
    pub fn synced_index(&self, group: GroupId) -> Result<Option<u64>, Error> {
        let lock = self.shared().get_group(group)?;
        let state = live(&lock, group)?;
        Ok(state.synced_end.checked_sub(1))
    }

    /// The entries of a range that are there, in order and without gaps, from its start on.
    ///
    /// An index below the first one of the log is [`Error::OutOfRange`]; beyond the last one there is nothing.
    pub fn entries(&self, group: GroupId, range: Range<u64>) -> Result<Vec<Entry>, Error> {
        self.entries_limited(group, range, usize::MAX)
    }

    /// As [`entries`](Log::entries), ending when the payloads reach `bytes_max`; at least one entry, if there is one.
    pub fn entries_limited(
        &self,
        group: GroupId,
        range: Range<u64>,
        bytes_max: usize,
    ) -> Result<Vec<Entry>, Error> {
        let mut reader = Reader::default();
        let mut found: Vec<Entry> = Vec::new();
        let mut bytes = 0;
        let mut next = range.start;
        let mut distrusted = None;
        while next < range.end && bytes < bytes_max {
            // A bounded step, so that the group is not locked for long and a limit does not read the whole range.
            let step = next..range.end.min(next + 1024);
            let (on_disk, cached) = {
                let lock = self.shared().get_group(group)?;
                let state = live(&lock, group)?;
                if next < state.meta.floor {
                    return Err(Error::OutOfRange { group, index: next });
                }
                state.read(step)
            };
            if on_disk.is_empty() && cached.is_empty() {
                break;
            }
            let mut stale = false;
            for (index, place) in on_disk {
                if bytes >= bytes_max {
                    break;
                }
                let segment = self.shared().segments.read().get(&place.segment).cloned();
                let read = match segment {
                    Some(segment) => reader.entry(&segment, place, group, index),
                    None => Err(Error::OutOfRange { group, index }),
                };
                match read {
                    Ok(entry) => {
                        bytes += entry.payload.len();
                        next = index + 1;
                        found.push(entry);
                    }
                    Err(error) => {
                        // The segment may have been recycled under us: then the place has changed.
                        if distrusted == Some(place) {
                            return Err(error);
                        }
                        distrusted = Some(place);
                        stale = true;
                        break;
                    }
                }
            }
            if stale {
                reader = Reader::default();
                continue;
            }
            for entry in cached {
                if bytes >= bytes_max {
                    break;
                }
                bytes += entry.payload.len();
                next = entry.id.index + 1;
                found.push(entry);
            }
        }
        Ok(found)
    }

    /// Whether new entries are refused because the disk has no room for the next segment.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.shared().queue.is_full()
    }

    /// Ok, or why the log takes nothing any more.
    pub fn check_open(&self) -> Result<(), Error> {
        self.shared().queue.check_open()
    }

    /// Totals and present values.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let shared = self.shared();
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &shared.counters;
        Stats {
            appends: get(&counters.appends),
            entries: get(&counters.entries),
            bytes: get(&counters.bytes),
            syncs: get(&counters.syncs),
            group_syncs: get(&counters.group_syncs),
            seals: get(&counters.seals),
            rewritten: get(&counters.rewritten),
            recycled: get(&counters.recycled),
            segments: shared.segments.read().len(),
            disk_bytes: shared.segments.read().values().map(|segment| segment.bytes).sum(),
            ready_segments: shared.keeper.ready_segments(),
            queue_bytes: shared.queue.bytes(),
            cache_bytes: shared.cache_bytes.load(Ordering::Relaxed),
            read_only: self.is_read_only(),
        }
    }

    /// Lets another thread write and sync what is little, so that nobody waits for two threads to wake: `call` is called when
    /// something waits that nobody attends to, and that thread then calls [`Log::drive`], soon. What is large, what takes a
    /// new segment, the seal and the end stay with the log's own thread. `None` gives everything back to it.
    pub fn set_driver(&self, call: Option<Arc<dyn Fn() + Send + Sync>>) {
        self.shared().queue.set_driver(call);
    }

    /// Writes and syncs what waits, if it is little, and runs its callbacks, on this thread.
    pub fn drive(&self) {
        self.handle.drive();
    }

    /// Writes what waits, seals, ends the threads and gives the directory back. Does nothing the second time.
    pub fn close(&self) {
        self.handle.close();
    }

    fn shared(&self) -> &Shared {
        &self.handle.shared
    }

    /// Changes a group and queues the record that says so, under the group's lock.
    fn change(
        &self,
        group: GroupId,
        change: impl FnOnce(&mut Group, &mut Push<'_>) -> Result<(), Error>,
    ) -> Result<Push<'_>, Error> {
        let shared = self.shared();
        let lock = shared.get_group(group)?;
        let mut state = live(&lock, group)?;
        let cached = state.cache_bytes();
        let mut push = shared.queue.push()?;
        change(&mut state, &mut push)?;
        shared.cache_bytes.fetch_sub(cached - state.cache_bytes(), Ordering::Relaxed);
        Ok(push)
    }

    fn check_vote(&self, vote: &[u8]) -> Result<(), Error> {
        if vote.len() > VOTE_BYTES_MAX {
            return Err(Error::TooLarge { bytes: vote.len(), bytes_max: VOTE_BYTES_MAX });
        }
        Ok(())
    }

    /// Whether the heads of segments can carry this much more.
    fn check_head(&self, group: GroupId, bytes: usize) -> Result<(), Error> {
        let shared = self.shared();
        let reserved = |bytes: usize| size_of_record(bytes + VOTE_BYTES_MAX);
        let others: usize =
            shared.groups.read().values().map(|group| reserved(group.lock().meta.encoded_len())).sum();
        if others + reserved(bytes) > shared.options.head_bytes_max() {
            tracing::warn!(%group, others, bytes, "the head of a log segment has no room for another group");
            return Err(Error::TooManyGroups);
        }
        Ok(())
    }
}

/// Room for a proposal, until this is dropped.
pub struct Admitted {
    shared: Arc<Shared>,
    bytes: u64,
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.shared.queue.give_back(self.bytes);
    }
}

impl fmt::Debug for Admitted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admitted").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

fn live<'a>(lock: &'a Mutex<Group>, group: GroupId) -> Result<MutexGuard<'a, Group>, Error> {
    let state = lock.lock();
    if state.dropped { Err(Error::NoGroup(group)) } else { Ok(state) }
}

fn check_index(group: GroupId, index: u64) -> Result<(), Error> {
    if index > INDEX_MAX { Err(Error::OutOfRange { group, index }) } else { Ok(()) }
}

fn check_size(bytes: usize, bytes_max: usize) -> Result<(), Error> {
    let bytes = size_of_record(bytes);
    if bytes > bytes_max { Err(Error::TooLarge { bytes, bytes_max }) } else { Ok(()) }
}
