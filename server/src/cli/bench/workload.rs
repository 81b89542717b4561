//! The loads of `bench sql`: their tables, their statements, and the ratios they are held to.
//!
//! Invariants:
//! - Every server gets the same statements with parameters drawn the same way.
//! - An operation that touches another number of rows than it should is an error, not a fast operation.

use std::{
    fmt::Write as _,
    sync::atomic::{AtomicI64, Ordering},
};

use rand::{Rng as _, SeedableRng as _, rngs::StdRng};

use crate::{
    cli::client::{Client, ClientError},
    exit::Failure,
};

/// pgbench's own proportions, per unit of scale.
const ACCOUNTS: i64 = 100_000;
const TELLERS: i64 = 10;
const SMALL_ROWS: i64 = 1_000;
/// Rows of one COPY while loading: no command is larger than it need be.
const LOAD_ROWS: i64 = 100_000;

/// How large the tables are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// As `pgbench --scale`.
    pub(super) scale: i64,
}

impl Sizes {
    /// Rows of the large table, and of what COPY brings in.
    pub(super) fn accounts(self) -> i64 {
        self.scale * ACCOUNTS
    }
}

/// A load.
pub(super) struct Workload {
    /// Its name for `--only` and in the table.
    pub(super) name: &'static str,
    /// What it is, for the help and the list.
    pub(super) about: &'static str,
    /// Numbers of connections it is made for.
    pub(super) clients: &'static [usize],
    /// What an operation is.
    pub(super) kind: Kind,
    /// Whether an operation waits for the disk.
    pub(super) is_durable: bool,
    /// Ours ÷ PostgreSQL's, at a number of connections.
    pub(super) peer_gates: &'static [(usize, f64)],
    /// Ours ÷ the no-op server's.
    pub(super) ceiling_gates: &'static [(usize, f64)],
}

/// What an operation is.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    /// One statement.
    Statement(Statement),
    /// One statement, and the same on a small table: ours on the large one is held to ours on the small one.
    Constant {
        /// On the large table.
        large: Statement,
        /// On the small one.
        small: Statement,
    },
    /// Rows brought in by one COPY; a row counts as an operation.
    Copy,
    /// pgbench's built-in transaction.
    Tpcb,
}

/// One statement with parameters.
#[derive(Clone, Copy)]
pub(super) struct Statement {
    /// With `$1`, `$2`.
    pub(super) sql: &'static str,
    /// How it is asked.
    pub(super) protocol: Protocol,
    /// Its parameters.
    pub(super) draw: fn(&mut Draw) -> Vec<i64>,
    /// What its command tag must count; none if that is not fixed.
    pub(super) count: Option<u64>,
}

/// Which of the two protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    /// Bind, Execute, Sync.
    Prepared,
    /// Query.
    Simple,
}

/// Where one connection's parameters come from.
pub(super) struct Draw {
    rng: StdRng,
    sizes: Sizes,
}

/// Keys for inserts: used once in a run, by whoever.
static NEXT_KEY: AtomicI64 = AtomicI64::new(1);

impl Draw {
    /// A source for one connection.
    pub(super) fn new(seed: u64, sizes: Sizes) -> Self {
        Self { rng: StdRng::seed_from_u64(seed), sizes }
    }

    fn account(&mut self) -> i64 {
        self.rng.random_range(1..=self.sizes.accounts())
    }

    fn delta(&mut self) -> i64 {
        self.rng.random_range(-5_000..=5_000)
    }

    /// The statements of pgbench's `tpcb-like`.
    pub(super) fn transaction(&mut self) -> [String; 7] {
        let (aid, delta) = (self.account(), self.delta());
        let bid = self.rng.random_range(1..=self.sizes.scale);
        let tid = self.rng.random_range(1..=self.sizes.scale * TELLERS);
        [
            "BEGIN".to_owned(),
            format!("UPDATE pgbench_accounts SET abalance = abalance + {delta} WHERE aid = {aid}"),
            format!("SELECT abalance FROM pgbench_accounts WHERE aid = {aid}"),
            format!("UPDATE pgbench_tellers SET tbalance = tbalance + {delta} WHERE tid = {tid}"),
            format!("UPDATE pgbench_branches SET bbalance = bbalance + {delta} WHERE bid = {bid}"),
            format!(
                "INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) \
                 VALUES ({tid}, {bid}, {aid}, {delta}, CURRENT_TIMESTAMP)"
            ),
            "END".to_owned(),
        ]
    }
}

impl Statement {
    const fn prepared(sql: &'static str, draw: fn(&mut Draw) -> Vec<i64>, count: u64) -> Self {
        Self { sql, protocol: Protocol::Prepared, draw, count: Some(count) }
    }

    const fn simple(sql: &'static str, draw: fn(&mut Draw) -> Vec<i64>, count: Option<u64>) -> Self {
        Self { sql, protocol: Protocol::Simple, draw, count }
    }

    /// The text with the parameters in their places, as a client of the simple protocol sends it.
    pub(super) fn text(&self, parameters: &[i64]) -> String {
        let mut text = self.sql.to_owned();
        for (at, value) in parameters.iter().enumerate().rev() {
            text = text.replace(&format!("${}", at + 1), &value.to_string());
        }
        text
    }
}

const GET: &str = "SELECT abalance FROM pgbench_accounts WHERE aid = $1";
const DURABLE_GATES: &[(usize, f64)] = &[(1, 1.0), (16, 1.3), (64, 2.0)];

fn by_key(draw: &mut Draw) -> Vec<i64> {
    vec![draw.account()]
}

fn nothing(_: &mut Draw) -> Vec<i64> {
    Vec::new()
}

/// All loads, in the order they are run: those that only read come first, while both sides' tables are as loaded.
pub(super) const WORKLOADS: &[Workload] = &[
    Workload {
        name: "get-prepared",
        about: "prepared SELECT of one row by key",
        clients: &[1, 16],
        kind: Kind::Statement(Statement::prepared(GET, by_key, 1)),
        is_durable: false,
        peer_gates: &[(1, 1.0), (16, 2.0)],
        ceiling_gates: &[(16, 0.85)],
    },
    Workload {
        name: "get-simple",
        about: "the same in the simple protocol",
        clients: &[16],
        kind: Kind::Statement(Statement::simple(GET, by_key, Some(1))),
        is_durable: false,
        peer_gates: &[(16, 2.0)],
        ceiling_gates: &[],
    },
    Workload {
        name: "range-100",
        about: "prepared SELECT of 100 rows by a range of keys",
        clients: &[16],
        kind: Kind::Statement(Statement::prepared(
            "SELECT aid, abalance FROM pgbench_accounts WHERE aid >= $1 AND aid < $2",
            |draw| {
                let from = draw.rng.random_range(1..=draw.sizes.accounts() - 100);
                vec![from, from + 100]
            },
            100,
        )),
        is_durable: false,
        peer_gates: &[(16, 1.0)],
        ceiling_gates: &[],
    },
    Workload {
        name: "join-key",
        about: "prepared join of two tables by key",
        clients: &[16],
        kind: Kind::Statement(Statement::prepared(
            "SELECT a.aid, a.abalance, b.bbalance FROM pgbench_accounts a \
             JOIN pgbench_branches b ON b.bid = a.bid WHERE a.aid = $1",
            by_key,
            1,
        )),
        is_durable: false,
        peer_gates: &[(16, 1.5)],
        ceiling_gates: &[],
    },
    Workload {
        name: "sum-count",
        about: "sum and count over all accounts",
        clients: &[1],
        kind: Kind::Statement(Statement::simple(
            "SELECT sum(abalance), count(filler) FROM pgbench_accounts",
            nothing,
            Some(1),
        )),
        is_durable: false,
        peer_gates: &[(1, 0.6)],
        ceiling_gates: &[],
    },
    Workload {
        name: "count-rows",
        about: "count(*) of all accounts; held to count(*) of 1,000 rows, since it must not depend on the size",
        clients: &[1],
        kind: Kind::Constant {
            large: Statement::simple("SELECT count(*) FROM pgbench_accounts", nothing, Some(1)),
            small: Statement::simple("SELECT count(*) FROM bench_small", nothing, Some(1)),
        },
        is_durable: false,
        peer_gates: &[],
        ceiling_gates: &[],
    },
    Workload {
        name: "group-by",
        about: "count and sum of all accounts by branch",
        clients: &[1],
        kind: Kind::Statement(Statement::simple(
            "SELECT bid, count(*), sum(abalance) FROM pgbench_accounts GROUP BY bid",
            nothing,
            None,
        )),
        is_durable: false,
        peer_gates: &[(1, 1.0)],
        ceiling_gates: &[],
    },
    Workload {
        name: "copy-in",
        about: "COPY of narrow rows into an empty table, counted in rows",
        clients: &[1],
        kind: Kind::Copy,
        is_durable: true,
        peer_gates: &[(1, 1.0)],
        ceiling_gates: &[],
    },
    Workload {
        name: "update-durable",
        about: "prepared UPDATE of one row by key, committed",
        clients: &[1, 16, 64],
        kind: Kind::Statement(Statement::prepared(
            "UPDATE pgbench_accounts SET abalance = abalance + $1 WHERE aid = $2",
            |draw| vec![draw.delta(), draw.account()],
            1,
        )),
        is_durable: true,
        peer_gates: DURABLE_GATES,
        ceiling_gates: &[],
    },
    Workload {
        name: "insert-durable",
        about: "prepared INSERT of one row, committed",
        clients: &[1, 16, 64],
        kind: Kind::Statement(Statement::prepared(
            "INSERT INTO bench_insert (id, v, note) VALUES ($1, $2, 'a note of a usual length')",
            |draw| vec![NEXT_KEY.fetch_add(1, Ordering::Relaxed), draw.delta()],
            1,
        )),
        is_durable: true,
        peer_gates: DURABLE_GATES,
        ceiling_gates: &[],
    },
    Workload {
        name: "tpcb-like",
        about: "pgbench's transaction of five statements; its four sums must agree, after a kill too",
        clients: &[32],
        kind: Kind::Tpcb,
        is_durable: true,
        peer_gates: &[(32, 1.3)],
        ceiling_gates: &[],
    },
];

/// Makes and fills the tables.
pub(super) fn load(client: &mut Client, sizes: Sizes) -> Result<(), Failure> {
    let tables = [
        "CREATE TABLE pgbench_branches (bid int PRIMARY KEY, bbalance int, filler char(88))",
        "CREATE TABLE pgbench_tellers (tid int PRIMARY KEY, bid int, tbalance int, filler char(84))",
        "CREATE TABLE pgbench_accounts (aid int PRIMARY KEY, bid int, abalance int, filler char(84))",
        "CREATE TABLE pgbench_history (tid int, bid int, aid int, delta int, mtime timestamp, filler char(22))",
        "CREATE TABLE bench_small (id int PRIMARY KEY, v int)",
        "CREATE TABLE bench_insert (id bigint PRIMARY KEY, v int, note text)",
        "CREATE TABLE bench_copy (a int, b int)",
    ];
    for table in tables {
        run(client, table)?;
    }
    let pad = "x".repeat(80);
    copy(client, "pgbench_branches (bid, bbalance)", 1..=sizes.scale, |id, out| {
        let _ = writeln!(out, "{id}\t0");
    })?;
    copy(client, "pgbench_tellers (tid, bid, tbalance)", 1..=sizes.scale * TELLERS, |id, out| {
        let _ = writeln!(out, "{id}\t{}\t0", (id - 1) / TELLERS + 1);
    })?;
    copy(client, "pgbench_accounts", 1..=sizes.accounts(), |id, out| {
        let _ = writeln!(out, "{id}\t{}\t0\t{pad}", (id - 1) / ACCOUNTS + 1);
    })?;
    copy(client, "bench_small", 1..=SMALL_ROWS, |id, out| {
        let _ = writeln!(out, "{id}\t{}", id % 7);
    })?;
    // PostgreSQL's planner and visibility map want it; where it is not needed it may be refused.
    if let Err(refusal) = client.query("VACUUM ANALYZE", |_| {})
        && refusal.code().is_none()
    {
        return Err(refusal.into());
    }
    Ok(())
}

fn copy(
    client: &mut Client,
    into: &str,
    ids: std::ops::RangeInclusive<i64>,
    line: impl Fn(i64, &mut String),
) -> Result<(), Failure> {
    let mut from = *ids.start();
    while from <= *ids.end() {
        let to = ids.end().min(&(from + LOAD_ROWS - 1)).to_owned();
        let mut text = String::new();
        (from..=to).for_each(|id| line(id, &mut text));
        copy_text(client, into, &text)?;
        from = to + 1;
    }
    Ok(())
}

/// One COPY of lines.
pub(super) fn copy_text(client: &mut Client, into: &str, text: &str) -> Result<(), ClientError> {
    client.query_with_input(&format!("COPY {into} FROM STDIN"), Some(&mut text.as_bytes()), &mut |_| {})
}

/// The lines that `copy-in` brings in.
pub(super) fn narrow_rows(count: i64) -> String {
    let mut text = String::with_capacity(count as usize * 14);
    for id in 0..count {
        let _ = writeln!(text, "{id}\t{}", id % 1_000);
    }
    text
}

fn run(client: &mut Client, sql: &str) -> Result<(), ClientError> {
    client.query(sql, |_| {})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_of_the_simple_protocol_has_its_parameters_in_place() {
        let statement = Statement::simple("SELECT $1, $2, $1", nothing, None);
        assert_eq!(statement.text(&[5, -6]), "SELECT 5, -6, 5");
    }

    #[test]
    fn every_gate_is_at_a_number_of_clients_that_is_run() {
        for workload in WORKLOADS {
            for (clients, _) in workload.peer_gates.iter().chain(workload.ceiling_gates) {
                assert!(workload.clients.contains(clients), "{} at {clients}", workload.name);
            }
        }
    }

    #[test]
    fn the_transaction_changes_all_four_sums_by_the_same() {
        let statements = Draw::new(7, Sizes { scale: 2 }).transaction();
        let delta = statements[1].split_whitespace().nth(7).expect("abalance + delta").to_owned();
        assert!(statements[3].contains(&format!("tbalance + {delta} ")), "{statements:?}");
        assert!(statements[4].contains(&format!("bbalance + {delta} ")), "{statements:?}");
        assert!(statements[5].contains(&format!(", {delta}, CURRENT")), "{statements:?}");
    }

    #[test]
    fn a_seed_draws_the_same_parameters_again() {
        let draw = || Draw::new(11, Sizes { scale: 1 }).transaction();
        assert_eq!(draw(), draw());
    }
}
