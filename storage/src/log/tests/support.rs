//! A small log on simulated files, and short names for what tests do all the time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use bytes::Bytes;

use super::super::files::sim::Sim;
use super::super::{
    Callback, Entry, Error, GroupId, GroupInit, Identity, Log, LogId, Options, Plant, Priority, Recovered,
};

pub(super) const G: GroupId = GroupId(1);
pub(super) const H: GroupId = GroupId(2);

/// Longer than anything here takes, and never waited for in a test that passes.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) fn identity() -> Identity {
    Identity { cluster: 0xC1, node: 7, incarnation: 0x1234_5678_9ABC_DEF0_0FED_CBA9_8765_4321 }
}

/// Segments of 16 KiB, no idle seal, and a fatal hook that only counts.
pub(super) fn options() -> Options {
    Options {
        segment_bytes: 16 << 10,
        first_segment_bytes: 8 << 10,
        batch_bytes_max: 4 << 10,
        seal_after: Duration::from_secs(3600),
        retry_after: Duration::from_millis(1),
        priority: Priority::Normal,
        ..Options::default()
    }
}

pub(super) fn planted(plant: Plant) -> Options {
    Options { plant, ..options() }
}

/// Options whose fatal hook counts its calls.
pub(super) fn counting(options: Options) -> (Options, Arc<AtomicU64>) {
    let count = Arc::new(AtomicU64::new(0));
    let counter = count.clone();
    let on_fatal = Arc::new(move |_: &Error| {
        counter.fetch_add(1, Ordering::SeqCst);
    });
    (Options { on_fatal, ..options }, count)
}

pub(super) fn try_open(sim: &Sim, options: Options) -> Result<(Log, Recovered), Error> {
    Log::open_files(Arc::new(sim.clone()), options, identity())
}

pub(super) fn open(sim: &Sim) -> (Log, Recovered) {
    try_open(sim, options()).expect("the log opens")
}

pub(super) fn id(index: u64) -> LogId {
    LogId { term: 3, node: 7, index }
}

pub(super) fn entry(index: u64, bytes: usize) -> Entry {
    let payload: Vec<u8> =
        (0..bytes).map(|at| (index as u8).wrapping_mul(31).wrapping_add(at as u8)).collect();
    Entry { id: id(index), kind: 1, payload: Bytes::from(payload) }
}

pub(super) fn entries(range: std::ops::Range<u64>, bytes: usize) -> Vec<Entry> {
    range.map(|index| entry(index, bytes)).collect()
}

/// A callback and where its answer arrives.
pub(super) fn answer() -> (Callback, Receiver<Result<(), Error>>) {
    let (sender, receiver) = mpsc::channel();
    // A test that does not look at the answer has dropped the receiver.
    (Box::new(move |result| drop(sender.send(result))), receiver)
}

pub(super) fn heard(receiver: &Receiver<Result<(), Error>>) -> Result<(), Error> {
    receiver.recv_timeout(PATIENCE).expect("every callback runs")
}

/// Calls and waits until it is durable.
pub(super) fn durable(call: impl FnOnce(Callback) -> Result<(), Error>) {
    try_durable(call).expect("durable");
}

pub(super) fn try_durable(call: impl FnOnce(Callback) -> Result<(), Error>) -> Result<(), Error> {
    let (callback, receiver) = answer();
    call(callback)?;
    heard(&receiver)
}

pub(super) fn create(log: &Log, group: GroupId) {
    durable(|callback| log.create_group(group, GroupInit::default(), callback));
}

pub(super) fn append(log: &Log, group: GroupId, range: std::ops::Range<u64>, bytes: usize) {
    durable(|callback| log.append(group, entries(range, bytes), callback));
}

/// Waits, without sleeping, for something another thread brings about.
#[expect(clippy::disallowed_methods, reason = "only bounds how long a failing test takes")]
pub(super) fn eventually(what: &str, condition: impl Fn() -> bool) {
    let start = std::time::Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "{what} did not come about");
        std::thread::yield_now();
    }
}

/// The name of a segment's file.
pub(super) fn file(segment: u64) -> String {
    format!("{segment:016x}.log")
}

/// Waits until the keeper has made what it makes ahead: from then on only the writer writes and syncs.
pub(super) fn quiet(log: &Log) {
    eventually("a segment ahead", || log.stats().ready_segments > 0);
}

/// Lets syncs wait from now on, those of the writer.
pub(super) fn hold(sim: &Sim, log: &Log) {
    quiet(log);
    sim.hold_syncs();
}

/// A thread that writes what is little of a log, as a node's thread of consensus does, until it is dropped.
pub(super) struct Driver {
    log: Log,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Driver {
    pub(super) fn start(log: &Log) -> Driver {
        let (call, calls) = mpsc::channel();
        // The receiver goes with the thread, which goes when there is no caller.
        log.set_driver(Some(Arc::new(move || {
            let _ = call.send(());
        })));
        let driven = log.clone();
        let drive = move || calls.into_iter().for_each(|()| driven.drive());
        let thread = std::thread::Builder::new().name("driver".to_owned()).spawn(drive);
        Driver { log: log.clone(), thread: Some(thread.expect("a thread starts")) }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.log.set_driver(None);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the driver ends well");
        }
    }
}
