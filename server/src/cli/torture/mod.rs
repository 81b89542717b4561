//! `keystead torture`: the crash test a user can run. A server is loaded, killed at random moments and started again,
//! and after each kill everything it ever said is compared with what it holds.
//!
//! 1. Connections write ([`load`]); each remembers outside the server what it was told ([`ledger`]).
//! 2. SIGKILL at a moment the seed draws, or wherever the server ends itself at a named cut point.
//! 3. Restart; the time until it is ready is bounded.
//! 4. All tables are read and held against the ledgers ([`observe`]).
//!
//! Invariants:
//! - The first violation ends the run with exit code 1, its seed, and the data directory left as it is.
//! - After the last kill the load runs once more without one, and a clean stop and start lose nothing either.
//!
//! Not here: power cuts and flipped bits, which need the files and not a client.

mod ledger;
mod load;
mod observe;

use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, AtomicI64, Ordering},
    thread,
    time::Duration,
};

use clap::{Args, ValueEnum};
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use storage::cut;

use super::{
    bench::child::{Child, Launch, Scratch, pause},
    client::Target,
};
use crate::{
    auth::scram,
    exit::{Failure, Kind},
};
use ledger::{Counts, Ledger};

/// So that a short load meets every cut point: small pieces on disk, and a checkpoint at once.
const PACE: [(&str, &str); 4] = [
    ("KEYSTEAD_LOG_SEGMENT_BYTES", "8MiB"),
    ("KEYSTEAD_LOG_KEEP_ENTRIES", "0"),
    ("KEYSTEAD_CHECKPOINT_EVERY", "100ms"),
    ("KEYSTEAD_MEMORY_MEMTABLE_BYTES", "1MiB"),
];
const SECS_BETWEEN_MIN: f64 = 0.05;
/// Stands for every cut point.
const ALL: &str = "all";
const LIVENESS: Duration = Duration::from_secs(1);
/// So often the load is tried before a server that answers nothing counts as one that does nothing.
const LIVENESS_ATTEMPTS_MAX: u32 = 20;
/// A server gets this long beyond what it is held to, so that a slow start is reported as one.
const READY_GRACE: Duration = Duration::from_secs(60);

/// Arguments of `keystead torture`.
#[derive(Args, Debug)]
#[command(
    after_help = "Exit code 0 if nothing acknowledged was lost, nothing was half there and nothing deleted came \
                        back; 1 at the first violation, which is printed with the seed."
)]
pub(super) struct Options {
    /// Kills, one after the other on one data directory
    #[arg(long, value_name = "COUNT", default_value_t = 20)]
    kills: u32,
    /// Longest time between the begin of a load and its kill; each is drawn between 0.05 and this
    #[arg(long, value_name = "SECONDS", default_value_t = 0.5)]
    secs_between: f64,
    /// Decides operations and moments [default: drawn and printed]
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// Connections that write at the same time
    #[arg(long, value_name = "COUNT", default_value_t = 8)]
    connections: u32,
    /// Data directory of the server under test; no other server may run in it [default: a temporary one]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Longest time a killed server may take until it is ready
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0)]
    ready_secs_max: f64,
    /// Cut points at which the server ends itself, in turns, each NAME or NAME:TIMES; all for every one that a directory
    /// in use can meet. The server is told by KEYSTEAD_CUT
    #[arg(long = "cut", value_name = "NAMES", value_delimiter = ',')]
    cuts: Vec<String>,
    /// Show that the check can fail: falsify what it believes
    #[arg(long, value_name = "WHAT")]
    plant: Option<Plant>,
}

/// A lie told to the check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Plant {
    /// One acknowledged row is said to have had another value
    LoseAcks,
}

/// Runs `keystead torture`.
pub(super) fn run(options: &Options) -> Result<(), Failure> {
    check(options)?;
    let seed = match options.seed {
        Some(seed) => seed,
        None => {
            let mut bytes = [0; 4];
            scram::random(&mut bytes)?;
            u64::from(u32::from_le_bytes(bytes))
        }
    };
    println!("torture: seed {seed}, {} kills, {} connections", options.kills, options.connections);
    let mut scratch = match &options.data {
        Some(_) => None,
        None => Some(Scratch::new(None, "torture")?),
    };
    let temporary = scratch.as_ref().map(|scratch| scratch.path().join("data"));
    let data = options.data.clone().or(temporary).expect("one of both is there");
    let mut run = Run::start(options, &data, seed)?;
    let result = run.go();
    run.print();
    result.map_err(|failure| {
        if let Some(scratch) = &mut scratch {
            scratch.keep();
        }
        let place = format!("data directory {}, server's log {}", data.display(), run.launch.log.display());
        Failure::new(failure.kind(), format!("torture with --seed {seed}: {failure}\n  ({place})"))
    })
}

fn check(options: &Options) -> Result<(), Failure> {
    let usage = |text: String| Err(Failure::new(Kind::Usage, text));
    if !(SECS_BETWEEN_MIN..=3_600.0).contains(&options.secs_between) {
        return usage(format!(
            "--secs-between {}: between {SECS_BETWEEN_MIN} and 3600",
            options.secs_between
        ));
    }
    if !(0.1..=3_600.0).contains(&options.ready_secs_max) {
        return usage(format!("--ready-secs-max {}: between 0.1 and 3600", options.ready_secs_max));
    }
    for text in options.cuts.iter().filter(|text| *text != ALL) {
        let name = text.split_once(':').map_or(text.as_str(), |(name, _)| name);
        if !cut::POINTS.contains(&name) {
            return usage(format!("--cut {text}: there are {}", cut::POINTS.join(", ")));
        }
    }
    if !(1..=1_000).contains(&options.connections) {
        return usage(format!("--connections {}: between 1 and 1000", options.connections));
    }
    Ok(())
}

/// One crash test.
struct Run<'a> {
    options: &'a Options,
    launch: Launch,
    /// Taken only while there is no server.
    child: Option<Child>,
    rng: StdRng,
    ledgers: Vec<Ledger>,
    /// The next slot everybody fights for.
    slots: AtomicI64,
    plant: Option<Plant>,
    cuts: Vec<String>,
    kills: u32,
    cuts_reached: u32,
    checked: u64,
    unknown: u64,
    unknown_happened: u64,
    slowest_ready: Duration,
}

impl<'a> Run<'a> {
    fn start(options: &'a Options, data: &Path, seed: u64) -> Result<Self, Failure> {
        let ready_max = Duration::from_secs_f64(options.ready_secs_max) + READY_GRACE;
        let launch = Launch { ready_max, ..Launch::new(data) };
        let child = launch.start()?;
        load::prepare(&mut child.connect()?, options.connections)?;
        Ok(Self {
            options,
            launch,
            child: Some(child),
            rng: StdRng::seed_from_u64(seed),
            ledgers: (0..options.connections).map(Ledger::new).collect(),
            slots: AtomicI64::new(0),
            plant: options.plant,
            cuts: cuts(&options.cuts),
            kills: 0,
            cuts_reached: 0,
            checked: 0,
            unknown: 0,
            unknown_happened: 0,
            slowest_ready: Duration::ZERO,
        })
    }

    fn go(&mut self) -> Result<(), Failure> {
        for number in 0..self.options.kills {
            self.kill_once(number).map_err(|failure| in_round(&format!("kill {}", number + 1), &failure))?;
            if (number + 1) % 10 == 0 {
                eprintln!("{} kills", number + 1);
            }
        }
        self.live_on().map_err(|failure| in_round("after the last kill", &failure))?;
        if self.options.plant.is_some() {
            let why = match self.plant {
                Some(_) => "nothing was acknowledged that a lie could be told about: run longer",
                None => "the planted loss was not found: the check is blind",
            };
            return Err(Failure::new(Kind::Software, why));
        }
        Ok(())
    }

    fn kill_once(&mut self, number: u32) -> Result<(), Failure> {
        let cut = self.cuts.get(number as usize % self.cuts.len().max(1)).cloned();
        let longest = self.rng.random_range(SECS_BETWEEN_MIN..=self.options.secs_between);
        let longest = Duration::from_secs_f64(longest);
        let is_up = match &cut {
            Some(cut) => self.restart_with_cut(cut)?,
            None => true,
        };
        if is_up {
            let mut child = self.child.take().expect("a server runs between the rounds");
            let target = child.target().clone();
            let killed = self.load(&target, || {
                if cut.is_some() && child.wait(longest).is_some() {
                    return Ok(true);
                }
                if cut.is_none() {
                    pause(longest);
                }
                // A clean stop has points of its own.
                if cut.as_ref().is_some_and(|cut| cut.starts_with("stop.")) {
                    return child.stop().map(|status| !status.success());
                }
                if let Some(status) = child.ended() {
                    return Err(Failure::new(Kind::Answer, format!("the server ended by itself: {status}")));
                }
                child.kill().map(|()| false)
            })?;
            self.cuts_reached += u32::from(killed);
        } else {
            self.cuts_reached += 1;
        }
        self.kills += 1;
        let child = self.launch.start()?;
        let ready = child.ready_after();
        self.slowest_ready = self.slowest_ready.max(ready);
        self.child = Some(child);
        if ready.as_secs_f64() > self.options.ready_secs_max {
            return Err(Failure::new(Kind::Answer, format!("the server was ready only after {ready:?}")));
        }
        self.tell_a_lie();
        self.audit()
    }

    /// Starts again with a cut point. False if it was reached before the server was ready.
    fn restart_with_cut(&mut self, cut: &str) -> Result<bool, Failure> {
        if let Some(mut child) = self.child.take() {
            child.stop()?;
        }
        let settings = PACE.into_iter().chain([("KEYSTEAD_CUT", cut)]);
        let environment = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let launch = Launch { environment, ..self.launch.clone() };
        self.child = launch.start().ok();
        Ok(self.child.is_some())
    }

    /// Runs the load on all connections until `end` returns.
    fn load<T>(&mut self, target: &Target, end: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
        let stop = AtomicBool::new(false);
        let seeds: Vec<u64> = self.ledgers.iter().map(|_| self.rng.random()).collect();
        let slots = &self.slots;
        thread::scope(|scope| {
            let workers: Vec<_> = self
                .ledgers
                .iter_mut()
                .zip(seeds)
                .map(|(ledger, seed)| {
                    let stop = &stop;
                    scope.spawn(move || load::work(ledger, target, seed, stop, slots))
                })
                .collect();
            let ended = end();
            stop.store(true, Ordering::Relaxed);
            let mut wrong = None;
            for worker in workers {
                match worker.join() {
                    Ok(Ok(())) => {}
                    Ok(Err(violation)) => wrong = Some(violation),
                    Err(_) => wrong = Some("a connection's thread panicked".to_owned()),
                }
            }
            match wrong {
                Some(violation) => Err(Failure::new(Kind::Answer, violation)),
                None => ended,
            }
        })
    }

    /// Holds everything that was told against everything that is there.
    fn audit(&mut self) -> Result<(), Failure> {
        let child = self.child.as_ref().expect("an audit asks a running server");
        let mut client = child.connect()?;
        let everything = observe::read(&mut client, self.options.connections)?;
        let violation = |text: String| Failure::new(Kind::Answer, format!("VIOLATION: {text}"));
        self.checked += everything.check_accounts().map_err(violation)?;
        self.checked += observe::check_index(&mut client).map_err(violation)?;
        for ledger in &mut self.ledgers {
            let observed = everything.of(ledger.worker());
            self.checked += ledger.audit(&observed).map_err(violation)?;
            if let Some(happened) = ledger.settle(&observed) {
                self.unknown += 1;
                self.unknown_happened += u64::from(happened);
            }
        }
        Ok(())
    }

    /// The load without a kill, then a clean stop and start.
    fn live_on(&mut self) -> Result<(), Failure> {
        let target = self.child.as_ref().expect("a server runs after the last round").target().clone();
        let before = self.counts().acknowledged();
        for _ in 0..LIVENESS_ATTEMPTS_MAX {
            self.load(&target, || {
                pause(LIVENESS);
                Ok(())
            })?;
            self.audit()?;
            if self.counts().acknowledged() > before {
                break;
            }
        }
        if self.counts().acknowledged() == before {
            return Err(Failure::new(Kind::Answer, "the server runs and does nothing"));
        }
        if let Some(mut child) = self.child.take() {
            let status = child.stop()?;
            if !status.success() {
                return Err(Failure::new(
                    Kind::Answer,
                    format!("the server ended a clean stop with {status}"),
                ));
            }
        }
        self.child = Some(self.launch.start()?);
        self.tell_a_lie();
        self.audit()
    }

    fn tell_a_lie(&mut self) {
        let Some(Plant::LoseAcks) = self.plant else { return };
        let from = self.rng.random_range(0..self.ledgers.len());
        let count = self.ledgers.len();
        let skip = self.rng.random_range(0..usize::MAX);
        if (0..count).any(|step| self.ledgers[(from + step) % count].falsify(skip)) {
            self.plant = None;
        }
    }

    fn counts(&self) -> Counts {
        self.ledgers.iter().fold(Counts::default(), |sum, ledger| sum.and(ledger.counts()))
    }

    fn print(&self) {
        let counts = self.counts();
        println!(
            "kills {} ({} at cut points) · acknowledged {} · unknown {} (happened {}) · refused {} · facts verified {} \
             · slowest ready {:.0} ms",
            self.kills,
            self.cuts_reached,
            counts.acknowledged(),
            self.unknown,
            self.unknown_happened,
            counts.refused,
            self.checked,
            self.slowest_ready.as_secs_f64() * 1e3
        );
        println!("exercised: {}", counts.text());
        let missing = counts.missing();
        if !missing.is_empty() {
            println!("not exercised: {}", missing.join(", "));
        }
    }
}

/// The cut points that were asked for. A first start's are not met by a directory that is in use.
fn cuts(asked: &[String]) -> Vec<String> {
    let every = || cut::POINTS.iter().filter(|point| !point.starts_with("first."));
    let of = |text: &String| match text.as_str() {
        ALL => every().map(|point| (*point).to_owned()).collect(),
        _ => vec![text.clone()],
    };
    asked.iter().flat_map(of).collect()
}

fn in_round(round: &str, failure: &Failure) -> Failure {
    Failure::new(failure.kind(), format!("{round}: {failure}"))
}
