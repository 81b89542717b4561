//! Kills under load, and the audit after each: what was acknowledged is there, what was refused is not, nothing is half.
//!
//! Each worker has its own keys and remembers outside the server what it was told ([`Ledger`]). The operation in flight
//! when the connection died is the only thing a worker may be unsure of, and it is all or nothing.
//!
//! Invariants:
//! - [`Ledger::audit`] is a pure function of what was told and what is there, so that it can be shown a planted loss.
//! - The seed decides keys, operations and the moments of the kills; it is printed by whoever runs this.
//!
//! Not here: power cuts and flipped bits, which need the files and not a client.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::Address;
use crate::keystead::Keystead;
use crate::oracle::Oracle;
use crate::wire::Wire;

const ACCOUNTS: i64 = 50;
const BALANCE: i64 = 1_000;
/// A row of this size is kept apart from its key, and a few fill a log segment.
const LARGE_BYTES: i64 = 64 * 1024;
/// More rows than one log entry takes.
const BULK_ROWS: i64 = 1_100;

/// A server that can be killed and started again.
pub trait Victim {
    /// Ends the process at once.
    fn kill(&mut self) -> io::Result<()>;
    /// Starts it on the same data and returns how long it took until it answered.
    fn restart(&mut self) -> io::Result<Duration>;
    /// Where it is now.
    fn address(&self) -> io::Result<Address>;
}

impl Victim for Keystead {
    fn kill(&mut self) -> io::Result<()> {
        Keystead::kill(self)
    }

    fn restart(&mut self) -> io::Result<Duration> {
        Keystead::restart(self)
    }

    fn address(&self) -> io::Result<Address> {
        Keystead::address(self)
    }
}

impl Victim for Oracle {
    fn kill(&mut self) -> io::Result<()> {
        self.crash()
    }

    fn restart(&mut self) -> io::Result<Duration> {
        let begun = Instant::now();
        Oracle::restart(self)?;
        Ok(begun.elapsed())
    }

    fn address(&self) -> io::Result<Address> {
        Ok(Oracle::address(self).clone())
    }
}

/// How much to do.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Kills, one after the other, on one data directory.
    pub kills: u32,
    /// Connections writing at the same time.
    pub workers: u32,
    /// Decides everything that is random.
    pub seed: u64,
    /// The longest a server may take until it answers again.
    pub ready_max: Duration,
}

/// What was done and found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Kills done.
    pub kills: u32,
    /// Operations acknowledged.
    pub acknowledged: u64,
    /// Operations in flight at a kill.
    pub unknown: u64,
    /// Audits of single facts.
    pub checked: u64,
    /// The slowest start.
    pub slowest_ready: Duration,
}

/// What a worker was told.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    worker: u32,
    next: i64,
    /// Rows that must be there, with their value.
    rows: BTreeMap<i64, i64>,
    /// Rows that must not be there: deleted, and acknowledged.
    gone: BTreeSet<i64>,
    /// Keys written to both tables of a pair in one transaction.
    pairs: BTreeSet<i64>,
    counter: i64,
    /// Rows of the worker's own table since its last TRUNCATE.
    scratch: i64,
    /// Keys of rows that do not fit into a page.
    large: BTreeSet<i64>,
    /// Numbers of statements with more rows than one log entry takes.
    bulk: BTreeSet<i64>,
    in_flight: Option<Operation>,
    acknowledged: u64,
}

/// One thing a worker does; it is acknowledged as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Operation {
    Insert(i64, i64),
    Update(i64, i64),
    Delete(i64),
    Pair(i64),
    Count,
    Transfer(i64, i64, i64),
    Scratch,
    Truncate,
    Large(i64),
    Bulk(i64),
}

/// What a worker's keys look like now.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    rows: BTreeMap<i64, i64>,
    left: BTreeSet<i64>,
    right: BTreeSet<i64>,
    counter: i64,
    scratch: i64,
    large: BTreeSet<i64>,
    bulk: BTreeSet<i64>,
}

impl Ledger {
    fn choose(&mut self, rng: &mut StdRng) -> Operation {
        let old = |rng: &mut StdRng, rows: &BTreeMap<i64, i64>| {
            let skip = rng.random_range(0..rows.len().max(1));
            rows.keys().nth(skip).copied()
        };
        self.next += 1;
        match rng.random_range(0..100) {
            0..30 => Operation::Insert(self.next, rng.random_range(0..1_000_000)),
            30..45 => match old(rng, &self.rows) {
                Some(key) => Operation::Update(key, rng.random_range(0..1_000_000)),
                None => Operation::Count,
            },
            45..55 => old(rng, &self.rows).map_or(Operation::Count, Operation::Delete),
            55..70 => Operation::Pair(self.next),
            70..80 => Operation::Count,
            80..92 => {
                let from = rng.random_range(0..ACCOUNTS);
                Operation::Transfer(
                    from,
                    (from + rng.random_range(1..ACCOUNTS)) % ACCOUNTS,
                    rng.random_range(1..20),
                )
            }
            92..96 => Operation::Scratch,
            96 => Operation::Truncate,
            97 => Operation::Bulk(self.next),
            _ => Operation::Large(self.next),
        }
    }

    fn statements(&self, operation: &Operation) -> Vec<String> {
        let w = self.worker;
        match operation {
            Operation::Insert(k, v) => {
                vec![format!("INSERT INTO torture_rows VALUES ({w}, {k}, {v}, repeat('x', {}))", v % 400)]
            }
            Operation::Update(k, v) => {
                vec![format!("UPDATE torture_rows SET v = {v} WHERE w = {w} AND k = {k}")]
            }
            Operation::Delete(k) => vec![format!("DELETE FROM torture_rows WHERE w = {w} AND k = {k}")],
            Operation::Pair(k) => vec![
                "BEGIN".to_owned(),
                format!("INSERT INTO torture_left VALUES ({w}, {k})"),
                format!("INSERT INTO torture_right VALUES ({w}, {k})"),
                "COMMIT".to_owned(),
            ],
            Operation::Count => vec![format!("UPDATE torture_counters SET n = n + 1 WHERE w = {w}")],
            Operation::Transfer(from, to, amount) => {
                // In order of the key, so that two transfers wait for each other and never in a circle.
                let mut moves = [(*from, -amount), (*to, *amount)];
                moves.sort();
                let change = |(id, by): (i64, i64)| {
                    format!("UPDATE torture_accounts SET balance = balance + ({by}) WHERE id = {id}")
                };
                vec!["BEGIN".to_owned(), change(moves[0]), change(moves[1]), "COMMIT".to_owned()]
            }
            Operation::Scratch => vec![format!("INSERT INTO torture_scratch_{w} VALUES ({})", self.scratch)],
            Operation::Truncate => vec![format!("TRUNCATE torture_scratch_{w}")],
            Operation::Large(k) => {
                vec![format!(
                    "INSERT INTO torture_large VALUES ({w}, {k}, repeat('{k:016}', {}))",
                    LARGE_BYTES / 16
                )]
            }
            Operation::Bulk(k) => {
                vec![format!(
                    "INSERT INTO torture_bulk SELECT {w}, {k}, g FROM generate_series(1, {BULK_ROWS}) g"
                )]
            }
        }
    }

    /// The server said yes.
    fn acknowledge(&mut self, operation: Operation) {
        self.acknowledged += 1;
        self.happened(operation);
    }

    fn happened(&mut self, operation: Operation) {
        match operation {
            Operation::Insert(k, v) | Operation::Update(k, v) => {
                self.rows.insert(k, v);
            }
            Operation::Delete(k) => {
                self.rows.remove(&k);
                self.gone.insert(k);
            }
            Operation::Pair(k) => {
                self.pairs.insert(k);
            }
            Operation::Count => self.counter += 1,
            Operation::Transfer(..) => {}
            Operation::Scratch => self.scratch += 1,
            Operation::Truncate => self.scratch = 0,
            Operation::Large(k) => {
                self.large.insert(k);
            }
            Operation::Bulk(k) => {
                self.bulk.insert(k);
            }
        }
    }

    /// Compares what was told with what is there. Returns how many facts were looked at.
    pub fn audit(&self, observed: &Observed) -> Result<u64, String> {
        let mut without = self.clone();
        without.in_flight = None;
        let mut with = without.clone();
        if let Some(operation) = self.in_flight.clone() {
            with.happened(operation);
        }
        let first = match without.compare(observed) {
            Ok(count) => return Ok(count),
            Err(first) => first,
        };
        with.compare(observed).map_err(|second| {
            format!("worker {}: {first}; or, if {:?} had happened: {second}", self.worker, self.in_flight)
        })
    }

    fn compare(&self, observed: &Observed) -> Result<u64, String> {
        for (key, value) in &self.rows {
            match observed.rows.get(key) {
                None => return Err(format!("acknowledged row {key} is lost")),
                Some(found) if found != value => {
                    return Err(format!("row {key} is {found}, acknowledged was {value}"));
                }
                Some(_) => {}
            }
        }
        if let Some(key) = self.gone.iter().find(|key| observed.rows.contains_key(key)) {
            return Err(format!("deleted row {key} is back"));
        }
        if let Some(key) = observed.rows.keys().find(|key| !self.rows.contains_key(key)) {
            return Err(format!("row {key} was never acknowledged nor in flight"));
        }
        if let Some(key) = observed.left.symmetric_difference(&observed.right).next() {
            return Err(format!("pair {key} is half there"));
        }
        if observed.left != self.pairs {
            let odd: Vec<&i64> = observed.left.symmetric_difference(&self.pairs).collect();
            return Err(format!("pairs {odd:?} are lost or were never written"));
        }
        if observed.counter != self.counter {
            return Err(format!("the counter is {}, acknowledged were {}", observed.counter, self.counter));
        }
        if observed.scratch != self.scratch {
            return Err(format!(
                "the truncated table has {} rows instead of {}",
                observed.scratch, self.scratch
            ));
        }
        for (what, told, found) in
            [("large row", &self.large, &observed.large), ("bulk insert", &self.bulk, &observed.bulk)]
        {
            if let Some(key) = told.symmetric_difference(found).next() {
                return Err(format!("{what} {key} is lost or was never written"));
            }
        }
        let sets = [&self.gone, &self.pairs, &self.large, &self.bulk];
        Ok((self.rows.len() + sets.iter().map(|set| set.len()).sum::<usize>()) as u64 + 2)
    }

    /// After an audit the unsure becomes sure: what is there counts.
    fn settle(&mut self, observed: &Observed) {
        let Some(operation) = self.in_flight.take() else { return };
        if self.compare(observed).is_err() {
            self.happened(operation);
        }
    }
}

/// Makes the tables, then kills and audits as planned.
pub fn run(victim: &mut impl Victim, plan: Plan) -> Result<Report, String> {
    let mut rng = StdRng::seed_from_u64(plan.seed);
    let mut report = Report::default();
    let mut ledgers: Vec<Ledger> =
        (0..plan.workers).map(|worker| Ledger { worker, ..Ledger::default() }).collect();
    prepare(&victim.address().map_err(text)?, plan.workers)?;
    for kill in 0..plan.kills {
        let address = victim.address().map_err(text)?;
        let stop = AtomicBool::new(false);
        let pause = Duration::from_millis(rng.random_range(20..400));
        let seeds: Vec<u64> = ledgers.iter().map(|_| rng.random()).collect();
        let outcome: Result<(), String> = thread::scope(|scope| {
            let workers: Vec<_> = ledgers
                .iter_mut()
                .zip(&seeds)
                .map(|(ledger, seed)| {
                    let (address, stop) = (&address, &stop);
                    scope.spawn(move || work(ledger, address, *seed, stop))
                })
                .collect();
            thread::sleep(pause);
            let killed = victim.kill().map_err(text);
            stop.store(true, Ordering::Relaxed);
            for worker in workers {
                worker.join().map_err(|_| "a worker panicked".to_owned())??;
            }
            killed
        });
        outcome.map_err(|e| format!("kill {kill}: {e}"))?;
        let ready = victim.restart().map_err(|e| format!("kill {kill}: restart: {e}"))?;
        report.slowest_ready = report.slowest_ready.max(ready);
        if ready > plan.ready_max {
            return Err(format!("kill {kill}: ready only after {ready:?}"));
        }
        report.unknown += ledgers.iter().filter(|ledger| ledger.in_flight.is_some()).count() as u64;
        let address = victim.address().map_err(text)?;
        report.checked += audit(&address, &mut ledgers).map_err(|e| format!("kill {kill}: {e}"))?;
        report.kills += 1;
    }
    report.acknowledged = ledgers.iter().map(|ledger| ledger.acknowledged).sum();
    Ok(report)
}

/// Holds what a server has against all that the workers were told; what they were unsure of is settled by it.
pub fn audit(address: &Address, ledgers: &mut [Ledger]) -> Result<u64, String> {
    let mut wire = Wire::connect(address).map_err(text)?;
    let mut checked = 2;
    for ledger in ledgers {
        let observed = observe(&mut wire, ledger.worker)?;
        checked += ledger.audit(&observed)?;
        ledger.settle(&observed);
    }
    let sum = number(&mut wire, "SELECT sum(balance) FROM torture_accounts")?;
    if sum != ACCOUNTS * BALANCE {
        return Err(format!("the accounts hold {sum} instead of {}", ACCOUNTS * BALANCE));
    }
    let indexed = number(&mut wire, "SELECT count(*) FROM torture_rows WHERE v >= 0")?;
    let counted = number(&mut wire, "SELECT count(*) FROM torture_rows")?;
    if indexed != counted {
        return Err(format!("the index has {indexed} rows, the table {counted}"));
    }
    Ok(checked)
}

/// New workers, of whom each knows nothing yet.
pub fn ledgers(workers: u32) -> Vec<Ledger> {
    (0..workers).map(|worker| Ledger { worker, ..Ledger::default() }).collect()
}

/// Lets all workers do so many operations each, or until the server is gone or refuses for the sake of its disk. Answers
/// how many were acknowledged; any other refusal is a violation.
pub fn load(address: &Address, ledgers: &mut [Ledger], operations: usize, seed: u64) -> Result<u64, String> {
    let before: u64 = ledgers.iter().map(|ledger| ledger.acknowledged).sum();
    thread::scope(|scope| {
        let work = |ledger| scope.spawn(move || load_one(address, ledger, operations, seed));
        let running: Vec<_> = ledgers.iter_mut().map(work).collect();
        running
            .into_iter()
            .try_for_each(|worker| worker.join().map_err(|_| "a worker panicked".to_owned())?)
    })?;
    Ok(ledgers.iter().map(|ledger| ledger.acknowledged).sum::<u64>() - before)
}

fn load_one(address: &Address, ledger: &mut Ledger, operations: usize, seed: u64) -> Result<(), String> {
    let mut rng = StdRng::seed_from_u64(seed ^ u64::from(ledger.worker) << 32);
    let Ok(mut wire) = Wire::connect(address) else { return Ok(()) };
    let mut left = operations;
    while left > 0 && operate(&mut wire, ledger, &mut rng)? {
        left -= 1;
    }
    Ok(())
}

/// Does one operation; false if no answer came.
fn operate(wire: &mut Wire, ledger: &mut Ledger, rng: &mut StdRng) -> Result<bool, String> {
    let operation = ledger.choose(rng);
    ledger.in_flight = Some(operation.clone());
    if let Told::Nothing = perform(wire, ledger, &operation)? {
        return Ok(false);
    }
    ledger.in_flight = None;
    ledger.acknowledge(operation);
    Ok(true)
}

/// Lets one worker write so many large rows, which fill the log fast. Stops as [`load`] does.
pub fn fill(address: &Address, ledger: &mut Ledger, rows: usize) -> Result<(), String> {
    let Ok(mut wire) = Wire::connect(address) else { return Ok(()) };
    for _ in 0..rows {
        ledger.next += 1;
        let operation = Operation::Large(ledger.next);
        ledger.in_flight = Some(operation.clone());
        if let Told::Nothing = perform(&mut wire, ledger, &operation)? {
            return Ok(());
        }
        ledger.in_flight = None;
        ledger.acknowledge(operation);
    }
    Ok(())
}

/// All that one worker did, and when: `position` is any clock that the caller reads.
#[derive(Clone, Debug)]
pub struct History {
    worker: u32,
    notes: Vec<Note>,
}

#[derive(Clone, Debug)]
struct Note {
    operation: Operation,
    begun: u64,
    acknowledged: Option<u64>,
}

impl History {
    /// What the worker knew at some moment.
    pub fn at(&self, moment: u64) -> Ledger {
        let mut ledger = Ledger { worker: self.worker, ..Ledger::default() };
        for note in &self.notes {
            match note.acknowledged {
                Some(at) if at <= moment => ledger.acknowledge(note.operation.clone()),
                _ if note.begun < moment => ledger.in_flight = Some(note.operation.clone()),
                _ => break,
            }
        }
        ledger
    }

    /// How many operations were acknowledged.
    pub fn acknowledged(&self) -> usize {
        self.notes.iter().filter(|note| note.acknowledged.is_some()).count()
    }
}

/// Runs workers, each for so many operations or until the server is gone, and keeps when what was begun and answered.
pub fn record(
    address: &Address,
    workers: u32,
    operations: usize,
    seed: u64,
    position: &(dyn Fn() -> u64 + Sync),
) -> Result<Vec<History>, String> {
    thread::scope(|scope| {
        let run = |worker: u32| scope.spawn(move || record_one(address, worker, operations, seed, position));
        let running: Vec<_> = (0..workers).map(run).collect();
        running.into_iter().map(|worker| worker.join().map_err(|_| "a worker panicked".to_owned())?).collect()
    })
}

fn record_one(
    address: &Address,
    worker: u32,
    operations: usize,
    seed: u64,
    position: &(dyn Fn() -> u64 + Sync),
) -> Result<History, String> {
    let mut rng = StdRng::seed_from_u64(seed ^ u64::from(worker) << 32);
    let mut ledger = Ledger { worker, ..Ledger::default() };
    let mut history = History { worker, notes: Vec::new() };
    let Ok(mut wire) = Wire::connect(address) else { return Ok(history) };
    for _ in 0..operations {
        let operation = ledger.choose(&mut rng);
        history.notes.push(Note { operation: operation.clone(), begun: position(), acknowledged: None });
        match perform(&mut wire, &ledger, &operation)? {
            Told::Yes => {}
            Told::Nothing => return Ok(history),
        }
        if let Some(note) = history.notes.last_mut() {
            note.acknowledged = Some(position());
        }
        ledger.acknowledge(operation);
    }
    Ok(history)
}

/// What a worker heard.
enum Told {
    Yes,
    Nothing,
}

fn perform(wire: &mut Wire, ledger: &Ledger, operation: &Operation) -> Result<Told, String> {
    for statement in ledger.statements(operation) {
        let Ok(reply) = wire.query(&statement) else { return Ok(Told::Nothing) };
        match reply.error {
            None => {}
            // The server says goodbye: as good as a lost connection, since it may have said it after the commit.
            Some(error) if error.code.starts_with("57P") || error.code == "08007" => {
                return Ok(Told::Nothing);
            }
            // Its disk is full or fails; a shard that has stopped gives its locks up before the process ends.
            Some(error) if ["53100", "58030", "40003", "40001"].contains(&error.code.as_str()) => {
                return Ok(Told::Nothing);
            }
            Some(error) => return Err(format!("{statement}: {} {}", error.code, error.message)),
        }
    }
    Ok(Told::Yes)
}

fn work(ledger: &mut Ledger, address: &Address, seed: u64, stop: &AtomicBool) -> Result<(), String> {
    let mut rng = StdRng::seed_from_u64(seed);
    let Ok(mut wire) = Wire::connect(address) else { return Ok(()) };
    while !stop.load(Ordering::Relaxed) && operate(&mut wire, ledger, &mut rng)? {}
    Ok(())
}

fn prepare(address: &Address, workers: u32) -> Result<(), String> {
    let mut wire = Wire::connect(address).map_err(text)?;
    for statement in preparation(workers) {
        let reply = wire.query(&statement).map_err(text)?;
        if let Some(error) = reply.error {
            return Err(format!("{statement}: {} {}", error.code, error.message));
        }
    }
    Ok(())
}

/// The statements that make the tables.
pub fn preparation(workers: u32) -> Vec<String> {
    let mut statements = vec![
        "CREATE TABLE torture_rows (w int, k bigint, v bigint, pad text, PRIMARY KEY (w, k))".to_owned(),
        "CREATE INDEX torture_rows_v ON torture_rows (v)".to_owned(),
        "CREATE TABLE torture_left (w int, k bigint, PRIMARY KEY (w, k))".to_owned(),
        "CREATE TABLE torture_right (w int, k bigint, PRIMARY KEY (w, k))".to_owned(),
        "CREATE TABLE torture_counters (w int PRIMARY KEY, n bigint)".to_owned(),
        "CREATE TABLE torture_large (w int, k bigint, v text, PRIMARY KEY (w, k))".to_owned(),
        "CREATE TABLE torture_bulk (w int, k bigint, n int, PRIMARY KEY (w, k, n))".to_owned(),
        "CREATE TABLE torture_accounts (id bigint PRIMARY KEY, balance bigint CHECK (balance > -1000000))"
            .to_owned(),
        format!(
            "INSERT INTO torture_accounts SELECT g, {BALANCE} FROM generate_series(0, {}) g",
            ACCOUNTS - 1
        ),
    ];
    for w in 0..workers {
        statements.push(format!("INSERT INTO torture_counters VALUES ({w}, 0)"));
        statements.push(format!("CREATE TABLE torture_scratch_{w} (n bigint)"));
    }
    statements
}

fn observe(wire: &mut Wire, worker: u32) -> Result<Observed, String> {
    let rows = pairs(wire, &format!("SELECT k, v FROM torture_rows WHERE w = {worker}"))?;
    let left = pairs(wire, &format!("SELECT k, k FROM torture_left WHERE w = {worker}"))?;
    let right = pairs(wire, &format!("SELECT k, k FROM torture_right WHERE w = {worker}"))?;
    let large = pairs(wire, &format!("SELECT k, length(v) FROM torture_large WHERE w = {worker}"))?;
    if let Some((key, bytes)) = large.iter().find(|(_, bytes)| **bytes != LARGE_BYTES) {
        return Err(format!("large row {key} has {bytes} bytes"));
    }
    let bulk = pairs(wire, &format!("SELECT k, count(*) FROM torture_bulk WHERE w = {worker} GROUP BY k"))?;
    if let Some((key, rows)) = bulk.iter().find(|(_, rows)| **rows != BULK_ROWS) {
        return Err(format!("half of a statement: bulk insert {key} has {rows} rows"));
    }
    Ok(Observed {
        large: large.into_keys().collect(),
        bulk: bulk.into_keys().collect(),
        rows,
        left: left.into_keys().collect(),
        right: right.into_keys().collect(),
        counter: number(wire, &format!("SELECT n FROM torture_counters WHERE w = {worker}"))?,
        scratch: number(wire, &format!("SELECT count(*) FROM torture_scratch_{worker}"))?,
    })
}

fn pairs(wire: &mut Wire, sql: &str) -> Result<BTreeMap<i64, i64>, String> {
    let reply = wire.query(sql).map_err(text)?;
    if let Some(error) = reply.error {
        return Err(format!("{sql}: {} {}", error.code, error.message));
    }
    let read = |value: &Option<String>| value.as_ref().and_then(|v| v.parse::<i64>().ok());
    let rows = reply.answers.into_iter().flat_map(|answer| answer.rows);
    rows.map(|row| match (row.first().and_then(read), row.get(1).and_then(read)) {
        (Some(key), Some(value)) => Ok((key, value)),
        _ => Err(format!("{sql}: not two numbers: {row:?}")),
    })
    .collect()
}

fn number(wire: &mut Wire, sql: &str) -> Result<i64, String> {
    let reply = wire.query(sql).map_err(text)?;
    reply.scalar().and_then(|v| v.parse().ok()).ok_or_else(|| format!("{sql}: {:?}", reply.error))
}

fn text(error: io::Error) -> String {
    error.to_string()
}

#[cfg(test)]
mod test {
    use super::*;

    fn ledger() -> (Ledger, Observed) {
        let mut ledger = Ledger::default();
        for operation in [
            Operation::Insert(1, 10),
            Operation::Insert(2, 20),
            Operation::Delete(2),
            Operation::Pair(3),
            Operation::Count,
            Operation::Scratch,
            Operation::Large(4),
            Operation::Bulk(5),
        ] {
            ledger.acknowledge(operation);
        }
        let observed = Observed {
            rows: BTreeMap::from([(1, 10)]),
            left: BTreeSet::from([3]),
            right: BTreeSet::from([3]),
            counter: 1,
            scratch: 1,
            large: BTreeSet::from([4]),
            bulk: BTreeSet::from([5]),
        };
        (ledger, observed)
    }

    #[test]
    fn what_was_acknowledged_and_is_there_passes() {
        let (ledger, observed) = ledger();
        assert!(ledger.audit(&observed).unwrap() > 0);
    }

    #[test]
    fn every_planted_loss_is_found() {
        type Plant = (&'static str, fn(&mut Observed));
        let plants: [Plant; 10] = [
            ("lost row", |o| _ = o.rows.remove(&1)),
            ("old value", |o| _ = o.rows.insert(1, 9)),
            ("resurrected row", |o| _ = o.rows.insert(2, 20)),
            ("row from nowhere", |o| _ = o.rows.insert(7, 7)),
            ("half a transaction", |o| _ = o.right.remove(&3)),
            ("lost transaction", |o| {
                o.left.clear();
                o.right.clear();
            }),
            ("lost increment", |o| o.counter = 0),
            ("truncate undone", |o| o.scratch = 5),
            ("lost large row", |o| o.large.clear()),
            ("lost bulk insert", |o| o.bulk.clear()),
        ];
        for (what, plant) in plants {
            let (ledger, mut observed) = ledger();
            plant(&mut observed);
            assert!(ledger.audit(&observed).is_err(), "{what} was not found");
        }
    }

    #[test]
    fn a_history_knows_what_was_known_at_each_moment() {
        let note = |operation, begun, acknowledged| Note { operation, begun, acknowledged };
        let notes = vec![
            note(Operation::Insert(1, 10), 5, Some(9)),
            note(Operation::Count, 9, Some(20)),
            note(Operation::Pair(3), 20, None),
        ];
        let history = History { worker: 1, notes };
        assert_eq!(history.acknowledged(), 2);
        assert!(history.at(5).in_flight.is_none() && history.at(5).rows.is_empty());
        assert_eq!(history.at(6).in_flight, Some(Operation::Insert(1, 10)));
        assert!(history.at(9).in_flight.is_none());
        assert_eq!((history.at(19).counter, history.at(20).counter), (0, 1));
        assert_eq!(history.at(21).in_flight, Some(Operation::Pair(3)));
    }

    #[test]
    fn an_operation_in_flight_may_have_happened_or_not() {
        let (mut ledger, mut observed) = ledger();
        ledger.in_flight = Some(Operation::Count);
        assert!(ledger.audit(&observed).is_ok());
        observed.counter = 2;
        assert!(ledger.audit(&observed).is_ok());
        ledger.settle(&observed);
        assert_eq!(ledger.counter, 2);
        observed.counter = 3;
        assert!(ledger.audit(&observed).is_err());
    }
}
