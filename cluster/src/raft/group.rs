//! One Raft group of this node.
//!
//! Invariants:
//! - A group is initialized once, by the node that makes it; afterwards its log says who takes part. A node that joins one
//!   never initializes it.
//! - A sole voter asks nobody, so it stands for election as soon as it starts instead of waiting for a timeout.
//! - `leading` is true only while this node is leader and the only voter. It follows the library's metrics, so it is taken back
//!   before a second voter is proposed (`growing`), not after.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use model::{
    id::{LogIndex, NodeId, ShardId},
    port::BoxFuture,
};
use openraft::{
    Config, Raft, ReadPolicy, ServerState, SnapshotPolicy,
    async_runtime::WatchReceiver,
    errors::{ClientWriteError, InitializeError, RaftError},
    impls::EmptyNode,
};
use storage::log::{GroupId, GroupInit, Log};
use tokio::{runtime::Handle, sync::watch};

use super::{
    Change, ChangeRefused, Consensus, Membership, Metrics, Refused, Status, TransferRefused,
    machine::{Machine, State},
    members,
    network::Alone,
    peers::Among,
    pool::Pool,
    receive::Inbox,
    runtime::{Driver, Runtime},
    store::{Store, waiting},
    types::{Answer, Applied, Data, InFlight, Types},
};
use crate::{
    Error, Result,
    peer::{Peers, Receive},
};

/// The settings of every group (DESIGN §10; the reasons are in the storage notes).
fn config(shard: ShardId) -> Config {
    Config {
        cluster_name: shard.to_string(),
        heartbeat_interval: 100,
        election_timeout_min: 400,
        election_timeout_max: 700,
        enable_pre_vote: Some(true),
        snapshot_policy: SnapshotPolicy::Never,
        // The log is let go only behind a checkpoint, by us: a snapshot here is a moment of an engine that is not synced,
        // and entries purged behind it on the library's own account could not be replayed after a power cut.
        max_in_snapshot_log_to_keep: u64::MAX,
        max_payload_entries: 1_024,
        install_snapshot_timeout: 10 * 60 * 1_000,
        allow_log_reversion: None,
        enable_leader_restore: Some(false),
        ..Config::default()
    }
}

/// The library's handle on a group.
pub(super) type RaftOf<S> = Raft<Types, Machine<S>>;

/// A group.
pub(crate) struct Group<S: State> {
    raft: RaftOf<S>,
    inbox: Option<Arc<Inbox<S>>>,
    /// Held by the change of members that is under way.
    changing: Arc<tokio::sync::Mutex<()>>,
    here: Handle,
    leading: AtomicBool,
    /// A second voter is proposed, or is there.
    growing: Arc<AtomicBool>,
    status: watch::Sender<Status>,
    entry_bytes_max: usize,
}

/// What a group is made of.
pub(crate) struct Parts<S: State> {
    pub(crate) shard: ShardId,
    pub(crate) node: NodeId,
    pub(crate) log: Log,
    pub(crate) state: Arc<S>,
    pub(crate) pool: Arc<Pool>,
    /// None for a group that nobody else can take part in.
    pub(crate) peering: Option<Peering>,
}

/// How a group reaches its other members.
pub(crate) struct Peering {
    pub(crate) peers: Arc<Peers>,
    pub(crate) origin: Origin,
}

/// Where a group that is new here comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Origin {
    /// It begins here, with this node as its only voter.
    Founded,
    /// It is there already; its leader will say what it is.
    Joined,
}

impl<S: State> Group<S> {
    /// Makes the group in the log if it is new, recovers its state, and starts it.
    pub(crate) async fn start(runtime: &Runtime, parts: Parts<S>) -> Result<Arc<Self>> {
        let shard = parts.shard;
        let started = runtime.spawn(Self::start_here(parts)).await;
        let group = started.map_err(|error| Error::Failed { shard, reason: error.to_string() })??;
        let (watching, driver) = (group.clone(), runtime.driver().clone());
        runtime.spawn(async move { watching.watch(&driver).await });
        Ok(group)
    }

    async fn start_here(parts: Parts<S>) -> Result<Arc<Self>> {
        let Parts { shard, node, log, state, pool, peering } = parts;
        let is_founded = peering.as_ref().is_none_or(|peering| peering.origin == Origin::Founded);
        let group = GroupId(shard.0);
        let node = u64::from(node.0);
        let failed = |reason: String| Error::Failed { shard, reason };
        if !log.groups().contains(&group) {
            let (callback, durable) = waiting();
            log.create_group(group, GroupInit::default(), callback)?;
            durable.await.map_err(|_| Error::Stopping)??;
        }
        let config = config(shard).validate().map_err(|error| failed(error.to_string()))?;
        let entry_bytes_max = log.payload_bytes_max();
        let store = Store::new(log, group);
        let machine = Machine::new(shard, state.clone(), pool.clone());
        let config = Arc::new(config);
        let raft = match &peering {
            None => Raft::new(node, config, Alone::new(), store, machine).await,
            Some(Peering { peers, .. }) => {
                Raft::new(node, config, Among::<S>::new(peers.clone(), shard), store, machine).await
            }
        };
        let raft = raft.map_err(|error| failed(error.to_string()))?;
        let inbox = peering.map(|Peering { peers, .. }| {
            let (raft, connections) = (raft.clone(), peers.connections().clone());
            Arc::new(Inbox { raft, shard, state, pool, connections })
        });
        if raft.is_initialized().await.map_err(|error| failed(error.to_string()))? {
            let voters: BTreeSet<u64> = raft.voter_ids().collect();
            if voters == BTreeSet::from([node]) {
                raft.trigger().elect(false).await.map_err(|error| failed(error.to_string()))?;
            }
        } else if is_founded {
            match raft.initialize(BTreeMap::from([(node, EmptyNode::new())])).await {
                Ok(()) | Err(RaftError::APIError(InitializeError::NotAllowed(_))) => {}
                Err(error) => return Err(failed(error.to_string())),
            }
        }
        let status = watch::Sender::new(Status::default());
        Ok(Arc::new(Self {
            raft,
            inbox,
            changing: Arc::default(),
            here: Handle::current(),
            leading: AtomicBool::new(false),
            growing: Arc::default(),
            status,
            entry_bytes_max,
        }))
    }

    /// What answers the calls of the group's peers; none if it has none.
    pub(crate) fn inbox(&self) -> Option<Arc<dyn Receive>> {
        self.inbox.clone().map(|inbox| inbox as Arc<dyn Receive>)
    }

    /// Follows the group's role until it ends. The role's metrics change rarely, not with every entry.
    async fn watch(&self, driver: &Arc<Driver>) {
        let mut roles = self.raft.server_metrics();
        let mut shared = None;
        loop {
            let status = {
                let now = roles.borrow_watched();
                let voters: BTreeSet<u64> = now.membership_config.voter_ids().collect();
                let alone = voters == BTreeSet::from([now.id]);
                // An election can be lost as soon as there is a second voter: then this thread waits for no disk.
                if alone || self.inbox.is_none() {
                    shared = None;
                } else if shared.is_none() {
                    shared = Some(driver.give_up());
                }
                let term = now.vote.leader_id.term;
                match (now.state == ServerState::Leader && now.vote.committed, alone) {
                    (true, true) => Status::Leads(term),
                    (true, false) => Status::LeadsOthers(term),
                    (false, _) => Status::Follows,
                }
            };
            self.tell(status);
            if roles.changed().await.is_err() {
                break;
            }
        }
        let reason = match &self.raft.metrics().borrow_watched().running_state {
            Ok(()) => "the group has ended".to_owned(),
            Err(fatal) => fatal.to_string(),
        };
        self.tell(Status::Failed(reason));
    }

    fn tell(&self, status: Status) {
        self.leading.store(matches!(status, Status::Leads(_)), Ordering::SeqCst);
        if status == Status::Follows {
            // What this leadership had proposed is the next one's to know.
            self.growing.store(false, Ordering::SeqCst);
        }
        self.status.send_if_modified(|seen| {
            let changed = *seen != status;
            *seen = status;
            changed
        });
    }
}

impl<S: State> Consensus for Group<S> {
    fn propose(
        &self,
        entry: Bytes,
        in_flight: Option<InFlight>,
    ) -> BoxFuture<'static, Result<Applied, Refused>> {
        let (given, max) = (entry.len(), self.entry_bytes_max);
        if given > max {
            return Box::pin(std::future::ready(Err(Refused::TooLarge { given, max })));
        }
        let raft = self.raft.clone();
        Box::pin(async move {
            let (answer, answered) = Answer::channel(in_flight);
            if raft.client_write_ff(Data(entry), Some(answer)).await.is_err() {
                return Err(Refused::Stopped);
            }
            match answered.await {
                Ok(Ok(response)) => Ok(response.data),
                Ok(Err(ClientWriteError::ForwardToLeader(_) | ClientWriteError::PreconditionFailed(_))) => {
                    Err(Refused::NotLeader)
                }
                Ok(Err(ClientWriteError::LogEntryDiscarded(_))) | Err(_) => Err(Refused::Unknown),
                Ok(Err(ClientWriteError::ChangeMembershipError(_))) => {
                    unreachable!("a proposal that changes no membership is not refused for one")
                }
            }
        })
    }

    fn read_index(&self) -> BoxFuture<'static, Result<LogIndex, Refused>> {
        let raft = self.raft.clone();
        Box::pin(async move {
            match raft.ensure_linearizable(ReadPolicy::ReadIndex).await {
                Ok(read) => Ok(LogIndex(read.index())),
                Err(RaftError::APIError(_)) => Err(Refused::NotLeader),
                Err(RaftError::Fatal(_)) => Err(Refused::Stopped),
            }
        })
    }

    fn is_sole_voter_leader(&self) -> bool {
        self.leading.load(Ordering::SeqCst) && !self.growing.load(Ordering::SeqCst)
    }

    fn status(&self) -> watch::Receiver<Status> {
        self.status.subscribe()
    }

    fn membership(&self) -> Membership {
        members::newest(&self.raft)
    }

    fn leader(&self) -> Option<NodeId> {
        self.raft.server_metrics().borrow_watched().current_leader.map(members::node_of)
    }

    fn change(&self, change: Change) -> BoxFuture<'static, Result<Membership, ChangeRefused>> {
        let Ok(changing) = self.changing.clone().try_lock_owned() else {
            return Box::pin(std::future::ready(Err(ChangeRefused::InProgress)));
        };
        let (raft, growing) = (self.raft.clone(), self.growing.clone());
        if matches!(change, Change::Promote(_)) {
            growing.store(true, Ordering::SeqCst);
        }
        // On its own: whoever stops waiting does not leave the group between two configurations.
        let changed = self.here.spawn(async move {
            let changed = members::change(&raft, change).await;
            if members::is_alone(&raft).await {
                growing.store(false, Ordering::SeqCst);
            }
            drop(changing);
            changed
        });
        Box::pin(async move { changed.await.unwrap_or(Err(ChangeRefused::Unknown)) })
    }

    fn transfer(&self, to: NodeId) -> BoxFuture<'static, Result<(), TransferRefused>> {
        let raft = self.raft.clone();
        let done = self.here.spawn(async move { members::transfer(&raft, to).await });
        Box::pin(async move { done.await.unwrap_or(Err(TransferRefused::Stopped)) })
    }

    fn metrics(&self) -> Metrics {
        let metrics = self.raft.metrics();
        let now = metrics.borrow_watched();
        Metrics {
            term: now.current_term,
            last: now.last_log_index.map(LogIndex),
            applied: now.last_applied.map(|id| LogIndex(id.index)),
            purged: now.purged.map(|id| LogIndex(id.index)),
        }
    }

    fn purge(&self, upto: LogIndex) -> BoxFuture<'static, Result<(), Refused>> {
        let raft = self.raft.clone();
        Box::pin(async move {
            // The library purges only behind a snapshot it knows of, so one is registered first: a handle, no copy. It is
            // made beside the core: a purge that does not wait for it is cut down to the snapshot before.
            let mut metrics = raft.metrics();
            loop {
                let (snapshot, applied) = {
                    let now = metrics.borrow_watched();
                    now.running_state.as_ref().map_err(|_| Refused::Stopped)?;
                    (now.snapshot.map(|id| id.index), now.last_applied.map(|id| id.index))
                };
                if snapshot >= Some(upto.0) || applied < Some(upto.0) {
                    break;
                }
                raft.trigger().snapshot().await.map_err(|_| Refused::Stopped)?;
                metrics.changed().await.map_err(|_| Refused::Stopped)?;
            }
            raft.trigger().purge_log(upto.0).await.map_err(|_| Refused::Stopped)
        })
    }

    fn shutdown(&self) -> BoxFuture<'static, ()> {
        let raft = self.raft.clone();
        Box::pin(async move {
            // It fails only if the core panicked, which `watch` reports.
            let _ = raft.shutdown().await;
        })
    }
}
