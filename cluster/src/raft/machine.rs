//! A group's state machine, as openraft wants to see it: entries in, answers out, on the apply pool.
//!
//! Invariants:
//! - All entries that are ready are applied together, as one engine batch, on a thread of the pool; a few small ones on the
//!   thread of consensus itself, since waking another one takes longer than they do.
//! - Every proposer is answered, after the batch was committed; if it fails the group stops and the answers are lost, which
//!   their proposers see as an unknown outcome.
//! - A snapshot is a handle on the engine's; nothing is copied until it is sent.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use futures::{Stream, StreamExt};
use model::id::ShardId;
use openraft::{
    EntryPayload, OptionalSend, RaftSnapshotBuilder, StoredMembership,
    impls::EmptyNode,
    storage::{ApplyResponder, EntryResponder, RaftStateMachine, Snapshot, SnapshotMeta},
};

use super::{
    pool::{Lost, Pool, caught, finished},
    types::{Applied, CommittedLeaderId, Data, LogId, Members, Types, decode_members, encode_members},
};

/// What a group keeps: the state of a shard, or the catalog.
pub(crate) trait State: Send + Sync + 'static {
    /// Consistent state at one moment, to be sent or as it was received.
    type Image: Send + 'static;

    /// How far it is.
    fn position(&self) -> storage::Result<Position>;

    /// Applies entries in order, all or none, and answers one result per entry.
    fn apply(&self, entries: Vec<Committed>) -> storage::Result<Vec<Applied>>;

    /// The same where it is done in no time, whatever there is; else none, and nothing was applied.
    fn apply_at_once(&self, _entries: &[Committed]) -> storage::Result<Option<Vec<Applied>>> {
        Ok(None)
    }

    /// This moment, and its position.
    fn image(&self) -> storage::Result<(Self::Image, Position)>;

    /// What an image is sent as. To be read on a thread that may block.
    fn chunks(image: Self::Image) -> storage::Result<Chunks>;

    /// Makes an image out of chunks, which is nobody's state yet; it is of `position`, or refused. What breaks off leaves
    /// nothing. May block for long, so not on the pool.
    fn receive(&self, chunks: Chunks, position: &Position) -> storage::Result<Self::Image>;

    /// Deletes received images that were dropped without having been installed.
    fn forget_received(&self) -> storage::Result<()>;

    /// Replaces everything, all or nothing.
    fn install(&self, image: Self::Image, position: Position) -> storage::Result<()>;
}

/// The chunks of an image.
pub(crate) type Chunks = Box<dyn Iterator<Item = storage::Result<Bytes>> + Send>;

/// How far a state machine is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Position {
    /// Term and index of the last applied entry.
    pub(crate) last: Option<(u64, u64)>,
    /// The last applied membership, in bytes only this module reads.
    pub(crate) members: Bytes,
}

/// A committed entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Committed {
    pub(crate) term: u64,
    pub(crate) index: u64,
    pub(crate) payload: CommittedPayload,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum CommittedPayload {
    /// A leader's first word.
    Blank,
    /// A proposal.
    Entry(Bytes),
    /// Who takes part from here on.
    Members(Bytes),
}

/// A state machine on the pool.
pub(super) struct Machine<S: State> {
    shard: ShardId,
    state: Arc<S>,
    pool: Arc<Pool>,
    /// Whether a snapshot was built or installed since the start: only then there is a current one.
    registered: Arc<AtomicBool>,
}

/// A builder, which is a handle on the machine.
pub(super) struct Builder<S: State>(Machine<S>);

impl<S: State> Machine<S> {
    pub(super) fn new(shard: ShardId, state: Arc<S>, pool: Arc<Pool>) -> Self {
        Self { shard, state, pool, registered: Arc::default() }
    }

    async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce(&S) -> storage::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let state = self.state.clone();
        done(finished(self.pool.run(self.shard, move || job(&state))).await)
    }

    async fn snapshot(&self) -> io::Result<Snapshot<CommittedLeaderId, u64, EmptyNode, S::Image>> {
        let (image, position) = self.run(S::image).await?;
        let (last_log_id, last_membership) = from_position(position)?;
        self.registered.store(true, Ordering::Release);
        Ok(Snapshot { meta: SnapshotMeta { last_log_id, last_membership }, snapshot: image })
    }

    fn share(&self) -> Self {
        Self {
            shard: self.shard,
            state: self.state.clone(),
            pool: self.pool.clone(),
            registered: self.registered.clone(),
        }
    }
}

impl<S: State> RaftStateMachine<Types> for Machine<S> {
    type SnapshotData = S::Image;
    type SnapshotBuilder = Builder<S>;

    async fn applied_state(&mut self) -> io::Result<(Option<LogId>, Members)> {
        from_position(self.run(S::position).await?)
    }

    async fn apply<Strm>(&mut self, mut entries: Strm) -> io::Result<()>
    where
        Strm: Stream<Item = io::Result<EntryResponder<Types>>> + Unpin + OptionalSend,
    {
        let mut batch = Vec::new();
        let mut responders = Vec::new();
        while let Some(entry) = entries.next().await {
            let (entry, responder) = entry?;
            batch.push(committed(entry));
            responders.push(responder);
        }
        if batch.len() <= self.pool.little()
            && let Some(results) = done(caught(|| self.state.apply_at_once(&batch)))?
        {
            answer(responders, results);
            return Ok(());
        }
        self.run(move |state| {
            let results = state.apply(batch)?;
            answer(responders, results);
            Ok(())
        })
        .await
    }

    async fn get_snapshot_builder(&mut self) -> Builder<S> {
        Builder(self.share())
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta<CommittedLeaderId, u64, EmptyNode>,
        image: S::Image,
    ) -> io::Result<()> {
        let position = to_position(meta);
        self.run(move |state| state.install(image, position)).await?;
        self.registered.store(true, Ordering::Release);
        Ok(())
    }

    async fn get_current_snapshot(
        &mut self,
    ) -> io::Result<Option<Snapshot<CommittedLeaderId, u64, EmptyNode, S::Image>>> {
        if !self.registered.load(Ordering::Acquire) {
            return Ok(None);
        }
        self.snapshot().await.map(Some)
    }
}

impl<S: State> RaftSnapshotBuilder<Types> for Builder<S> {
    type SnapshotData = S::Image;

    async fn build_snapshot(&mut self) -> io::Result<Snapshot<CommittedLeaderId, u64, EmptyNode, S::Image>> {
        self.0.snapshot().await
    }
}

fn done<T>(job: Result<storage::Result<T>, Lost>) -> io::Result<T> {
    match job {
        Ok(done) => done.map_err(to_io),
        Err(Lost::Panicked(message)) => Err(io::Error::other(format!("apply panicked: {message}"))),
        Err(Lost::Stopped) => Err(io::Error::other("the apply pool has stopped")),
    }
}

fn answer(responders: Vec<Option<ApplyResponder<Types>>>, results: Vec<Applied>) {
    assert_eq!(responders.len(), results.len(), "every entry has a result");
    for (responder, result) in responders.into_iter().zip(results) {
        if let Some(responder) = responder {
            responder.send(result);
        }
    }
}

fn committed(entry: super::types::Entry) -> Committed {
    let LogId { leader_id, index } = entry.log_id;
    let payload = match entry.payload {
        EntryPayload::Blank => CommittedPayload::Blank,
        EntryPayload::Normal(Data(bytes)) => CommittedPayload::Entry(bytes),
        EntryPayload::Membership(membership) => {
            let members = StoredMembership::new(Some(entry.log_id), membership);
            CommittedPayload::Members(encode_members(&members))
        }
    };
    Committed { term: leader_id.term, index, payload }
}

/// Where a snapshot is.
pub(super) fn to_position(meta: &SnapshotMeta<CommittedLeaderId, u64, EmptyNode>) -> Position {
    Position {
        last: meta.last_log_id.map(|id| (id.leader_id.term, id.index)),
        members: encode_members(&meta.last_membership),
    }
}

fn from_position(position: Position) -> io::Result<(Option<LogId>, Members)> {
    let last = position.last.map(|(term, index)| super::types::log_id(term, index));
    Ok((last, decode_members(position.members)?))
}

fn to_io(error: storage::Error) -> io::Error {
    let kind = match &error {
        storage::Error::DiskFull { .. } => io::ErrorKind::StorageFull,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}
