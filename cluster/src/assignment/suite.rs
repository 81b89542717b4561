//! Case 127: the explicit-resource consumer. Stop, drain, checkpoint, fence, and the gated receiver, on members in one thread.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    sync::{Arc, Weak},
    time::Duration,
};

use futures::{
    FutureExt,
    channel::oneshot,
    executor::LocalPool,
    future::{BoxFuture, pending},
    task::LocalSpawnExt,
};
use model::{
    id::{Epoch, NodeId, ViewId},
    time::{Clock, Timestamp},
};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::{
    admission::{Bounds, Lot, Refusal},
    gate::Failure,
    view::{Authority, Header, Held, Installed, Member, Provider, Source, View},
};

use super::*;

const SHARD: TopicShard = TopicShard { topic: 1, number: 0 };
const OTHER: TopicShard = TopicShard { topic: 1, number: 1 };

fn member(node: u32) -> Member {
    Member { node: NodeId(node), incarnation: 1 }
}

/// View `id` after `before`; the shard has this owner in this epoch, the other shard stays with member 1.
fn view(id: u64, before: u64, owner: Option<u32>, epoch: u64) -> View<TopicShard> {
    let predecessor = Some(ViewId(before)).filter(|before| before.0 > 0);
    let header = Header { id: ViewId(id), predecessor, authority: Authority(1), watermark: 0 };
    let held = |node: Option<u32>, epoch| Held { owner: node.map(member), epoch: Epoch(epoch) };
    let shards = [(SHARD, held(owner, epoch)), (OTHER, held(Some(1), 1))];
    View::new(header, [member(1), member(2)], shards).unwrap()
}

struct Still;

impl Clock for Still {
    fn wall(&self) -> Timestamp {
        Timestamp::from_micros(0).unwrap()
    }

    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }
}

struct Silent;

impl Source<View<TopicShard>> for Silent {
    fn latest(&self, _: Option<ViewId>) -> BoxFuture<'static, Result<View<TopicShard>, Failure>> {
        pending().boxed()
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the store is broken")]
struct Broken;

/// Places with their fences.
#[derive(Default)]
struct Places {
    kept: Mutex<HashMap<TopicShard, (Epoch, Offset)>>,
    broken: Mutex<BTreeSet<&'static str>>,
    held_up: Mutex<VecDeque<oneshot::Receiver<()>>>,
}

impl Places {
    fn check(&self, step: &'static str) -> Result<(), Failure> {
        if self.broken.lock().contains(step) { Err(Arc::new(Broken)) } else { Ok(()) }
    }

    fn of(&self, shard: TopicShard) -> Offset {
        self.kept.lock().get(&shard).map_or(Offset(0), |(_, offset)| *offset)
    }
}

impl Checkpoints for Places {
    fn load(&self, shard: TopicShard) -> BoxFuture<'_, Result<Offset, Failure>> {
        async move {
            let held_up = self.held_up.lock().pop_front();
            if let Some(held_up) = held_up {
                let _ = held_up.await;
            }
            self.check("load")?;
            Ok(self.of(shard))
        }
        .boxed()
    }

    fn fence(&self, shard: TopicShard, token: Token) -> BoxFuture<'_, Result<Offset, NotStored>> {
        async move {
            self.check("fence").map_err(NotStored::Failed)?;
            let mut kept = self.kept.lock();
            let (fence, offset) = kept.entry(shard).or_default();
            if *fence > token.epoch {
                return Err(NotStored::Fenced);
            }
            *fence = token.epoch;
            Ok(*offset)
        }
        .boxed()
    }

    fn store(&self, shard: TopicShard, token: Token, offset: Offset) -> BoxFuture<'_, Result<(), NotStored>> {
        async move {
            self.check("store").map_err(NotStored::Failed)?;
            let mut kept = self.kept.lock();
            let (fence, place) = kept.entry(shard).or_default();
            if *fence > token.epoch {
                return Err(NotStored::Fenced);
            }
            *place = offset;
            Ok(())
        }
        .boxed()
    }
}

/// Messages, the same for all members: each is its place.
struct Messages(watch::Sender<u64>);

impl Feed for Messages {
    type Message = u64;

    fn ready(&self, _: TopicShard, after: Offset) -> BoxFuture<'_, ()> {
        let mut count = self.0.subscribe();
        async move { drop(count.wait_for(|count| *count > after.0).await) }.boxed()
    }

    fn take(&self, _: TopicShard, after: Offset) -> Option<u64> {
        (*self.0.borrow() > after.0).then_some(after.0)
    }
}

/// Members by number, as long as they are there.
#[derive(Default)]
struct Between {
    members: Mutex<HashMap<Member, Arc<On>>>,
    gone: watch::Sender<BTreeSet<Member>>,
}

impl Peers for Weak<Between> {
    fn released(
        &self,
        from: Member,
        shard: TopicShard,
        target: ViewId,
    ) -> BoxFuture<'static, Result<(), Failure>> {
        let between = self.upgrade().unwrap();
        let there = between.members.lock().get(&from).cloned();
        match there {
            Some(there) => async move { there.serve_released(shard, target).await }.boxed(),
            None => pending().boxed(),
        }
    }

    fn gone(&self, member: Member) -> BoxFuture<'static, ()> {
        let mut gone = self.upgrade().unwrap().gone.subscribe();
        async move { drop(gone.wait_for(|gone| gone.contains(&member)).await) }.boxed()
    }
}

type Tasks = Arc<Mutex<Vec<BoxFuture<'static, ()>>>>;

type On = Consumer<Places, Messages>;

/// Two members with one store and one topic.
struct Bed {
    pool: LocalPool,
    tasks: Tasks,
    places: Arc<Places>,
    feed: Arc<Messages>,
    between: Arc<Between>,
    members: Vec<(Provider<View<TopicShard>>, Arc<On>)>,
}

impl Bed {
    fn under(first: &View<TopicShard>) -> Self {
        let (tasks, places, feed) =
            (Tasks::default(), Arc::default(), Arc::new(Messages(watch::Sender::new(0))));
        let between: Arc<Between> = Arc::default();
        let members = [1, 2].map(|node| {
            let provider = Provider::new(Silent);
            let spawned = tasks.clone();
            let consumer = Consumer::new(Parts {
                me: member(node),
                installed: Arc::new(Installed::new(provider.clone())),
                checkpoints: Arc::clone(&places),
                feed: feed.clone(),
                peers: Arc::new(Arc::downgrade(&between)),
                clock: Arc::new(Still),
                lot: Lot::new(Bounds::NODE),
                spawn: Arc::new(move |task| spawned.lock().push(task)),
            });
            let consumer = Arc::new(consumer);
            between.members.lock().insert(member(node), consumer.clone());
            (provider, consumer)
        });
        let mut bed = Self { pool: LocalPool::new(), tasks, places, feed, between, members: members.into() };
        bed.publish(&[1, 2], first);
        bed
    }

    fn on(&self, node: usize) -> Arc<On> {
        self.members[node - 1].1.clone()
    }

    fn publish(&mut self, nodes: &[usize], view: &View<TopicShard>) {
        for node in nodes {
            let (provider, consumer) = &self.members[node - 1];
            provider.publish(view.clone()).unwrap();
            consumer.update(&provider.find_current().unwrap()).unwrap();
        }
        self.run();
    }

    fn send(&mut self, messages: u64) {
        self.feed.0.send_modify(|count| *count += messages);
        self.run();
    }

    fn run(&mut self) {
        loop {
            self.pool.run_until_stalled();
            let tasks = std::mem::take(&mut *self.tasks.lock());
            if tasks.is_empty() {
                return;
            }
            for task in tasks {
                self.pool.spawner().spawn_local(task).unwrap();
            }
        }
    }

    /// Starts something, and runs it as far as it goes.
    fn start<T: Send + 'static>(
        &mut self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (done, answer) = oneshot::channel();
        self.tasks.lock().push(work.map(|value| drop(done.send(value))).boxed());
        self.run();
        answer
    }

    fn receiver(&mut self, node: usize) -> Result<Receiver<Places, Messages>, Ended> {
        let consumer = self.on(node);
        let opening = self.start(async move { consumer.receiver(SHARD).await });
        now(opening)
    }
}

fn now<T>(mut answer: oneshot::Receiver<T>) -> T {
    answer.try_recv().expect("it was not dropped").expect("it does not wait")
}

fn is_waiting<T>(answer: &mut oneshot::Receiver<T>) -> bool {
    matches!(answer.try_recv(), Ok(None))
}

fn handle(receiver: &mut Receiver<Places, Messages>) -> u64 {
    receiver.next().now_or_never().expect("a message is there").unwrap().done()
}

#[test]
fn case_127_a_shard_goes_on_at_its_new_owner_where_the_old_one_stopped() {
    let mut bed = Bed::under(&view(1, 0, Some(1), 1));
    bed.send(5);
    let mut receiver = bed.receiver(1).unwrap();
    assert_eq!([handle(&mut receiver), handle(&mut receiver)], [0, 1]);
    bed.publish(&[1, 2], &view(2, 1, Some(2), 2));
    assert_eq!(bed.places.of(SHARD), Offset(2));
    let refused = receiver.next().now_or_never().unwrap().unwrap_err();
    assert!(matches!(
        refused,
        Ended::Refused(Refusal::RefreshRequired { view: ViewId(2), owner: Some(owner) }) if owner == member(2)
    ));
    let mut next = bed.receiver(2).unwrap();
    assert_eq!([handle(&mut next), handle(&mut next), handle(&mut next)], [2, 3, 4]);
    assert!(bed.on(1).gates().is_empty() && bed.on(2).gates().is_empty());
    // The other shard never had a gate, and has its own reign.
    let other = bed.on(1);
    let opening = bed.start(async move { other.receiver(OTHER).await.map(drop) });
    assert!(now(opening).is_ok());
}

#[test]
fn case_127_a_release_waits_for_the_message_in_work_and_for_no_other() {
    let mut bed = Bed::under(&view(1, 0, Some(1), 1));
    bed.send(2);
    let mut receiver = bed.receiver(1).unwrap();
    let delivery = receiver.next().now_or_never().unwrap().unwrap();
    bed.publish(&[1, 2], &view(2, 1, Some(2), 2));
    assert_eq!(bed.on(1).gates().len(), 1);
    assert_eq!(bed.places.of(SHARD), Offset(0), "the place is not known yet");
    assert_eq!((*delivery.message(), delivery.place()), (0, Offset(1)));
    delivery.done();
    bed.run();
    assert_eq!(bed.places.of(SHARD), Offset(1), "what was in work is behind the checkpoint");
    assert!(bed.on(1).gates().is_empty());
}

#[test]
fn case_127_a_message_that_was_dropped_comes_again_and_one_receiver_has_it() {
    let mut bed = Bed::under(&view(1, 0, Some(1), 1));
    bed.send(1);
    let mut receiver = bed.receiver(1).unwrap();
    assert!(matches!(bed.receiver(1), Err(Ended::Taken)));
    drop(receiver.next().now_or_never().unwrap().unwrap());
    assert_eq!(handle(&mut receiver), 0);
    drop(receiver);
    assert!(bed.receiver(1).is_ok());
}

#[test]
fn case_127_a_receiver_looks_again_after_it_has_waited_for_a_message() {
    let mut bed = Bed::under(&view(1, 0, Some(1), 1));
    let mut receiver = bed.receiver(1).unwrap();
    let mut waiting = bed.start(async move { receiver.next().await.map(|delivery| delivery.done()) });
    assert!(is_waiting(&mut waiting));
    // The shard goes away while the topic is quiet: nothing is waited for.
    bed.publish(&[1, 2], &view(2, 1, Some(2), 2));
    assert!(bed.on(1).gates().is_empty());
    assert!(is_waiting(&mut waiting));
    bed.send(1);
    assert!(matches!(now(waiting), Err(Ended::Refused(Refusal::RefreshRequired { .. }))));
    let mut next = bed.receiver(2).unwrap();
    assert_eq!(handle(&mut next), 0, "the first owner did not take it");
}

#[test]
fn case_127_a_receiver_of_an_earlier_reign_gets_nothing_of_a_later_one() {
    let mut bed = Bed::under(&view(1, 0, Some(1), 1));
    bed.send(3);
    let mut receiver = bed.receiver(1).unwrap();
    assert_eq!(handle(&mut receiver), 0);
    // Views 2 and 3 were not seen here: it was another's and came back.
    bed.publish(&[1, 2], &view(4, 3, Some(1), 3));
    assert!(matches!(receiver.next().now_or_never().unwrap(), Err(Ended::Reassigned)));
    // Nothing was handed over: the new reign begins at the last checkpoint.
    let mut again = bed.receiver(1).unwrap();
    assert_eq!(handle(&mut again), 0);
    assert!(bed.on(1).gates().is_empty());
}

#[test]
fn case_127_a_new_reign_of_the_same_member_waits_for_the_message_in_work_of_the_old() {
    let mut bed = Bed::under(&view(1, 0, Some(1), 1));
    bed.send(2);
    let mut receiver = bed.receiver(1).unwrap();
    let delivery = receiver.next().now_or_never().unwrap().unwrap();
    bed.publish(&[1, 2], &view(4, 3, Some(1), 3));
    assert_eq!(bed.on(1).gates().len(), 1);
    delivery.done();
    bed.run();
    assert!(bed.on(1).gates().is_empty());
    assert_eq!(bed.places.of(SHARD), Offset(0), "what the old reign handled is not its to store");
    assert_eq!(handle(&mut bed.receiver(1).unwrap()), 0);
}

#[test]
fn case_127_a_late_owner_stores_nothing_over_the_fence_of_a_newer_one() {
    let mut bed = Bed::under(&view(1, 0, Some(1), 1));
    bed.send(4);
    let mut late = bed.receiver(1).unwrap();
    assert_eq!([handle(&mut late), handle(&mut late), handle(&mut late)], [0, 1, 2]);
    // Only the new owner has seen the view: the old one was declared dead, and does not know it.
    bed.publish(&[2], &view(2, 1, Some(2), 2));
    assert_eq!(bed.on(2).gates().len(), 1);
    bed.between.gone.send_modify(|gone| {
        gone.insert(member(1));
    });
    bed.run();
    let mut next = bed.receiver(2).unwrap();
    assert_eq!(handle(&mut next), 0);
    bed.publish(&[1], &view(2, 1, Some(2), 2));
    assert_eq!(bed.places.of(SHARD), Offset(0), "not what the old reign believes");
    assert!(bed.on(1).gates().is_empty(), "to be too late is no failure");
    assert_eq!(handle(&mut next), 1);
}

#[test]
fn case_127_who_comes_early_waits_at_the_gate_until_the_fence() {
    let mut bed = Bed::under(&view(1, 0, Some(1), 1));
    bed.send(1);
    let (go_on, held_up) = oneshot::channel();
    bed.places.held_up.lock().push_back(held_up);
    bed.publish(&[1, 2], &view(2, 1, Some(2), 2));
    let consumer = bed.on(2);
    let mut opening = bed.start(async move { consumer.receiver(SHARD).await });
    assert!(is_waiting(&mut opening));
    go_on.send(()).unwrap();
    bed.run();
    let mut receiver = now(opening).unwrap();
    assert_eq!(handle(&mut receiver), 0);
}

#[test]
fn case_127_a_broken_store_fails_the_gate_with_its_error() {
    for (step, node) in [("store", 1), ("load", 2), ("fence", 2)] {
        let mut bed = Bed::under(&view(1, 0, Some(1), 1));
        let mut receiver = bed.receiver(1).unwrap();
        bed.send(1);
        handle(&mut receiver);
        bed.places.broken.lock().insert(step);
        bed.publish(&[1, 2], &view(2, 1, Some(2), 2));
        let refused = bed.receiver(node).unwrap_err();
        let Ended::Refused(Refusal::GateFailed(failure)) = refused else { panic!("{step}: {refused}") };
        let is_it = failure.downcast_ref::<Broken>().is_some()
            || matches!(failure.downcast_ref(), Some(NotStored::Failed(inner)) if inner.downcast_ref::<Broken>().is_some());
        assert!(is_it, "{step}: {failure}");
        assert_eq!(bed.on(node).gates().len(), 1, "{step}");
    }
}

#[test]
fn case_127_a_shutdown_sends_who_waits_elsewhere() {
    let mut bed = Bed::under(&view(1, 0, Some(1), 1));
    let (_never, held_up) = oneshot::channel();
    bed.places.held_up.lock().push_back(held_up);
    bed.publish(&[1, 2], &view(2, 1, Some(2), 2));
    let consumer = bed.on(2);
    let mut opening = bed.start(async move { consumer.receiver(SHARD).await });
    assert!(is_waiting(&mut opening));
    bed.on(2).shut_down();
    bed.run();
    assert!(matches!(now(opening), Err(Ended::Refused(Refusal::Aborted))));
    assert!(bed.on(2).gates().is_empty());
}

#[test]
fn case_127_under_another_authority_every_reign_begins_anew() {
    let mut bed = Bed::under(&view(1, 0, Some(1), 1));
    bed.send(1);
    let mut receiver = bed.receiver(1).unwrap();
    handle(&mut receiver);
    let header =
        Header { id: ViewId(2), predecessor: Some(ViewId(1)), authority: Authority(2), watermark: 0 };
    let held = Held { owner: Some(member(1)), epoch: Epoch(1) };
    let rebuilt = View::new(header, [member(1), member(2)], [(SHARD, held), (OTHER, held)]).unwrap();
    let (provider, consumer) = bed.members[0].clone();
    provider.change_authority(rebuilt);
    consumer.update(&provider.find_current().unwrap()).unwrap();
    assert_eq!(consumer.gates().len(), 2);
    bed.run();
    assert!(consumer.gates().is_empty());
    assert!(matches!(receiver.next().now_or_never().unwrap(), Err(Ended::Reassigned)));
}

#[test]
fn case_127_a_shard_that_nobody_gets_is_closed_without_a_checkpoint() {
    let mut bed = Bed::under(&view(1, 0, Some(1), 1));
    bed.send(1);
    let mut receiver = bed.receiver(1).unwrap();
    handle(&mut receiver);
    bed.publish(&[1, 2], &view(2, 1, None, 1));
    assert_eq!(bed.places.of(SHARD), Offset(0));
    let refused = receiver.next().now_or_never().unwrap().unwrap_err();
    assert!(matches!(refused, Ended::Refused(Refusal::RefreshRequired { owner: None, .. })));
}
