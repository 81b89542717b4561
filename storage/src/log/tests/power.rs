//! Random work, a power cut at a random call, a random legal image, and again: what was acknowledged is there, what is
//! there was asked for, in the order in which it was asked for.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

use super::super::files::sim::{Chance, Fault, Loss, Op, Sim};
use super::super::{Callback, Entry, Error, GroupId, GroupInit, Log, LogId, Options, Plant};
use super::model::{self, Model, Step};
use super::support::{Driver, eventually, options, planted, try_open};

const GROUPS: u32 = 3;

/// Asks for random things and remembers what was asked and what was answered.
struct Worker {
    log: Log,
    chance: Chance,
    /// The state when the log was opened.
    start: Model,
    steps: Vec<Step>,
    /// The state when all steps are done.
    model: Model,
    acknowledged: Arc<AtomicUsize>,
    term: u64,
    /// Its own groups: no other worker touches them.
    groups: Range<u32>,
}

impl Worker {
    fn new(log: Log, seed: u64, all: &Model, term: u64, groups: Range<u32>) -> Worker {
        let start = own(all, &groups);
        let model = start.clone();
        let acknowledged = Arc::new(AtomicUsize::new(0));
        Worker { log, chance: Chance(seed), start, steps: Vec::new(), model, acknowledged, term, groups }
    }

    fn bytes(&mut self, max: u64) -> Bytes {
        let length = self.chance.below(max);
        Bytes::from((0..length).map(|_| self.chance.next_u64() as u8).collect::<Vec<_>>())
    }

    fn take(&mut self, step: Step) {
        model::apply(&mut self.model, &step);
        self.steps.push(step);
    }

    fn callback(&self) -> Callback {
        let acknowledged = self.acknowledged.clone();
        let upto = self.steps.len();
        Box::new(move |result| {
            if result.is_ok() {
                acknowledged.fetch_max(upto, Ordering::SeqCst);
            }
        })
    }

    /// One random call. What it asks for counts as asked even if it is refused: the power may be off already.
    fn step(&mut self) -> Result<(), Error> {
        let count = u64::from(self.groups.end - self.groups.start);
        let group = GroupId(self.groups.start + self.chance.below(count) as u32);
        let Some(state) = self.model.get(&group).cloned() else {
            let last = (self.chance.below(2) == 0).then(|| LogId {
                term: self.term,
                node: 1,
                index: self.chance.below(50),
            });
            let init = GroupInit { vote: None, last, membership: self.bytes(60) };
            self.take(Step::Create(group, init.clone()));
            return self.log.create_group(group, init, self.callback());
        };
        let end = state.end();
        match self.chance.below(20) {
            0..=10 => {
                let mut first = end;
                if state.entries.is_empty() && self.chance.below(8) == 0 {
                    first += 1 + self.chance.below(5);
                    self.take(Step::Begin(group, first));
                }
                let count = 1 + self.chance.below(4);
                let mut entries = Vec::new();
                for index in first..first + count {
                    let id = LogId { term: self.term, node: 1, index };
                    let payload_max = if self.chance.below(20) == 0 { 5000 } else { 600 };
                    let entry =
                        Entry { id, kind: self.chance.next_u64() as u8, payload: self.bytes(payload_max) };
                    self.take(Step::Append(group, entry.clone()));
                    entries.push(entry);
                }
                self.log.append(group, entries, self.callback())
            }
            11 => {
                let vote = self.bytes(40);
                self.take(Step::Vote(group, vote.clone()));
                self.log.save_vote(group, vote, self.callback())
            }
            12 => {
                self.term += 1;
                let from = state.floor + self.chance.below(end - state.floor + 1);
                let keep = from.checked_sub(1).and_then(|last| {
                    state
                        .entries
                        .get(&last)
                        .map(|entry| entry.id)
                        .or(state.purged.filter(|id| id.index == last))
                });
                if keep.is_none() && from != state.floor {
                    return Ok(());
                }
                self.take(Step::Truncate(group, from));
                self.log.truncate_after(group, keep, self.callback())
            }
            13 | 14 => {
                let Some(upto) = state.entries.values().nth(self.chance.below(20) as usize) else {
                    return Ok(());
                };
                self.take(Step::Purge(group, upto.id));
                self.log.purge_upto(group, upto.id, self.callback())
            }
            15 => {
                let index = end.saturating_sub(2) + self.chance.below(5);
                if index < state.floor {
                    return Ok(());
                }
                let upto = LogId { term: self.term, node: 1, index };
                let data = self.bytes(40);
                self.take(Step::Install(group, upto, data.clone()));
                self.log.snapshot_installed(group, upto, data, self.callback())
            }
            16 => {
                let applied: BTreeMap<_, _> =
                    self.model.iter().map(|(group, state)| (*group, state.end() / 2)).collect();
                self.take(Step::Checkpoint(applied.clone()));
                self.log.checkpoint(&applied, self.callback())
            }
            17 => match state.entries.values().next_back() {
                Some(last) => self.log.save_committed(group, last.id),
                None => Ok(()),
            },
            18 if self.chance.below(3) > 0 => {
                // Readable at once, synced or not.
                if let Ok(found) = self.log.entries(group, state.floor..u64::MAX) {
                    let expected: Vec<_> = state.entries.into_values().collect();
                    assert_eq!(found, expected, "entries of group {group} while running");
                }
                Ok(())
            }
            18 if self.chance.below(3) == 0 => {
                self.take(Step::Drop(group));
                self.log.drop_group(group, self.callback())
            }
            _ => {
                let upto = self.steps.len();
                let acknowledged = self.acknowledged.clone();
                let log = self.log.clone();
                let settled =
                    move || acknowledged.load(Ordering::SeqCst) >= upto || log.check_open().is_err();
                if self.chance.below(3) == 0 && upto > 0 {
                    eventually("an answer", settled);
                }
                Ok(())
            }
        }
    }

    /// Works until the power is off, or tired.
    fn work(&mut self, sim: &Sim, calls_max: usize) {
        for _ in 0..calls_max {
            if sim.is_off() || self.step().is_err() {
                break;
            }
        }
    }

    /// Whether a state may be what a crash left.
    fn allows(&self, found: &Model) -> bool {
        let found = &own(found, &self.groups);
        let acknowledged = self.acknowledged.load(Ordering::SeqCst);
        let mut state = self.start.clone();
        for (at, step) in self.steps.iter().enumerate() {
            if at >= acknowledged && state == *found {
                return true;
            }
            model::apply(&mut state, step);
        }
        state == *found
    }
}

fn own(model: &Model, groups: &Range<u32>) -> Model {
    model
        .range(GroupId(groups.start)..GroupId(groups.end))
        .map(|(group, state)| (*group, state.clone()))
        .collect()
}

/// `KEYSTEAD_LOG_SEEDS` asks for more than the usual number of seeds.
fn seeds(usual: u64) -> u64 {
    std::env::var("KEYSTEAD_LOG_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// One life after another on the same disk. Tells what is wrong.
fn lives(options: &Options, seed: u64, lives: u64, seen: &mut Seen) -> Result<(), String> {
    let mut chance = Chance(seed);
    let options = &Options {
        cache_bytes_max: [0, 2 << 10, 1 << 20][chance.below(3) as usize],
        pinned_segments_max: chance.below(4),
        ready_segments: 1 + chance.below(2) as usize,
        ..options.clone()
    };
    let mut sim = Sim::new();
    let mut state = Model::new();
    for life in 0..lives {
        let (log, _) = try_open(&sim, options.clone()).map_err(|error| format!("life {life}: {error}"))?;
        let found = model::read(&log);
        if found != state {
            return Err(format!("life {life}: read {found:?} the second time, not {state:?}"));
        }
        // Written by its own thread alone, by a driver too, or by one that goes in the middle.
        let mut driver = (chance.below(3) > 0).then(|| Driver::start(&log));
        let leaves = chance.below(2) == 0;
        // One worker for all groups, or one for each.
        let width = if chance.below(2) == 0 { GROUPS } else { 1 };
        let shares = (0..GROUPS).step_by(width as usize).map(|first| first..first + width);
        let mut workers: Vec<_> = shares
            .map(|groups| Worker::new(log.clone(), chance.next_u64(), &state, life * 1000 + 1, groups))
            .collect();
        let fault = if chance.below(2) == 0 { Fault::PowerCutBefore } else { Fault::PowerCutAfter };
        let op = match chance.below(4) {
            0 => Some(Op::Sync),
            1 => Some(Op::Write),
            _ => None,
        };
        sim.plan(op, 1 + chance.below(150), fault);
        std::thread::scope(|scope| {
            let calls_max = 600 / workers.len();
            for worker in &mut workers {
                let sim = &sim;
                scope.spawn(move || worker.work(sim, calls_max));
            }
            if leaves {
                driver = None;
            }
        });
        if !sim.is_off() && chance.below(3) > 0 {
            sim.cut_power();
        }
        let loss = match chance.below(5) {
            0 => Loss::Nothing,
            1 => Loss::Everything,
            2 => Loss::Subset { sector_bytes: 4096 },
            _ => Loss::Subset { sector_bytes: 512 },
        };
        log.close();
        drop(driver);
        let stats = log.stats();
        seen.lives += 1;
        for worker in &workers {
            let acknowledged = worker.acknowledged.load(Ordering::SeqCst);
            seen.acknowledged += acknowledged;
            seen.unacknowledged += worker.steps.len() - acknowledged;
        }
        seen.recycled += stats.recycled;
        seen.rewritten += stats.rewritten;
        let image = sim.image(loss, chance.next_u64());
        let opened = try_open(&image, options.clone());
        let (log, recovered) = opened.map_err(|error| format!("life {life}, {loss:?}: {error}"))?;
        seen.torn += u64::from(recovered.torn.is_some());
        let found = model::read(&log);
        if let Some(worker) = workers.iter().find(|worker| !worker.allows(&found)) {
            let acknowledged = worker.acknowledged.load(Ordering::SeqCst);
            return Err(format!(
                "life {life}, {loss:?}, groups {:?}: of {} steps {acknowledged} were acknowledged, and what was found is \
                 none of the states from there on",
                worker.groups,
                worker.steps.len(),
            ));
        }
        log.close();
        state = found;
        sim = image;
    }
    Ok(())
}

/// What a run exercised.
#[derive(Debug, Default)]
struct Seen {
    lives: u64,
    acknowledged: usize,
    unacknowledged: usize,
    torn: u64,
    recycled: u64,
    rewritten: u64,
}

#[test]
fn what_was_acknowledged_survives_every_power_cut_and_nothing_is_invented() {
    let mut seen = Seen::default();
    for seed in 0..seeds(80) {
        lives(&options(), seed, 6, &mut seen).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
    println!("{seen:?}");
    assert!(
        seen.torn > 10 && seen.recycled > 10 && seen.rewritten > 10 && seen.unacknowledged > 1000,
        "the suite hardly exercises anything: {seen:?}"
    );
}

#[test]
fn the_power_cut_test_finds_acks_before_the_sync() {
    let plant = planted(Plant::AckBeforeSync);
    assert!((0..40).any(|seed| lives(&plant, seed, 6, &mut Seen::default()).is_err()));
}
