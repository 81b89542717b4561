//! Admission: how a request gets into a unit (a shard, a resource) while its owner may be changing.
//!
//! 1. A request is counted in, and only then looks: at the installed view, at the gates, at whether the unit is served.
//! 2. If all is well it has its [`Pass`]; it is in until that is dropped.
//! 3. Else it is counted out again, and waits ([`Admission::enter_by`]) for the view or for the gate, within its deadline
//!    and within the bounds of [`Parking`]; then it looks again from the start.
//!
//! Invariants:
//! - Whoever holds a pass was counted before it looked. Whoever closes a unit registers the gate, makes the view seen, and
//!   then waits for the count ([`Admission::drain`]): it misses nobody.
//! - Whether the unit is served is looked at after the gates: who sees a release's gate gone sees the unit closed.
//! - In the steady state entering is one addition and five loads. It takes no lock, allocates nothing and wakes nobody.
//! - A wait that ends by its deadline leaves no waiter behind, and says nothing about who the owner is.
//!
//! Not here: who registers gates and closes units (`handoff`, `assignment`; the claim in `owner`).

mod inside;
#[cfg(test)]
#[cfg(feature = "loom")]
mod models;
mod parking;
mod refusal;
#[cfg(test)]
#[cfg(not(feature = "loom"))]
mod suite;
mod wait;

use std::{fmt, sync::Arc, time::Duration};

use model::{
    id::{Epoch, Point, ShardId, ViewId},
    time::Clock,
};

use crate::{
    Error,
    gate::{Gate, Gates, RangeMap},
    ring::Range,
    sync::{AtomicU64, Mutex, Ordering},
    view::Horizon,
};

use inside::{Inside, Seat};

pub use parking::{Bounds, Lot, Parked, Parking};
pub use refusal::{Applied, Refusal};
pub use wait::{Seen, Standing, Views};

/// The way into one unit.
pub struct Admission<G: Gates = RangeMap> {
    unit: G::Unit,
    horizon: Arc<Horizon>,
    gates: Arc<G>,
    /// The epoch it is served in, and in the lowest bit whether a hold may be on. 0 is closed: epochs begin at 1.
    serving: AtomicU64,
    inside: Inside,
    parking: Parking,
    /// Until when new registrations are held off, by the monotonic clock.
    hold: Mutex<Option<Duration>>,
    clock: Arc<dyn Clock>,
}

/// The proof of being inside a unit.
pub struct Pass<G: Gates = RangeMap> {
    admission: Arc<Admission<G>>,
    seat: Seat,
    view: ViewId,
    epoch: Epoch,
}

/// What an admission needs of its node.
#[derive(Clone)]
pub struct Parts<G> {
    /// The number of the installed view.
    pub horizon: Arc<Horizon>,
    /// The runtime's gates.
    pub gates: Arc<G>,
    /// How many may wait.
    pub parking: Parking,
    /// For holds.
    pub clock: Arc<dyn Clock>,
}

/// A shard and its points.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShardUnit {
    /// Which.
    pub shard: ShardId,
    /// What it has of the ring.
    pub range: Range,
}

/// What a request wants to get into.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request<K> {
    /// The view it was routed by.
    pub view: ViewId,
    /// What it is about: a range, a resource.
    pub key: K,
    /// What it would do.
    pub effect: Effect,
    /// How much memory it takes while it waits.
    pub bytes: usize,
}

/// Whether a request must wait for a safety hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// It looks, or changes or renews what is there.
    Uses,
    /// It brings something into being that a dead owner may still think it has.
    Registers,
}

/// Why a request is not in yet.
#[derive(Clone, Debug)]
pub enum Blocked {
    /// This node has not installed the view that the request was routed by.
    Behind {
        /// The one it has.
        view: ViewId,
    },
    /// A gate blocks.
    Gated(Gate),
    /// The view changed while it was looked at.
    Moved,
    /// The unit is not served here.
    Closed {
        /// Under this view.
        view: ViewId,
    },
    /// A hold keeps new registrations off.
    Held {
        /// For so long.
        retry_after: Duration,
    },
}

const HELD: u64 = 1;

impl<G: Gates> Admission<G> {
    /// A unit that nobody may enter yet.
    pub fn of(unit: G::Unit, parts: Parts<G>) -> Arc<Self> {
        let Parts { horizon, gates, parking, clock } = parts;
        Arc::new(Self {
            unit,
            horizon,
            gates,
            serving: AtomicU64::new(0),
            inside: Inside::default(),
            parking,
            hold: Mutex::new(None),
            clock,
        })
    }

    /// What it leads into.
    pub fn unit(&self) -> &G::Unit {
        &self.unit
    }

    /// Serves the unit in an epoch, which is at least 1.
    pub fn open(&self, epoch: Epoch) {
        assert!(epoch.0 > 0, "a unit is owned from epoch 1 on");
        let hold = self.hold.lock();
        let held = u64::from(hold.is_some()) * HELD;
        self.serving.store(epoch.0 << 1 | held, Ordering::SeqCst);
    }

    /// Closes the unit; those inside stay until they leave.
    pub fn close(&self) {
        let _hold = self.hold.lock();
        self.serving.store(0, Ordering::SeqCst);
    }

    /// Keeps new registrations off until this moment of the monotonic clock. What is there can be used and renewed.
    pub fn hold_until(&self, until: Duration) {
        let mut hold = self.hold.lock();
        *hold = Some(hold.map_or(until, |before| before.max(until)));
        if self.serving.load(Ordering::SeqCst) != 0 {
            self.serving.fetch_or(HELD, Ordering::SeqCst);
        }
    }

    /// Whether it is served and no gate blocks it.
    pub fn is_open(&self) -> bool {
        self.serving.load(Ordering::SeqCst) != 0 && self.gates.is_clear()
    }

    /// How many are inside, or just looking.
    pub fn inside(&self) -> usize {
        self.inside.count()
    }

    /// The view it is judged under now.
    pub fn view(&self) -> ViewId {
        self.horizon.id()
    }

    /// The gates it looks at.
    pub fn gates(&self) -> &Arc<G> {
        &self.gates
    }

    /// Waits until everybody who got in before the gates that are now registered is out. Others may go in and out
    /// meanwhile. A gate of what is drained must be registered, and its view seen.
    pub async fn drain(&self) {
        self.inside.drain().await;
    }

    /// Enters at once, or says what is in the way.
    #[inline]
    pub fn try_enter(self: &Arc<Self>, request: &Request<G::Key>) -> Result<Pass<G>, Blocked> {
        // Counted before anything is looked at: a drain that saw nobody began after what is looked at was changed.
        let seat = self.inside.enter();
        let view = self.horizon.id();
        let is_clear = self.gates.is_clear();
        let serving = self.serving.load(Ordering::SeqCst);
        let is_served = serving != 0 && serving & HELD == 0;
        if is_clear && is_served && view >= request.view && self.horizon.id() == view {
            return Ok(Pass { admission: self.clone(), seat, view, epoch: Epoch(serving >> 1) });
        }
        self.look(request, seat)
    }

    /// Looks at everything again, one by one, counted as before.
    #[cold]
    fn look(self: &Arc<Self>, request: &Request<G::Key>, seat: Seat) -> Result<Pass<G>, Blocked> {
        let mut pass = Pass { admission: self.clone(), seat, view: ViewId(0), epoch: Epoch(0) };
        let view = self.horizon.id();
        if view < request.view {
            return Err(Blocked::Behind { view });
        }
        if !self.gates.is_clear()
            && let Some(gate) = self.gates.find_blocking(&request.key, view)
        {
            return Err(Blocked::Gated(gate));
        }
        let serving = self.serving.load(Ordering::SeqCst);
        if self.horizon.id() != view {
            return Err(Blocked::Moved);
        }
        if serving == 0 {
            return Err(Blocked::Closed { view });
        }
        if serving & HELD != 0
            && request.effect == Effect::Registers
            && let Some(retry_after) = self.held_for()
        {
            return Err(Blocked::Held { retry_after });
        }
        pass.view = view;
        pass.epoch = Epoch(serving >> 1);
        Ok(pass)
    }

    /// How long the hold lasts; one that is over is lifted.
    #[cold]
    fn held_for(&self) -> Option<Duration> {
        let mut hold = self.hold.lock();
        let rest = hold.and_then(|until| until.checked_sub(self.clock.monotonic()));
        let rest = rest.filter(|rest| !rest.is_zero());
        if rest.is_none() {
            *hold = None;
            self.serving.fetch_and(!HELD, Ordering::SeqCst);
        }
        rest
    }
}

impl Admission<RangeMap> {
    /// A shard that nobody may enter yet.
    pub fn closed(shard: ShardId, range: Range, parts: Parts<RangeMap>) -> Arc<Self> {
        Self::of(ShardUnit { shard, range }, parts)
    }

    /// The part of the ring it leads to.
    pub fn range(&self) -> Range {
        self.unit.range
    }

    /// Enters the shard for a point at once, under the view the request was routed by.
    pub fn enter(self: &Arc<Self>, view: ViewId, point: Point) -> Result<Pass, Error> {
        if !self.unit.range.contains(point) {
            return Err(Error::WrongShard { shard: self.unit.shard, point });
        }
        self.enter_range(view, Range::point(point))
    }

    /// Enters the shard at once for all it holds.
    pub fn enter_shard(self: &Arc<Self>, view: ViewId) -> Result<Pass, Error> {
        self.enter_range(view, self.unit.range)
    }

    fn enter_range(self: &Arc<Self>, view: ViewId, key: Range) -> Result<Pass, Error> {
        let shard = self.unit.shard;
        loop {
            let refused = match self.try_enter(&Request { view, key, effect: Effect::Uses, bytes: 0 }) {
                Ok(pass) => return Ok(pass),
                Err(refused) => refused,
            };
            return Err(match refused {
                // Each turn takes a new view.
                Blocked::Moved => continue,
                Blocked::Behind { view } => Error::ViewStale { shard, view },
                Blocked::Gated(_) | Blocked::Held { .. } => Error::Gated { shard },
                Blocked::Closed { .. } => Error::NotServing { shard },
            });
        }
    }
}

impl<G: Gates> Pass<G> {
    /// What it is a pass for.
    pub fn unit(&self) -> &G::Unit {
        &self.admission.unit
    }

    /// The view it was judged under; the answer names it.
    pub fn view(&self) -> ViewId {
        self.view
    }

    /// The epoch it was let into.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Whether it would be let in again as it was: the same epoch is served, no gate of this view has come, no view has.
    /// What waited inside looks at this before it answers from what it saw before.
    pub fn still_holds(&self, key: &G::Key) -> bool {
        let Admission { horizon, gates, serving, .. } = &*self.admission;
        let gated = !gates.is_clear() && gates.find_blocking(key, horizon.id()).is_some();
        !gated && horizon.id() == self.view && serving.load(Ordering::SeqCst) >> 1 == self.epoch.0
    }
}

impl Pass<RangeMap> {
    /// The shard it is a pass for.
    pub fn shard(&self) -> ShardId {
        self.admission.unit.shard
    }
}

impl<G: Gates> Drop for Pass<G> {
    fn drop(&mut self) {
        self.admission.inside.leave(self.seat);
    }
}

impl<G: Gates> fmt::Debug for Admission<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let serving = self.serving.load(Ordering::SeqCst);
        f.debug_struct("Admission").field("epoch", &(serving >> 1)).field("view", &self.view()).finish()
    }
}

impl<G: Gates> fmt::Debug for Pass<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pass").field("view", &self.view).field("epoch", &self.epoch).finish()
    }
}
