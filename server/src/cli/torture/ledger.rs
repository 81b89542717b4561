//! What one connection was told, kept outside the server, and whether what is there can be true.
//!
//! Invariants:
//! - An audit is a pure function of what was told and what is there, so that it can be shown a planted loss.
//! - At most one operation per connection is in doubt: the one whose last statement was sent and not answered. It is
//!   there as a whole or not at all; both are tried.
//! - Keys are never used twice: what was deleted cannot come back unseen.

use std::collections::{BTreeMap, BTreeSet};

use rand::{Rng as _, rngs::StdRng};

/// Accounts that money is moved between.
pub(super) const ACCOUNTS: i64 = 50;
/// What each holds at first.
pub(super) const BALANCE: i64 = 1_000;
/// Rows of one statement that writes many.
pub(super) const MANY: i64 = 20;
/// Above this a connection deletes instead of inserting, so that audits stay short.
const ROWS_MAX: usize = 2_000;
/// How far ahead of the next free slot a connection reaches.
const SLOTS_AHEAD: i64 = 3;

/// One thing a connection does; it is acknowledged as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    /// A row with a key of its own.
    Insert { key: i64, value: i64 },
    /// A new value for a row.
    Update { key: i64, value: i64 },
    /// A row goes.
    Delete { key: i64 },
    /// The same key in two tables, in one transaction.
    Pair { key: i64 },
    /// Many rows by one statement.
    Many { batch: i64 },
    /// One more.
    Count,
    /// Money moved between two accounts and the note about it, in one transaction.
    Transfer { id: i64, from: i64, to: i64, amount: i64 },
    /// A key that others want too.
    Claim { slot: i64 },
    /// A row of the scratch table.
    Scratch,
    /// The scratch table becomes empty.
    Truncate,
}

/// How often each operation was acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    done: [u64; Operation::NAMES.len()],
    /// Races for a key that another connection won.
    pub(super) lost_races: u64,
    /// Operations the server refused as a whole.
    pub(super) refused: u64,
}

impl Counts {
    /// Both together.
    pub(super) fn and(mut self, other: Self) -> Self {
        for (sum, more) in self.done.iter_mut().zip(other.done) {
            *sum += more;
        }
        self.lost_races += other.lost_races;
        self.refused += other.refused;
        self
    }

    /// All that were acknowledged.
    pub(super) fn acknowledged(&self) -> u64 {
        self.done.iter().sum()
    }

    /// Each by its name.
    pub(super) fn text(&self) -> String {
        let each = Operation::NAMES.iter().zip(self.done).map(|(name, count)| format!("{name} {count}"));
        let each: Vec<String> = each.chain([format!("lost race {}", self.lost_races)]).collect();
        each.join(", ")
    }

    /// What never happened in this run, and was therefore not tested.
    pub(super) fn missing(&self) -> Vec<&'static str> {
        let never = Operation::NAMES.iter().zip(self.done).filter(|(_, count)| *count == 0);
        never.map(|(name, _)| *name).chain((self.lost_races == 0).then_some("lost race")).collect()
    }
}

impl Operation {
    const NAMES: [&'static str; 10] =
        ["insert", "update", "delete", "pair", "many", "count", "transfer", "claim", "scratch", "truncate"];

    fn number(&self) -> usize {
        match self {
            Self::Insert { .. } => 0,
            Self::Update { .. } => 1,
            Self::Delete { .. } => 2,
            Self::Pair { .. } => 3,
            Self::Many { .. } => 4,
            Self::Count => 5,
            Self::Transfer { .. } => 6,
            Self::Claim { .. } => 7,
            Self::Scratch => 8,
            Self::Truncate => 9,
        }
    }
}

/// What one connection was told.
#[derive(Clone, Debug)]
pub(super) struct Ledger {
    worker: u32,
    next: i64,
    state: State,
    lost: BTreeSet<i64>,
    in_doubt: Option<Operation>,
    counts: Counts,
}

/// What a connection's part of the tables looks like: as told, and as found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    /// Rows by key.
    pub(super) rows: BTreeMap<i64, i64>,
    /// Keys in the left table of the pairs.
    pub(super) left: BTreeSet<i64>,
    /// Keys in the right one.
    pub(super) right: BTreeSet<i64>,
    /// Rows of each batch.
    pub(super) batches: BTreeMap<i64, i64>,
    /// Notes of transfers.
    pub(super) transfers: BTreeSet<i64>,
    /// Slots this connection holds.
    pub(super) claims: BTreeSet<i64>,
    /// The counter.
    pub(super) counter: i64,
    /// Rows of the scratch table.
    pub(super) scratch: i64,
}

/// What is found for a connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Observed {
    /// Its own part.
    pub(super) state: State,
    /// Slots that anybody holds.
    pub(super) taken: BTreeSet<i64>,
}

impl Ledger {
    /// An empty one.
    pub(super) fn new(worker: u32) -> Self {
        Self {
            worker,
            next: 0,
            state: State::default(),
            lost: BTreeSet::new(),
            in_doubt: None,
            counts: Counts::default(),
        }
    }

    /// Whose it is.
    pub(super) fn worker(&self) -> u32 {
        self.worker
    }

    /// What it counted.
    pub(super) fn counts(&self) -> Counts {
        self.counts
    }

    /// The next operation. `free` is the next slot that nobody is known to hold.
    pub(super) fn choose(&mut self, rng: &mut StdRng, free: i64) -> Operation {
        self.next += 1;
        let key = self.next;
        let value = rng.random_range(0..1_000_000);
        let skip = rng.random_range(0..self.state.rows.len().max(1));
        let old = self.state.rows.keys().nth(skip).copied();
        match (rng.random_range(0..100), old) {
            (0..25, Some(old)) if self.state.rows.len() > ROWS_MAX => Operation::Delete { key: old },
            (0..25, _) | (25..47, None) => Operation::Insert { key, value },
            (25..38, Some(old)) => Operation::Update { key: old, value },
            (38..47, Some(old)) => Operation::Delete { key: old },
            (47..58, _) => Operation::Pair { key },
            (58..63, _) => Operation::Many { batch: key },
            (63..70, _) => Operation::Count,
            (70..85, _) => {
                let from = rng.random_range(0..ACCOUNTS);
                let to = (from + rng.random_range(1..ACCOUNTS)) % ACCOUNTS;
                Operation::Transfer { id: key, from, to, amount: rng.random_range(1..20) }
            }
            (85..93, _) => {
                let slot = rng.random_range(free..free + SLOTS_AHEAD);
                if self.state.claims.contains(&slot) { Operation::Count } else { Operation::Claim { slot } }
            }
            (93..98, _) => Operation::Scratch,
            _ => Operation::Truncate,
        }
    }

    /// Its last statement is about to be sent: from here on only the answer tells whether it happened.
    pub(super) fn doubt(&mut self, operation: &Operation) {
        self.in_doubt = Some(operation.clone());
    }

    /// The server said yes.
    pub(super) fn acknowledge(&mut self, operation: &Operation) {
        self.in_doubt = None;
        self.counts.done[operation.number()] += 1;
        self.state.happen(operation);
    }

    /// The server said no: nothing of it may be there.
    pub(super) fn refuse(&mut self) {
        self.in_doubt = None;
        self.counts.refused += 1;
    }

    /// Somebody else holds the slot.
    pub(super) fn lose(&mut self, slot: i64) {
        self.in_doubt = None;
        self.counts.lost_races += 1;
        self.lost.insert(slot);
    }

    /// Compares what was told with what is there. Answers how many facts were looked at.
    pub(super) fn audit(&self, observed: &Observed) -> Result<u64, String> {
        let first = match self.compare(&self.state, observed) {
            Ok(count) => return Ok(count),
            Err(first) => first,
        };
        let Some(operation) = &self.in_doubt else {
            return Err(format!("connection {}: {first}", self.worker));
        };
        let second = match self.compare(&self.with_doubt(operation), observed) {
            Ok(count) => return Ok(count),
            Err(second) => second,
        };
        Err(format!(
            "connection {}: {first}; or, if {operation:?} in doubt had happened: {second}",
            self.worker
        ))
    }

    fn with_doubt(&self, operation: &Operation) -> State {
        let mut state = self.state.clone();
        state.happen(operation);
        state
    }

    /// After an audit the doubt is over: what is there counts. Answers whether it had happened, if there was one.
    pub(super) fn settle(&mut self, observed: &Observed) -> Option<bool> {
        let operation = self.in_doubt.take()?;
        // Of some operations both worlds look alike, such as an update to the same value; then nothing changes.
        let happened = self.state != observed.state;
        if happened {
            self.state.happen(&operation);
        }
        Some(happened)
    }

    /// A lie for the check: an acknowledged row is said to have had another value.
    pub(super) fn falsify(&mut self, skip: usize) -> bool {
        let doubted = match &self.in_doubt {
            Some(Operation::Update { key, .. } | Operation::Delete { key }) => Some(*key),
            _ => None,
        };
        let keys: Vec<i64> = self.state.rows.keys().filter(|key| Some(**key) != doubted).copied().collect();
        let Some(key) = keys.get(skip % keys.len().max(1)) else { return false };
        self.state.rows.entry(*key).and_modify(|value| *value += 1);
        true
    }

    fn compare(&self, told: &State, observed: &Observed) -> Result<u64, String> {
        let found = &observed.state;
        for (key, value) in &told.rows {
            match found.rows.get(key) {
                None => return Err(format!("acknowledged row {key} is lost")),
                Some(other) if other != value => {
                    return Err(format!("row {key} is {other}, acknowledged was {value}"));
                }
                Some(_) => {}
            }
        }
        if let Some(key) = found.rows.keys().find(|key| !told.rows.contains_key(key)) {
            return Err(format!("row {key} is back after its deletion, or was never acknowledged"));
        }
        if let Some(key) = found.left.symmetric_difference(&found.right).next() {
            return Err(format!("half of a transaction: key {key} is in one table of two"));
        }
        if let Some((batch, count)) = found.batches.iter().find(|(_, count)| **count != MANY) {
            return Err(format!("half of a statement: batch {batch} has {count} rows of {MANY}"));
        }
        differ("pairs", &told.left, &found.left)?;
        differ("batches", &told.batches.keys().copied().collect(), &found.batches.keys().copied().collect())?;
        differ("transfers", &told.transfers, &found.transfers)?;
        differ("claims", &told.claims, &found.claims)?;
        if let Some(slot) = self.lost.difference(&observed.taken).next() {
            return Err(format!("slot {slot} was refused as taken, and nobody has it"));
        }
        if found.counter != told.counter {
            return Err(format!("the counter is {}, acknowledged were {}", found.counter, told.counter));
        }
        if found.scratch != told.scratch {
            return Err(format!("the scratch table has {} rows instead of {}", found.scratch, told.scratch));
        }
        let sets =
            [told.left.len(), told.batches.len(), told.transfers.len(), told.claims.len(), self.lost.len()];
        Ok((told.rows.len() + sets.iter().sum::<usize>()) as u64 + 2)
    }
}

fn differ(what: &str, told: &BTreeSet<i64>, found: &BTreeSet<i64>) -> Result<(), String> {
    if let Some(key) = told.difference(found).next() {
        return Err(format!("{what}: acknowledged {key} is lost"));
    }
    if let Some(key) = found.difference(told).next() {
        return Err(format!("{what}: {key} is there and was never acknowledged"));
    }
    Ok(())
}

impl State {
    fn happen(&mut self, operation: &Operation) {
        match *operation {
            Operation::Insert { key, value } | Operation::Update { key, value } => {
                self.rows.insert(key, value);
            }
            Operation::Delete { key } => {
                self.rows.remove(&key);
            }
            Operation::Pair { key } => {
                self.left.insert(key);
                self.right.insert(key);
            }
            Operation::Many { batch } => {
                self.batches.insert(batch, MANY);
            }
            Operation::Count => self.counter += 1,
            Operation::Transfer { id, .. } => {
                self.transfers.insert(id);
            }
            Operation::Claim { slot } => {
                self.claims.insert(slot);
            }
            Operation::Scratch => self.scratch += 1,
            Operation::Truncate => self.scratch = 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;

    use super::*;

    fn told() -> (Ledger, Observed) {
        let mut ledger = Ledger::new(3);
        for operation in [
            Operation::Insert { key: 1, value: 10 },
            Operation::Insert { key: 2, value: 20 },
            Operation::Delete { key: 2 },
            Operation::Pair { key: 3 },
            Operation::Many { batch: 4 },
            Operation::Count,
            Operation::Transfer { id: 5, from: 0, to: 1, amount: 7 },
            Operation::Claim { slot: 6 },
            Operation::Scratch,
        ] {
            ledger.doubt(&operation);
            ledger.acknowledge(&operation);
        }
        ledger.lose(7);
        let observed = Observed { state: ledger.state.clone(), taken: BTreeSet::from([6, 7]) };
        (ledger, observed)
    }

    #[test]
    fn what_was_acknowledged_and_is_there_passes() {
        let (ledger, observed) = told();
        assert_eq!(ledger.audit(&observed), Ok(8));
    }

    #[test]
    fn every_planted_loss_is_found() {
        type Loss = (&'static str, fn(&mut Observed));
        let losses: [Loss; 13] = [
            ("lost row", |it| _ = it.state.rows.remove(&1)),
            ("old value", |it| _ = it.state.rows.insert(1, 9)),
            ("resurrected row", |it| _ = it.state.rows.insert(2, 20)),
            ("row from nowhere", |it| _ = it.state.rows.insert(99, 9)),
            ("half a transaction", |it| _ = it.state.right.remove(&3)),
            ("lost transaction", |it| {
                it.state.left.clear();
                it.state.right.clear();
            }),
            ("half a statement", |it| _ = it.state.batches.insert(4, MANY - 1)),
            ("lost batch", |it| it.state.batches.clear()),
            ("lost transfer", |it| it.state.transfers.clear()),
            ("lost claim", |it| it.state.claims.clear()),
            ("claim refused for nobody", |it| _ = it.taken.remove(&7)),
            ("lost count", |it| it.state.counter = 0),
            ("undone truncate", |it| it.state.scratch = 5),
        ];
        for (what, lose) in losses {
            let (ledger, mut observed) = told();
            lose(&mut observed);
            assert!(ledger.audit(&observed).is_err(), "{what} was not found");
        }
    }

    #[test]
    fn an_operation_in_doubt_happened_or_did_not() {
        let (mut ledger, mut observed) = told();
        ledger.doubt(&Operation::Count);
        assert!(ledger.audit(&observed).is_ok());
        observed.state.counter = 2;
        assert!(ledger.audit(&observed).is_ok());
        assert_eq!(ledger.settle(&observed), Some(true));
        assert!(ledger.audit(&observed).is_ok());
        observed.state.counter = 3;
        assert!(ledger.audit(&observed).is_err(), "two counts were never in doubt");
    }

    #[test]
    fn an_operation_that_was_refused_must_not_be_there() {
        let (mut ledger, mut observed) = told();
        ledger.doubt(&Operation::Count);
        ledger.refuse();
        observed.state.counter = 2;
        assert!(ledger.audit(&observed).is_err());
    }

    #[test]
    fn the_planted_lie_is_found() {
        let (mut ledger, observed) = told();
        assert!(ledger.falsify(5));
        assert!(ledger.audit(&observed).is_err());
        assert!(!Ledger::new(0).falsify(0), "nothing was acknowledged that could be lied about");
    }

    #[test]
    fn all_operations_are_drawn_and_keys_only_once() {
        let mut ledger = Ledger::new(0);
        let mut rng = StdRng::seed_from_u64(5);
        let mut keys = BTreeSet::new();
        for free in 0..2_000 {
            let operation = ledger.choose(&mut rng, free);
            if let Operation::Insert { key, .. } = operation {
                assert!(keys.insert(key), "{key} twice");
            }
            ledger.acknowledge(&operation);
        }
        ledger.lose(0);
        assert_eq!(ledger.counts().missing(), Vec::<&str>::new());
    }
}
