//! Members of a directory in one thread: each node registers points, the ring's owner keeps who registered what.
//!
//! A message or a step can be held up, lost, or made to fail by its name; nodes can leave and die.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::{
    FutureExt,
    channel::oneshot,
    executor::LocalPool,
    future::{BoxFuture, Shared, pending},
    task::LocalSpawnExt,
};
use model::{
    id::{NodeId, Point, ViewId},
    time::{Clock, Timestamp},
};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::{
    admission::{Admission, Bounds, Effect, Lot, Parking, Parts as AdmissionParts, Refusal, Request, Seen},
    gate::{Failure, RangeMap},
    view::{Installed, Provider, Published, Source, Versioned},
};

use super::*;

pub(super) fn member(node: u32) -> Member {
    Member { node: NodeId(node), incarnation: 1 }
}

/// Who registered a point, and under which view.
pub(super) type Directory = BTreeMap<Point, (Member, ViewId)>;

type Tasks = Arc<Mutex<Vec<BoxFuture<'static, ()>>>>;

/// All members and what is between them.
pub(super) struct World<const SUPERSEDABLE: bool = false> {
    pool: LocalPool,
    tasks: Tasks,
    shared: Arc<Between<SUPERSEDABLE>>,
}

#[derive(Default)]
pub(super) struct Between<const SUPERSEDABLE: bool> {
    nodes: Mutex<HashMap<Member, Arc<Node<SUPERSEDABLE>>>>,
    held_up: Mutex<HashMap<&'static str, HeldUp>>,
    failing: Mutex<BTreeSet<&'static str>>,
    lost: Mutex<BTreeSet<&'static str>>,
    panicking: Mutex<BTreeSet<&'static str>>,
    pub(super) events: Mutex<Vec<String>>,
}

type HeldUp = (oneshot::Sender<()>, Shared<oneshot::Receiver<()>>);

/// A member.
pub(super) struct Node<const SUPERSEDABLE: bool = false> {
    pub(super) me: Member,
    pub(super) provider: Provider<RingView>,
    pub(super) installed: Arc<Installed<RingView>>,
    pub(super) gates: Arc<RangeMap>,
    pub(super) admission: Arc<Admission>,
    pub(super) coordinator: Coordinator<Local<SUPERSEDABLE>, Wire<SUPERSEDABLE>>,
    pub(super) service: Arc<Local<SUPERSEDABLE>>,
    seen: Seen<RingView>,
    gone: watch::Sender<Option<Departure>>,
}

/// A member's part of the directory.
pub(super) struct Local<const SUPERSEDABLE: bool> {
    me: Member,
    between: Weak<Between<SUPERSEDABLE>>,
    admission: Arc<Admission>,
    pub(super) directory: Mutex<Directory>,
    /// What this node registered itself: what a recovery is made of.
    pub(super) own: Mutex<BTreeMap<Point, ViewId>>,
    pub(super) watermark: Watermark,
    pub(super) held: Mutex<Vec<Range>>,
    /// Called for each loser of a recovery, as a task.
    pub(super) on_loser: Mutex<Option<Arc<dyn Fn(Point) -> BoxFuture<'static, ()> + Send + Sync>>>,
    tasks: Tasks,
}

pub(super) struct Wire<const SUPERSEDABLE: bool> {
    me: Member,
    between: Weak<Between<SUPERSEDABLE>>,
}

#[derive(Debug, thiserror::Error)]
#[error("{0} fails")]
pub(super) struct Fails(pub(super) &'static str);

struct Still;

impl Clock for Still {
    fn wall(&self) -> Timestamp {
        Timestamp::from_micros(0).unwrap()
    }

    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }
}

/// An authority that never answers: views come by publishing.
struct Silent;

impl Source<RingView> for Silent {
    fn latest(&self, _: Option<ViewId>) -> BoxFuture<'static, Result<RingView, Failure>> {
        pending().boxed()
    }
}

impl<const SUPERSEDABLE: bool> World<SUPERSEDABLE> {
    /// Three members that have seen nothing.
    pub(super) fn new() -> Self {
        let shared: Arc<Between<SUPERSEDABLE>> = Arc::default();
        let tasks = Tasks::default();
        for node in 1..=3 {
            let node = Node::new(member(node), &shared, &tasks);
            shared.nodes.lock().insert(node.me, Arc::new(node));
        }
        Self { pool: LocalPool::new(), tasks, shared }
    }

    /// Three members under their first view, settled.
    pub(super) fn under(first: &RingView) -> Self {
        let mut world = Self::new();
        world.publish_to(&[1, 2, 3], first);
        world.run();
        world.shared.events.lock().clear();
        world
    }

    pub(super) fn node(&self, node: u32) -> Arc<Node<SUPERSEDABLE>> {
        self.shared.node(member(node)).expect("the node is there")
    }

    /// Publishes a view to some members; each installs it.
    pub(super) fn publish_to(&self, nodes: &[u32], view: &RingView) {
        for node in nodes {
            if let Some(node) = self.shared.node(member(*node)) {
                node.update(view);
            }
        }
    }

    /// Runs until nothing moves.
    pub(super) fn run(&mut self) {
        loop {
            self.pool.run_until_stalled();
            let tasks = std::mem::take(&mut *self.tasks.lock());
            if tasks.is_empty() {
                return;
            }
            for task in tasks {
                // A task that panics ends like one whose thread has: its future is dropped.
                let task = std::panic::AssertUnwindSafe(task).catch_unwind().map(drop);
                self.pool.spawner().spawn_local(task).unwrap();
            }
        }
    }

    /// Starts something beside.
    pub(super) fn start<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Started<T> {
        let (done, answer) = oneshot::channel();
        self.tasks.lock().push(work.map(|value| drop(done.send(value))).boxed());
        Started(answer)
    }

    /// Holds up a message or step of this name until it is let go.
    pub(super) fn hold(&self, name: &'static str) {
        let (sender, receiver) = oneshot::channel();
        self.shared.held_up.lock().insert(name, (sender, receiver.shared()));
    }

    pub(super) fn let_go(&self, name: &'static str) {
        drop(self.shared.held_up.lock().remove(name));
    }

    pub(super) fn fail(&self, name: &'static str) {
        self.shared.failing.lock().insert(name);
    }

    pub(super) fn lose(&self, name: &'static str) {
        self.shared.lost.lock().insert(name);
    }

    pub(super) fn panic_in(&self, name: &'static str) {
        self.shared.panicking.lock().insert(name);
    }

    /// A member goes: its tasks may go on, but nobody hears of them.
    pub(super) fn depart(&self, node: u32, departure: Departure) {
        let node = self.shared.nodes.lock().remove(&member(node)).expect("it was there");
        node.gone.send_replace(Some(departure));
    }

    /// What was spawned and has not begun goes away.
    pub(super) fn forget_tasks(&self) {
        let tasks = std::mem::take(&mut *self.tasks.lock());
        drop(tasks);
    }

    pub(super) fn events(&self) -> Vec<String> {
        std::mem::take(&mut *self.shared.events.lock())
    }

    pub(super) fn register(&mut self, node: u32, point: Point) -> Result<(), Refusal> {
        let started = self.start(self.node(node).register(point));
        self.run();
        started.now().expect("nothing holds it up")
    }

    pub(super) fn lookup(&mut self, node: u32, point: Point) -> Result<Option<Member>, Refusal> {
        let started = self.start(self.node(node).lookup(point));
        self.run();
        started.now().expect("nothing holds it up")
    }

    /// No gate and nothing kept is left on any member.
    pub(super) fn assert_quiet(&self) {
        for node in self.shared.nodes.lock().values() {
            assert!(node.gates.is_empty(), "{}: {:?}", node.me, node.gates);
            assert!(node.coordinator.retained().is_empty(), "{}: {:?}", node.me, node.coordinator.retained());
            assert_eq!(node.admission.inside(), 0);
        }
    }

    /// Every point is in the directory of its owner, and of nobody else.
    pub(super) fn assert_whole(&self, view: &RingView, points: &[Point]) {
        for point in points {
            let owner = view.owners().holder(&view.map().shard_of(*point)).unwrap().owner;
            let has: Vec<_> = self
                .shared
                .nodes
                .lock()
                .values()
                .filter(|node| node.service.directory.lock().contains_key(point))
                .map(|node| node.me)
                .collect();
            assert_eq!(has, Vec::from_iter(owner), "{point}");
        }
    }
}

/// The answer of something that was started.
pub(super) struct Started<T>(oneshot::Receiver<T>);

impl<T> Started<T> {
    /// What it came to; none if it goes on.
    pub(super) fn now(mut self) -> Option<T> {
        self.0.try_recv().expect("it was not dropped")
    }

    pub(super) fn is_waiting(&mut self) -> bool {
        matches!(self.0.try_recv(), Ok(None))
    }
}

impl<const SUPERSEDABLE: bool> Between<SUPERSEDABLE> {
    fn node(&self, member: Member) -> Option<Arc<Node<SUPERSEDABLE>>> {
        self.nodes.lock().get(&member).cloned()
    }

    fn event(&self, event: String) {
        self.events.lock().push(event);
    }

    /// Passes a named step: held up, panicking or failing as it was told.
    async fn step(&self, name: &'static str) -> Result<(), Failure> {
        let held = self.held_up.lock().get(name).map(|(_, held)| held.clone());
        if let Some(held) = held {
            let _ = held.await;
        }
        self.check(name)
    }

    fn check(&self, name: &'static str) -> Result<(), Failure> {
        assert!(!self.panicking.lock().contains(name), "{name} panics");
        if self.failing.lock().contains(name) { Err(Arc::new(Fails(name))) } else { Ok(()) }
    }
}

impl<const SUPERSEDABLE: bool> Node<SUPERSEDABLE> {
    fn new(me: Member, between: &Arc<Between<SUPERSEDABLE>>, tasks: &Tasks) -> Self {
        let provider = Provider::new(Silent);
        let installed = Arc::new(Installed::new(provider.clone()));
        let gates = RangeMap::new();
        let parts = AdmissionParts {
            horizon: installed.horizon().clone(),
            gates: gates.clone(),
            parking: Parking::new(Bounds::UNIT, Lot::new(Bounds::NODE)),
            clock: Arc::new(Still),
        };
        // The whole ring: whose a point is, the view says.
        let admission = Admission::closed(ShardId(u32::MAX), Range::Full, parts);
        admission.open(Epoch(1));
        let service = Arc::new(Local {
            me,
            between: Arc::downgrade(between),
            admission: admission.clone(),
            directory: Mutex::default(),
            own: Mutex::default(),
            watermark: Watermark::default(),
            held: Mutex::default(),
            on_loser: Mutex::default(),
            tasks: tasks.clone(),
        });
        let tasks = tasks.clone();
        let coordinator = Coordinator::new(Parts {
            me,
            installed: installed.clone(),
            gates: gates.clone(),
            service: service.clone(),
            transport: Arc::new(Wire { me, between: Arc::downgrade(between) }),
            spawn: Arc::new(move |task| tasks.lock().push(task)),
        });
        let (seen, gone) = (Seen::by(me, installed.clone()), watch::Sender::new(None));
        Self { me, provider, installed, gates, admission, coordinator, service, seen, gone }
    }

    pub(super) fn update(&self, view: &RingView) {
        self.provider.publish(view.clone()).unwrap();
        self.coordinator.update(&self.current()).unwrap();
    }

    pub(super) fn current(&self) -> Published<RingView> {
        self.provider.find_current().unwrap()
    }

    /// Enters for a point and looks whose it is under the view it was let in by.
    async fn admit(self: &Arc<Self>, point: Point) -> Result<crate::admission::Pass, Refusal> {
        let request =
            Request { view: self.installed.id(), key: Range::point(point), effect: Effect::Uses, bytes: 1 };
        let pass = self.admission.enter_when_ready(&request, &self.seen).await?;
        let view = self.installed.find_view().expect("a view is installed");
        let owner = view.owners().holder(&view.map().shard_of(point)).and_then(|held| held.owner);
        assert_eq!(view.id(), pass.view());
        if owner == Some(self.me) {
            Ok(pass)
        } else {
            Err(Refusal::RefreshRequired { view: view.id(), owner })
        }
    }

    pub(super) fn lookup(
        self: &Arc<Self>,
        point: Point,
    ) -> impl Future<Output = Result<Option<Member>, Refusal>> + Send + 'static {
        let node = self.clone();
        async move {
            let _pass = node.admit(point).await?;
            Ok(node.service.directory.lock().get(&point).map(|(member, _)| *member))
        }
    }

    /// Registers one of this node's own points with their owner, and does it again if a recovery may have missed it.
    pub(super) fn register(
        self: &Arc<Self>,
        point: Point,
    ) -> impl Future<Output = Result<(), Refusal>> + Send + 'static {
        let node = self.clone();
        async move {
            loop {
                let view = node.installed.find_view().expect("a view is installed");
                let owner = view.owners().holder(&view.map().shard_of(point)).unwrap().owner.unwrap();
                let between = node.service.between.upgrade().unwrap();
                let there = between.node(owner).expect("the owner is there");
                {
                    let pass = there.admit(point).await?;
                    there.service.directory.lock().insert(point, (node.me, pass.view()));
                }
                // The answer is on its way.
                let _ = between.step("registered").await;
                node.service.own.lock().insert(point, view.id());
                match node.service.watermark.check(view.id()) {
                    Ok(()) => return Ok(()),
                    Err(Redo { .. }) => between.event(format!("{} registers again", node.me)),
                }
            }
        }
    }
}

impl<const SUPERSEDABLE: bool> Local<SUPERSEDABLE> {
    fn between(&self) -> Arc<Between<SUPERSEDABLE>> {
        self.between.upgrade().expect("the world is there")
    }

    fn split_off(&self, range: Range) -> Directory {
        self.directory.lock().extract_if(.., |point, _| range.contains(*point)).collect()
    }
}

impl<const SUPERSEDABLE: bool> Service for Local<SUPERSEDABLE> {
    type State = Directory;

    const SUPERSEDABLE: bool = SUPERSEDABLE;

    fn drain(&self, _: Range) -> BoxFuture<'_, ()> {
        async {
            let _ = self.between().step("drain").await;
            self.admission.drain().await;
        }
        .boxed()
    }

    fn take(&self, range: Range) -> Result<Directory, Failure> {
        self.between().check("take")?;
        self.between().event(format!("{} takes", self.me));
        Ok(self.split_off(range))
    }

    fn discard(&self, range: Range) -> Result<(), Failure> {
        self.between().check("discard")?;
        self.between().event(format!("{} discards", self.me));
        drop(self.split_off(range));
        Ok(())
    }

    fn part(&self, state: &Directory, range: Range) -> Directory {
        state
            .iter()
            .filter(|(point, _)| range.contains(**point))
            .map(|(point, held)| (*point, *held))
            .collect()
    }

    fn install(&self, state: Directory) -> Result<(), Failure> {
        self.between().check("install")?;
        self.directory.lock().extend(state);
        Ok(())
    }

    fn collect(&self, range: Range, view: ViewId) -> Directory {
        self.watermark.raise(view);
        let own = self.own.lock();
        own.iter()
            .filter(|(point, _)| range.contains(**point))
            .map(|(point, view)| (*point, (self.me, *view)))
            .collect()
    }

    fn recover(&self, range: Range, known: Vec<(Member, Directory)>) -> Result<(), Failure> {
        self.between().check("recover")?;
        let mut directory = self.directory.lock();
        let there: Directory = directory.extract_if(.., |point, _| range.contains(*point)).collect();
        let answers = [(self.me, there)].into_iter().chain(known).flat_map(|(_, state)| {
            state.into_iter().map(|(point, (member, view))| Answer {
                member,
                records: vec![(point, Record { value: (), view })],
            })
        });
        let Merged { winners, losers } = newest(answers);
        directory.extend(winners.into_iter().map(|(point, (member, record))| (point, (member, record.view))));
        drop(directory);
        let winner = |point| self.directory.lock()[&point].0;
        // Losers are told by tasks of their own: nobody waits for them.
        if let Some(on_loser) = &*self.on_loser.lock() {
            for (point, member, _) in losers {
                if winner(point) != member {
                    self.tasks.lock().push(on_loser(point));
                }
            }
        }
        self.between().event(format!("{} recovers", self.me));
        Ok(())
    }

    fn hold(&self, range: Range) {
        self.held.lock().push(range);
    }

    fn fence(&self, _: Range, _: ViewId) -> BoxFuture<'_, Result<(), Failure>> {
        async { self.between().step("fence").await }.boxed()
    }
}

impl<const SUPERSEDABLE: bool> Wire<SUPERSEDABLE> {
    /// A message to another: held up, failing, lost (never answered), or heard by nobody.
    fn send<A: Send + 'static, F: Future<Output = Result<A, Failure>> + Send>(
        &self,
        name: &'static str,
        to: Member,
        heard: impl FnOnce(Arc<Node<SUPERSEDABLE>>) -> F + Send + 'static,
    ) -> BoxFuture<'static, Result<A, Failure>> {
        let (between, me) = (self.between.upgrade().expect("the world is there"), self.me);
        between.event(format!("{me} {name} {to}"));
        async move {
            between.step(name).await?;
            if between.lost.lock().contains(name) {
                return Err(Arc::new(Fails(name)) as Failure);
            }
            match between.node(to) {
                Some(node) => heard(node).await,
                None => pending().await,
            }
        }
        .boxed()
    }
}

impl<const SUPERSEDABLE: bool> Transport<Directory> for Wire<SUPERSEDABLE> {
    fn pull(&self, from: Member, pull: Pull) -> BoxFuture<'static, Result<Option<Vec<Directory>>, Failure>> {
        self.send("pull", from, move |node| async move { node.coordinator.serve_pull(pull).await })
    }

    fn acknowledge(
        &self,
        to: Member,
        by: Partner,
        version: ViewId,
    ) -> BoxFuture<'static, Result<(), Failure>> {
        self.send("acknowledge", to, move |node| async move {
            node.coordinator.serve_acknowledge(by, version);
            Ok(())
        })
    }

    fn renounce(&self, to: Member, by: Partner, version: ViewId) -> BoxFuture<'static, Result<(), Failure>> {
        self.send("renounce", to, move |node| async move {
            node.coordinator.serve_renounce(by, version);
            Ok(())
        })
    }

    fn collect(
        &self,
        from: Member,
        range: Range,
        view: ViewId,
    ) -> BoxFuture<'static, Result<Directory, Failure>> {
        self.send("collect", from, move |node| async move { Ok(node.coordinator.serve_collect(range, view)) })
    }

    fn gone(&self, member: Member) -> BoxFuture<'static, Departure> {
        let between = self.between.upgrade().expect("the world is there");
        match between.node(member) {
            None => std::future::ready(Departure::Declared).boxed(),
            Some(node) => {
                let mut gone = node.gone.subscribe();
                async move {
                    let seen = gone.wait_for(Option::is_some).await.map(|departure| *departure);
                    seen.ok().flatten().expect("departed nodes are kept")
                }
                .boxed()
            }
        }
    }
}

/// For tests that must show that something did not happen.
#[derive(Clone, Default)]
pub(super) struct Flag(Arc<AtomicBool>);

impl Flag {
    pub(super) fn raise(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    pub(super) fn is_up(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}
