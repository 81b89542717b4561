//! Locks of one shard's owner: lock sets of open transactions, locks of autocommit commands, and waiting for both.
//!
//! Invariants:
//! - A lock set lives under the claim it was begun under; a newer claim ends all older sets.
//! - Whoever stops waiting, for whatever reason, leaves the queue.
//! - The locks of a command are given back when its [`Held`] is dropped, answered or not.
//!
//! Not here: the rules (`table`, pure), which locks a command needs (`owner::write`).

mod table;

use std::{sync::Arc, time::Duration};

use hashbrown::HashMap;
use model::{
    command::LockSet,
    id::{Epoch, SessionId},
    port::{LockMode, Lockable, Wait},
};
use parking_lot::Mutex;
pub(super) use table::join;
use table::{Asked, Event, Holder, Patience, Table, Waiter};
use tokio::sync::oneshot;

use crate::raft::Timer;

/// How many lock sets a shard holds at once.
pub(super) const SETS_MAX: usize = 65_536;

/// Why a lock was not given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// It is taken, and the caller does not wait.
    Taken,
    /// It stayed taken for as long as the caller would wait.
    TimedOut,
    /// Waiting would have closed a circle.
    Deadlock,
    /// The lock set has ended: by its session, or by a newer claim.
    Ended,
    /// There are too many lock sets.
    TooMany,
}

/// The locks of one shard.
#[derive(Debug)]
pub(crate) struct Locks {
    state: Mutex<State>,
    timer: Timer,
}

#[derive(Debug, Default)]
struct State {
    table: Table,
    sets: HashMap<LockSet, Set>,
    wakers: HashMap<Waiter, oneshot::Sender<Result<(), Refusal>>>,
    epoch: Epoch,
    next_set: u64,
    closed: bool,
    events: Vec<Event>,
}

#[derive(Debug)]
struct Set {
    holder: Holder,
    /// After each place the caller was answered, skipped ones too: how many locks the table has noted, implied ones
    /// counted.
    marks: Vec<usize>,
}

/// How many things are locked, transactions and commands hold locks, and requests wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LockCounts {
    /// Things locked or waited for.
    pub things: usize,
    /// Open transactions and commands in flight.
    pub holders: usize,
    /// Requests that wait.
    pub waiting: usize,
}

impl Locks {
    pub(crate) fn new(timer: Timer) -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), timer })
    }

    /// A new claim: all sets of older ones end.
    pub(crate) fn raise_epoch(&self, epoch: Epoch) {
        let mut state = self.state.lock();
        state.epoch = epoch;
        let dead: Vec<_> = state.sets.keys().filter(|set| set.epoch < epoch).copied().collect();
        for set in dead {
            state.end_set(set);
        }
    }

    /// Begins the lock set of a transaction.
    pub(crate) fn begin(&self, session: SessionId) -> Result<LockSet, Refusal> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(Refusal::Ended);
        }
        if state.sets.len() >= SETS_MAX {
            return Err(Refusal::TooMany);
        }
        state.next_set += 1;
        let set = LockSet { epoch: state.epoch, session, id: state.next_set };
        let holder = state.table.begin(false);
        state.sets.insert(set, Set { holder, marks: Vec::new() });
        Ok(set)
    }

    /// Ends a set, or gives back what it took after its first `keep` locks.
    pub(crate) fn release(&self, set: LockSet, keep: Option<usize>) {
        let mut state = self.state.lock();
        match keep {
            None => state.end_set(set),
            Some(keep) => state.release_after(set, keep),
        }
    }

    /// Ends all sets of a session.
    pub(crate) fn end_session(&self, session: SessionId) {
        let mut state = self.state.lock();
        let sets: Vec<_> = state.sets.keys().filter(|set| set.session == session).copied().collect();
        for set in sets {
            state.end_set(set);
        }
    }

    /// Sends everybody back who waits, and ends all sets; commands that hold their locks go on.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        let sets: Vec<_> = state.sets.keys().copied().collect();
        for set in sets {
            state.end_set(set);
        }
        for waiting in state.table.waiting() {
            state.table_end(waiting);
        }
    }

    /// Takes locks into a set, all or none, each with what it implies. Answers one place per lock: whether another
    /// transaction was waited for, none for one that was skipped.
    pub(crate) async fn take(
        self: &Arc<Self>,
        set: LockSet,
        wants: &[(Lockable, LockMode)],
        wait: Wait,
    ) -> Result<Vec<Option<bool>>, Refusal> {
        let (holder, before) = {
            let state = self.state.lock();
            let set = state.sets.get(&set).ok_or(Refusal::Ended)?;
            (set.holder, set.marks.len())
        };
        // A statement that fails, or is given up, gives back what it took: its session never heard of it.
        let undo = Undo { locks: self, set, keep: Some(before) };
        let mut places = Vec::with_capacity(wants.len());
        for (thing, mode) in wants {
            let place = match self.take_with_implied(holder, thing, *mode, wait).await {
                Ok(waited) => Some(waited),
                Err(Refusal::Taken) if wait == Wait::Skip => None,
                Err(refusal) => return Err(refusal),
            };
            places.push(place);
            let mut state = self.state.lock();
            let taken = state.table.taken(holder);
            state.sets.get_mut(&set).ok_or(Refusal::Ended)?.marks.push(taken);
        }
        undo.disarm();
        Ok(places)
    }

    async fn take_with_implied(
        self: &Arc<Self>,
        holder: Holder,
        thing: &Lockable,
        mode: LockMode,
        wait: Wait,
    ) -> Result<bool, Refusal> {
        let limit = match wait {
            Wait::For(limit) => Some(limit),
            Wait::Never | Wait::Skip => None,
        };
        let mut waited = false;
        if let Some((table, intent)) = implied(thing, mode) {
            waited |= self.take_one(holder, &table, intent, limit).await?;
        }
        waited |= self.take_one(holder, thing, mode, limit).await?;
        Ok(waited)
    }

    /// The locks a commit still lacks, taken into its set without telling its session of them.
    pub(crate) async fn complete(
        self: &Arc<Self>,
        set: LockSet,
        wants: &[(Lockable, LockMode)],
        limit: Duration,
    ) -> Result<(), Refusal> {
        let holder = self.state.lock().sets.get(&set).map(|set| set.holder).ok_or(Refusal::Ended)?;
        for (thing, mode) in wants {
            self.take_one(holder, thing, *mode, Some(limit)).await?;
        }
        Ok(())
    }

    /// The locks of an autocommit command, if all are free now.
    pub(crate) fn try_hold(self: &Arc<Self>, wants: &[(Lockable, LockMode)]) -> Option<Held> {
        let mut state = self.state.lock();
        let holder = state.table.begin(true);
        let State { table, events, .. } = &mut *state;
        let all = wants
            .iter()
            .all(|(thing, mode)| table.ask(holder, thing, *mode, Patience::Never, events) == Asked::Granted);
        if !all {
            state.table_end(holder);
            return None;
        }
        Some(Held { locks: self.clone(), holder })
    }

    /// The locks of an autocommit command, waited for. A command that was made the victim of a deadlock gives all back
    /// and starts over.
    pub(crate) async fn hold(
        self: &Arc<Self>,
        wants: &[(Lockable, LockMode)],
        limit: Duration,
    ) -> Result<Held, Refusal> {
        let deadline = self.timer.now() + limit.min(Timer::FAR);
        loop {
            let held = Held { locks: self.clone(), holder: self.state.lock().table.begin(true) };
            let left = deadline.saturating_sub(self.timer.now());
            match self.take_all(held.holder, wants, left).await {
                Ok(()) => return Ok(held),
                Err(Refusal::Deadlock) if self.timer.now() < deadline => {}
                Err(refusal) => return Err(refusal),
            }
        }
    }

    pub(crate) fn counts(&self) -> LockCounts {
        let (things, holders, waiting) = self.state.lock().table.counts();
        LockCounts { things, holders, waiting }
    }

    async fn take_all(
        self: &Arc<Self>,
        holder: Holder,
        wants: &[(Lockable, LockMode)],
        limit: Duration,
    ) -> Result<(), Refusal> {
        for (thing, mode) in wants {
            self.take_one(holder, thing, *mode, Some(limit)).await?;
        }
        Ok(())
    }

    async fn take_one(
        self: &Arc<Self>,
        holder: Holder,
        thing: &Lockable,
        mode: LockMode,
        limit: Option<Duration>,
    ) -> Result<bool, Refusal> {
        let (waiter, mut verdict) = {
            let mut state = self.state.lock();
            let patience = if limit.is_some() { Patience::Waits } else { Patience::Never };
            let State { table, events, .. } = &mut *state;
            let asked = table.ask(holder, thing, mode, patience, events);
            let place = match asked {
                Asked::Granted => Ok(None),
                Asked::Waits(waiter) => {
                    let (sender, verdict) = oneshot::channel();
                    state.wakers.insert(waiter, sender);
                    Ok(Some((waiter, verdict)))
                }
                Asked::Taken => Err(Refusal::Taken),
                Asked::Deadlock => Err(Refusal::Deadlock),
                Asked::Ended => Err(Refusal::Ended),
            };
            state.tell();
            match place? {
                None => return Ok(false),
                Some(place) => place,
            }
        };
        let place = Place { locks: self, waiter };
        let limit = limit.expect("only the patient wait");
        let answer = tokio::select! {
            biased;
            answer = &mut verdict => answer.unwrap_or(Err(Refusal::Ended)),
            () = self.timer.sleep(limit) => {
                // Decided in the very moment the time ran out: then that counts, a lock that is held above all.
                if place.leave() { Err(Refusal::TimedOut) } else { verdict.try_recv().unwrap_or(Err(Refusal::Ended)) }
            }
        };
        answer.map(|()| true)
    }
}

/// Gives back what a set took since, unless it is disarmed.
struct Undo<'a> {
    locks: &'a Locks,
    set: LockSet,
    keep: Option<usize>,
}

impl Undo<'_> {
    fn disarm(mut self) {
        self.keep = None;
    }
}

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        if self.keep.is_some() {
            self.locks.release(self.set, self.keep);
        }
    }
}

/// A place in a queue; leaving it is what dropping does.
struct Place<'a> {
    locks: &'a Locks,
    waiter: Waiter,
}

impl Place<'_> {
    /// Leaves the queue; true if it was still in it.
    fn leave(&self) -> bool {
        self.locks.leave(self.waiter)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Locks {
    fn leave(&self, waiter: Waiter) -> bool {
        let mut state = self.state.lock();
        state.wakers.remove(&waiter);
        let State { table, events, .. } = &mut *state;
        let left = table.cancel(waiter, events);
        state.tell();
        left
    }
}

impl State {
    fn end_set(&mut self, set: LockSet) {
        if let Some(Set { holder, .. }) = self.sets.remove(&set) {
            self.table_end(holder);
        }
    }

    fn table_end(&mut self, holder: Holder) {
        self.table.end(holder, &mut self.events);
        self.tell();
    }

    fn release_after(&mut self, set: LockSet, keep: usize) {
        let Some(Set { holder, marks }) = self.sets.get_mut(&set) else { return };
        let noted = if keep == 0 { 0 } else { marks.get(keep - 1).copied().unwrap_or(usize::MAX) };
        marks.truncate(keep);
        let holder = *holder;
        self.table.release_after(holder, noted, &mut self.events);
        self.tell();
    }

    /// Wakes those whose waiting ended.
    fn tell(&mut self) {
        for event in self.events.drain(..) {
            let (waiter, verdict) = match event {
                Event::Granted(waiter) => (waiter, Ok(())),
                Event::Victim(waiter) => (waiter, Err(Refusal::Deadlock)),
                Event::Ended(waiter) => (waiter, Err(Refusal::Ended)),
            };
            if let Some(waker) = self.wakers.remove(&waiter) {
                // Nobody listens if the waiter gave up in this moment; it leaves by itself then.
                let _ = waker.send(verdict);
            }
        }
    }
}

/// The locks of one command, from before it is proposed until it is applied.
#[derive(Debug)]
pub(crate) struct Held {
    locks: Arc<Locks>,
    holder: Holder,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.locks.state.lock().table_end(self.holder);
    }
}

/// What a lock on a row implies for its table, so that whole-table locks meet row locks: writers hold the table as
/// `program`, which they share, those who only keep a row from changing hold it as `KeyShare`.
pub(crate) fn implied(thing: &Lockable, mode: LockMode) -> Option<(Lockable, LockMode)> {
    let table = match thing {
        Lockable::Row(table, _) | Lockable::Unique(table, _, _) => *table,
        Lockable::Table(_) => return None,
    };
    let intent = match mode {
        LockMode::KeyShare | LockMode::Share => LockMode::KeyShare,
        LockMode::NoKeyUpdate | LockMode::Update | LockMode::Program => LockMode::Program,
    };
    Some((Lockable::Table(table), intent))
}
