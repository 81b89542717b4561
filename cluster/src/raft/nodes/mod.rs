//! The nodes of one group in this process: the real log on files whose power can be cut, the real shard, real sockets on free ports. What goes wrong
//! between them is said by the test ([`faults`]); what they must have is kept beside them ([`rows`]).
//!
//! Tests wait for conditions, with a deadline far beyond what they take; none relies on how long something takes.

mod elections;
mod faults;
mod membership;
mod replication;
mod rows;
mod snapshots;

use std::{future::Future, sync::Arc, time::Duration};

use model::id::{LogIndex, NodeId, ShardId};
use storage::{
    engine::Engine,
    log::{
        Identity, Log, Options,
        files::sim::{Loss, Sim},
    },
    recovery::compare,
    shard::{Points, Shard},
};
use tokio::{net::TcpListener, runtime::Builder};

use self::{
    faults::{Faults, Faulty},
    rows::Ledger,
};
use super::*;
use crate::peer::{Desk, Known, Me, Peer, Peers};

const SHARD: ShardId = ShardId(3);
const ONE: NodeId = NodeId(1);
const TWO: NodeId = NodeId(2);
const THREE: NodeId = NodeId(3);
const ALL: [NodeId; 3] = [ONE, TWO, THREE];

/// When a test gives up, and how often it looks until then.
const GIVE_UP: Duration = Duration::from_secs(120);
const LOOK_AGAIN: Duration = Duration::from_millis(2);
const LOOKS_MAX: u32 = 60_000;

/// Waits until a condition holds.
fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let mut looks = 0;
    while !holds() {
        looks += 1;
        assert!(looks < LOOKS_MAX, "gave up waiting: {what}");
        std::thread::park_timeout(LOOK_AGAIN);
    }
}

/// Waits for a future, which must end.
fn wait<T>(future: impl Future<Output = T>) -> T {
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    let ended = runtime.block_on(async { tokio::time::timeout(GIVE_UP, future).await });
    ended.expect("it ends")
}

/// The nodes.
struct Cluster {
    nodes: Vec<Node>,
    faults: Faults,
    ledger: Ledger,
}

/// A node, also while it does not run.
struct Node {
    me: Me,
    disk: Sim,
    engine: Engine,
    known: Known,
    live: Option<Live>,
}

/// A node that runs.
struct Live {
    connections: Option<tokio::runtime::Runtime>,
    runtime: Arc<Runtime>,
    pool: Arc<Pool>,
    log: Log,
    replica: Arc<Replica>,
    group: Arc<Group<Replica>>,
    peers: Arc<Peers>,
    desk: Desk,
}

impl Cluster {
    /// Nodes 1 to `count` run; the group is of node 1 alone, and the others wait to be asked into it.
    fn alone(count: u32) -> Self {
        let mut cluster = Self { nodes: Vec::new(), faults: Faults::default(), ledger: Ledger::default() };
        for id in 1..=count {
            let me = Me { cluster: 42, node: NodeId(id), incarnation: 1_000 + u128::from(id) };
            cluster.nodes.push(Node {
                me,
                disk: Sim::new(),
                engine: Engine::in_memory(),
                known: Known::default(),
                live: None,
            });
        }
        for id in 1..=count {
            cluster.start(NodeId(id));
        }
        cluster.propose(rows::descriptors());
        cluster
    }

    /// Nodes 1 to `count` run and vote.
    fn of(count: u32) -> Self {
        let cluster = Self::alone(count);
        for id in 2..=count {
            cluster.change(Change::AddLearner(NodeId(id)));
            cluster.change(Change::Promote(NodeId(id)));
        }
        cluster
    }

    fn node(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[id.0 as usize - 1]
    }

    fn live(&self, id: NodeId) -> &Live {
        self.nodes[id.0 as usize - 1].live.as_ref().expect("it runs")
    }

    fn running(&self) -> impl Iterator<Item = (NodeId, &Live)> {
        self.nodes.iter().filter_map(|node| Some((node.me.node, node.live.as_ref()?)))
    }

    fn start(&mut self, id: NodeId) {
        let faults = self.faults.clone();
        let node = self.node(id);
        let connections = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = connections.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let identity =
            Identity { cluster: node.me.cluster, node: id.0.into(), incarnation: node.me.incarnation };
        let options = Options { segment_bytes: 8 << 20, ..Options::default() };
        let (log, recovered) = Log::open_files(Arc::new(node.disk.clone()), options, identity).unwrap();
        let pool = Arc::new(Pool::start(1).unwrap());
        let runtime = Runtime::start("raft").unwrap();
        runtime.drive(&log);
        let state = recovered.groups.get(&storage::log::GroupId(SHARD.0));
        let replica = Arc::new(Replica::open(&node.engine, &log, SHARD, state).unwrap());
        compare(SHARD, replica.shard().applied_index(), state).unwrap();
        let peers = Arc::new(Peers::new(node.me, node.known.clone(), connections.handle().clone()));
        let origin = if id == ONE { Origin::Founded } else { Origin::Joined };
        let parts = Parts {
            shard: SHARD,
            node: id,
            log: log.clone(),
            state: replica.clone(),
            pool: pool.clone(),
            peering: Some(Peering { peers: peers.clone(), origin }),
        };
        let group = wait(Group::start(&runtime, parts)).unwrap();
        let desk = Desk::new(node.me, node.known.clone());
        desk.open(SHARD, Arc::new(Faulty { me: id, group: group.inbox().unwrap(), faults }));
        connections.spawn(desk.clone().serve(listener, std::future::pending()));
        let peer = Peer { address, incarnation: node.me.incarnation };
        let connections = Some(connections);
        node.live = Some(Live { connections, runtime, pool, log, replica, group, peers, desk });
        for other in self.nodes.iter().filter(|other| other.me.node != id) {
            other.known.tell(id, peer);
        }
    }

    /// Ends a node where it stands, with the power: of what its log had not synced some is gone. All it had applied is there.
    fn kill(&mut self, id: NodeId) {
        let node = self.node(id);
        node.disk.cut_power();
        node.disk = node.disk.image(Loss::Subset { sector_bytes: 512 }, id.0.into());
        node.live = None;
    }

    /// As [`Cluster::kill`], and nothing it had applied is there: the log must bring it back.
    fn kill_with_its_state(&mut self, id: NodeId) {
        self.kill(id);
        self.node(id).engine = Engine::in_memory();
    }

    /// The node that leads, as all that know better than others say.
    fn leader(&self) -> NodeId {
        let mut leader = None;
        wait_until("somebody leads", || {
            let leading = self.running().filter_map(|(id, live)| match &*live.group.status().borrow() {
                Status::Leads(term) | Status::LeadsOthers(term) => Some((*term, id)),
                Status::Follows | Status::Failed(_) => None,
            });
            leader = leading.max().map(|(_, id)| id);
            leader.is_some()
        });
        leader.expect("waited for")
    }

    /// The node that leads once it is not this one.
    fn leader_but(&self, old: NodeId) -> NodeId {
        let mut leader = old;
        wait_until("another one leads", || {
            leader = self.leader();
            leader != old
        });
        leader
    }

    fn group(&self, id: NodeId) -> &Group<Replica> {
        &self.live(id).group
    }

    fn shard(&self, id: NodeId) -> Shard {
        Shard::clone(&self.live(id).replica.shard())
    }

    /// Makes a change on whoever leads, until it is made.
    fn change(&self, change: Change) -> Membership {
        let mut changed = None;
        wait_until(&format!("{change:?}"), || {
            match wait(self.group(self.leader()).change(change)) {
                Ok(members) => changed = Some(members),
                // By an attempt whose answer got lost.
                Err(ChangeRefused::Already(_)) => changed = Some(self.group(self.leader()).membership()),
                Err(
                    ChangeRefused::NotLeader
                    | ChangeRefused::Behind { .. }
                    | ChangeRefused::InProgress
                    | ChangeRefused::Outdated
                    | ChangeRefused::Unknown,
                ) => {}
                Err(refused) => panic!("{change:?}: {refused}"),
            }
            changed.is_some()
        });
        changed.expect("waited for")
    }

    /// Proposes until somebody acknowledges it.
    fn propose(&self, entry: bytes::Bytes) {
        wait_until("it is acknowledged", || {
            wait(self.group(self.leader()).propose(entry.clone(), None)).is_ok()
        });
    }

    /// Puts rows of so many bytes, each once, on whoever leads; notes what came of each.
    fn put(&mut self, count: usize, bytes: usize) {
        let mut done = 0;
        while done < count {
            let id = self.ledger.next();
            let answer = wait(self.group(self.leader()).propose(rows::put(id, bytes), None));
            done += usize::from(answer.is_ok());
            self.note(id, answer);
        }
    }

    fn note(&mut self, id: i32, answer: Result<Applied, Refused>) {
        match answer {
            Ok(_) => self.ledger.acknowledged.push(id),
            Err(Refused::Unknown) => self.ledger.unknown.push(id),
            Err(Refused::NotLeader | Refused::Stopped | Refused::TooLarge { .. }) => {
                self.ledger.refused.push(id);
            }
        }
    }

    /// Waits until nodes have applied all the leader has, and checks that they have the same: all of it, once.
    fn agree(&self, nodes: &[NodeId]) -> LogIndex {
        let mut agreed = None;
        wait_until("all have applied the same", || {
            let last = self.group(self.leader()).metrics().last;
            let at = || -> Vec<_> {
                nodes.iter().map(|id| self.shard(*id).applied_index().map(LogIndex)).collect()
            };
            if at().iter().any(|applied| *applied != last) {
                return false;
            }
            let hashes: Vec<_> = nodes.iter().map(|id| self.shard(*id).hash(Points::ALL).unwrap()).collect();
            if at().iter().any(|applied| *applied != last) {
                return false;
            }
            assert!(hashes.iter().all(|hash| *hash == hashes[0]), "{hashes:?} at {last:?}");
            agreed = last;
            true
        });
        for id in nodes {
            self.ledger.check(&self.shard(*id));
            assert_eq!(self.shard(*id).check().unwrap().faults, Vec::<String>::new());
        }
        agreed.expect("waited for")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // A log that is closed waits for its syncs.
        for node in &self.nodes {
            node.disk.release_syncs();
        }
        self.faults.heal();
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.desk.close(SHARD);
        if let Some(connections) = self.connections.take() {
            connections.shutdown_background();
        }
        self.log.set_driver(None);
        self.runtime.stop();
        self.pool.stop();
        self.log.close();
    }
}
