//! The life of an open log: from a directory to threads, and back.
//!
//! Invariants:
//! - Until the scan of the whole log has been found good, nothing on disk is changed.
//! - The directory's lock is taken first and given back last, once.
//!
//! Not here: what the scan believes (`recover`).

use std::any::Any;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::thread::{self, JoinHandle};

use hashbrown::HashMap;
use parking_lot::{Mutex, RwLock};

use super::files::Files;
use super::group::Group;
use super::index::{Index, Slot};
use super::keeper::{Keeper, KeeperThread};
use super::meta::Metas;
#[cfg(any(test, feature = "faults"))]
use super::options::Plant;
use super::queue::Queue;
use super::read::Reader;
use super::recover::{self, Belief, Scan, Tail};
use super::segment::{self, DATA, Header, Name, Segment};
use super::shared::{Counters, Shared};
use super::writer::Writer;
use super::{Error, GroupId, GroupState, Identity, Log, LogId, Options, Recovered};

/// Opens the log in `files`, or begins one.
pub(super) fn open(
    files: Arc<dyn Files>,
    options: Options,
    identity: Identity,
) -> Result<(Log, Recovered), Error> {
    options.check()?;
    let lock = lock(&*files)?;
    let (numbers, leftovers) = list(&*files)?;
    let created = numbers.is_empty();
    if created && options.must_exist {
        return Err(Error::Missing);
    }
    #[cfg(any(test, feature = "faults"))]
    let belief = if options.plant == Plant::BelieveAnyTail { Belief::AnyDamage } else { Belief::Torn };
    #[cfg(not(any(test, feature = "faults")))]
    let belief = Belief::Torn;
    let scan = if created { None } else { Some(recover::scan(&*files, &identity, &numbers, belief)?) };
    for name in leftovers {
        files.remove(&name.to_string()).map_err(Error::io("remove leftover segment"))?;
    }
    let scan = match scan {
        Some(scan) => {
            recover::cut(&scan.segments, &scan.tail)?;
            scan
        }
        None => begin(&*files, &options, identity)?,
    };
    start(files, options, identity, scan, created, lock)
}

/// Reads the whole log as opening does, and changes nothing.
pub(super) fn inspect(files: &dyn Files, identity: &Identity) -> Result<Recovered, Error> {
    let _lock = lock(files)?;
    let (numbers, _) = list(files)?;
    if numbers.is_empty() {
        return Err(Error::Missing);
    }
    let scan = recover::scan(files, identity, &numbers, Belief::Torn)?;
    Ok(recover_groups(scan, false)?.recovered)
}

fn lock(files: &dyn Files) -> Result<Box<dyn Any + Send>, Error> {
    files.lock().map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => Error::Locked { holder: files.lock_holder() },
        _ => Error::io("lock log directory")(error),
    })
}

/// A scan made into what a running log needs.
struct Opened {
    recovered: Recovered,
    groups: HashMap<GroupId, Arc<Mutex<Group>>>,
    segments: BTreeMap<u64, Arc<Segment>>,
    metas: Metas,
    tail: Tail,
}

fn recover_groups(scan: Scan, created: bool) -> Result<Opened, Error> {
    let Scan { metas, mut indexes, segments, tail, sealed, records } = scan;
    let mut recovered =
        Recovered { created, records, sealed, segments: segments.len() as u64, ..Recovered::default() };
    recovered.torn = (!tail.zero.is_empty()).then_some((tail.segment, tail.offset));
    let segments: BTreeMap<u64, Arc<Segment>> =
        segments.into_iter().map(|segment| (segment.number, segment)).collect();
    let mut groups = HashMap::new();
    let mut reader = Reader::default();
    for (id, meta) in &metas {
        let index = indexes.remove(id).unwrap_or_default();
        let last = last_id(&mut reader, &segments, *id, &index)?;
        let group = Group::new(meta.clone(), index, last);
        recovered.groups.insert(*id, state_of(&group));
        groups.insert(*id, Arc::new(Mutex::new(group)));
    }
    Ok(Opened { recovered, groups, segments, metas, tail })
}

fn start(
    files: Arc<dyn Files>,
    options: Options,
    identity: Identity,
    scan: Scan,
    created: bool,
    lock: Box<dyn Any + Send>,
) -> Result<(Log, Recovered), Error> {
    let Opened { recovered, groups, segments, metas, tail } = recover_groups(scan, created)?;
    let current = segments.get(&tail.segment).expect("the log ends in a segment that was scanned").clone();
    let ready = segments.range(tail.segment + 1..).map(|(_, segment)| segment.clone()).collect();
    let oldest = *segments.keys().next().expect("a log has at least one segment");
    let shared = Arc::new(Shared {
        queue: Queue::new(options.queue_bytes_max, options.segment_bytes),
        options,
        identity,
        files,
        groups: RwLock::new(groups),
        segments: RwLock::new(segments),
        keeper: Keeper::new(oldest, tail.segment, ready),
        counters: Counters::default(),
        cache_bytes: AtomicUsize::new(0),
    });
    let mut writer = Writer::new(shared.clone(), current, &tail, metas, recovered.sealed || created);
    writer.resume(&tail)?;
    shared.queue.written(0, writer.room());
    for _ in 0..shared.keeper.ready_segments() {
        shared.queue.made_ready();
    }
    // Whatever fails from here on, dropping the handle ends what was started.
    let threads = Threads { lock: Some(lock), ..Threads::default() };
    let writer = Arc::new(Mutex::new(writer));
    let handle =
        Arc::new(Handle { shared: shared.clone(), writer: writer.clone(), threads: Mutex::new(threads) });
    let keeper = KeeperThread::new(shared.clone());
    let of_thread = shared.clone();
    let writer = spawn(&shared, "log writer", move || Writer::run(&writer, &of_thread))?;
    handle.threads.lock().writer = Some(writer);
    let keeper = spawn(&shared, "log keeper", move || keeper.run())?;
    handle.threads.lock().keeper = Some(keeper);
    Ok((Log { handle }, recovered))
}

thread_local! {
    /// Whether this thread is inside [`Handle::drive`].
    static DRIVES: Cell<bool> = const { Cell::new(false) };
}

/// What all clones of a log share.
pub(super) struct Handle {
    pub(super) shared: Arc<Shared>,
    writer: Arc<Mutex<Writer>>,
    threads: Mutex<Threads>,
}

#[derive(Default)]
struct Threads {
    writer: Option<JoinHandle<()>>,
    keeper: Option<JoinHandle<()>>,
    lock: Option<Box<dyn Any + Send>>,
}

impl Handle {
    /// Writes what waits, on this thread.
    pub(super) fn drive(&self) {
        DRIVES.set(true);
        guarded(&self.shared, "log driver", || match self.writer.try_lock() {
            Some(mut writer) => writer.drive(),
            // The log's own thread is at work, and may wait for room. It comes back to what is here.
            None => self.shared.queue.call_thread(),
        });
        DRIVES.set(false);
    }

    pub(super) fn close(&self) {
        let mut threads = self.threads.lock();
        self.shared.queue.close();
        self.shared.keeper.nudge();
        let writer = threads.writer.take();
        // The thread would wait for the writer that a callback of this thread has.
        if !DRIVES.get() {
            join(writer);
        }
        self.shared.keeper.stop(Some(Error::Closed));
        join(threads.keeper.take());
        threads.lock = None;
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.close();
    }
}

/// Waits for a thread, unless it is this one: a callback may hold the last handle.
fn join(thread: Option<JoinHandle<()>>) {
    if let Some(thread) = thread
        && thread.thread().id() != thread::current().id()
    {
        // A panic of the thread was reported by the thread.
        let _ = thread.join();
    }
}

fn spawn(
    shared: &Arc<Shared>,
    name: &'static str,
    run: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, Error> {
    let shared = shared.clone();
    let run = move || guarded(&shared, name, run);
    thread::Builder::new().name(name.to_owned()).spawn(run).map_err(Error::io("start thread"))
}

/// Runs what a panic of fails the log.
fn guarded(shared: &Shared, thread: &'static str, run: impl FnOnce()) {
    if std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err() {
        shared.fail(Error::Panicked { thread });
    }
}

/// What callers may know of a group.
pub(super) fn state_of(group: &Group) -> GroupState {
    let meta = &group.meta;
    GroupState {
        vote: meta.vote.clone(),
        last_purged: meta.purged,
        last: group.last_id(),
        first_index: meta.floor,
        committed: meta.committed,
        durable_applied: meta.applied,
        snapshot: meta.snapshot.clone(),
        membership: meta.membership.clone(),
    }
}

/// The segments of a directory in order, and the files of ours that hold nothing.
fn list(files: &dyn Files) -> Result<(Vec<u64>, Vec<Name>), Error> {
    let mut numbers = Vec::new();
    let mut leftovers = Vec::new();
    for name in files.list().map_err(Error::io("list log directory"))? {
        match Name::parse(&name) {
            Some(Name::Segment(number)) => numbers.push(number),
            Some(name) => leftovers.push(name),
            None => {}
        }
    }
    numbers.sort_unstable();
    Ok((numbers, leftovers))
}

/// The first segment of a new log.
fn begin(files: &dyn Files, options: &Options, identity: Identity) -> Result<Scan, Error> {
    let bytes = options.first_segment_bytes.min(options.segment_bytes);
    let header = Header { identity, segment: 1, bytes, recycled: false };
    let segment = Arc::new(segment::create(files, &header)?);
    let tail =
        Tail { segment: 1, offset: DATA, sync_group: 0, lsn: 0, torn_sync_group: None, zero: Vec::new() };
    Ok(Scan {
        metas: BTreeMap::new(),
        indexes: BTreeMap::new(),
        segments: vec![segment],
        tail,
        sealed: true,
        records: 0,
    })
}

/// The id of a group's last entry, read from its record.
fn last_id(
    reader: &mut Reader,
    segments: &BTreeMap<u64, Arc<Segment>>,
    group: GroupId,
    index: &Index,
) -> Result<Option<LogId>, Error> {
    if index.is_empty() {
        return Ok(None);
    }
    let last = index.end() - 1;
    let Some(Slot::Written(place)) = index.find(last) else { return Ok(None) };
    let segment = segments.get(&place.segment).expect("places come from scanned segments");
    Ok(Some(reader.entry(segment, place, group, last)?.id))
}
