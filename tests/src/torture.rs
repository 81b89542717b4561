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
}

/// What a worker's keys look like now.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    rows: BTreeMap<i64, i64>,
    left: BTreeSet<i64>,
    right: BTreeSet<i64>,
    counter: i64,
    scratch: i64,
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
            92..98 => Operation::Scratch,
            _ => Operation::Truncate,
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
        Ok((self.rows.len() + self.gone.len() + self.pairs.len()) as u64 + 2)
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
        let mut wire = Wire::connect(&victim.address().map_err(text)?).map_err(text)?;
        for ledger in &mut ledgers {
            report.unknown += u64::from(ledger.in_flight.is_some());
            let observed = observe(&mut wire, ledger.worker).map_err(|e| format!("kill {kill}: {e}"))?;
            report.checked += ledger.audit(&observed).map_err(|e| format!("kill {kill}: {e}"))?;
            ledger.settle(&observed);
        }
        let sum = number(&mut wire, "SELECT sum(balance) FROM torture_accounts")?;
        if sum != ACCOUNTS * BALANCE {
            return Err(format!("kill {kill}: the accounts hold {sum} instead of {}", ACCOUNTS * BALANCE));
        }
        let indexed = number(&mut wire, "SELECT count(*) FROM torture_rows WHERE v >= 0")?;
        let counted = number(&mut wire, "SELECT count(*) FROM torture_rows")?;
        if indexed != counted {
            return Err(format!("kill {kill}: the index has {indexed} rows, the table {counted}"));
        }
        report.checked += 2;
        report.kills += 1;
    }
    report.acknowledged = ledgers.iter().map(|ledger| ledger.acknowledged).sum();
    Ok(report)
}

fn work(ledger: &mut Ledger, address: &Address, seed: u64, stop: &AtomicBool) -> Result<(), String> {
    let mut rng = StdRng::seed_from_u64(seed);
    let Ok(mut wire) = Wire::connect(address) else { return Ok(()) };
    while !stop.load(Ordering::Relaxed) {
        let operation = ledger.choose(&mut rng);
        ledger.in_flight = Some(operation.clone());
        for statement in ledger.statements(&operation) {
            let Ok(reply) = wire.query(&statement) else { return Ok(()) };
            match reply.error {
                None => {}
                // The server says goodbye: as good as a lost connection, since it may have said it after the commit.
                Some(error) if error.code.starts_with("57P") || error.code == "08007" => return Ok(()),
                Some(error) => return Err(format!("{statement}: {} {}", error.code, error.message)),
            }
        }
        ledger.in_flight = None;
        ledger.acknowledge(operation);
    }
    Ok(())
}

fn prepare(address: &Address, workers: u32) -> Result<(), String> {
    let mut statements = vec![
        "CREATE TABLE torture_rows (w int, k bigint, v bigint, pad text, PRIMARY KEY (w, k))".to_owned(),
        "CREATE INDEX torture_rows_v ON torture_rows (v)".to_owned(),
        "CREATE TABLE torture_left (w int, k bigint, PRIMARY KEY (w, k))".to_owned(),
        "CREATE TABLE torture_right (w int, k bigint, PRIMARY KEY (w, k))".to_owned(),
        "CREATE TABLE torture_counters (w int PRIMARY KEY, n bigint)".to_owned(),
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
    let mut wire = Wire::connect(address).map_err(text)?;
    for statement in statements {
        let reply = wire.query(&statement).map_err(text)?;
        if let Some(error) = reply.error {
            return Err(format!("{statement}: {} {}", error.code, error.message));
        }
    }
    Ok(())
}

fn observe(wire: &mut Wire, worker: u32) -> Result<Observed, String> {
    let rows = pairs(wire, &format!("SELECT k, v FROM torture_rows WHERE w = {worker}"))?;
    let left = pairs(wire, &format!("SELECT k, k FROM torture_left WHERE w = {worker}"))?;
    let right = pairs(wire, &format!("SELECT k, k FROM torture_right WHERE w = {worker}"))?;
    Ok(Observed {
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
        ] {
            ledger.acknowledge(operation);
        }
        let observed = Observed {
            rows: BTreeMap::from([(1, 10)]),
            left: BTreeSet::from([3]),
            right: BTreeSet::from([3]),
            counter: 1,
            scratch: 1,
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
        let plants: [Plant; 8] = [
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
        ];
        for (what, plant) in plants {
            let (ledger, mut observed) = ledger();
            plant(&mut observed);
            assert!(ledger.audit(&observed).is_err(), "{what} was not found");
        }
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
