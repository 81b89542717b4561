//! Members in one thread, and what is between them: each node registers points, the ring's owner keeps who registered what.
//!
//! A message or a step can be held up, lost, or made to fail by its name; nodes can leave and die.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use futures::{
    FutureExt,
    channel::oneshot,
    executor::LocalPool,
    future::{BoxFuture, Shared},
    task::LocalSpawnExt,
};
use model::id::{NodeId, Point};
use parking_lot::Mutex;

use crate::{admission::Refusal, gate::Failure};

use super::*;
use directory::Node;

pub(super) fn member(node: u32) -> Member {
    Member { node: NodeId(node), incarnation: 1 }
}

pub(super) type Tasks = Arc<Mutex<Vec<BoxFuture<'static, ()>>>>;

/// All members and what is between them.
pub(super) struct World<const SUPERSEDABLE: bool = false> {
    pool: LocalPool,
    tasks: Tasks,
    shared: Arc<Between<SUPERSEDABLE>>,
}

#[derive(Default)]
pub(super) struct Between<const SUPERSEDABLE: bool> {
    pub(super) nodes: Mutex<HashMap<Member, Arc<Node<SUPERSEDABLE>>>>,
    held_up: Mutex<HashMap<&'static str, HeldUp>>,
    failing: Mutex<BTreeSet<&'static str>>,
    pub(super) lost: Mutex<BTreeSet<&'static str>>,
    panicking: Mutex<BTreeSet<&'static str>>,
    pub(super) events: Mutex<Vec<String>>,
}

type HeldUp = (oneshot::Sender<()>, Shared<oneshot::Receiver<()>>);

#[derive(Debug, thiserror::Error)]
#[error("{0} fails")]
pub(super) struct Fails(pub(super) &'static str);

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
    pub(super) fn node(&self, member: Member) -> Option<Arc<Node<SUPERSEDABLE>>> {
        self.nodes.lock().get(&member).cloned()
    }

    pub(super) fn event(&self, event: String) {
        self.events.lock().push(event);
    }

    /// Passes a named step: held up, panicking or failing as it was told.
    pub(super) async fn step(&self, name: &'static str) -> Result<(), Failure> {
        let held = self.held_up.lock().get(name).map(|(_, held)| held.clone());
        if let Some(held) = held {
            let _ = held.await;
        }
        self.check(name)
    }

    pub(super) fn check(&self, name: &'static str) -> Result<(), Failure> {
        assert!(!self.panicking.lock().contains(name), "{name} panics");
        if self.failing.lock().contains(name) { Err(Arc::new(Fails(name))) } else { Ok(()) }
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
