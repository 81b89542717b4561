//! How fast the log is, as ratios to what the disk can do in the same run.
//!
//! Three loops take turns on one directory: an append of 512 bytes with a sync (`append`), a write of one log batch's
//! size into a zero-filled file with a sync (`zeroed`), and writers through the real log. Medians over the turns.

use std::fs;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};

use super::{Entry, Error, GroupId, GroupInit, Identity, Log, LogId, Options, Priority};

/// What to measure.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Appends in flight, one entry each.
    pub writers: usize,
    /// Groups they are spread over.
    pub groups: u32,
    /// Bytes of an entry.
    pub payload_bytes: usize,
    /// Turns.
    pub turns: usize,
    /// Length of each loop in a turn.
    pub slice: Duration,
    /// Scheduling of the log's writer. The raw loops run with that of the caller.
    pub priority: Priority,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            writers: 64,
            groups: 8,
            payload_bytes: 256,
            turns: 5,
            slice: Duration::from_millis(400),
            priority: Priority::Normal,
        }
    }
}

/// Medians over the turns.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Report {
    /// Appends of 512 bytes with a sync, per second.
    pub raw_appends_per_sec: f64,
    /// Writes of a batch into a zero-filled file with a sync, per second.
    pub raw_zeroed_per_sec: f64,
    /// Entries acknowledged by the log, per second.
    pub entries_per_sec: f64,
    /// Syncs of the log, per second.
    pub syncs_per_sec: f64,
    /// Log syncs ÷ raw zero-filled writes, of the same turn.
    pub syncs_to_zeroed: f64,
    /// Entries ÷ raw appends, of the same turn.
    pub entries_to_appends: f64,
    /// Entries per sync.
    pub entries_per_sync: f64,
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "entries/s {:.0} · syncs/s {:.0} · entries/sync {:.1} · raw append {:.0}/s · raw zeroed {:.0}/s · \
             syncs ÷ zeroed {:.2} · entries ÷ append {:.2}",
            self.entries_per_sec,
            self.syncs_per_sec,
            self.entries_per_sync,
            self.raw_appends_per_sec,
            self.raw_zeroed_per_sec,
            self.syncs_to_zeroed,
            self.entries_to_appends,
        )
    }
}

/// Runs the bench in a directory, which it leaves empty.
pub fn run(directory: &Path, settings: &Settings) -> Result<Report, Error> {
    let raw = |error: io::Error| Error::io("bench file")(error);
    fs::create_dir_all(directory).map_err(raw)?;
    let append_path = directory.join("bench.append");
    let zeroed_path = directory.join("bench.zeroed");
    let log_path = directory.join("bench.log");
    let append = fs::File::create(&append_path).map_err(raw)?;
    let zeroed = fs::File::create(&zeroed_path).map_err(raw)?;
    let zeroed_bytes = 64 << 20;
    let zeros = vec![0; 1 << 20];
    for offset in (0..zeroed_bytes).step_by(zeros.len()) {
        zeroed.write_all_at(&zeros, offset as u64).map_err(raw)?;
    }
    zeroed.sync_all().map_err(raw)?;

    let identity = Identity { cluster: 1, node: 1, incarnation: 1 };
    let options = Options { priority: settings.priority, ..Options::default() };
    let (log, _) = Log::open(&log_path, options, identity)?;
    for group in 0..settings.groups {
        log.create_group(GroupId(group), GroupInit::default(), Box::new(|_| {}))?;
    }
    let mut writers = Writers::new(log.clone(), settings);
    // Past the small first segment, and until the next one is ready.
    writers.run(settings.slice)?;

    let mut turns = Vec::new();
    let mut append_at = 0;
    let mut batch_bytes = settings.writers * (settings.payload_bytes + 72);
    for _ in 0..settings.turns {
        let appends = per_sec(settings.slice, || {
            append.write_all_at(&[7; 512], append_at)?;
            append_at += 512;
            append.sync_data()
        })
        .map_err(raw)?;
        let batch = vec![7; batch_bytes];
        let mut zeroed_at = 0;
        let zeroed = per_sec(settings.slice, || {
            if zeroed_at + batch.len() > zeroed_bytes {
                zeroed_at = 0;
            }
            zeroed.write_all_at(&batch, zeroed_at as u64)?;
            zeroed_at += batch.len();
            zeroed.sync_data()
        })
        .map_err(raw)?;
        let before = log.stats();
        let (entries, took) = writers.run(settings.slice)?;
        let after = log.stats();
        let syncs = (after.syncs - before.syncs).max(1);
        batch_bytes = ((after.bytes - before.bytes) / syncs) as usize;
        let (entries, syncs) = (entries as f64 / took.as_secs_f64(), syncs as f64 / took.as_secs_f64());
        turns.push(Report {
            raw_appends_per_sec: appends,
            raw_zeroed_per_sec: zeroed,
            entries_per_sec: entries,
            syncs_per_sec: syncs,
            syncs_to_zeroed: syncs / zeroed,
            entries_to_appends: entries / appends,
            entries_per_sync: entries / syncs,
        });
    }
    log.close();
    fs::remove_file(append_path).map_err(raw)?;
    fs::remove_file(zeroed_path).map_err(raw)?;
    fs::remove_dir_all(log_path).map_err(raw)?;
    Ok(Report {
        raw_appends_per_sec: median(&turns, |turn| turn.raw_appends_per_sec),
        raw_zeroed_per_sec: median(&turns, |turn| turn.raw_zeroed_per_sec),
        entries_per_sec: median(&turns, |turn| turn.entries_per_sec),
        syncs_per_sec: median(&turns, |turn| turn.syncs_per_sec),
        syncs_to_zeroed: median(&turns, |turn| turn.syncs_to_zeroed),
        entries_to_appends: median(&turns, |turn| turn.entries_to_appends),
        entries_per_sync: median(&turns, |turn| turn.entries_per_sync),
    })
}

/// Writers that each have one append in flight, driven by one thread that wakes once per batch.
struct Writers {
    log: Log,
    next: Vec<u64>,
    writers: usize,
    payload: Bytes,
    turn: u32,
}

#[derive(Default)]
struct Done {
    count: usize,
    error: Option<Error>,
}

impl Writers {
    fn new(log: Log, settings: &Settings) -> Writers {
        Writers {
            log,
            next: vec![0; settings.groups.max(1) as usize],
            writers: settings.writers,
            payload: Bytes::from(vec![7; settings.payload_bytes]),
            turn: 0,
        }
    }

    /// Entries acknowledged, and the time it took.
    #[expect(clippy::disallowed_methods, reason = "a bench measures real time")]
    fn run(&mut self, slice: Duration) -> Result<(usize, Duration), Error> {
        let done = Arc::new((Mutex::new(Done::default()), Condvar::new()));
        let start = Instant::now();
        let mut idle = self.writers;
        let mut acknowledged = 0;
        loop {
            let stop = start.elapsed() >= slice;
            if !stop {
                for _ in 0..std::mem::take(&mut idle) {
                    self.append(&done)?;
                }
            }
            if idle == self.writers {
                break;
            }
            let mut state = done.0.lock();
            while state.count == 0 && state.error.is_none() {
                done.1.wait(&mut state);
            }
            if let Some(error) = state.error.take() {
                return Err(error);
            }
            let count = std::mem::take(&mut state.count);
            idle += count;
            acknowledged += count;
        }
        let took = start.elapsed();
        // Old entries go, so that segments are recycled as in a running server.
        for (group, next) in self.next.iter().enumerate() {
            if let Some(index) = next.checked_sub(1) {
                let upto = LogId { term: 1, node: 1, index };
                self.log.purge_upto(GroupId(group as u32), upto, Box::new(|_| {}))?;
            }
        }
        Ok((acknowledged, took))
    }

    fn append(&mut self, done: &Arc<(Mutex<Done>, Condvar)>) -> Result<(), Error> {
        let group = self.turn % self.next.len() as u32;
        self.turn = self.turn.wrapping_add(1);
        let next = &mut self.next[group as usize];
        let entry =
            Entry { id: LogId { term: 1, node: 1, index: *next }, kind: 0, payload: self.payload.clone() };
        *next += 1;
        let done = done.clone();
        let callback = Box::new(move |result: Result<(), Error>| {
            let mut state = done.0.lock();
            state.count += 1;
            if let Err(error) = result {
                state.error = Some(error);
            }
            if state.count == 1 {
                done.1.notify_one();
            }
        });
        self.log.append(GroupId(group), vec![entry], callback)
    }
}

#[expect(clippy::disallowed_methods, reason = "a bench measures real time")]
fn per_sec(slice: Duration, mut step: impl FnMut() -> io::Result<()>) -> io::Result<f64> {
    let start = Instant::now();
    let mut count = 0;
    while start.elapsed() < slice {
        step()?;
        count += 1;
    }
    Ok(f64::from(count) / start.elapsed().as_secs_f64())
}

fn median(turns: &[Report], value: impl Fn(&Report) -> f64) -> f64 {
    let mut values: Vec<f64> = turns.iter().map(value).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
