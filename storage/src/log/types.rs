//! The words of the log's callers: groups, ids, entries, and what there is to know about them.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;

use super::Error;

/// The number of a Raft group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u32);

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Who wrote an entry in which term, and its place in the group's log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogId {
    /// The term of the leader.
    pub term: u64,
    /// The leader's node id.
    pub node: u64,
    /// The place in the log.
    pub index: u64,
}

/// The highest index: far more than will ever be written, and safe to add to.
pub(crate) const INDEX_MAX: u64 = u64::MAX >> 1;

/// One entry of a group's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its id.
    pub id: LogId,
    /// What the payload is; a number for the caller to choose.
    pub kind: u8,
    /// The payload.
    pub payload: Bytes,
}

/// Runs on the writer's thread when what it waits for is durable, or never will be. It must be short, and must not call
/// back into the log but for reading.
pub type Callback = Box<dyn FnOnce(Result<(), Error>) + Send>;

/// How a group begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupInit {
    /// The vote to begin with.
    pub vote: Option<Bytes>,
    /// The entry that the state to begin with includes; the log goes on after it.
    pub last: Option<LogId>,
    /// The membership to begin with, as the caller encodes it.
    pub membership: Bytes,
}

/// All that the log knows of a group but its entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupState {
    /// The last vote that was saved.
    pub vote: Option<Bytes>,
    /// The last entry that was purged.
    pub last_purged: Option<LogId>,
    /// The last entry or, when there is none, the last purged one.
    pub last: Option<LogId>,
    /// The first index the log can hold.
    pub first_index: u64,
    /// The last entry known to be committed.
    pub committed: Option<LogId>,
    /// The last index of which the engine's state is known to be durable.
    pub durable_applied: Option<u64>,
    /// The last installed snapshot, with the data given along.
    pub snapshot: Option<(LogId, Bytes)>,
    /// The membership the group was created with.
    pub membership: Bytes,
}

/// What `open` found.
#[derive(Clone, Debug, Default)]
pub struct Recovered {
    /// There was no log; a new one was begun.
    pub created: bool,
    /// Every group.
    pub groups: BTreeMap<GroupId, GroupState>,
    /// Records read.
    pub records: u64,
    /// Segments found.
    pub segments: u64,
    /// A sync group that was never completed was cut off here: segment and offset.
    pub torn: Option<(u64, u64)>,
    /// The log ended with a seal: it was idle or closed when the process ended.
    pub sealed: bool,
}

/// Totals and present values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Calls of `append`.
    pub appends: u64,
    /// Entries written.
    pub entries: u64,
    /// Bytes written, headers included.
    pub bytes: u64,
    /// Writes with a sync.
    pub syncs: u64,
    /// Groups that had a record in a sync, summed over all syncs.
    pub group_syncs: u64,
    /// Seals written.
    pub seals: u64,
    /// Entries copied from old segments.
    pub rewritten: u64,
    /// Segments made from freed ones.
    pub recycled: u64,
    /// Segments on disk.
    pub segments: usize,
    /// Their bytes.
    pub disk_bytes: u64,
    /// Segments ready to be written.
    pub ready_segments: usize,
    /// Bytes of records that wait for the writer.
    pub queue_bytes: usize,
    /// Bytes of recent entries in memory.
    pub cache_bytes: usize,
    /// New entries are refused for want of room on the disk.
    pub read_only: bool,
}
