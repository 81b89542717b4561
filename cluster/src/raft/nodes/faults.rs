//! What goes wrong between nodes: the test says what, and when it ends.
//!
//! A message has a direction. What is lost on the way from one node to another are the requests of the first and its answers
//! to the second; losing only one of the two is a rule about one direction.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    future::pending,
    sync::Arc,
};

use model::{id::NodeId, port::BoxFuture};
use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};

use crate::peer::{Incoming, Receive, Refusal, proto};

/// From one node to another.
type Way = (NodeId, NodeId);

#[derive(Clone, Default)]
pub(super) struct Faults(Arc<Mutex<Rules>>);

#[derive(Default)]
struct Rules {
    lost: HashSet<Way>,
    held: HashMap<Way, watch::Sender<bool>>,
    twice: HashSet<Way>,
    /// The message that waits until a later one has passed it.
    late: HashMap<Way, Option<oneshot::Sender<()>>>,
    /// After how many chunks the next snapshots to a node break off.
    broken: HashMap<NodeId, VecDeque<usize>>,
    /// How many messages were passed on.
    passed: HashMap<Way, u64>,
    /// How many were lost.
    vanished: HashMap<Way, u64>,
}

impl Faults {
    /// Nothing from one to the other arrives.
    pub(super) fn lose(&self, from: NodeId, to: NodeId) {
        self.0.lock().lost.insert((from, to));
    }

    /// A node hears nobody and is heard by nobody among these.
    pub(super) fn isolate(&self, node: NodeId, others: &[NodeId]) {
        for other in others.iter().filter(|other| **other != node) {
            self.lose(node, *other);
            self.lose(*other, node);
        }
    }

    /// What arrives from one at the other waits there.
    pub(super) fn hold(&self, from: NodeId, to: NodeId) {
        self.0.lock().held.insert((from, to), watch::Sender::new(false));
    }

    /// Everything from one to the other arrives twice.
    pub(super) fn double(&self, from: NodeId, to: NodeId) {
        self.0.lock().twice.insert((from, to));
    }

    /// Of two messages from one to the other, the later arrives first.
    pub(super) fn reorder(&self, from: NodeId, to: NodeId) {
        self.0.lock().late.insert((from, to), None);
    }

    /// The next snapshot to a node breaks off after so many chunks; may be said several times.
    pub(super) fn break_snapshot(&self, to: NodeId, chunks: usize) {
        self.0.lock().broken.entry(to).or_default().push_back(chunks);
    }

    /// How many snapshots that shall break off have not begun.
    pub(super) fn unbroken(&self, to: NodeId) -> usize {
        self.0.lock().broken.get(&to).map_or(0, VecDeque::len)
    }

    /// How many messages a node got from another.
    pub(super) fn passed(&self, from: NodeId, to: NodeId) -> u64 {
        self.0.lock().passed.get(&(from, to)).copied().unwrap_or_default()
    }

    /// How many messages from one node to another were lost since all was well.
    pub(super) fn vanished(&self, from: NodeId, to: NodeId) -> u64 {
        self.0.lock().vanished.get(&(from, to)).copied().unwrap_or_default()
    }

    /// All is well from now on; what waits goes on.
    pub(super) fn heal(&self) {
        let mut rules = self.0.lock();
        for held in rules.held.values() {
            held.send_replace(true);
        }
        let passed = std::mem::take(&mut rules.passed);
        *rules = Rules { passed, ..Rules::default() };
    }

    fn is_lost(&self, way: Way) -> bool {
        self.0.lock().lost.contains(&way)
    }

    /// Whatever happens on the way of a request and its answer.
    async fn carry<R: Clone, T>(
        self,
        (from, to): Way,
        request: R,
        deliver: impl Fn(R) -> BoxFuture<'static, Result<T, Refusal>>,
    ) -> Result<T, Refusal> {
        if self.is_lost((from, to)) {
            *self.0.lock().vanished.entry((from, to)).or_default() += 1;
            pending::<()>().await;
        }
        let held = self.0.lock().held.get(&(from, to)).map(watch::Sender::subscribe);
        if let Some(mut held) = held {
            // The sender is gone when all is well again.
            let _ = held.wait_for(|over| *over).await;
        }
        let earlier = match self.let_pass((from, to)) {
            Passes::First(later) => {
                let _ = later.await;
                None
            }
            Passes::Second(earlier) => Some(earlier),
            Passes::AsItIs => None,
        };
        let is_twice = self.0.lock().twice.contains(&(from, to));
        *self.0.lock().passed.entry((from, to)).or_default() += 1;
        let answer = deliver(request.clone()).await;
        if let Some(earlier) = earlier {
            let _ = earlier.send(());
        }
        if is_twice {
            let _ = deliver(request).await;
        }
        if self.is_lost((to, from)) {
            pending::<()>().await;
        }
        answer
    }

    fn let_pass(&self, way: Way) -> Passes {
        let mut rules = self.0.lock();
        let Some(waiting) = rules.late.get_mut(&way) else { return Passes::AsItIs };
        // One that was given up is not waited for.
        match waiting.take().filter(|earlier| !earlier.is_closed()) {
            Some(earlier) => Passes::Second(earlier),
            None => {
                let (sender, later) = oneshot::channel();
                *waiting = Some(sender);
                Passes::First(later)
            }
        }
    }
}

enum Passes {
    AsItIs,
    First(oneshot::Receiver<()>),
    Second(oneshot::Sender<()>),
}

/// A group behind the faults.
pub(super) struct Faulty {
    pub(super) me: NodeId,
    pub(super) group: Arc<dyn Receive>,
    pub(super) faults: Faults,
}

impl Faulty {
    fn carry<R: Clone + Send + 'static, T: Send + 'static>(
        &self,
        from: NodeId,
        request: R,
        deliver: impl Fn(&dyn Receive, R) -> BoxFuture<'static, Result<T, Refusal>> + Send + Sync + 'static,
    ) -> BoxFuture<'static, Result<T, Refusal>> {
        let (faults, group, way) = (self.faults.clone(), self.group.clone(), (from, self.me));
        Box::pin(faults.carry(way, request, move |request| deliver(&*group, request)))
    }
}

impl Receive for Faulty {
    fn append(
        &self,
        from: NodeId,
        request: proto::AppendRequest,
    ) -> BoxFuture<'static, Result<proto::AppendReply, Refusal>> {
        self.carry(from, request, move |group, request| group.append(from, request))
    }

    fn elect(
        &self,
        from: NodeId,
        request: proto::ElectRequest,
    ) -> BoxFuture<'static, Result<proto::ElectReply, Refusal>> {
        self.carry(from, request, move |group, request| group.elect(from, request))
    }

    fn transfer(
        &self,
        from: NodeId,
        request: proto::TransferRequest,
    ) -> BoxFuture<'static, Result<proto::TransferReply, Refusal>> {
        self.carry(from, request, move |group, request| group.transfer(from, request))
    }

    fn snapshot(
        &self,
        from: NodeId,
        header: proto::SnapshotHeader,
        chunks: Incoming,
    ) -> BoxFuture<'static, Result<proto::SnapshotReply, Refusal>> {
        if self.faults.is_lost((from, self.me)) {
            return Box::pin(pending());
        }
        let breaks = self.faults.0.lock().broken.get_mut(&self.me).and_then(VecDeque::pop_front);
        let Some(after) = breaks else { return self.group.snapshot(from, header, chunks) };
        let (sender, cut) = Incoming::channel();
        tokio::task::spawn_blocking(move || {
            for chunk in chunks.take(after).flatten() {
                if sender.blocking_send(crate::peer::Arrived::Chunk(chunk)).is_err() {
                    return;
                }
            }
        });
        self.group.snapshot(from, header, cut)
    }
}
