//! The queue before the writer: encoded records, who waits for them, and whether the writer sleeps.
//!
//! Invariants:
//! - Records leave in the order in which they came; a ticket numbers each of them, without gaps.
//! - The lock is held for encoding and no longer: no file, no callback, no other lock under it.
//! - Entries are let in only while there is room on disk for all that was let in: a full disk refuses, it does not make
//!   somebody wait who was told yes. What was admitted as a proposal is counted until it was applied; if somebody else
//!   takes the room that it was promised, it waits here, in memory, until there is some.
//! - Somebody *attends* to the queue from the first record on until there is none: the thread of the log, or its driver if it
//!   has one. Whoever adds the first record calls them; under load nobody makes a system call here.
//! - A batch is taken under the writer's lock, so two who attend write one after the other.
//!
//! Not here: the order between records of one group, which the group's lock gives.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::record::{self, Body};
use super::{Callback, Error, GroupId, LogId};

/// A record that notes a committed id is not longer.
const COMMITTED_BYTES_MAX: usize = 64;

/// Records on their way to the writer.
pub(crate) struct Queue {
    state: Mutex<State>,
    wake: Condvar,
    room: Condvar,
    bytes_max: usize,
    segment_bytes: u64,
}

/// Room on disk, as the writer and the keeper know it.
#[derive(Clone, Copy, Debug, Default)]
struct Room {
    /// Bytes left in the segment that is being written.
    remaining: u64,
    /// Segments after it.
    ready: u64,
    /// There is no room for another one.
    full: bool,
}

/// What room an append, or a proposal, may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Only while the disk has more.
    Common,
    /// Also what is left when it has not.
    Reserve,
}

struct State {
    records: Vec<u8>,
    first_ticket: u64,
    next_ticket: u64,
    callbacks: Vec<(usize, Callback)>,
    /// Committed ids nobody waits for; one record for each group with the next batch.
    committed: BTreeMap<GroupId, LogId>,
    phase: Phase,
    /// Somebody was called and has not yet found the queue empty.
    attended: bool,
    /// The thread is to attend, whoever else does.
    summoned: bool,
    /// The thread sleeps until somebody comes, not only for the idle time.
    asleep: bool,
    /// The log ends with a seal.
    sealed: bool,
    /// Batches taken.
    batches: u64,
    driver: Option<Driver>,
    /// Bytes let in and not yet written.
    unwritten: u64,
    /// Bytes of proposals that were admitted and not yet applied; what was written of them is still among them.
    admitted: u64,
    /// Bytes admitted since somebody looked at the disk.
    unseen: u64,
    /// How many wait for room.
    waiting: usize,
    on_disk: Room,
}

enum Phase {
    Open,
    Closing,
    Ended(Error),
}

/// Calls a thread that will then write what waits ([`Log::drive`](super::Log::drive)).
pub(crate) type Driver = Arc<dyn Fn() + Send + Sync>;

/// What the writer takes at once.
#[derive(Default)]
pub(crate) struct Batch {
    pub(crate) records: Vec<u8>,
    pub(crate) first_ticket: u64,
    /// Who waits, by the end of the bytes they wait for.
    pub(crate) callbacks: Vec<(usize, Callback)>,
}

/// What the writer is to do after a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// Look again.
    Continue,
    /// Nothing was appended for the idle time.
    Seal,
    /// The log is being closed.
    Close,
}

/// A locked queue with room for records.
pub(crate) struct Push<'a> {
    state: parking_lot::MutexGuard<'a, State>,
    queue: &'a Queue,
}

impl Queue {
    pub(crate) fn new(bytes_max: usize, segment_bytes: u64) -> Queue {
        Queue {
            state: Mutex::new(State {
                records: Vec::new(),
                first_ticket: 1,
                next_ticket: 1,
                callbacks: Vec::new(),
                committed: BTreeMap::new(),
                phase: Phase::Open,
                attended: false,
                summoned: false,
                asleep: false,
                sealed: false,
                batches: 0,
                driver: None,
                unwritten: 0,
                admitted: 0,
                unseen: 0,
                waiting: 0,
                on_disk: Room::default(),
            }),
            wake: Condvar::new(),
            room: Condvar::new(),
            bytes_max,
            segment_bytes,
        }
    }

    /// Waits for room for so many bytes, in the queue and on disk; refused if there will be none. To be called without
    /// any lock.
    pub(crate) fn wait_for_room(&self, bytes: usize, to_use: Use) -> Result<(), Error> {
        let mut state = self.state.lock();
        loop {
            check(&state)?;
            let room = state.on_disk;
            if room.full && to_use == Use::Common {
                return Err(Error::StorageFull);
            }
            if self.fits_on_disk(&state, bytes as u64) {
                if state.records.len() < self.bytes_max {
                    return Ok(());
                }
            } else if room.full {
                // Nobody may be refused any more, and nobody else comes in: it waits in the queue for the writer.
                return Ok(());
            }
            // The driver may be the one who waits here.
            self.summon(&mut state);
            state.waiting += 1;
            self.room.wait(&mut state);
            state.waiting -= 1;
        }
    }

    /// Lets a proposal in, or refuses it while it can still be refused. Answers what is admitted now if it is time to look
    /// at the disk.
    pub(crate) fn admit(&self, bytes: u64, to_use: Use, look_bytes: u64) -> Result<Option<u64>, Error> {
        let mut state = self.state.lock();
        check(&state)?;
        if state.on_disk.full && (to_use == Use::Common || !self.fits_on_disk(&state, state.admitted + bytes))
        {
            return Err(Error::StorageFull);
        }
        // Alone it looks every time: that costs it little beside its sync, and it does not run into a disk that has just
        // become full.
        let is_alone = state.admitted == 0;
        state.admitted += bytes;
        state.unseen += bytes;
        if state.unseen < look_bytes && !state.on_disk.full && !is_alone {
            return Ok(None);
        }
        state.unseen = 0;
        Ok(Some(state.admitted))
    }

    /// A proposal was applied, or will never be.
    pub(crate) fn give_back(&self, bytes: u64) {
        self.state.lock().admitted -= bytes;
    }

    /// Whether what was let in needs a segment that is not there yet.
    pub(crate) fn lacks_room(&self) -> bool {
        let state = self.state.lock();
        state.waiting > 0 || !self.fits_on_disk(&state, state.admitted)
    }

    fn fits_on_disk(&self, state: &State, bytes: u64) -> bool {
        let room = state.on_disk;
        let total = state.unwritten + bytes;
        if room.ready == 0 {
            // The last of it is for votes and for what frees space.
            let kept = if room.full { self.segment_bytes / 16 } else { 0 };
            return total + kept <= room.remaining;
        }
        // A head takes up to a quarter of a segment, and a record that does not fit leaves up to a half unused.
        total <= room.remaining || state.unwritten == 0 || total <= room.ready * self.segment_bytes / 4
    }

    /// The writer wrote so many bytes of the queue, and this much is left in its segment.
    pub(crate) fn written(&self, bytes: usize, remaining: u64) {
        let mut state = self.state.lock();
        state.unwritten -= bytes as u64;
        state.on_disk.remaining = remaining;
        self.room.notify_all();
    }

    /// The writer went on to a segment that was made ahead.
    pub(crate) fn rotated(&self, remaining: u64) {
        let mut state = self.state.lock();
        state.on_disk.ready = state.on_disk.ready.saturating_sub(1);
        state.on_disk.remaining = remaining;
    }

    /// The keeper made a segment.
    pub(crate) fn made_ready(&self) {
        self.state.lock().on_disk.ready += 1;
        self.room.notify_all();
    }

    /// The keeper found out whether there is room for more.
    pub(crate) fn set_full(&self, full: bool) {
        self.state.lock().on_disk.full = full;
        self.room.notify_all();
    }

    /// Whether there is no room on disk for another segment.
    pub(crate) fn is_full(&self) -> bool {
        self.state.lock().on_disk.full
    }

    /// Begins to add records.
    pub(crate) fn push(&self) -> Result<Push<'_>, Error> {
        let state = self.state.lock();
        check(&state)?;
        Ok(Push { state, queue: self })
    }

    pub(crate) fn bytes(&self) -> usize {
        self.state.lock().records.len()
    }

    pub(crate) fn next_ticket(&self) -> u64 {
        self.state.lock().next_ticket
    }

    pub(crate) fn check_open(&self) -> Result<(), Error> {
        check(&self.state.lock())
    }

    /// No more records; the writer ends when it has written what is here.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        if matches!(state.phase, Phase::Open) {
            state.phase = Phase::Closing;
        }
        self.wake.notify_all();
        self.room.notify_all();
    }

    pub(crate) fn is_closing(&self) -> bool {
        !matches!(self.state.lock().phase, Phase::Open)
    }

    /// Ends the queue for good and gives back who still waits. The first error stays.
    pub(crate) fn end(&self, error: Error) -> Vec<Callback> {
        let mut state = self.state.lock();
        if !matches!(state.phase, Phase::Ended(_)) {
            state.phase = Phase::Ended(error);
        }
        state.records = Vec::new();
        state.committed.clear();
        self.wake.notify_all();
        self.room.notify_all();
        std::mem::take(&mut state.callbacks).into_iter().map(|(_, callback)| callback).collect()
    }

    /// Who attends from now on, instead of the thread.
    pub(crate) fn set_driver(&self, driver: Option<Driver>) {
        let mut state = self.state.lock();
        state.driver = driver;
        // The one before may not come any more.
        self.summon(&mut state);
    }

    /// Leaves what waits to the thread.
    pub(crate) fn call_thread(&self) {
        self.summon(&mut self.state.lock());
    }

    fn summon(&self, state: &mut State) {
        if state.has_work() && !state.summoned {
            state.attended = true;
            state.summoned = true;
            self.wake.notify_one();
        }
    }

    /// For the thread: waits until it is to attend, and says what is to be done after the first batch. Returns `None` when
    /// the queue has ended.
    pub(crate) fn wait(&self, idle: Duration) -> Option<Then> {
        let mut state = self.state.lock();
        loop {
            match state.phase {
                Phase::Ended(_) => return None,
                Phase::Closing => return Some(Then::Close),
                Phase::Open => {}
            }
            if std::mem::take(&mut state.summoned) {
                return Some(Then::Continue);
            }
            if state.sealed && state.committed.is_empty() && !state.attended {
                state.asleep = true;
                self.wake.wait(&mut state);
                state.asleep = false;
                continue;
            }
            let batches = state.batches;
            let is_over = self.wake.wait_for(&mut state, idle).timed_out();
            let is_open = matches!(state.phase, Phase::Open);
            if is_over && is_open && !state.attended && state.batches == batches {
                state.attended = true;
                return Some(Then::Seal);
            }
        }
    }

    /// For whoever attends, under the writer's lock: the next batch, which reuses `spare`. Without one nobody attends any
    /// more.
    pub(crate) fn take(&self, spare: Vec<u8>, sealed: bool, then: Then) -> Option<Batch> {
        let mut state = self.state.lock();
        if matches!(state.phase, Phase::Ended(_)) {
            return None;
        }
        if then == Then::Continue && !state.has_work() {
            self.leave(&mut state, sealed);
            return None;
        }
        Some(self.take_batch(&mut state, spare))
    }

    /// As [`Queue::take`], for the driver: what is more than `bytes_max` is left to the thread, and the end too.
    pub(crate) fn take_little(&self, spare: Vec<u8>, sealed: bool, bytes_max: u64) -> Option<Batch> {
        let mut state = self.state.lock();
        if !matches!(state.phase, Phase::Open) {
            return None;
        }
        if !state.has_work() {
            self.leave(&mut state, sealed);
            return None;
        }
        let committed = state.committed.len() * COMMITTED_BYTES_MAX;
        if (state.records.len() + committed) as u64 > bytes_max {
            self.summon(&mut state);
            return None;
        }
        Some(self.take_batch(&mut state, spare))
    }

    fn leave(&self, state: &mut State, sealed: bool) {
        state.attended = false;
        state.sealed = sealed;
        if state.asleep && !sealed {
            self.wake.notify_one();
        }
    }

    fn take_batch(&self, state: &mut State, spare: Vec<u8>) -> Batch {
        for (group, upto) in std::mem::take(&mut state.committed) {
            let before = state.records.len();
            record::encode(group, &Body::Committed { upto }, &mut state.records);
            state.unwritten += (state.records.len() - before) as u64;
            state.next_ticket += 1;
        }
        let batch = Batch {
            records: std::mem::replace(&mut state.records, spare),
            first_ticket: state.first_ticket,
            callbacks: std::mem::take(&mut state.callbacks),
        };
        state.first_ticket = state.next_ticket;
        state.batches += 1;
        self.room.notify_all();
        batch
    }
}

impl State {
    fn has_work(&self) -> bool {
        !self.records.is_empty() || !self.callbacks.is_empty()
    }
}

fn check(state: &State) -> Result<(), Error> {
    match &state.phase {
        Phase::Open => Ok(()),
        Phase::Closing => Err(Error::Closed),
        Phase::Ended(error) => Err(error.clone()),
    }
}

impl Push<'_> {
    /// Adds a record and gives its ticket.
    pub(crate) fn record(&mut self, group: GroupId, body: &Body<'_>) -> u64 {
        let before = self.state.records.len();
        record::encode(group, body, &mut self.state.records);
        self.state.unwritten += (self.state.records.len() - before) as u64;
        let ticket = self.state.next_ticket;
        self.state.next_ticket += 1;
        ticket
    }

    /// Ends with somebody who waits for all of it.
    pub(crate) fn wait_with(mut self, callback: Callback) {
        let end = self.state.records.len();
        self.state.callbacks.push((end, callback));
        self.go();
    }

    /// Ends; it is written soon, whether anybody waits or not.
    pub(crate) fn go(mut self) {
        if self.state.attended {
            return;
        }
        self.state.attended = true;
        let Some(driver) = self.state.driver.clone() else {
            self.state.summoned = true;
            self.queue.wake.notify_one();
            return;
        };
        drop(self.state);
        driver();
    }

    /// Notes a committed id that goes with the next batch.
    pub(crate) fn committed(mut self, group: GroupId, upto: LogId) {
        self.state.committed.insert(group, upto);
        // The thread writes it once the idle time is over.
        if self.state.asleep {
            self.queue.wake.notify_one();
        }
    }

    pub(crate) fn forget_committed(&mut self, group: GroupId) {
        self.state.committed.remove(&group);
    }
}
