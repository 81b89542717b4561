//! The queue before the writer: encoded records, who waits for them, and whether the writer sleeps.
//!
//! Invariants:
//! - Records leave in the order in which they came; a ticket numbers each of them, without gaps.
//! - The lock is held for encoding and no longer: no file, no callback, no other lock under it.
//! - The writer is woken only if it sleeps: under load nobody makes a system call here.
//!
//! Not here: the order between records of one group, which the group's lock gives.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::record::{self, Body};
use super::{Callback, Error, GroupId, LogId};

/// Records on their way to the writer.
pub(crate) struct Queue {
    state: Mutex<State>,
    wake: Condvar,
    room: Condvar,
    bytes_max: usize,
}

struct State {
    records: Vec<u8>,
    first_ticket: u64,
    next_ticket: u64,
    callbacks: Vec<(usize, Callback)>,
    /// Committed ids nobody waits for; one record for each group with the next batch.
    committed: BTreeMap<GroupId, LogId>,
    phase: Phase,
    sleep: Sleep,
}

enum Phase {
    Open,
    Closing,
    Ended(Error),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sleep {
    Awake,
    /// Until the idle time is over.
    Dozing,
    /// Until somebody comes.
    Asleep,
}

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
    /// Come back at once.
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
    pub(crate) fn new(bytes_max: usize) -> Queue {
        Queue {
            state: Mutex::new(State {
                records: Vec::new(),
                first_ticket: 1,
                next_ticket: 1,
                callbacks: Vec::new(),
                committed: BTreeMap::new(),
                phase: Phase::Open,
                sleep: Sleep::Awake,
            }),
            wake: Condvar::new(),
            room: Condvar::new(),
            bytes_max,
        }
    }

    /// Waits while the queue is over its bound. To be called without any lock.
    pub(crate) fn wait_for_room(&self) -> Result<(), Error> {
        let mut state = self.state.lock();
        while state.records.len() >= self.bytes_max && matches!(state.phase, Phase::Open) {
            self.room.wait(&mut state);
        }
        check(&state)
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

    /// For the writer: the next batch, which reuses `spare`. Returns `None` when the queue has ended.
    pub(crate) fn take(&self, spare: Vec<u8>, sealed: bool, idle: Duration) -> Option<(Batch, Then)> {
        let mut state = self.state.lock();
        let then = loop {
            match state.phase {
                Phase::Ended(_) => return None,
                Phase::Closing => break Then::Close,
                Phase::Open => {}
            }
            if state.has_work() {
                break Then::Continue;
            }
            if sealed && state.committed.is_empty() {
                state.sleep = Sleep::Asleep;
                self.wake.wait(&mut state);
            } else {
                state.sleep = Sleep::Dozing;
                if self.wake.wait_for(&mut state, idle).timed_out() && !state.has_work() {
                    break Then::Seal;
                }
            }
        };
        state.sleep = Sleep::Awake;
        for (group, upto) in std::mem::take(&mut state.committed) {
            record::encode(group, &Body::Committed { upto }, &mut state.records);
            state.next_ticket += 1;
        }
        let batch = Batch {
            records: std::mem::replace(&mut state.records, spare),
            first_ticket: state.first_ticket,
            callbacks: std::mem::take(&mut state.callbacks),
        };
        state.first_ticket = state.next_ticket;
        self.room.notify_all();
        Some((batch, then))
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
        record::encode(group, body, &mut self.state.records);
        let ticket = self.state.next_ticket;
        self.state.next_ticket += 1;
        ticket
    }

    /// Ends with somebody who waits for all of it.
    pub(crate) fn wait_with(mut self, callback: Callback) {
        let end = self.state.records.len();
        self.state.callbacks.push((end, callback));
        self.wake(Sleep::Dozing);
    }

    /// Ends with nobody waiting; the writer is woken all the same.
    pub(crate) fn go(mut self) {
        self.wake(Sleep::Dozing);
    }

    /// Notes a committed id that goes with the next batch.
    pub(crate) fn committed(mut self, group: GroupId, upto: LogId) {
        self.state.committed.insert(group, upto);
        self.wake(Sleep::Asleep);
    }

    pub(crate) fn forget_committed(&mut self, group: GroupId) {
        self.state.committed.remove(&group);
    }

    fn wake(&mut self, wakes: Sleep) {
        let asleep = match self.state.sleep {
            Sleep::Awake => false,
            Sleep::Dozing => wakes == Sleep::Dozing,
            Sleep::Asleep => true,
        };
        if asleep {
            self.state.sleep = Sleep::Awake;
            self.queue.wake.notify_one();
        }
    }
}
