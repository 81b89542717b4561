//! Opening a node, in the order in which things stand on each other.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use futures::future::try_join_all;
use model::id::{NodeId, ShardId};
use parking_lot::Mutex;
use storage::{
    catalog::CONTROL,
    cut,
    directory::{Directory, Fresh, Identity},
    engine::Engine,
    log::{GroupId, GroupState, Log},
    recovery::{compare, delete_orphans, open_engine},
};
use tokio::{
    sync::{oneshot, watch},
    task::JoinHandle,
};
use tracing::{error, info};
use uuid::Uuid;

use super::{
    Node,
    background::{self, Pace, Work},
    close::{Parts, Running},
    disk,
};
use crate::{
    Error, Options, Result,
    admission::{self, Admission, Bounds, Lot, Parking},
    gate::RangeMap,
    options::SEGMENT_BYTES_MIN,
    owner::{self, Claimant, Owner},
    raft::{self, Consensus, Control, ControlReplica, Group, Pool, Replica, Runtime, Status, Timer},
    ring::Map,
    router::{Inner, Router},
    view::{self, Horizon},
};

/// Apply threads, if nothing is said.
const APPLY_THREADS_MAX: usize = 4;

/// Shards of a node: each costs memory and heartbeats.
const SHARDS_MAX: u32 = 64;

/// The node that makes a cluster.
const FIRST_NODE: NodeId = NodeId(1);

/// How often it is looked whether all shards are owned.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// Opens a node on a thread of its own. Whoever stops waiting gets no node, and what was opened is closed again.
pub(super) async fn open(options: Options) -> Result<Node> {
    let (sender, opened) = oneshot::channel();
    let start = move || {
        // An unwanted node is dropped, which closes it.
        drop(sender.send(open_here(options)));
    };
    let thread = thread::Builder::new().name("open".to_owned()).spawn(start);
    drop(thread.map_err(|source| Error::System { action: "start a thread", source })?);
    opened.await.unwrap_or(Err(Error::Stopping))
}

fn open_here(mut options: Options) -> Result<Node> {
    let system = |action| move |source| Error::System { action, source };
    if !(1..=SHARDS_MAX).contains(&options.shards) {
        return Err(Error::ShardCount { asked: options.shards, max: SHARDS_MAX });
    }
    let segment_bytes = options.log.segment_bytes;
    if segment_bytes < SEGMENT_BYTES_MIN {
        return Err(Error::SegmentTooSmall { asked: segment_bytes, min: SEGMENT_BYTES_MIN });
    }
    let random = || Uuid::new_v4().as_u128();
    let fresh = Fresh { cluster: random(), node: FIRST_NODE, incarnation: random() };
    // Declared first, dropped last: the directory is given back when everything in it is closed.
    let home = Directory::open(&options.directory, fresh)?;
    let closing = Arc::new(AtomicBool::new(false));
    disk::fit(&mut options, &home)?;
    let (log, recovered) = open_log(&options, &home, &closing)?;
    cut::point("start.log");
    let (engine, _cut) = open_engine(&home.state_path(), &home.kept_path(), &options.engine)?;
    cut::point("start.engine");
    let pool = Arc::new(Pool::start(apply_threads(&options)).map_err(system("start a thread"))?);
    let runtime = Runtime::start("raft").map_err(system("start a thread"))?;
    runtime.drive(&log);
    let timer = runtime.timer(options.clock.clone());
    let Identity { node, boot, .. } = home.identity();
    let claimant = Claimant { node, boot, nonce: random() as u64 };
    let groups = recovered.groups;
    let opening = Opening { options, claimant, closing, groups, timer, runtime, pool, engine, log, home };
    opening.open()
}

/// What is there once files and threads are.
struct Opening {
    options: Options,
    claimant: Claimant,
    closing: Arc<AtomicBool>,
    groups: BTreeMap<GroupId, GroupState>,
    timer: Timer,
    runtime: Arc<Runtime>,
    pool: Arc<Pool>,
    engine: Engine,
    log: Log,
    home: Directory,
}

impl Opening {
    fn open(self) -> Result<Node> {
        let runtime = self.runtime.clone();
        let (control, map) = runtime.block_on(self.open_control())?;
        cut::point("start.control");
        let (stop, stopped) = watch::channel(false);
        let (owners, mut tasks) = runtime.block_on(self.open_shards(&map, &control))?;
        runtime.block_on(self.wait_until_owned(&owners))?;
        cut::point("start.owned");
        let current = owners.iter().map(|owner| (owner.shard(), owner.state().generation()));
        let current: Vec<_> = current.chain([(CONTROL, control.replica().generation())]).collect();
        for name in delete_orphans(&self.engine, &current)? {
            info!(name, "state that an installation left behind is deleted");
        }
        self.engine.start_waiting();
        tasks.push(self.watch_control(&control));
        let (closing, on_fatal) = (self.closing.clone(), self.options.on_fatal.clone());
        let work = Work {
            fail: Arc::new(move |failure| {
                if !closing.load(Ordering::Acquire) {
                    on_fatal(failure);
                }
            }),
            engine: self.engine.clone(),
            log: self.log.clone(),
            control: control.clone(),
            owners: owners.clone(),
            timer: self.timer.clone(),
        };
        let pace = Pace {
            every: self.options.checkpoint_every,
            bytes: self.options.checkpoint_bytes,
            keep_entries: self.options.keep_entries,
            log_bytes: self.options.log_bytes_max,
        };
        tasks.push(runtime.spawn(background::checkpoints(work.clone(), pace, stopped.clone())));
        tasks.push(runtime.spawn(background::collections(work.clone(), stopped.clone())));
        let watching = background::Watching::start(work.clone());
        let watching = watching.map_err(|source| Error::System { action: "start a thread", source })?;
        tasks.push(runtime.spawn(background::sweeps(work, self.options.sweep_every, stopped)));
        Ok(self.assemble(control, map, owners, tasks, (stop, watching)))
    }

    fn assemble(
        self,
        control: Arc<Control>,
        map: Map,
        owners: Vec<Arc<Owner>>,
        tasks: Vec<JoinHandle<()>>,
        (stop, watching): (watch::Sender<bool>, background::Watching),
    ) -> Node {
        let Claimant { node, boot, .. } = self.claimant;
        let router = Router::new(Inner {
            node,
            boot,
            view: view::FIRST,
            map,
            owners: owners.clone(),
            board: control.replica().board().clone(),
            control: control.clone(),
            timer: self.timer.clone(),
            ids: Mutex::new((0, 0)),
        });
        let running = Running {
            router: router.clone(),
            owners,
            control,
            tasks,
            stop,
            watching,
            runtime: self.runtime,
            pool: self.pool,
            engine: self.engine,
            log: self.log,
            home: self.home,
        };
        info!(%node, %boot, shards = running.owners.len(), "node is open");
        let parts = Parts {
            options: self.options,
            id: node,
            boot,
            timer: self.timer,
            running: Mutex::new(Some(running)),
            closing: self.closing,
            closed: watch::Sender::new(false),
        };
        Node { router, parts: Arc::new(parts) }
    }

    /// The control group, its catalog and its view; a new cluster gets its first ones.
    async fn open_control(&self) -> Result<(Arc<Control>, Map)> {
        let state = self.groups.get(&GroupId(CONTROL.0));
        let replica = Arc::new(ControlReplica::open(&self.engine, &self.log, state)?);
        compare(CONTROL, replica.state().applied_index(), state)?;
        let group = Group::start(&self.runtime, self.parts(CONTROL, replica.clone())).await?;
        self.wait_until_led(CONTROL, &*group).await?;
        let control = Control::new(group.clone(), replica.clone(), self.timer.clone(), self.claimant.nonce);
        let prepared = self.prepare_control(&control).await;
        // A group that has failed refuses as one that stops does; why it failed is worth more, and is told soon.
        let mut status = group.status();
        if matches!(prepared, Err(Error::Stopping)) {
            let told = status.wait_for(|status| matches!(status, Status::Failed(_)));
            tokio::select! {
                _ = told => {}
                () = self.timer.sleep(self.options.start_wait) => {}
            }
        }
        match &*status.borrow() {
            Status::Failed(reason) if prepared.is_err() => {
                return Err(Error::Failed { shard: CONTROL, reason: reason.clone() });
            }
            Status::Failed(_) | Status::Follows | Status::Leads(_) | Status::LeadsOthers(_) => {}
        }
        Ok((control, prepared?))
    }

    /// Brings the catalog and the view up to date; answers the view's map.
    async fn prepare_control(&self, control: &Control) -> Result<Map> {
        let replica = control.replica();
        // What earlier starts committed is applied before it is asked what there is.
        control.confirm().await?;
        if replica.state().catalog().version().0 == 0 {
            let first = self.options.bootstrap.clone();
            control.bootstrap(first.admin, first.password, first.database).await?;
            cut::point("first.catalog");
        }
        if replica.state().view().is_none() {
            let map = Map::divide(self.options.shards)?;
            control.publish_view(view::FIRST, None, view::encode(&map)).await?;
        }
        let (id, bytes) = replica.state().view().ok_or(Error::NotServing { shard: CONTROL })?;
        view::decode(&bytes).ok_or(Error::ViewUnknown { view: id })
    }

    async fn open_shards(
        &self,
        map: &Map,
        control: &Arc<Control>,
    ) -> Result<(Vec<Arc<Owner>>, Vec<JoinHandle<()>>)> {
        // The node's one view, which nobody changes; gates and waiters there are none until it does.
        let (horizon, lot) = (Horizon::fixed(view::FIRST), Lot::new(Bounds::NODE));
        let admission = |shard, range| {
            let parts = admission::Parts {
                horizon: horizon.clone(),
                gates: RangeMap::new(),
                parking: Parking::new(Bounds::UNIT, lot.clone()),
                clock: self.timer.clock().clone(),
            };
            Admission::closed(shard, range, parts)
        };
        let shards =
            map.shards().map(|(shard, range)| self.open_shard(shard, admission(shard, range), control));
        let owners = try_join_all(shards).await?;
        let tasks = owners.iter().map(|owner| self.drive(owner.clone())).collect();
        Ok((owners, tasks))
    }

    async fn open_shard(
        &self,
        shard: ShardId,
        admission: Arc<Admission>,
        control: &Arc<Control>,
    ) -> Result<Arc<Owner>> {
        let state = self.groups.get(&GroupId(shard.0));
        let replica = Arc::new(Replica::open(&self.engine, &self.log, shard, state)?);
        compare(shard, replica.shard().applied_index(), state)?;
        let group = Group::start(&self.runtime, self.parts(shard, replica.clone())).await?;
        Ok(Owner::new(owner::Parts {
            admission,
            timer: self.timer.clone(),
            consensus: group,
            shard,
            replica,
            log: self.log.clone(),
            board: control.replica().board().clone(),
            control: control.clone(),
            claimant: self.claimant,
            read_points_max: self.options.read_points_max,
            read_point_age_max: self.options.read_point_age_max,
            feed: self.options.feed,
        }))
    }

    fn parts<S: raft::State>(&self, shard: ShardId, state: Arc<S>) -> raft::Parts<S> {
        raft::Parts {
            shard,
            node: self.claimant.node,
            log: self.log.clone(),
            state,
            pool: self.pool.clone(),
            peering: None,
        }
    }

    /// Keeps a shard claimed, and ends the node if its group fails.
    fn drive(&self, owner: Arc<Owner>) -> JoinHandle<()> {
        let (closing, on_fatal) = (self.closing.clone(), self.options.on_fatal.clone());
        self.runtime.spawn(async move {
            let shard = owner.shard();
            let reason = owner.clone().drive().await;
            match owner.state().quarantined() {
                // A bug met one shard's entry: that shard stops, the others go on.
                Some(reason) => error!(%shard, reason, "shard is quarantined"),
                None => fail(shard, reason, &closing, &*on_fatal),
            }
        })
    }

    fn watch_control(&self, control: &Arc<Control>) -> JoinHandle<()> {
        let (closing, on_fatal) = (self.closing.clone(), self.options.on_fatal.clone());
        let mut status = control.consensus().status();
        self.runtime.spawn(async move {
            let reason = loop {
                if let Status::Failed(reason) = &*status.borrow_and_update() {
                    break reason.clone();
                }
                if status.changed().await.is_err() {
                    break "the group has ended".to_owned();
                }
            };
            fail(CONTROL, reason, &closing, &*on_fatal);
        })
    }

    async fn wait_until_led(&self, shard: ShardId, group: &dyn Consensus) -> Result<()> {
        let mut status = group.status();
        let led = status.wait_for(|status| !matches!(status, Status::Follows));
        tokio::select! {
            led = led => match led.as_deref() {
                Ok(Status::Failed(reason)) => Err(Error::Failed { shard, reason: reason.clone() }),
                Ok(Status::Follows | Status::Leads(_) | Status::LeadsOthers(_)) => Ok(()),
                Err(_) => Err(Error::Stopping),
            },
            () = self.timer.sleep(self.options.start_wait) => Err(Error::NotServing { shard }),
        }
    }

    async fn wait_until_owned(&self, owners: &[Arc<Owner>]) -> Result<()> {
        let deadline = self.timer.now() + self.options.start_wait;
        for owner in owners {
            while !owner.admission().is_open() {
                if let Status::Failed(reason) = &*owner.consensus().status().borrow() {
                    return Err(Error::Failed { shard: owner.shard(), reason: reason.clone() });
                }
                if self.timer.now() >= deadline {
                    return Err(Error::NotServing { shard: owner.shard() });
                }
                self.timer.sleep(LOOK_AGAIN).await;
            }
        }
        Ok(())
    }
}

fn open_log(
    options: &Options,
    home: &Directory,
    closing: &Arc<AtomicBool>,
) -> Result<(Log, storage::log::Recovered)> {
    let mut log = options.log.clone();
    let (closing, on_fatal, before) = (closing.clone(), options.on_fatal.clone(), log.on_fatal.clone());
    log.on_fatal = Arc::new(move |failure| {
        before(failure);
        if !closing.load(Ordering::Acquire) {
            on_fatal(&Error::Log(failure.clone()));
        }
    });
    // A log may be missing only where nothing was applied yet: a first start that was cut short begins again.
    let state = std::fs::read_dir(home.state_path());
    let state = state.map_err(|source| Error::System { action: "list the state's folder", source })?;
    log.must_exist = !home.is_new() && state.count() > 0;
    Ok(Log::open(&home.log_path(), log, home.log_identity())?)
}

fn apply_threads(options: &Options) -> usize {
    match options.apply_threads {
        0 => thread::available_parallelism().map_or(1, usize::from).min(APPLY_THREADS_MAX),
        threads => threads,
    }
}

/// A replica that has stopped answers nobody: the process must end and start again.
fn fail(shard: ShardId, reason: String, closing: &AtomicBool, on_fatal: &dyn Fn(&Error)) {
    if !closing.load(Ordering::Acquire) {
        error!(%shard, reason, "shard has stopped");
        on_fatal(&Error::Failed { shard, reason });
    }
}
