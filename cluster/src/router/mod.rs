//! The router: which shard a request goes to, and who owns it. Implements [`Dispatch`].
//!
//! Invariants:
//! - A request enters a shard under the view it was routed by; whatever the shard refuses before it proposes is routed
//!   again, whatever may have been applied is not.
//! - A plain command keeps its slot and number over all its tries, so that it is applied at most once.
//! - What is at hand is answered on the spot: a point read is a look at the ring, a pass and an engine get.
//!
//! Not here: what an owner does with it (`owner`), schema changes (`ddl`).

mod ddl;
mod index;

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Weak},
    task::{Context, Poll},
    time::Duration,
};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use model::{
    catalog::{Catalog, Change},
    command::{Command, Identity, LockSet, Outcome, Rejection},
    id::{Boot, CommandId, IndexId, NodeId, PartitionId, RoleId, SessionId, ShardId, TableId, ViewId},
    load::{LoadId, Loaded},
    port::{BoxFuture, Dispatch, LockRequest, Locked, Reply},
    read::{At, Page, ReadPoint, Scan, Stored},
};
use parking_lot::Mutex;

use crate::{
    Error, Result,
    admission::Pass,
    catalog::Board,
    owner::{Owner, SLOTS_MAX, Slots},
    raft::{Control, Timer},
    ring::Map,
};

/// How long a request is routed again while its shard has no owner.
const ROUTE_AGAIN: Duration = Duration::from_secs(5);

/// How long to wait before routing again.
const ROUTE_PAUSE: Duration = Duration::from_millis(20);

/// A page above either of these is read off the caller's thread.
const INLINE_ROWS_MAX: usize = 1_024;
const INLINE_BYTES_MAX: usize = 256 << 10;

/// Object ids taken from the control group at once.
const IDS_BLOCK: u32 = 64;

/// The way from any door to any partition.
pub struct Router {
    node: NodeId,
    boot: Boot,
    board: Arc<Board>,
    /// None once the node is closed.
    inner: ArcSwapOption<Inner>,
}

pub(crate) struct Inner {
    pub(crate) node: NodeId,
    pub(crate) boot: Boot,
    pub(crate) view: ViewId,
    pub(crate) map: Map,
    /// In the order of the map.
    pub(crate) owners: Vec<Arc<Owner>>,
    pub(crate) board: Arc<Board>,
    pub(crate) control: Arc<Control>,
    pub(crate) timer: Timer,
    /// Object ids that were taken and not given out: next, and end.
    pub(crate) ids: Mutex<(u32, u32)>,
}

impl Router {
    pub(crate) fn new(inner: Inner) -> Arc<Self> {
        Arc::new(Self {
            node: inner.node,
            boot: inner.boot,
            board: inner.board.clone(),
            inner: ArcSwapOption::from_pointee(inner),
        })
    }

    /// This gateway's slots in the shard of a partition, for a door that numbers its commands itself.
    pub fn slots(&self, partition: &PartitionId) -> Result<Arc<Slots>> {
        self.with(|inner| Ok(inner.owner_of(partition).slots().clone()))
    }

    /// The shard a partition is in.
    pub fn shard_of(&self, partition: &PartitionId) -> Result<ShardId> {
        self.with(|inner| Ok(inner.map.shard_of(partition.point())))
    }

    /// Ends whatever a session left at the owners: its lock sets.
    pub fn end_session(&self, session: SessionId) {
        if let Some(inner) = &*self.inner.load() {
            for owner in &inner.owners {
                owner.end_session(session);
            }
        }
    }

    /// Lets go of everything; who asks from now on hears that the node is stopping.
    pub(crate) fn close(&self) -> Weak<Inner> {
        self.inner.swap(None).map_or_else(Weak::new, |inner| Arc::downgrade(&inner))
    }

    fn with<T>(&self, ask: impl FnOnce(&Inner) -> Result<T>) -> Result<T> {
        match &*self.inner.load() {
            Some(inner) => ask(inner),
            None => Err(Error::Stopping),
        }
    }

    fn now<T>(&self, ask: impl FnOnce(&Inner) -> Result<T>) -> Reply<T> {
        Reply::now(self.with(ask).map_err(Into::into))
    }

    fn later<T, F>(&self, ask: impl FnOnce(Arc<Inner>) -> F) -> Reply<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let Some(inner) = self.inner.load_full() else { return Reply::now(Err(Error::Stopping.into())) };
        let answer = ask(inner);
        started(Box::pin(async move { answer.await.map_err(Into::into) }))
    }
}

impl Inner {
    fn owner_of(&self, partition: &PartitionId) -> &Arc<Owner> {
        &self.owners[self.map.place_of(partition.point())]
    }

    /// The owner of a partition, entered.
    fn enter(&self, partition: &PartitionId) -> Result<(&Arc<Owner>, Pass)> {
        let owner = self.owner_of(partition);
        let pass = owner.admission().enter(self.view, partition.point())?;
        Ok((owner, pass))
    }

    /// All owners, entered.
    fn enter_all(&self) -> Result<Vec<(&Arc<Owner>, Pass)>> {
        self.owners.iter().map(|owner| Ok((owner, owner.admission().enter_shard(self.view)?))).collect()
    }

    async fn execute(
        &self,
        mut command: Command,
        loaded: Option<Loaded>,
        lock_wait: Duration,
    ) -> Result<Outcome> {
        check_spelling(&command.partition)?;
        let _slot = match &mut command.identity {
            Identity::Slot { node, boot, slot, number } if *number == 0 => {
                let taken = self.owner_of(&command.partition).slots().acquire();
                let max = usize::from(SLOTS_MAX);
                let taken = taken.ok_or(Error::TooMany { what: "commands in flight", max })?;
                (*node, *boot, *slot, *number) = (self.node, self.boot, taken.slot(), taken.number());
                Some(taken)
            }
            Identity::Slot { .. } | Identity::Named { .. } | Identity::Sweep => None,
        };
        let deadline = self.timer.now() + ROUTE_AGAIN;
        loop {
            let asked = match self.enter(&command.partition) {
                Ok((owner, pass)) => owner.execute(pass, &mut command, loaded.as_ref(), lock_wait).await,
                Err(error) => Err(error),
            };
            let again = match &asked {
                // Not executed, and not remembered: the same number may try again under the new claim.
                Ok(Outcome::Rejected(Rejection::Fenced)) => command.locks.is_none() && loaded.is_none(),
                Ok(_) => false,
                Err(error) => is_routed_again(error),
            };
            if !again || self.timer.now() >= deadline {
                return asked;
            }
            self.timer.sleep(ROUTE_PAUSE).await;
        }
    }

    async fn allocate_ids(&self, count: u32) -> Result<u32> {
        let take = |count: u32| {
            let mut ids = self.ids.lock();
            let first = ids.0;
            (ids.1 - first >= count).then(|| {
                ids.0 += count;
                first
            })
        };
        if let Some(first) = take(count) {
            return Ok(first);
        }
        let block = count.max(IDS_BLOCK);
        let first = self.control.allocate(block).await?;
        let mut ids = self.ids.lock();
        // What another caller left of an older block is given up: ids are many, and never used twice.
        *ids = (first + count, first + block);
        Ok(first)
    }
}

impl Dispatch for Router {
    fn gateway(&self) -> (NodeId, Boot) {
        (self.node, self.boot)
    }

    fn catalog(&self) -> Arc<Catalog> {
        self.board.newest().catalog().clone()
    }

    fn refresh_catalog(&self) -> Reply<Arc<Catalog>> {
        self.later(|inner| async move {
            // The sole voter of the control group publishes before it answers: what is here is the newest.
            if !inner.control.is_local() {
                inner.control.confirm().await?;
            }
            Ok(inner.board.newest().catalog().clone())
        })
    }

    fn allocate_ids(&self, count: u32) -> Reply<u32> {
        self.later(move |inner| async move { inner.allocate_ids(count).await })
    }

    fn change_catalog(&self, change: Change) -> Reply<Arc<Catalog>> {
        self.later(move |inner| async move { inner.change_catalog(change).await })
    }

    fn build_index(&self, table: TableId, index: IndexId) -> Reply<Arc<Catalog>> {
        self.later(move |inner| async move { inner.build_index(table, index).await })
    }

    fn execute(&self, command: Command, lock_wait: Duration) -> Reply<Outcome> {
        self.later(move |inner| async move { inner.execute(command, None, lock_wait).await })
    }

    fn takes_loads(&self) -> bool {
        true
    }

    fn begin_load(&self, partition: &PartitionId) -> Reply<LoadId> {
        self.now(|inner| {
            check_spelling(partition)?;
            let (owner, pass) = inner.enter(partition)?;
            Ok(owner.begin_load(&pass))
        })
    }

    fn load(&self, partition: &PartitionId, load: LoadId, sequence: u32, rows: Bytes) -> Reply<()> {
        let partition = partition.clone();
        self.later(move |inner| async move {
            let (owner, pass) = inner.enter(&partition)?;
            owner.clone().load(pass, partition.clone(), load, sequence, rows).await
        })
    }

    fn execute_load(&self, command: Command, loaded: Loaded, lock_wait: Duration) -> Reply<Outcome> {
        self.later(move |inner| async move { inner.execute(command, Some(loaded), lock_wait).await })
    }

    fn abort_load(&self, partition: &PartitionId, load: LoadId) -> Reply<()> {
        let partition = partition.clone();
        self.later(move |inner| async move {
            let owner = inner.owner_of(&partition).clone();
            owner.abort_load(partition, load).await
        })
    }

    fn get(&self, partition: &PartitionId, table: TableId, key: &[u8], at: &At) -> Reply<Option<Bytes>> {
        self.now(|inner| {
            let (owner, pass) = inner.enter(partition)?;
            owner.get(&pass, partition, table, key, at)
        })
    }

    fn get_many(
        &self,
        partition: &PartitionId,
        table: TableId,
        index: Option<IndexId>,
        keys: Vec<Bytes>,
        at: &At,
    ) -> Reply<Vec<Option<Stored>>> {
        let small = keys.len() <= INLINE_ROWS_MAX;
        if small && self.is_ready_for(partition, table, index) {
            return self.now(|inner| {
                let (owner, pass) = inner.enter(partition)?;
                owner.get_many(&pass, partition, table, index, &keys, at)
            });
        }
        let (partition, at) = (partition.clone(), at.clone());
        self.later(move |inner| async move {
            let (owner, pass) = inner.enter_ready(&partition, table, index).await?;
            inner.aside(move || owner.get_many(&pass, &partition, table, index, &keys, &at)).await
        })
    }

    fn scan(&self, scan: Scan) -> Reply<Page> {
        let small = scan.rows_max <= INLINE_ROWS_MAX || scan.bytes_max <= INLINE_BYTES_MAX;
        if small && self.is_ready_for(&scan.partition, scan.table, scan.index) {
            return self.now(|inner| {
                let (owner, pass) = inner.enter(&scan.partition)?;
                owner.scan(&pass, &scan)
            });
        }
        self.later(move |inner| async move {
            let (owner, pass) = inner.enter_ready(&scan.partition, scan.table, scan.index).await?;
            inner.aside(move || owner.scan(&pass, &scan)).await
        })
    }

    fn count(&self, partition: &PartitionId, table: TableId, at: &At) -> Reply<u64> {
        self.now(|inner| {
            let (owner, pass) = inner.enter(partition)?;
            owner.count(&pass, partition, table, at)
        })
    }

    fn partitions(&self, table: TableId) -> Reply<Vec<PartitionId>> {
        self.now(|inner| {
            let mut found = Vec::new();
            for (owner, pass) in inner.enter_all()? {
                found.extend(owner.snapshot(&pass, &At::Latest)?.partitions(table)?);
            }
            Ok(found)
        })
    }

    fn read_point(&self, partition: &PartitionId) -> Reply<ReadPoint> {
        self.now(|inner| {
            let (owner, pass) = inner.enter(partition)?;
            owner.read_point(&pass)
        })
    }

    fn begin_locks(&self, partition: &PartitionId, session: SessionId) -> Reply<LockSet> {
        self.now(|inner| {
            let (owner, pass) = inner.enter(partition)?;
            owner.begin_locks(&pass, session)
        })
    }

    fn lock(&self, request: LockRequest) -> Reply<Vec<Locked>> {
        self.later(move |inner| async move {
            let (owner, pass) = inner.enter(&request.partition)?;
            owner.lock(&pass, &request).await
        })
    }

    fn unlock(&self, partition: &PartitionId, set: LockSet, keep: Option<usize>) -> Reply<()> {
        self.now(|inner| {
            inner.owner_of(partition).unlock(set, keep);
            Ok(())
        })
    }

    fn command_status(
        &self,
        partition: &PartitionId,
        principal: RoleId,
        id: CommandId,
    ) -> Reply<Option<Outcome>> {
        self.now(|inner| {
            let (owner, pass) = inner.enter(partition)?;
            let named = owner.snapshot(&pass, &At::Latest)?.receipt(principal, partition, id)?;
            Ok(named.map(|named| named.outcome))
        })
    }
}

impl Router {
    /// Whether a read by an index can be answered on the spot.
    fn is_ready_for(&self, partition: &PartitionId, table: TableId, index: Option<IndexId>) -> bool {
        index.is_none()
            || self
                .inner
                .load()
                .as_ref()
                .is_some_and(|inner| inner.owner_of(partition).is_ready_for(table, index))
    }
}

impl Inner {
    /// The owner of a partition, entered, and knowing an index.
    async fn enter_ready(
        &self,
        partition: &PartitionId,
        table: TableId,
        index: Option<IndexId>,
    ) -> Result<(Arc<Owner>, Pass)> {
        let (owner, pass) = self.enter(partition)?;
        if !owner.is_ready_for(table, index) {
            owner.make_ready_for(table).await?;
        }
        Ok((owner.clone(), pass))
    }

    /// Runs a long read on a thread that may block.
    async fn aside<T: Send + 'static>(&self, read: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
        self.timer.blocking(read).await.map_err(|_| Error::Stopping)?
    }
}

/// Whether nothing was done and another owner, or the same one in a moment, may do it.
fn is_routed_again(error: &Error) -> bool {
    matches!(
        error,
        Error::NotServing { .. } | Error::Gated { .. } | Error::ViewStale { .. } | Error::NoLeader { .. }
    )
}

/// A partition's id has one spelling; bytes that came from elsewhere are parsed again here and by storage.
fn check_spelling(partition: &PartitionId) -> Result<()> {
    PartitionId::parse(partition.as_bytes()).map(drop).map_err(Error::Refused)
}

/// An answer that is already here if asking once gave it: then nobody needs to be woken.
fn started<T>(mut answer: BoxFuture<'static, model::Result<T>>) -> Reply<T> {
    let mut context = Context::from_waker(std::task::Waker::noop());
    match Pin::as_mut(&mut answer).poll(&mut context) {
        Poll::Ready(answer) => Reply::now(answer),
        Poll::Pending => Reply::Later(answer),
    }
}
