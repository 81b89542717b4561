//! Disks that refuse, from outside: the n-th write or sync of the server fails, or the disk is full from there on.
//!
//! Whatever fails, nothing acknowledged is lost, and a server that ends says so with code 74.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use tests::Address;
use tests::disk::{EIO, Interposer, Knob, Recording};
use tests::keystead::Keystead;
use tests::torture::{self, Ledger};
use tests::wire::{self, Wire};

use crate::power::PACE;

const WORKERS: u32 = 3;
/// Failed reading or writing, as in sysexits.h.
const IO_ERROR: i32 = 74;

/// What fails at the n-th call.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Write,
    Sync,
    Full,
}

impl Fault {
    fn arm(self, recording: &Recording, n: u64) {
        let control = &recording.control;
        control.set(Knob::Fired, 0).unwrap();
        let (at, error) = match self {
            Fault::Write => (Knob::WriteFailAt, Knob::WriteError),
            Fault::Sync => (Knob::SyncFailAt, Knob::SyncError),
            Fault::Full => (Knob::FullAt, Knob::WriteError),
        };
        control.set(error, EIO).unwrap();
        control.set(at, n).unwrap();
    }

    /// Answers how often something failed.
    fn disarm(recording: &Recording) -> u64 {
        for knob in [Knob::WriteFailAt, Knob::SyncFailAt, Knob::FullAt, Knob::Full] {
            recording.control.set(knob, 0).unwrap();
        }
        recording.control.get(Knob::Fired).unwrap()
    }
}

struct World {
    recording: Recording,
    server: Keystead,
    ledgers: Vec<Ledger>,
}

impl World {
    fn start(place: &Path) -> World {
        World::start_watched(place, "disk")
    }

    /// Faults come in this folder only.
    fn start_watched(place: &Path, watched: &str) -> World {
        let interposer = Interposer::build(place).unwrap();
        let disk = place.join("disk");
        fs::create_dir(&disk).unwrap();
        let recording = interposer.watch(&place.join(watched), "watched").unwrap();
        let server = Keystead::open_with(&disk.join("data"), &PACE, &recording.environment).unwrap();
        let mut wire = server.connect().unwrap();
        for statement in torture::preparation(WORKERS) {
            assert_eq!(wire.query(&statement).unwrap().code(), "", "{statement}");
        }
        World { recording, server, ledgers: torture::ledgers(WORKERS) }
    }

    /// Starts without faults and looks at everything.
    fn audit(&mut self, what: &str) -> u64 {
        if self.server.is_running() {
            self.server.kill().unwrap();
        }
        self.server.restart().unwrap_or_else(|error| panic!("{what}: {error}"));
        let address = self.server.address().unwrap();
        torture::audit(&address, &mut self.ledgers).unwrap_or_else(|error| panic!("{what}: {error}"))
    }

    /// A fault at the n-th call under load. Answers whether it came, and whether the server ended.
    fn fail_under_load(&mut self, fault: Fault, n: u64) -> (bool, bool) {
        let what = format!("{fault:?} fails at call {n}");
        fault.arm(&self.recording, n);
        let address = self.server.address().unwrap();
        for round in 0..4 {
            let seed = n * 10 + round;
            let ended = match fault {
                Fault::Full => self.load_until_it_waits(&address, seed),
                Fault::Write | Fault::Sync => torture::load(&address, &mut self.ledgers, 25, seed),
            };
            ended.unwrap_or_else(|error| panic!("{what}: {error}"));
            if self.recording.control.get(Knob::Fired).unwrap() > 0 {
                break;
            }
        }
        let fired = Fault::disarm(&self.recording) > 0;
        // Somebody who writes notices a disk that has failed behind its back.
        let alive = Wire::connect(&address)
            .and_then(|mut wire| wire.query("INSERT INTO torture_accounts VALUES (-1, 0)"))
            .is_ok_and(|reply| reply.error.is_none());
        if alive {
            let mut wire = self.server.connect().unwrap();
            assert_eq!(
                wire.query("DELETE FROM torture_accounts WHERE id = -1").unwrap().code(),
                "",
                "{what}"
            );
        } else {
            assert!(fired, "{what}: the server ended without a fault");
            let status = self.server.wait().unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(status.code(), Some(IO_ERROR), "{what}: {status}\n{}", self.server.log_tail());
        }
        self.audit_after(&what);
        (fired, !alive)
    }

    /// Load on a disk that becomes full. What was accepted before waits for room, and its clients with it: there is room again
    /// once the server says so.
    fn load_until_it_waits(&mut self, address: &Address, seed: u64) -> Result<u64, String> {
        let Self { recording, server, ledgers } = self;
        let waits = || server.log().matches("waits for room").count();
        let before = waits();
        thread::scope(|scope| {
            let load = scope.spawn(|| torture::load(address, ledgers, 25, seed));
            while !load.is_finished() {
                if waits() > before {
                    recording.control.set(Knob::FullAt, 0).unwrap();
                    recording.control.set(Knob::Full, 0).unwrap();
                }
                thread::yield_now();
            }
            load.join().expect("the load does not panic")
        })
    }

    fn audit_after(&mut self, what: &str) {
        self.audit(what);
        // It may have been refused and done, or not.
        let mut wire = self.server.connect().unwrap();
        assert_eq!(wire.query("DELETE FROM torture_accounts WHERE id = -1").unwrap().code(), "", "{what}");
    }

    /// A fault at the n-th call of a start. Answers whether it came, and whether the start failed.
    fn fail_at_start(&mut self, fault: Fault, n: u64) -> (bool, bool) {
        let what = format!("{fault:?} fails at call {n} of a start");
        self.server.kill().unwrap();
        fault.arm(&self.recording, n);
        let started = self.server.attempt().unwrap();
        let fired = Fault::disarm(&self.recording) > 0;
        if let Err(status) = &started {
            assert!(fired, "{what}: {status}\n{}", self.server.log_tail());
            assert_eq!(status.code(), Some(IO_ERROR), "{what}: {status}\n{}", self.server.log_tail());
        }
        if self.server.ended().unwrap().is_some() {
            self.server.wait().unwrap();
        }
        self.audit(&what);
        (fired, started.is_err())
    }
}

/// Every n in the full run, every sixth in CI, beginning elsewhere each time.
fn calls(offset: u64) -> impl Iterator<Item = u64> {
    let step = if std::env::var("KEYSTEAD_FULL").is_ok() { 1 } else { 6 };
    let first = if step == 1 { 1 } else { 1 + (crate::subject::seed() + offset) % step };
    (first..=100).step_by(step as usize)
}

fn fail(fault: Fault) {
    let place = tempfile::Builder::new().prefix("keystead-io-").tempdir().unwrap();
    let mut world = World::start(place.path());
    let (mut fired, mut ended, mut count) = (0, 0, 0);
    for n in calls(0) {
        let (came, end) = world.fail_under_load(fault, n);
        println!("{fault:?} at {n}: came {came}, ended {end}");
        (fired, ended, count) = (fired + u32::from(came), ended + u32::from(end), count + 1);
    }
    println!("{fault:?}: {fired} of {count} came, {ended} ended the server");
    assert!(fired * 10 >= count * 9, "{fired} of {count} faults came");
    assert!(ended > 0, "no fault met anything that matters");
    let (mut fired, mut refused) = (0, 0);
    for n in calls(3) {
        let (came, end) = world.fail_at_start(fault, n);
        println!("{fault:?} at {n} of a start: came {came}, refused {end}");
        (fired, refused) = (fired + u32::from(came), refused + u32::from(end));
        if !came {
            break;
        }
    }
    println!("{fault:?}: {fired} came in starts, {refused} of them were refused");
    assert!(refused > 0, "no fault met a start");
}

#[test]
fn a_failed_write_ends_the_server_and_loses_nothing_acknowledged() {
    fail(Fault::Write);
}

#[test]
fn a_failed_sync_ends_the_server_and_loses_nothing_acknowledged() {
    fail(Fault::Sync);
}

#[test]
fn a_disk_that_is_suddenly_full_loses_nothing_acknowledged() {
    fail(Fault::Full);
}

/// The engine's own files fail, and the log's do not: the engine takes nothing any more, the process ends, and the next one
/// replays. A write that failed there may be found all the same.
#[test]
fn case_26_an_engine_that_met_an_io_error_ends_the_server_and_a_restart_is_clean() {
    for fault in [Fault::Write, Fault::Sync] {
        let place = tempfile::Builder::new().prefix("keystead-engine-io-").tempdir().unwrap();
        let mut world = World::start_watched(place.path(), "disk/data/state");
        let mut ended = 0;
        for n in [1, 2, 3, 5, 8, 13] {
            let (came, end) = world.fail_under_load(fault, n);
            println!("{fault:?} of the engine at {n}: came {came}, ended {end}");
            assert!(!came || end, "{fault:?} at {n} was survived by a server that goes on");
            ended += u32::from(end);
        }
        assert!(ended > 0, "no {fault:?} met the engine");
    }
}

/// Below the low water: writers hear 53100, readers and deleters go on, and room that comes back is noticed.
#[test]
fn a_full_disk_refuses_writers_until_there_is_room_again() {
    let place = tempfile::Builder::new().prefix("keystead-full-").tempdir().unwrap();
    let world = World::start(place.path());
    let mut wire = world.server.connect().unwrap();
    assert_eq!(
        wire.query("INSERT INTO torture_counters SELECT g, 0 FROM generate_series(100, 199) g")
            .unwrap()
            .code(),
        ""
    );
    world.recording.control.set(Knob::Low, 1).unwrap();
    // The room is looked at once a second.
    let until = |wire: &mut Wire, sql: &dyn Fn(u32) -> String, code: &str| {
        let deadline = Instant::now() + Duration::from_secs(30);
        let found = (0..).find(|n| wire.query(&sql(*n)).unwrap().code() == code || Instant::now() > deadline);
        assert!(Instant::now() <= deadline, "{:?} never answered {code:?}", found.map(sql));
    };
    let update = |n: u32| format!("UPDATE torture_counters SET n = {n} WHERE w = 100");
    until(&mut wire, &update, "53100");
    assert_eq!(wire.query("SELECT count(*) FROM torture_counters").unwrap().code(), "");
    assert_eq!(wire.query("CREATE TABLE none (a int)").unwrap().code(), "53100");
    assert_eq!(wire.query("DELETE FROM torture_counters WHERE w BETWEEN 110 AND 119").unwrap().code(), "");
    world.recording.control.set(Knob::Low, 0).unwrap();
    until(&mut wire, &update, "");
    assert_eq!(wire.query("CREATE TABLE none (a int)").unwrap().code(), "");
}

/// W20: the answers to one batch leave in one call.
#[test]
fn w20_a_pipelined_batch_is_answered_by_one_send() {
    let place = tempfile::Builder::new().prefix("keystead-sends-").tempdir().unwrap();
    let world = World::start(place.path());
    let mut wire = world.server.connect().unwrap();
    let sends = || world.recording.control.get(Knob::Sends).unwrap();
    let one = [
        wire::parse("", "SELECT n FROM torture_counters WHERE w = $1", &[]),
        wire::bind("", "", &[], &[Some(b"1")], &[]),
        wire::describe(b'P', ""),
        wire::execute("", 0),
    ]
    .concat();
    let write = [
        wire::parse("", "UPDATE torture_counters SET n = n + 1 WHERE w = $1", &[]),
        wire::bind("", "", &[], &[Some(b"1")], &[]),
        wire::execute("", 0),
    ]
    .concat();
    for (what, body) in [
        ("one read", one.clone()),
        ("ten reads", one.repeat(10)),
        ("one write", write.clone()),
        ("reads and writes", [one, write].concat().repeat(5)),
    ] {
        let before = sends();
        wire.send(&[body, wire::sync()].concat()).unwrap();
        let messages = wire.read_until_ready().unwrap();
        assert!(messages.iter().all(|message| message.tag != b'E'), "{what}: {messages:?}");
        assert_eq!(sends() - before, 1, "{what}");
    }
    let before = sends();
    wire.send(&wire::query("SELECT 1; SELECT 2; SELECT 3")).unwrap();
    wire.read_until_ready().unwrap();
    assert_eq!(sends() - before, 1, "three statements of one simple query");
}
