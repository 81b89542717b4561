//! One group's part of the node's shared log, as openraft wants to see it.
//!
//! Invariants:
//! - An append is reported flushed only after its sync; a vote is durable before [`RaftLogStorage::save_vote`] returns.
//! - The shared log is first in, first out, so whatever is asked later is durable later: truncations and purges need not
//!   be waited for.
//! - What is read to be applied is on this node's disk. The library hands out what a quorum of others has before it is: applied
//!   and gone from the log after a power cut, it would look as if the log were lost.
//! - Entries that Raft itself must write are never refused for want of room; new proposals are, before they get here.

use std::{
    fmt::Debug,
    io,
    ops::{Bound, RangeBounds},
};

use futures::{Stream, StreamExt, TryStreamExt, stream};
use openraft::{
    LogState, OptionalSend, RaftLogReader,
    entry::RaftEntry,
    storage::{IOFlushed, RaftLogStorage},
};
use storage::log::{Callback, Error, GroupId, Log};
use tokio::sync::{oneshot, watch};

use super::types::{
    Entry, LogId, Types, Vote, decode_payload, decode_vote, encode_payload, encode_vote, log_id,
};

/// How many bytes of entries are read at once.
const READ_BYTES_MAX: usize = 4 << 20;

/// A group's log. A cheap handle, also as reader.
#[derive(Clone, Debug)]
pub(super) struct Store {
    log: Log,
    group: GroupId,
    /// Told after each sync; whether one has failed.
    synced: watch::Sender<bool>,
}

impl Store {
    pub(super) fn new(log: Log, group: GroupId) -> Self {
        Self { log, group, synced: watch::Sender::new(false) }
    }

    /// Waits until an entry is on disk.
    async fn wait_for_sync(&self, index: u64) -> io::Result<()> {
        let mut synced = self.synced.subscribe();
        loop {
            // Looked at before the index: a sync in between is told again.
            let has_failed = *synced.borrow_and_update();
            if self.log.synced_index(self.group).map_err(to_io)? >= Some(index) {
                return Ok(());
            }
            if has_failed {
                return Err(io::Error::other("the log has failed before the entry was on disk"));
            }
            synced.changed().await.map_err(io::Error::other)?;
        }
    }

    fn read(&self, from: u64, to: u64) -> io::Result<Vec<Entry>> {
        let first = self.log.state(self.group).map_err(to_io)?.first_index;
        let entries =
            self.log.entries_limited(self.group, from.max(first)..to, READ_BYTES_MAX).map_err(to_io)?;
        entries.into_iter().map(from_log).collect()
    }
}

impl RaftLogReader<Types> for Store {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> io::Result<Vec<Entry>> {
        let (mut from, to) = bounds(&range);
        let mut found = Vec::new();
        loop {
            let page = self.read(from, to)?;
            let Some(last) = page.last() else { return Ok(found) };
            from = last.index() + 1;
            found.extend(page);
        }
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> io::Result<Vec<Entry>> {
        self.read(start, end)
    }

    async fn entries_stream<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> impl Stream<Item = io::Result<Entry>> + OptionalSend {
        let (from, to) = bounds(&range);
        let store = self.clone();
        stream::try_unfold(from, move |from| {
            let store = store.clone();
            async move {
                let page = store.read(from, to)?;
                let next = page.last().map(|last| last.index() + 1);
                if let Some(next) = next {
                    store.wait_for_sync(next - 1).await?;
                }
                Ok::<_, io::Error>(next.map(|next| (stream::iter(page).map(Ok), next)))
            }
        })
        .try_flatten()
        .boxed()
    }

    async fn read_vote(&mut self) -> io::Result<Option<Vote>> {
        self.log.state(self.group).map_err(to_io)?.vote.map(decode_vote).transpose()
    }
}

impl RaftLogStorage<Types> for Store {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> io::Result<LogState<Types>> {
        let state = self.log.state(self.group).map_err(to_io)?;
        Ok(LogState {
            last_purged_log_id: state.last_purged.map(from_id),
            last_log_id: state.last.map(from_id),
        })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> io::Result<()> {
        let (callback, durable) = waiting();
        self.log.save_vote(self.group, encode_vote(vote), callback).map_err(to_io)?;
        durable.await.map_err(io::Error::other)?.map_err(to_io)
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> io::Result<()> {
        match committed {
            Some(upto) => self.log.save_committed(self.group, to_id(&upto)).map_err(to_io),
            None => Ok(()),
        }
    }

    async fn read_committed(&mut self) -> io::Result<Option<LogId>> {
        Ok(self.log.state(self.group).map_err(to_io)?.committed.map(from_id))
    }

    async fn append<I>(&mut self, entries: I, flushed: IOFlushed<Types>) -> io::Result<()>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries = entries.into_iter().map(to_log).collect();
        let synced = self.synced.clone();
        let callback: Callback = Box::new(move |result| {
            let has_failed = result.is_err();
            flushed.io_completed(result.map_err(to_io));
            synced.send_modify(|failed| *failed |= has_failed);
        });
        self.log.append_reserved(self.group, entries, callback).map_err(to_io)
    }

    async fn truncate_after(&mut self, keep: Option<LogId>) -> io::Result<()> {
        self.log.truncate_after(self.group, keep.as_ref().map(to_id), nobody()).map_err(to_io)
    }

    async fn purge(&mut self, upto: LogId) -> io::Result<()> {
        self.log.purge_upto(self.group, to_id(&upto), nobody()).map_err(to_io)
    }
}

/// A callback, and what waits for it.
pub(super) fn waiting() -> (Callback, oneshot::Receiver<Result<(), Error>>) {
    let (sender, receiver) = oneshot::channel();
    (Box::new(move |result| drop(sender.send(result))), receiver)
}

fn nobody() -> Callback {
    Box::new(|_| {})
}

fn bounds(range: &impl RangeBounds<u64>) -> (u64, u64) {
    let from = match range.start_bound() {
        Bound::Included(from) => *from,
        Bound::Excluded(before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let to = match range.end_bound() {
        Bound::Included(last) => last.saturating_add(1),
        Bound::Excluded(to) => *to,
        Bound::Unbounded => u64::MAX,
    };
    (from, to)
}

/// The leader's node is not part of an id here: one leader per term.
pub(super) fn to_id(id: &LogId) -> storage::log::LogId {
    storage::log::LogId { term: id.leader_id.term, node: 0, index: id.index }
}

pub(super) fn from_id(id: storage::log::LogId) -> LogId {
    log_id(id.term, id.index)
}

fn to_log(entry: Entry) -> storage::log::Entry {
    let (kind, payload) = encode_payload(entry.payload);
    storage::log::Entry { id: to_id(&entry.log_id), kind, payload }
}

fn from_log(entry: storage::log::Entry) -> io::Result<Entry> {
    Ok(Entry { log_id: from_id(entry.id), payload: decode_payload(entry.kind, entry.payload)? })
}

pub(super) fn to_io(error: Error) -> io::Error {
    let kind = match &error {
        Error::StorageFull => io::ErrorKind::StorageFull,
        error if error.is_corruption() => io::ErrorKind::InvalidData,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}
