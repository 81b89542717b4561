//! A member of the directory: its part of the state, and how it reaches the others.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
    time::Duration,
};

use futures::{
    FutureExt,
    future::{BoxFuture, pending},
};
use model::{
    id::{Point, ViewId},
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
use world::{Between, Fails, Tasks};

/// Who registered a point, and under which view.
pub(super) type Directory = BTreeMap<Point, (Member, ViewId)>;

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
    pub(super) gone: watch::Sender<Option<Departure>>,
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

impl<const SUPERSEDABLE: bool> Node<SUPERSEDABLE> {
    pub(super) fn new(me: Member, between: &Arc<Between<SUPERSEDABLE>>, tasks: &Tasks) -> Self {
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
