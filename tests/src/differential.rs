//! Runs what `sqlgen` makes on the server and on PostgreSQL and compares every answer.
//!
//! Three oracles: PostgreSQL (rows as multisets, types, SQLSTATE); the server itself by partition (a query's rows are
//! those where a predicate is true, false, or unknown); and the server itself by another access path.
//!
//! Invariants:
//! - A round is a schema of its own and follows from (seed, round): a difference is found again from those two numbers.
//! - A difference is shrunk before it is printed.
//!
//! Not here: what statements there are.

use std::io;

use crate::Address;
use crate::sqlgen::{Generator, Statement};
use crate::wire::{Reply, Wire};

const STATEMENTS_PER_ROUND: u64 = 250;
/// After that many differences the run ends: they are likely one fault.
const DIFFERENCES_MAX: usize = 20;
/// Rounds of shrinking one difference may cost.
const SHRINKS_MAX: usize = 40;

/// What was asked and what came.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Statements compared.
    pub statements: u64,
    /// Of them, those that returned at least one row on both.
    pub with_rows: u64,
    /// Of them, those that failed with the same SQLSTATE on both.
    pub equal_errors: u64,
    /// One side met a bad value the other never evaluated: not comparable.
    pub order_dependent: u64,
    /// Partition checks done.
    pub partitions: u64,
    /// Twin checks done.
    pub twins: u64,
    /// Differences, each as it is printed.
    pub differences: Vec<String>,
}

/// Runs rounds until that many statements were compared.
pub fn run(
    subject: &Address,
    oracle: &Address,
    seed: u64,
    first_round: u64,
    statements: u64,
) -> io::Result<Report> {
    let mut report = Report::default();
    let mut round = first_round;
    while report.statements < statements && report.differences.len() < DIFFERENCES_MAX {
        one_round(subject, oracle, seed, round, &mut report)?;
        round += 1;
    }
    Ok(report)
}

struct Pair {
    ours: Wire,
    theirs: Wire,
}

impl Pair {
    fn open(subject: &Address, oracle: &Address, schema: &str) -> io::Result<Pair> {
        let (mut ours, mut theirs) = (Wire::connect(subject)?, Wire::connect(oracle)?);
        // Where both are one server, each side has a schema of its own.
        for (wire, side) in [(&mut ours, "a"), (&mut theirs, "b")] {
            for sql in [
                format!("DROP SCHEMA IF EXISTS {schema}{side} CASCADE"),
                format!("CREATE SCHEMA {schema}{side}"),
                format!("SET search_path = {schema}{side}"),
                "SET statement_timeout = '20s'".to_owned(),
                "SET timezone = 'UTC'".to_owned(),
            ] {
                must(wire, &sql)?;
            }
        }
        Ok(Pair { ours, theirs })
    }

    /// Runs on both and says how the answers differ.
    fn compare(&mut self, sql: &str) -> io::Result<Verdict> {
        let (mut ours, mut theirs) = (self.ours.query(sql)?, self.theirs.query(sql)?);
        // PostgreSQL keeps the row of the input it thinks smaller: of 0 and 0.000 either may stand for both.
        if sql.contains(" INTERSECT ") {
            forget_scale(&mut ours);
            forget_scale(&mut theirs);
        }
        Ok(judge(&ours, &theirs))
    }

    fn close(mut self, schema: &str) -> io::Result<()> {
        must(&mut self.ours, &format!("DROP SCHEMA {schema}a CASCADE"))?;
        must(&mut self.theirs, &format!("DROP SCHEMA {schema}b CASCADE"))
    }
}

fn must(wire: &mut Wire, sql: &str) -> io::Result<()> {
    match wire.query(sql)?.error {
        None => Ok(()),
        Some(error) => Err(io::Error::other(format!("{sql}: {} {}", error.code, error.message))),
    }
}

/// How two answers compare.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    Equal { rows: usize },
    EqualError,
    OrderDependent,
    Different(String),
}

fn judge(ours: &Reply, theirs: &Reply) -> Verdict {
    let describe = |reply: &Reply| match &reply.error {
        Some(error) => format!("{} {}", error.code, error.message),
        None => format!("{} rows {:?}", rows(reply).len(), rows(reply).iter().take(5).collect::<Vec<_>>()),
    };
    let different =
        || Verdict::Different(format!("expected {}\n     got {}", describe(theirs), describe(ours)));
    match (&ours.error, &theirs.error) {
        (Some(a), Some(b)) if a.code == b.code => Verdict::EqualError,
        // Class 22: a bad value. Which rows are looked at first is nobody's promise.
        (Some(a), None) if a.code.starts_with("22") => Verdict::OrderDependent,
        (None, Some(b)) if b.code.starts_with("22") => Verdict::OrderDependent,
        (Some(a), Some(b)) if a.code.starts_with("22") && b.code.starts_with("22") => Verdict::OrderDependent,
        (Some(_), _) | (_, Some(_)) => different(),
        (None, None) => {
            let (a, b) = (rows(ours), rows(theirs));
            let types = |reply: &Reply| -> Vec<u32> {
                let columns = reply.answers.last().and_then(|answer| answer.columns.clone());
                columns.unwrap_or_default().iter().map(|c| c.oid).collect()
            };
            let tags = |reply: &Reply| reply.answers.last().map(|answer| answer.tag.clone());
            if types(ours) != types(theirs) {
                return Verdict::Different(format!(
                    "expected types {:?}\n     got {:?}",
                    types(theirs),
                    types(ours)
                ));
            }
            if a == b && tags(ours) == tags(theirs) { Verdict::Equal { rows: a.len() } } else { different() }
        }
    }
}

/// Writes every `numeric` without the zeros at its end.
fn forget_scale(reply: &mut Reply) {
    const NUMERIC_OID: u32 = 1700;
    for answer in &mut reply.answers {
        let columns = answer.columns.as_deref().unwrap_or_default();
        for row in &mut answer.rows {
            for (value, column) in row.iter_mut().zip(columns) {
                if let (Some(text), NUMERIC_OID) = (value, column.oid)
                    && text.contains('.')
                {
                    text.truncate(text.trim_end_matches('0').trim_end_matches('.').len());
                }
            }
        }
    }
}

/// The rows of the last answer, sorted.
fn rows(reply: &Reply) -> Vec<Vec<Option<String>>> {
    let mut rows = reply.answers.last().map(|answer| answer.rows.clone()).unwrap_or_default();
    rows.sort();
    rows
}

fn one_round(
    subject: &Address,
    oracle: &Address,
    seed: u64,
    round: u64,
    report: &mut Report,
) -> io::Result<()> {
    let mut generator = Generator::new(seed.wrapping_add(round.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    let schema = format!("diff{round}");
    let mut pair = Pair::open(subject, oracle, &schema)?;
    let place = format!("seed {seed} round {round}");
    for sql in generator.setup() {
        must(&mut pair.theirs, &sql)?;
        if let Some(error) = pair.ours.query(&sql)?.error {
            report.statements += 1;
            report.differences.push(format!("{place}: {sql}\n     got {} {}", error.code, error.message));
            return Ok(());
        }
    }
    for _ in 0..STATEMENTS_PER_ROUND {
        let statement = generator.statement();
        report.statements += 1;
        let verdict = pair.compare(&statement.sql())?;
        let mut failed = None;
        match verdict {
            Verdict::Equal { rows } => report.with_rows += u64::from(rows > 0),
            Verdict::EqualError => report.equal_errors += 1,
            Verdict::OrderDependent => report.order_dependent += 1,
            Verdict::Different(detail) => failed = Some(shrink(&mut pair, &statement, detail)?),
        }
        if failed.is_none() {
            failed = metamorphic(&mut pair.ours, &statement, report)?;
        }
        if let (Statement::Change { table, .. }, None) = (&statement, &failed) {
            let sql = format!("SELECT * FROM {table}");
            if let Verdict::Different(detail) = pair.compare(&sql)? {
                failed = Some(format!("{} ; then {sql}\n     {detail}", statement.sql()));
            }
        }
        if let Some(text) = failed {
            report.differences.push(format!("{place}: {text}"));
            // A change that went wrong makes everything after it wrong: on to the next round.
            if matches!(statement, Statement::Change { .. } | Statement::Index(_))
                || report.differences.len() >= DIFFERENCES_MAX
            {
                return Ok(());
            }
        }
    }
    pair.close(&schema)
}

/// Checks of the server against itself.
fn metamorphic(ours: &mut Wire, statement: &Statement, report: &mut Report) -> io::Result<Option<String>> {
    match statement {
        Statement::Partition(select, predicate) => {
            let whole = ours.query(&select.sql())?;
            let mut parts = Vec::new();
            for test in ["IS TRUE", "IS FALSE", "IS NULL"] {
                let reply = ours.query(&select.and(&format!("({predicate}) {test}")).sql())?;
                if reply.error.is_some() {
                    return Ok(None);
                }
                parts.extend(rows(&reply));
            }
            parts.sort();
            report.partitions += 1;
            if whole.error.is_none() && rows(&whole) != parts {
                let counts = (rows(&whole).len(), parts.len());
                return Ok(Some(format!(
                    "{}\n     partitioned by {predicate}: {} rows are {} in parts",
                    select.sql(),
                    counts.0,
                    counts.1
                )));
            }
            Ok(None)
        }
        Statement::Twin(a, b) => {
            let (first, second) = (ours.query(a)?, ours.query(b)?);
            report.twins += 1;
            match judge(&first, &second) {
                Verdict::Different(detail) => Ok(Some(format!("{a}\n     is not {b}\n     {detail}"))),
                Verdict::Equal { .. } | Verdict::EqualError | Verdict::OrderDependent => Ok(None),
            }
        }
        Statement::Query(_) | Statement::Set(..) | Statement::Change { .. } | Statement::Index(_) => Ok(None),
    }
}

/// Leaves out parts as long as the answers still differ.
fn shrink(pair: &mut Pair, statement: &Statement, detail: String) -> io::Result<String> {
    let (mut smallest, mut detail) = (statement.clone(), detail);
    let mut tries = 0;
    'again: loop {
        for candidate in smallest.smaller() {
            tries += 1;
            if tries > SHRINKS_MAX {
                break 'again;
            }
            if let Verdict::Different(found) = pair.compare(&candidate.sql())? {
                (smallest, detail) = (candidate, found);
                continue 'again;
            }
        }
        break;
    }
    Ok(format!("{}\n     {detail}", smallest.sql()))
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::wire::{Answer, Column, Problem};

    fn reply(oid: u32, values: &[&str]) -> Reply {
        let answer = Answer {
            columns: Some(vec![Column { name: "a".into(), table: 0, oid, format: 0 }]),
            rows: values.iter().map(|v| vec![Some((*v).to_owned())]).collect(),
            tag: format!("SELECT {}", values.len()),
        };
        Reply { answers: vec![answer], ..Reply::default() }
    }

    fn error(code: &str) -> Reply {
        Reply { error: Some(Problem { code: code.into(), ..Problem::default() }), ..Reply::default() }
    }

    #[test]
    fn rows_are_a_multiset() {
        assert_eq!(judge(&reply(23, &["1", "2"]), &reply(23, &["2", "1"])), Verdict::Equal { rows: 2 });
        for wrong in
            [reply(23, &["1"]), reply(23, &["1", "1", "2"]), reply(23, &["1", "3"]), reply(20, &["1", "2"])]
        {
            assert!(matches!(judge(&wrong, &reply(23, &["1", "2"])), Verdict::Different(_)), "{wrong:?}");
        }
    }

    #[test]
    fn forgetting_the_scale_keeps_the_value() {
        for (text, kept) in
            [("0.000", "0"), ("1.50", "1.5"), ("100", "100"), ("-20.0", "-20"), ("NaN", "NaN")]
        {
            let mut numeric = reply(1700, &[text]);
            forget_scale(&mut numeric);
            assert_eq!(rows(&numeric), rows(&reply(1700, &[kept])));
        }
        let mut text = reply(25, &["1.0"]);
        forget_scale(&mut text);
        assert_eq!(rows(&text), rows(&reply(25, &["1.0"])), "only numerics");
    }

    #[test]
    fn an_error_of_ours_is_a_difference_unless_it_is_a_bad_value() {
        assert_eq!(judge(&error("42601"), &error("42601")), Verdict::EqualError);
        assert!(matches!(judge(&error("0A000"), &reply(23, &[])), Verdict::Different(_)));
        assert!(matches!(judge(&error("XX000"), &error("42601")), Verdict::Different(_)));
        assert_eq!(judge(&error("22012"), &reply(23, &[])), Verdict::OrderDependent);
    }
}
