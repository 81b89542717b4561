//! The consumer: installs assignments, and drives what they change.
//!
//! Invariants:
//! - Gates of all changed shards are registered before the view is seen; nothing is started before.
//! - A shard that was away and came back gets one gate, an acquisition that first ends the reign before: two gates of one
//!   view on one shard there never are.
//! - Who gets a shard waits for who had it, until that has checkpointed or is gone, and fences only then.
//! - A place is checkpointed only if somebody comes for it from the very next view; else the newer owner decides.
//!
//! Not here: taking messages (`receiver`).

use std::{collections::HashMap, fmt, sync::Arc};

use futures::{
    FutureExt,
    future::{Either, select},
};
use model::{
    id::{Epoch, ViewId},
    time::Clock,
};
use tokio::sync::watch;
use tracing::{info, warn};

use crate::{
    admission::{self, Admission, Bounds, Lot, Parking, Seen},
    gate::{self, Driver, Failure, Registered, ResourceMap, Role},
    handoff::{Spawn, ending},
    sync::Mutex,
    view::{Installed, Member, NotInstalled, Published, Versioned, View, delta},
};

use super::{
    Checkpoints, Feed, NotStored, Offset, Peers, Token, TopicShard,
    receiver::{Receiver, Reign},
};

/// Why a view was not installed.
pub type Refused = NotInstalled<Registered>;

/// What a consumer is made of.
pub struct Parts<C, F> {
    /// This member.
    pub me: Member,
    /// The assignments it works under.
    pub installed: Arc<Installed<View<TopicShard>>>,
    /// Where places are kept.
    pub checkpoints: Arc<C>,
    /// Where messages come from.
    pub feed: Arc<F>,
    /// How others are reached.
    pub peers: Arc<dyn Peers>,
    /// For admission.
    pub clock: Arc<dyn Clock>,
    /// What may wait on this node.
    pub lot: Arc<Lot>,
    /// How drivers are started.
    pub spawn: Spawn,
}

/// A member's part of an assignment.
pub struct Consumer<C, F> {
    pub(super) shared: Arc<Shared<C, F>>,
}

pub(super) struct Shared<C, F> {
    pub(super) seen: Seen<View<TopicShard>>,
    pub(super) feed: Arc<F>,
    me: Member,
    installed: Arc<Installed<View<TopicShard>>>,
    gates: Arc<ResourceMap<TopicShard>>,
    doors: Mutex<HashMap<TopicShard, Arc<Door>>>,
    checkpoints: Arc<C>,
    peers: Arc<dyn Peers>,
    clock: Arc<dyn Clock>,
    lot: Arc<Lot>,
    spawn: Spawn,
    stopping: watch::Sender<bool>,
}

/// The way into one topic shard, and who reigns there now.
pub(super) struct Door {
    pub(super) admission: Arc<Admission<ResourceMap<TopicShard>>>,
    reign: Mutex<Option<Arc<Reign>>>,
}

/// The release of a topic shard.
struct ShardRelease {
    gate: gate::Release,
    shard: TopicShard,
}

/// The acquisition of a topic shard.
struct ShardAcquisition {
    gate: gate::Acquisition,
    shard: TopicShard,
    token: Token,
    /// Whether it was this member's before, in another reign.
    renewed: bool,
    /// Who had it in the view immediately before, and will leave its place.
    from: Option<Member>,
}

struct Registration {
    releases: Vec<ShardRelease>,
    acquisitions: Vec<ShardAcquisition>,
    before: ViewId,
}

impl<C: Checkpoints, F: Feed> Consumer<C, F> {
    /// A consumer that has seen no view.
    pub fn new(parts: Parts<C, F>) -> Self {
        let Parts { me, installed, checkpoints, feed, peers, clock, lot, spawn } = parts;
        let shared = Shared {
            seen: Seen::by(me, installed.clone()),
            feed,
            me,
            installed,
            gates: ResourceMap::new(),
            doors: Mutex::default(),
            checkpoints,
            peers,
            clock,
            lot,
            spawn,
            stopping: watch::Sender::new(false),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Installs an assignment and starts what it demands, without a pause.
    pub fn update(&self, view: &Published<View<TopicShard>>) -> Result<(), Refused> {
        let shared = &self.shared;
        let registered = shared.installed.install(view, |old, new| shared.register(old, new))?;
        let Registration { releases, acquisitions, before } = registered;
        for release in releases {
            let shared = shared.clone();
            let drive = async move {
                let work = shared.release(&release, before);
                ending::end(&release.gate, &shared.stopping, work).await;
                shared.gates.prune();
            };
            (self.shared.spawn)(drive.boxed());
        }
        for acquisition in acquisitions {
            let shared = shared.clone();
            let drive = async move {
                let work = shared.acquire(&acquisition, before);
                ending::end(&acquisition.gate, &shared.stopping, work).await;
                shared.gates.prune();
            };
            (self.shared.spawn)(drive.boxed());
        }
        Ok(())
    }

    /// The receiver of a shard's present reign, waiting until it is open. A reign has one at a time.
    pub async fn receiver(&self, shard: TopicShard) -> Result<Receiver<C, F>, super::Ended> {
        Receiver::open(self.shared.clone(), self.shared.door(shard), shard).await
    }

    /// Answers who takes a shard over: after this member has seen the view, and released.
    pub async fn serve_released(&self, shard: TopicShard, target: ViewId) -> Result<(), Failure> {
        let shared = &self.shared;
        shared.installed.at_least(target).await.map_err(|lost| Arc::new(lost) as Failure)?;
        ending::passed(&*shared.gates, &shard, target).await
    }

    /// The gates of this consumer's shards.
    pub fn gates(&self) -> &ResourceMap<TopicShard> {
        &self.shared.gates
    }

    /// Ends the runtime: aborts every gate. Whoever waits at one is told to try elsewhere.
    pub fn shut_down(&self) {
        self.shared.stopping.send_replace(true);
        for door in self.shared.doors.lock().values() {
            door.admission.close();
        }
        self.shared.gates.abort_all();
    }
}

impl<C: Checkpoints, F: Feed> Shared<C, F> {
    fn register(
        &self,
        old: Option<&View<TopicShard>>,
        new: &View<TopicShard>,
    ) -> Result<Registration, Registered> {
        let (target, before) = (new.id(), old.map_or(ViewId(0), Versioned::id));
        let contiguous = old.is_some_and(|old| new.follows(old));
        let previous = contiguous.then_some(before);
        let held = |view: Option<&View<TopicShard>>| view.and_then(|view| view.held_by(self.me)).cloned();
        let mut change = delta(held(old).as_ref(), held(new.into()).as_ref());
        if old.is_some_and(|old| old.header().authority != new.header().authority) {
            // Epochs of two authorities are different counts: nothing shows that it was kept.
            change.released.extend(change.retained.iter().copied());
            change.acquired.append(&mut change.retained);
        }
        let mut registration = Registration { releases: Vec::new(), acquisitions: Vec::new(), before };
        let renewed = |shard: &TopicShard| change.released.iter().any(|(released, _)| released == shard);
        let acquired = |shard: &TopicShard| change.acquired.iter().any(|(acquired, _)| acquired == shard);
        let mut registered = Ok(());
        for (shard, _) in change.released.iter().filter(|(shard, _)| !acquired(shard)) {
            let somebody_comes = new.holder(shard).is_some_and(|held| held.owner.is_some());
            let gate = match (contiguous, somebody_comes) {
                (true, true) => gate::Release::of_state(target, before),
                _ => gate::Release::of_nothing(target, previous),
            };
            registered = registered.and(self.gates.register(*shard, &gate));
            registration.releases.push(ShardRelease { gate, shard: *shard });
        }
        for (shard, epoch) in &change.acquired {
            let gate = gate::Acquisition::new(target, previous);
            registered = registered.and(self.gates.register(*shard, &gate));
            let token = Token { authority: new.header().authority, epoch: *epoch, view: target };
            let renewed = renewed(shard);
            let from = old.filter(|_| contiguous).and_then(|old| old.holder(shard)?.owner);
            let from = from.filter(|owner| *owner != self.me);
            registration.acquisitions.push(ShardAcquisition { gate, shard: *shard, token, renewed, from });
        }
        if let Err(registered) = registered {
            registration.releases.iter().for_each(|release| release.gate.abort());
            registration.acquisitions.iter().for_each(|acquisition| acquisition.gate.abort());
            self.gates.prune();
            return Err(registered);
        }
        Ok(registration)
    }

    /// Stop, drain, checkpoint.
    async fn release(&self, release: &ShardRelease, before: ViewId) -> Result<(), Failure> {
        let ShardRelease { gate, shard } = release;
        ending::passed(&*self.gates, shard, before).await?;
        let reign = self.end_reign(*shard).await;
        // An acquisition that failed has left nothing; whoever comes takes the last checkpoint.
        if reign.is_none() {
            missteps(gate, Driver::keep_nothing)?;
        }
        missteps(gate, Driver::drained)?;
        let Some(reign) = reign.filter(|_| gate.keeps_state()) else { return Ok(()) };
        match self.checkpoints.store(*shard, reign.token, reign.handled()).await {
            Ok(()) => missteps(gate, Driver::state_retained),
            Err(NotStored::Fenced) => {
                info!(?shard, "a newer owner was faster than the checkpoint");
                missteps(gate, Driver::keep_nothing)
            }
            Err(NotStored::Failed(failure)) => Err(failure),
        }
    }

    /// Load, fence, open.
    async fn acquire(&self, acquisition: &ShardAcquisition, before: ViewId) -> Result<(), Failure> {
        let ShardAcquisition { gate, shard, token, renewed, from } = acquisition;
        ending::passed(&*self.gates, shard, before).await?;
        if *renewed {
            // What the reign before has handled and not stored is another's to decide.
            self.end_reign(*shard).await;
        }
        if let Some(owner) = from {
            // Before the fence, or it would keep out the very place that is handed over.
            let released = self.peers.released(*owner, *shard, gate.target());
            if let Either::Right((Err(failure), _)) = select(self.peers.gone(*owner), released).await {
                warn!(?shard, %owner, %failure, "the last checkpoint counts: the owner before cannot release");
            }
        }
        self.checkpoints.load(*shard).await?;
        missteps(gate, Driver::state_installed)?;
        let fenced = self.checkpoints.fence(*shard, *token).await;
        let from = fenced.map_err(|refused| Arc::new(refused) as Failure)?;
        missteps(gate, Driver::fenced)?;
        self.begin_reign(*shard, *token, from);
        Ok(())
    }

    /// Nobody takes a message of this shard any more, and those that were taken are done with.
    async fn end_reign(&self, shard: TopicShard) -> Option<Arc<Reign>> {
        let door = self.door(shard);
        door.admission.drain().await;
        door.admission.close();
        door.reign.lock().take()
    }

    /// The gate still blocks: receivers come when it has completed.
    fn begin_reign(&self, shard: TopicShard, token: Token, from: Offset) {
        let door = self.door(shard);
        *door.reign.lock() = Some(Arc::new(Reign::new(token, from)));
        door.admission.open(token.epoch);
    }

    pub(super) fn door(&self, shard: TopicShard) -> Arc<Door> {
        let mut doors = self.doors.lock();
        let door = doors.entry(shard).or_insert_with(|| {
            let parts = admission::Parts {
                horizon: self.installed.horizon().clone(),
                gates: self.gates.clone(),
                parking: Parking::new(Bounds::UNIT, self.lot.clone()),
                clock: self.clock.clone(),
            };
            Arc::new(Door { admission: Admission::of(shard, parts), reign: Mutex::new(None) })
        });
        door.clone()
    }

    pub(super) fn view(&self) -> ViewId {
        self.installed.id()
    }
}

impl Door {
    /// The reign of this epoch, if it lasts.
    pub(super) fn find_reign(&self, epoch: Epoch) -> Option<Arc<Reign>> {
        self.reign.lock().clone().filter(|reign| reign.token.epoch == epoch)
    }
}

fn missteps<R: Role>(
    gate: &Driver<R>,
    step: impl FnOnce(&Driver<R>) -> Result<(), gate::Misstep>,
) -> Result<(), Failure> {
    step(gate).map_err(|misstep| Arc::new(misstep) as Failure)
}

impl<C, F> fmt::Debug for Consumer<C, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer").field("me", &self.shared.me).finish_non_exhaustive()
    }
}
