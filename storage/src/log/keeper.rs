//! The helper thread: makes segments ahead, takes back free ones, copies what slow groups pin, watches the disk's room.
//!
//! Invariants:
//! - Segments are freed from the oldest on, one at a time, each rename made durable before anything else is done to the
//!   file: the numbers on disk are contiguous after any crash.
//! - A freed file gets a new header only under its `.free` name.
//! - No room is not an error: new entries are refused while there is room for all that was accepted, and making the
//!   segment is tried again.
//! - Below the low water a segment is made of new room only if what was accepted needs it.
//! - The keeper never waits for the writer.
//!
//! Not here: which segments are free (`writer`).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::index::{Place, Slot};
use super::queue::Queue;
use super::read::Reader;
use super::record::Body;
use super::segment::{self, Header, Name, Segment};
use super::shared::{Counters, Shared};
use super::{Error, GroupId};
use crate::cut;

/// Free files kept for use.
const FREE_MAX: usize = 2;
/// Bytes copied in one go, so that making segments never waits long.
const COPY_BYTES_MAX: usize = 1 << 20;
/// Copying pauses while the writer has this much to do.
const COPY_QUEUE_BYTES_MAX: usize = 4 << 20;
/// And looks again after this time.
const COPY_PAUSE: Duration = Duration::from_millis(5);

/// What the writer and the keeper tell each other.
pub(crate) struct Keeper {
    state: Mutex<State>,
    work: Condvar,
    ready: Condvar,
}

struct State {
    ready: VecDeque<Arc<Segment>>,
    free: Vec<u64>,
    next: u64,
    /// The segment that is being written.
    current: u64,
    /// Segments below are to be freed.
    release: u64,
    /// The oldest segment that is there.
    oldest: u64,
    /// Segments up to this one were copied.
    copied: u64,
    /// The writer went on to another segment: somebody may pin too many.
    look_for_pins: bool,
    full: bool,
    /// The freed file at hand was tried in vain.
    free_tried: bool,
    /// The writer waits for a segment.
    wanted: bool,
    /// Making one has just failed for want of room: the next try waits.
    in_vain: bool,
    /// Freeing was refused for want of room, and waits for the next try.
    release_paused: bool,
    stopped: Option<Error>,
    stopping: bool,
}

impl State {
    fn has_untried_file(&self) -> bool {
        !self.free.is_empty() && !self.free_tried
    }

    fn set_full(&mut self, full: bool, queue: &Queue) {
        if self.full != full {
            self.full = full;
            queue.set_full(full);
            if full {
                tracing::warn!("the disk is nearly full, new entries are refused");
            } else {
                tracing::info!("there is room on the disk again");
            }
        }
    }
}

/// What the writer gets when it asks for the next segment.
pub(crate) enum Take {
    Ready(Arc<Segment>),
    /// There is no room; ask again.
    Full,
    Stopped(Error),
}

enum Job {
    Stop,
    Release(u64),
    Make { number: u64, freed: Option<u64> },
    FindPins { oldest: u64, current: u64, copied: u64 },
    LookAtRoom,
}

impl Keeper {
    /// `segments` are the numbers on disk, the log ends in `current`, `ready` come after it.
    pub(crate) fn new(oldest: u64, current: u64, ready: Vec<Arc<Segment>>) -> Keeper {
        let next = ready.last().map_or(current, |segment| segment.number) + 1;
        Keeper {
            state: Mutex::new(State {
                ready: ready.into(),
                free: Vec::new(),
                next,
                current,
                release: oldest,
                oldest,
                copied: oldest.saturating_sub(1),
                look_for_pins: false,
                full: false,
                free_tried: false,
                wanted: false,
                in_vain: false,
                release_paused: false,
                stopped: None,
                stopping: false,
            }),
            work: Condvar::new(),
            ready: Condvar::new(),
        }
    }

    /// Segments made ahead.
    pub(crate) fn ready_segments(&self) -> usize {
        self.state.lock().ready.len()
    }

    /// Segments below this one are no longer needed.
    pub(crate) fn release(&self, below: u64) {
        let mut state = self.state.lock();
        if below > state.release {
            state.release = below;
            self.work.notify_all();
        }
    }

    /// The segment after `current`, waiting for it while the keeper can make it.
    pub(crate) fn take_ready(&self, current: u64) -> Take {
        let mut state = self.state.lock();
        loop {
            if let Some(error) = &state.stopped {
                return Take::Stopped(error.clone());
            }
            if let Some(segment) = state.ready.pop_front() {
                debug_assert_eq!(segment.number, current + 1);
                state.current = segment.number;
                state.look_for_pins = true;
                self.work.notify_all();
                return Take::Ready(segment);
            }
            state.wanted = true;
            self.work.notify_all();
            self.ready.wait(&mut state);
            if state.full && state.ready.is_empty() && state.stopped.is_none() {
                return Take::Full;
            }
        }
    }

    /// Notes whether there is room for more.
    pub(crate) fn set_full(&self, full: bool, queue: &Queue) {
        self.state.lock().set_full(full, queue);
    }

    /// Ends the thread; the writer hears the error.
    pub(crate) fn stop(&self, error: Option<Error>) {
        let mut state = self.state.lock();
        if state.stopped.is_none() {
            state.stopped = error;
        }
        state.stopping = true;
        self.work.notify_all();
        self.ready.notify_all();
    }

    /// Wakes a writer that waits for room, so that it sees that the log is being closed.
    pub(crate) fn nudge(&self) {
        let _state = self.state.lock();
        self.ready.notify_all();
        self.work.notify_all();
    }
}

/// The thread.
pub(crate) struct KeeperThread {
    shared: Arc<Shared>,
    copies: VecDeque<Copy>,
}

struct Copy {
    group: GroupId,
    index: u64,
    place: Place,
}

impl KeeperThread {
    pub(crate) fn new(shared: Arc<Shared>) -> KeeperThread {
        KeeperThread { shared, copies: VecDeque::new() }
    }

    /// Runs until the log is closed or has failed.
    pub(crate) fn run(mut self) {
        loop {
            let done = match self.next() {
                Job::Stop => return,
                Job::Release(number) => self.free(number),
                Job::Make { number, freed } => self.make(number, freed),
                Job::FindPins { oldest, current, copied } => {
                    self.find_pins(oldest, current, copied);
                    Ok(())
                }
                Job::LookAtRoom => self.look_at_room(),
            }
            .and_then(|()| self.copy());
            match done {
                Ok(()) => {}
                // The log was closed under us.
                Err(Error::Closed) => {}
                Err(error) => {
                    self.shared.fail(error);
                    return;
                }
            }
        }
    }

    fn next(&self) -> Job {
        let options = &self.shared.options;
        let keeper = &self.shared.keeper;
        let mut state = keeper.state.lock();
        let mut waited = false;
        loop {
            if state.stopping {
                return Job::Stop;
            }
            if state.oldest < state.release && (!state.release_paused || waited) {
                return Job::Release(state.oldest);
            }
            if state.ready.len() < options.ready_segments
                && (!state.full || waited || state.has_untried_file() || (state.wanted && !state.in_vain))
            {
                return Job::Make { number: state.next, freed: state.free.last().copied() };
            }
            if state.look_for_pins && !state.full {
                state.look_for_pins = false;
                return Job::FindPins { oldest: state.oldest, current: state.current, copied: state.copied };
            }
            if waited {
                return Job::LookAtRoom;
            }
            let pause = if self.copies.is_empty() { options.retry_after } else { COPY_PAUSE };
            let watches =
                state.full || state.release_paused || !self.copies.is_empty() || options.low_water.is_some();
            if watches {
                waited = keeper.work.wait_for(&mut state, pause).timed_out();
            } else {
                keeper.work.wait(&mut state);
            }
        }
    }

    fn make(&self, number: u64, freed: Option<u64>) -> Result<(), Error> {
        let shared = &*self.shared;
        let header = Header {
            identity: shared.identity,
            segment: number,
            bytes: shared.options.segment_bytes,
            recycled: freed.is_some(),
        };
        let keeper = &shared.keeper;
        let spare = freed.is_none() && !keeper.state.lock().wanted && !shared.queue.lacks_room();
        if spare && !shared.has_room(header.bytes)? {
            keeper.set_full(true, &shared.queue);
            return Ok(());
        }
        let made = match freed {
            Some(freed) => segment::recycle(&*shared.files, freed, &header),
            None => segment::create(&*shared.files, &header),
        };
        match made {
            Ok(segment) => {
                let segment = Arc::new(segment);
                shared.segments.write().insert(number, segment.clone());
                let low = !self.shared.has_room(0)?;
                let mut state = keeper.state.lock();
                if let Some(freed) = freed {
                    state.free.retain(|number| *number != freed);
                    Counters::add(&shared.counters.recycled, 1);
                }
                state.next = number + 1;
                state.wanted = false;
                state.in_vain = false;
                state.ready.push_back(segment);
                shared.queue.made_ready();
                state.set_full(low, &shared.queue);
                keeper.ready.notify_all();
                Ok(())
            }
            Err(error) if error.is_storage_full() => {
                let mut state = keeper.state.lock();
                state.free_tried = freed.is_some();
                state.in_vain = true;
                state.set_full(true, &shared.queue);
                keeper.ready.notify_all();
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn look_at_room(&self) -> Result<(), Error> {
        if self.shared.options.low_water.is_none() {
            return Ok(());
        }
        let low = !self.shared.has_room(0)?;
        let mut state = self.shared.keeper.state.lock();
        let full = low || state.ready.len() < self.shared.options.ready_segments;
        state.set_full(full, &self.shared.queue);
        Ok(())
    }

    fn free(&self, number: u64) -> Result<(), Error> {
        let shared = &*self.shared;
        // Gone from the map only when gone from the directory is settled; readers of dead entries have no business here.
        let bytes = shared.segments.read().get(&number).map(|segment| segment.bytes);
        let keep =
            bytes == Some(shared.options.segment_bytes) && shared.keeper.state.lock().free.len() < FREE_MAX;
        let name = Name::Segment(number).to_string();
        let gone = if keep {
            shared
                .files
                .rename(&name, &Name::Free(number).to_string())
                .map_err(Error::io("rename freed segment"))
        } else {
            shared.files.remove(&name).map_err(Error::io("remove freed segment"))
        };
        match gone {
            Ok(()) => {}
            Err(error) if error.is_storage_full() => {
                shared.keeper.state.lock().release_paused = true;
                return Ok(());
            }
            Err(error) => return Err(error),
        }
        cut::point("segment.freed");
        segment::sync_dir(&*shared.files)?;
        shared.segments.write().remove(&number);
        let mut state = shared.keeper.state.lock();
        state.release_paused = false;
        state.free_tried = false;
        state.oldest = number + 1;
        if keep {
            state.free.push(number);
        }
        Ok(())
    }

    /// Looks for segments that are pinned by little.
    fn find_pins(&mut self, oldest: u64, current: u64, copied: u64) {
        let shared = self.shared.clone();
        let groups: Vec<_> = shared.groups.read().iter().map(|(id, group)| (*id, group.clone())).collect();
        let live: u64 = groups
            .iter()
            .map(|(_, group)| group.lock().index.pinned().values().map(|pin| pin.bytes).sum::<u64>())
            .sum();
        let allowed = shared.options.pinned_segments_max + live.div_ceil(shared.options.segment_bytes);
        let end = current.saturating_sub(allowed);
        for number in oldest.max(copied + 1)..end {
            for (group, state) in &groups {
                let entries = state.lock().index.in_segment(number);
                let copies = entries.into_iter().map(|(index, place)| Copy { group: *group, index, place });
                self.copies.extend(copies);
            }
        }
        let mut state = shared.keeper.state.lock();
        state.copied = state.copied.max(end.saturating_sub(1));
    }

    /// Copies some of the pinned entries to the end of the log.
    fn copy(&mut self) -> Result<(), Error> {
        if self.copies.is_empty()
            || self.shared.queue.is_full()
            || self.shared.queue.bytes() > COPY_QUEUE_BYTES_MAX
        {
            return Ok(());
        }
        let mut reader = Reader::default();
        let mut bytes = 0;
        while bytes < COPY_BYTES_MAX
            && let Some(Copy { group: id, index, place }) = self.copies.pop_front()
        {
            let Some(group) = self.shared.find_group(id) else { continue };
            let Some(segment) = self.shared.segments.read().get(&place.segment).cloned() else { continue };
            let read = reader.entry(&segment, place, id, index);
            let group = group.lock();
            if group.dropped || group.index.find(index) != Some(Slot::Written(place)) {
                continue;
            }
            let entry = read?;
            let mut push = self.shared.queue.push()?;
            push.record(id, &Body::Rewrite { id: entry.id, kind: entry.kind, payload: &entry.payload });
            push.go();
            bytes += entry.payload.len();
            Counters::add(&self.shared.counters.rewritten, 1);
        }
        Ok(())
    }
}
