//! The two seams of the house, both `dyn`.
//!
//! - [`Handler`]: above it protocols, below it the session.
//! - [`Dispatch`]: above it SQL and sessions, below it partitions.
//!
//! What is at hand is answered on the spot ([`Reply::Now`]): a point read on a local owner is one call, without a box,
//! a task or an await.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;

use crate::{
    catalog::{Catalog, Change},
    command::{Command, LockSet, Outcome},
    error::{Error, Result},
    id::{Boot, CommandId, IndexId, NodeId, PartitionId, RoleId, SessionId, TableId},
    load::{LoadId, Loaded},
    read::{At, Page, ReadPoint, Scan},
    request::{Request, Response},
};

/// A boxed future.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// An answer that is here, or will be.
pub enum Reply<T> {
    /// Here.
    Now(Option<Result<T>>),
    /// On its way. Dropping it gives up waiting, not the work.
    Later(BoxFuture<'static, Result<T>>),
}

impl<T> Reply<T> {
    /// An answer that is here.
    pub fn now(answer: Result<T>) -> Self {
        Self::Now(Some(answer))
    }

    /// An answer on its way.
    pub fn later(answer: impl Future<Output = Result<T>> + Send + 'static) -> Self {
        Self::Later(Box::pin(answer))
    }
}

impl<T> Reply<T> {
    /// The answer if it is here; waiting for one that is not is given up.
    pub fn here(self) -> Option<Result<T>> {
        match self {
            Self::Now(answer) => answer,
            Self::Later(_) => None,
        }
    }
}

impl<T: Unpin> Future for Reply<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            Self::Now(answer) => Poll::Ready(answer.take().expect("a reply is awaited once")),
            Self::Later(answer) => answer.as_mut().poll(context),
        }
    }
}

/// Above it protocols, below it the session.
pub trait Handler: Send + Sync {
    /// Answers one request.
    fn handle(&self, request: Request) -> BoxFuture<'_, Result<Response>>;
}

/// Above it SQL and sessions, below it partitions.
pub trait Dispatch: Send + Sync {
    /// This gateway's node and start: the first half of a slot's name.
    fn gateway(&self) -> (NodeId, Boot);

    /// The newest catalog this node knows.
    fn catalog(&self) -> Arc<Catalog>;

    /// Asks the control group for a catalog at least as new as its latest.
    fn refresh_catalog(&self) -> Reply<Arc<Catalog>>;

    /// Gives out `count` object ids that were never used; answers the first.
    fn allocate_ids(&self, count: u32) -> Reply<u32>;

    /// Decides a change of the catalog; answers the catalog that holds it.
    ///
    /// Restrictive changes answer when every holder of the tables has applied them. Building an index is not part of
    /// it: see [`Dispatch::build_index`].
    fn change_catalog(&self, change: Change) -> Reply<Arc<Catalog>>;

    /// Builds an index that the catalog names as `Building`, in every partition; answers when it is `Ready`.
    ///
    /// A duplicate in a unique index is `23505`, and the index is then `Invalid`.
    fn build_index(&self, table: TableId, index: IndexId) -> Reply<Arc<Catalog>>;

    /// Executes a command at the owner of its partition.
    ///
    /// Without a lock set the command's row locks are taken before it is proposed, waiting up to `lock_wait`; with one, it
    /// is proposed only while that set lives, and the set is released when it was applied.
    fn execute(&self, command: Command, lock_wait: Duration) -> Reply<Outcome>;

    /// Whether loads are taken here; else their rows are sent as writes of a command.
    fn takes_loads(&self) -> bool {
        false
    }

    /// Begins a load in a partition.
    fn begin_load(&self, _partition: &PartitionId) -> Reply<LoadId> {
        Reply::now(Err(no_loads()))
    }

    /// Brings rows of a load ([`crate::load::Rows`]); `sequence` counts from 0.
    fn load(&self, _partition: &PartitionId, _load: LoadId, _sequence: u32, _rows: Bytes) -> Reply<()> {
        Reply::now(Err(no_loads()))
    }

    /// As [`Dispatch::execute`]: the command adds the rows of a load after its own writes. It locks their table.
    ///
    /// A load is used once. If the owner changed since it was begun it is lost, and nothing was done (`40001`).
    fn execute_load(&self, _command: Command, _loaded: Loaded, _lock_wait: Duration) -> Reply<Outcome> {
        Reply::now(Err(no_loads()))
    }

    /// Gives a load up.
    fn abort_load(&self, _partition: &PartitionId, _load: LoadId) -> Reply<()> {
        Reply::now(Ok(()))
    }

    /// Reads one row by key.
    fn get(&self, partition: &PartitionId, table: TableId, key: &[u8], at: &At) -> Reply<Option<Bytes>>;

    /// Reads rows by keys, or by keys of a unique index; the answer has one place per key.
    fn get_many(
        &self,
        partition: &PartitionId,
        table: TableId,
        index: Option<IndexId>,
        keys: Vec<Bytes>,
        at: &At,
    ) -> Reply<Vec<Option<crate::read::Stored>>>;

    /// Reads one page of a range.
    fn scan(&self, scan: Scan) -> Reply<Page>;

    /// Counts the rows of a table in one partition, exactly, without scanning.
    fn count(&self, partition: &PartitionId, table: TableId, at: &At) -> Reply<u64>;

    /// The partitions in which a table has, or had, rows.
    fn partitions(&self, table: TableId) -> Reply<Vec<PartitionId>>;

    /// Leases a read point of the partition's newest state.
    fn read_point(&self, partition: &PartitionId) -> Reply<ReadPoint>;

    /// Begins a lock set at the owner of a partition.
    fn begin_locks(&self, partition: &PartitionId, session: SessionId) -> Reply<LockSet>;

    /// Takes locks into a set and reads the rows under them, in one call. Answers one place per key.
    fn lock(&self, request: LockRequest) -> Reply<Vec<Locked>>;

    /// Ends a lock set, or (with `keep`) releases what was taken after its first `keep` locks.
    fn unlock(&self, partition: &PartitionId, set: LockSet, keep: Option<usize>) -> Reply<()>;

    /// What became of a named command in a partition, as far as it is remembered; none if it is not known there.
    fn command_status(
        &self,
        _partition: &PartitionId,
        _principal: RoleId,
        _id: CommandId,
    ) -> Reply<Option<Outcome>> {
        Reply::now(Err(Error::unsupported("command status is not kept here", "Connect to a server.")))
    }
}

fn no_loads() -> Error {
    Error::unsupported("loads are not taken here", "Connect to a server.")
}

/// Locks to take.
#[derive(Clone, Debug)]
pub struct LockRequest {
    /// Where.
    pub partition: PartitionId,
    /// Into which set.
    pub set: LockSet,
    /// On what, in which mode.
    pub locks: Vec<(Lockable, LockMode)>,
    /// What to do when one is taken.
    pub wait: Wait,
}

/// What can be locked.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Lockable {
    /// A row by its key, present or absent.
    Row(TableId, Bytes),
    /// A key of a unique index, present or absent.
    Unique(TableId, IndexId, Bytes),
    /// A whole table in this partition (TRUNCATE, bulk load, LOCK TABLE).
    Table(TableId),
}

/// PostgreSQL's four row modes, and `program`, compatible with itself only.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LockMode {
    /// FOR KEY SHARE: the key stays.
    KeyShare,
    /// FOR SHARE: the row stays.
    Share,
    /// FOR NO KEY UPDATE: the row changes, its keys stay.
    NoKeyUpdate,
    /// FOR UPDATE: anything may happen to the row.
    Update,
    /// A row program of an autocommit command, from proposal to applied.
    Program,
}

impl LockMode {
    /// Whether two transactions may hold these modes on one thing (PostgreSQL 15 documentation, table 13.3).
    pub fn is_compatible_with(self, other: Self) -> bool {
        use LockMode::{KeyShare, NoKeyUpdate, Program, Share, Update};
        match (self, other) {
            (Program, Program) => true,
            (Program, KeyShare) | (KeyShare, Program) => true,
            (Program, _) | (_, Program) => false,
            (Update, _) | (_, Update) => false,
            (NoKeyUpdate, KeyShare) | (KeyShare, NoKeyUpdate) => true,
            (NoKeyUpdate, _) | (_, NoKeyUpdate) => false,
            (KeyShare | Share, KeyShare | Share) => true,
        }
    }
}

/// What to do when a lock is taken by another transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// Wait up to so long, then `55P03`; a circle of waiters is `40P01`.
    For(Duration),
    /// `55P03` at once.
    Never,
    /// Leave it out.
    Skip,
}

/// What was found under a lock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Locked {
    /// Locked; the row as it is now, if there is one (for a unique key: the row that holds it).
    Held {
        /// The row.
        row: Option<crate::read::Stored>,
        /// True if another transaction was waited for, so that earlier reads may be stale.
        waited: bool,
    },
    /// Left out (`SKIP LOCKED`).
    Skipped,
}
