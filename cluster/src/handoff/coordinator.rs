//! The coordinator: installs views in order, and answers other members' questions.
//!
//! Invariants:
//! - Register every gate, make the view seen, start the drivers: in this order, for every view, one view at a time.
//! - Gates that were registered for a view that is then refused are aborted: they block nobody.
//! - A driver's gate is finished and taken out in one place.
//! - A shutdown ends: it waits for kept state no longer than its budget, and then aborts every gate.
//!
//! Not here: the steps of the drivers (`release`, `acquire`).

use std::{fmt, sync::Arc};

use futures::{
    FutureExt,
    future::{Either, select},
};
use model::id::ViewId;
use tokio::sync::watch;
use tracing::info;

use crate::{
    gate::{self, Driver, Failure, RangeMap, Registered, Role},
    ring::Range,
    sync::Mutex,
    view::{Installed, Lost, Member, NotInstalled, Published, RingView, Versioned},
};

use super::{
    Partner, Pull, Retained, Service, Spawn, Transport,
    acquire::{self, RangeAcquisition},
    ending,
    plan::{Plan, plan},
    release::{self, RangeRelease},
};

/// Why a view was not installed.
pub type Refused = NotInstalled<Registered>;

/// What a coordinator is made of.
pub struct Parts<S, T> {
    /// This node.
    pub me: Member,
    /// The views it works under.
    pub installed: Arc<Installed<RingView>>,
    /// The gates that admission looks at.
    pub gates: Arc<RangeMap>,
    /// Whose state moves.
    pub service: Arc<S>,
    /// How others are reached.
    pub transport: Arc<T>,
    /// How drivers are started.
    pub spawn: Spawn,
}

/// Moves one service's state as views say.
pub struct Coordinator<S: Service, T> {
    shared: Arc<Shared<S, T>>,
}

/// What drivers share.
pub(super) struct Shared<S: Service, T> {
    pub(super) me: Member,
    pub(super) installed: Arc<Installed<RingView>>,
    pub(super) gates: Arc<RangeMap>,
    pub(super) service: Arc<S>,
    pub(super) transport: Arc<T>,
    pub(super) retained: Arc<Retained<S::State>>,
    /// Points whose acquisition gave way before it had anything: their next release has nothing to keep.
    vacant: Mutex<Vec<Range>>,
    spawn: Spawn,
    stopping: watch::Sender<bool>,
}

/// Gates with their plans, registered.
struct Registration {
    plan: Plan,
    releases: Vec<RangeRelease>,
    acquisitions: Vec<RangeAcquisition>,
    before: ViewId,
    contiguous: bool,
}

impl<S: Service, T: Transport<S::State>> Coordinator<S, T> {
    /// A coordinator that has seen no view.
    pub fn new(parts: Parts<S, T>) -> Self {
        let Parts { me, installed, gates, service, transport, spawn } = parts;
        let (retained, stopping) = (Arc::default(), watch::Sender::new(false));
        let vacant = Mutex::default();
        let shared = Shared { me, installed, gates, service, transport, retained, vacant, spawn, stopping };
        Self { shared: Arc::new(shared) }
    }

    /// Installs a view and starts what it demands. There is no pause in it: it is done when it returns.
    pub fn update(&self, view: &Published<RingView>) -> Result<(), Refused> {
        let shared = &self.shared;
        let registered = shared.installed.install(view, |old, new| shared.register(old, new))?;
        let Registration { plan, releases, acquisitions, before, contiguous } = registered;
        if !contiguous {
            shared.retained.broken();
        }
        for (gate, plan) in releases.into_iter().zip(plan.releases) {
            (shared.spawn)(release::drive(shared.clone(), gate, plan, before).boxed());
        }
        for (gate, plan) in acquisitions.into_iter().zip(plan.acquisitions) {
            (shared.spawn)(acquire::drive(shared.clone(), gate, plan, view.clone(), before).boxed());
        }
        Ok(())
    }

    /// Answers who comes for kept state: after this node has seen the view it is asked under, and has released.
    pub async fn serve_pull(&self, pull: Pull) -> Result<Option<Vec<S::State>>, Failure> {
        let Pull { by, range, version, target } = pull;
        let shared = &self.shared;
        shared.installed.at_least(target).await.map_err(|lost: Lost| Arc::new(lost) as Failure)?;
        shared.passed(range, target).await?;
        Ok(shared.retained.find(version, by, range, |state, piece| shared.service.part(state, piece)))
    }

    /// What is kept for others.
    pub fn retained(&self) -> &Retained<S::State> {
        &self.shared.retained
    }

    /// Tells what this node knows, for another's recovery.
    pub fn serve_collect(&self, range: Range, view: ViewId) -> S::State {
        self.shared.service.collect(range, view)
    }

    /// A partner has all that was kept for it.
    pub fn serve_acknowledge(&self, by: Partner, version: ViewId) {
        self.shared.retained.acknowledged(by, version);
    }

    /// A partner recovers instead.
    pub fn serve_renounce(&self, by: Partner, version: ViewId) {
        self.shared.retained.renounced(by, version);
    }

    /// Runs work alone on a part of the ring: later requests wait until it is done or given up, earlier ones are out.
    pub async fn alone<A>(&self, range: Range, work: impl Future<Output = A>) -> Result<A, Registered> {
        let shared = &self.shared;
        let barrier = gate::Barrier::new(shared.installed.id());
        shared.gates.register(range, &barrier)?;
        let _alone = Alone { barrier, gates: &shared.gates };
        shared.service.drain(range).await;
        Ok(work.await)
    }

    /// Ends the runtime: waits for who comes for kept state until `budget` is ready, then aborts every gate. Whoever waits
    /// at one is told to try elsewhere.
    pub async fn shut_down(&self, budget: impl Future<Output = ()>) {
        let emptied = self.shared.retained.emptied();
        futures::pin_mut!(emptied, budget);
        if let Either::Right(_) = select(emptied, budget).await {
            info!(kept = self.shared.retained.len(), "state that nobody came for is dropped");
            self.shared.retained.broken();
        }
        self.shared.stopping.send_replace(true);
        self.shared.gates.abort_all();
        // Drivers that were at work may have kept something since.
        self.shared.retained.broken();
    }
}

/// A barrier that ends with the work it protects, however that ends: it has no state to answer for.
struct Alone<'a> {
    barrier: gate::Barrier,
    gates: &'a RangeMap,
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        // Refused if the runtime ended meanwhile; then nobody waits any more.
        let _ = self.barrier.complete();
        self.gates.prune();
    }
}

impl<S: Service, T: Transport<S::State>> Shared<S, T> {
    /// Registers the gates of everything that changes. Nothing is started, and there is nothing to wait for.
    fn register(&self, old: Option<&RingView>, new: &RingView) -> Result<Registration, Registered> {
        let plan = plan(self.me, old, new);
        let (target, before) = (new.id(), old.map_or(ViewId(0), Versioned::id));
        let contiguous = old.is_some_and(|old| new.follows(old));
        let mut registration = Registration {
            releases: Vec::new(),
            acquisitions: Vec::new(),
            plan: Plan::default(),
            before,
            contiguous,
        };
        let registered = plan
            .releases
            .iter()
            .try_for_each(|release| {
                let gate = match release.partners.is_empty() {
                    true => gate::Release::of_nothing(target, contiguous.then_some(before)),
                    false => gate::Release::of_state(target, before),
                };
                let answer = self.register_on(&release.pieces, &gate);
                registration.releases.push(RangeRelease(gate));
                answer
            })
            .and_then(|()| {
                plan.acquisitions.iter().try_for_each(|acquisition| {
                    let gate = gate::Acquisition::new(target, contiguous.then_some(before));
                    let answer = self.register_on(&acquisition.pieces, &gate);
                    registration.acquisitions.push(RangeAcquisition(gate));
                    answer
                })
            });
        if let Err(registered) = registered {
            registration.releases.iter().for_each(|gate| gate.0.abort());
            registration.acquisitions.iter().for_each(|gate| gate.0.abort());
            self.gates.prune();
            return Err(registered);
        }
        registration.plan = plan;
        Ok(registration)
    }

    fn register_on<R: Role>(&self, pieces: &[Range], gate: &Driver<R>) -> Result<(), Registered> {
        pieces.iter().try_for_each(|piece| self.gates.register(*piece, gate))
    }

    /// Waits until no gate up to this view blocks these points.
    pub(super) async fn passed(&self, range: Range, at: ViewId) -> Result<(), Failure> {
        ending::passed(&*self.gates, &range, at).await
    }

    /// These points are this node's by a view only: it never had their state.
    pub(super) fn leave_vacant(&self, pieces: &[Range]) {
        self.vacant.lock().extend(pieces);
    }

    /// What there is of a piece that is released; what was left vacant of it is so no more.
    pub(super) fn had(&self, piece: Range) -> Vec<Range> {
        let mut vacant = self.vacant.lock();
        let mut had = vec![piece];
        for hole in vacant.iter() {
            had = had.into_iter().flat_map(|piece| piece.difference(*hole)).collect();
        }
        *vacant = vacant.iter().flat_map(|hole| hole.difference(piece)).collect();
        had
    }

    /// Runs a driver's work to its gate's end, and takes the gate out.
    pub(super) async fn finish<R: Role>(
        &self,
        gate: &Driver<R>,
        work: impl Future<Output = Result<(), Failure>>,
    ) {
        ending::end(gate, &self.stopping, work).await;
        self.gates.prune();
    }

    /// Starts something that no gate waits for; it ends with the runtime.
    pub(super) fn beside(&self, work: impl Future<Output = ()> + Send + 'static) {
        let mut stopping = self.stopping.subscribe();
        let task = async move {
            let stopped = async { drop(stopping.wait_for(|stopping| *stopping).await) };
            futures::pin_mut!(work, stopped);
            select(stopped, work).await;
        };
        (self.spawn)(task.boxed());
    }

    /// What is kept for a member goes when the member goes. The watch ends when nothing is kept any more.
    pub(super) fn forget_when_gone(self: &Arc<Self>, member: Member) {
        let (gone, retained) = (self.transport.gone(member), self.retained.clone());
        let watch = async move {
            let emptied = retained.emptied();
            futures::pin_mut!(emptied);
            if let Either::Left(_) = select(gone, emptied).await {
                retained.gone(member);
            }
        };
        (self.spawn)(watch.boxed());
    }
}

impl<S: Service, T> fmt::Debug for Coordinator<S, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Coordinator").field("me", &self.shared.me).finish_non_exhaustive()
    }
}
