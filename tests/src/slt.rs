//! Statement files: what each statement must answer, checked on the server and on PostgreSQL in the same run.
//!
//! The format is sqllogictest's: records end at an empty line; `statement ok`, `statement count N`,
//! `statement error SQLSTATE`, and `query TYPES [rowsort]` with `----` and one line per row, values joined by
//! `|`, NULL as `NULL`, an empty text as `(empty)`, control characters and a blank at the end escaped. `connection NAME` before a record
//! sends it over that connection. Types: `I` integer, `R` other number, `B` boolean, `T` the rest, `-` no column.
//!
//! Invariants:
//! - Expected results come from PostgreSQL: a file that disagrees with it fails on its own account.
//! - Every file runs in a new database, so that files may run in any order.
//! - Files under `keystead/` are about what is ours alone: they run on the server only.
//! - What differs on purpose stands in `differences.txt` with its reason; a line there that no longer differs fails.
//!
//! Not here: random statements (`differential`).

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::Address;
use crate::wire::{Reply, Wire};

/// One statement and what it must answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Line of its first word in the file.
    pub line: usize,
    /// Connection it goes over; empty for the first one.
    pub connection: String,
    /// Comment lines before it.
    pub comments: Vec<String>,
    /// The statement.
    pub sql: String,
    /// What must come back.
    pub expected: Expected,
}

/// What a record says about its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Nothing is written down yet: to be completed from the oracle.
    Open,
    /// It succeeds.
    Ok,
    /// It succeeds and touches that many rows.
    Count(u64),
    /// It fails with that SQLSTATE.
    Error(String),
    /// It returns these rows.
    Rows {
        /// One letter per column.
        types: String,
        /// Rows are compared sorted.
        sorted: bool,
        /// Rows in text form.
        rows: Vec<String>,
    },
}

/// A difference between what is expected and what came.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Difference {
    /// File relative to the suite.
    pub file: String,
    /// The statement on one line.
    pub sql: String,
    /// Where, and what was expected and got.
    pub detail: String,
}

/// What one file gave.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Statements run.
    pub statements: usize,
    /// Those that differ on the server under test.
    pub differences: Vec<Difference>,
    /// Those where the file disagrees with PostgreSQL.
    pub wrong_files: Vec<Difference>,
}

/// Reads a file into records.
pub fn parse(text: &str) -> Result<Vec<Record>, String> {
    let lines: Vec<&str> = text.lines().collect();
    let mut records = Vec::new();
    let mut connection = String::new();
    let mut comments = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let line = lines[at].trim_end();
        if line.is_empty() {
            at += 1;
            continue;
        }
        if line.starts_with('#') {
            comments.push(line.to_owned());
            at += 1;
            continue;
        }
        if let Some(name) = line.strip_prefix("connection ") {
            connection = name.trim().to_owned();
            at += 1;
            continue;
        }
        let start = at;
        let words: Vec<&str> = line.split_whitespace().collect();
        let head = match words[0] {
            "statement" | "query" => {
                at += 1;
                Some(words)
            }
            _ => None,
        };
        let mut block = Vec::new();
        while at < lines.len() && !lines[at].trim_end().is_empty() {
            block.push(lines[at].trim_end());
            at += 1;
        }
        let mut push = |sql: String, expected: Expected| {
            records.push(Record {
                line: start + 1,
                connection: std::mem::take(&mut connection),
                comments: std::mem::take(&mut comments),
                sql,
                expected,
            });
        };
        let Some(words) = head else {
            open_statements(&block).into_iter().for_each(|sql| push(sql, Expected::Open));
            continue;
        };
        let split = block.iter().position(|l| *l == "----");
        let sql = block[..split.unwrap_or(block.len())].join("\n");
        let expected = match (words[0], words.get(1).copied(), words.get(2).copied()) {
            ("statement", Some("ok"), None) => Expected::Ok,
            ("statement", Some("count"), Some(n)) => {
                Expected::Count(n.parse().map_err(|e| format!("line {}: {e}", start + 1))?)
            }
            ("statement", Some("error"), Some(code)) => Expected::Error(code.to_owned()),
            ("query", Some(types), sort) => Expected::Rows {
                types: types.to_owned(),
                sorted: sort == Some("rowsort"),
                rows: split
                    .map(|s| block[s + 1..].iter().map(|l| (*l).to_owned()).collect())
                    .unwrap_or_default(),
            },
            _ => return Err(format!("line {}: unknown record {:?}", start + 1, words)),
        };
        push(sql, expected);
    }
    Ok(records)
}

/// Splits a block without a head into statements: each ends with `;` at the end of a line.
fn open_statements(block: &[&str]) -> Vec<String> {
    let mut statements = Vec::new();
    let mut open = String::new();
    for line in block {
        if !open.is_empty() {
            open.push('\n');
        }
        open.push_str(line);
        if line.ends_with(';') {
            open.pop();
            statements.push(std::mem::take(&mut open));
        }
    }
    if !open.is_empty() {
        statements.push(open);
    }
    statements
}

/// Writes records in the form [`parse`] reads.
pub fn print(records: &[Record]) -> String {
    let mut text = String::new();
    for record in records {
        if !text.is_empty() {
            text.push('\n');
        }
        for comment in &record.comments {
            text.push_str(comment);
            text.push('\n');
        }
        if !record.comments.is_empty()
            && text.len() == record.comments.iter().map(|c| c.len() + 1).sum::<usize>()
        {
            text.push('\n');
        }
        if !record.connection.is_empty() {
            text.push_str(&format!("connection {}\n", record.connection));
        }
        let sql = &record.sql;
        match &record.expected {
            Expected::Open => text.push_str(&format!("{sql};\n")),
            Expected::Ok => text.push_str(&format!("statement ok\n{sql}\n")),
            Expected::Count(n) => text.push_str(&format!("statement count {n}\n{sql}\n")),
            Expected::Error(code) => text.push_str(&format!("statement error {code}\n{sql}\n")),
            Expected::Rows { types, sorted, rows } => {
                let sort = if *sorted { " rowsort" } else { "" };
                text.push_str(&format!("query {types}{sort}\n{sql}\n----\n"));
                rows.iter().for_each(|row| text.push_str(&format!("{row}\n")));
            }
        }
    }
    text
}

/// What a reply says, in the words of a file. `like` decides between forms that mean the same.
pub fn observed(sql: &str, reply: &Reply, like: &Expected) -> Expected {
    if let Some(error) = &reply.error {
        return Expected::Error(error.code.clone());
    }
    let Some(answer) = reply.answers.last() else { return Expected::Ok };
    let count = || answer.tag.rsplit(' ').next().and_then(|n| n.parse().ok());
    match (&answer.columns, like) {
        (Some(columns), _) => {
            let mut types: String = columns.iter().map(|c| letter(c.oid)).collect();
            if types.is_empty() {
                types.push('-');
            }
            let mut rows: Vec<String> = answer.rows.iter().map(|row| show_row(row)).collect();
            let sorted = match like {
                Expected::Rows { sorted, .. } => *sorted,
                _ => rows.len() > 1 && !sql.to_ascii_lowercase().contains("order by"),
            };
            if sorted {
                rows.sort();
            }
            Expected::Rows { types, sorted, rows }
        }
        (None, Expected::Ok) => Expected::Ok,
        (None, _) => {
            let word = answer.tag.split(' ').next().unwrap_or_default();
            match count() {
                Some(n) if ["INSERT", "UPDATE", "DELETE", "SELECT", "COPY"].contains(&word) => {
                    Expected::Count(n)
                }
                _ => Expected::Ok,
            }
        }
    }
}

fn letter(oid: u32) -> char {
    match oid {
        16 => 'B',
        20 | 21 | 23 | 26 => 'I',
        700 | 701 | 1700 => 'R',
        _ => 'T',
    }
}

fn show_row(row: &[Option<String>]) -> String {
    let show = |value: &Option<String>| match value.as_deref() {
        None => "NULL".to_owned(),
        Some("") => "(empty)".to_owned(),
        Some(text) => {
            text.replace('\\', "\\\\").replace('\n', "\\n").replace('\r', "\\r").replace('\t', "\\t")
        }
    };
    if row.is_empty() {
        return "(no columns)".to_owned();
    }
    let line = row.iter().map(show).collect::<Vec<_>>().join("|");
    match line.strip_suffix(' ') {
        Some(rest) => format!("{rest}\\x20"),
        None => line,
    }
}

/// The connections of one file to one server, opened as they are named.
struct Side {
    address: Address,
    connections: BTreeMap<String, Wire>,
}

impl Side {
    /// Makes the file's database and speaks to it.
    fn new(server: &Address, database: &str) -> io::Result<Side> {
        let mut admin = Wire::connect(server)?;
        admin.query(&format!("DROP DATABASE IF EXISTS {database}"))?;
        let reply = admin.query(&format!("CREATE DATABASE {database}"))?;
        if let Some(error) = reply.error {
            return Err(io::Error::other(format!("CREATE DATABASE: {} {}", error.code, error.message)));
        }
        Ok(Side { address: server.with_database(database), connections: BTreeMap::new() })
    }

    fn run(&mut self, connection: &str, sql: &str) -> io::Result<Reply> {
        if !self.connections.contains_key(connection) {
            let mut wire = Wire::connect(&self.address)?;
            wire.query("SET timezone = 'UTC'")?;
            self.connections.insert(connection.to_owned(), wire);
        }
        let wire = self.connections.get_mut(connection).expect("it was just inserted");
        let reply = wire.query(sql);
        if reply.is_err() {
            self.connections.remove(connection);
        }
        reply
    }

    fn finish(mut self, server: &Address) {
        let database = self.address.database.clone();
        self.connections.clear();
        if let Ok(mut admin) = Wire::connect(server) {
            let _ = admin.query(&format!("DROP DATABASE IF EXISTS {database}"));
        }
    }
}

/// Fills in every open record of a file from the oracle, and rewrites the closed ones when asked to.
pub fn complete(path: &Path, oracle: &Address, rewrite: bool) -> Result<usize, String> {
    let text = fs::read_to_string(path).map_err(|e| e.to_string())?;
    let mut records = parse(&text)?;
    let mut side = Side::new(oracle, "slt_complete").map_err(|e| e.to_string())?;
    for record in &mut records {
        let reply = side.run(&record.connection, &record.sql).map_err(|e| format!("{}: {e}", record.sql))?;
        if rewrite || record.expected == Expected::Open {
            record.expected = observed(&record.sql, &reply, &record.expected);
        }
    }
    side.finish(oracle);
    fs::write(path, print(&records)).map_err(|e| e.to_string())?;
    Ok(records.len())
}

/// Runs one file on PostgreSQL and, where there is one, on the server under test.
pub fn run(root: &Path, path: &Path, oracle: &Address, subject: Option<&Address>) -> Result<Outcome, String> {
    let file = path.strip_prefix(root).unwrap_or(path).display().to_string();
    let text = fs::read_to_string(path).map_err(|e| e.to_string())?;
    let records = parse(&text).map_err(|e| format!("{file}: {e}"))?;
    let stem: String = file.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    let database = format!("slt_{}", stem.trim_end_matches("_slt").to_ascii_lowercase());
    let mut truth = match is_own(&file) {
        true => None,
        false => Some(Side::new(oracle, &database).map_err(|e| format!("{file}: oracle: {e}"))?),
    };
    let mut under_test = match subject {
        None => None,
        Some(address) => Some(Side::new(address, &database).map_err(|e| format!("{file}: server: {e}"))?),
    };
    let mut outcome = Outcome::default();
    for record in &records {
        outcome.statements += 1;
        let difference = |detail: String| Difference {
            file: file.clone(),
            sql: record.sql.split_whitespace().collect::<Vec<_>>().join(" "),
            detail: format!("line {}: {detail}", record.line),
        };
        let mut right = None;
        if let Some(side) = truth.as_mut() {
            let reply =
                side.run(&record.connection, &record.sql).map_err(|e| format!("{file}: oracle: {e}"))?;
            outcome.wrong_files.extend(disagreement(record, &reply).map(difference));
            right = Some(reply);
        }
        let Some(side) = under_test.as_mut() else { continue };
        match side.run(&record.connection, &record.sql) {
            Err(error) => outcome.differences.push(difference(format!("connection lost: {error}"))),
            Ok(reply) => {
                let types = || right.as_ref().and_then(|right| types_differ(right, &reply));
                let found = disagreement(record, &reply).or_else(types);
                outcome.differences.extend(found.map(difference));
            }
        }
    }
    if let Some(side) = truth {
        side.finish(oracle);
    }
    if let (Some(side), Some(address)) = (under_test, subject) {
        side.finish(address);
    }
    Ok(outcome)
}

fn disagreement(record: &Record, reply: &Reply) -> Option<String> {
    let got = observed(&record.sql, reply, &record.expected);
    if got == record.expected {
        return None;
    }
    let message = reply.error.as_ref().map(|e| format!(" ({})", e.message)).unwrap_or_default();
    Some(format!("expected {}, got {}{message}", short(&record.expected), short(&got)))
}

/// Rows may be equal and their types not: a driver would see the difference.
fn types_differ(right: &Reply, got: &Reply) -> Option<String> {
    let describe = |reply: &Reply| {
        let columns = reply.answers.last().and_then(|a| a.columns.clone()).unwrap_or_default();
        columns.into_iter().map(|c| format!("{}:{}", c.name, c.oid)).collect::<Vec<_>>().join(", ")
    };
    let (right, got) = (describe(right), describe(got));
    (right != got).then(|| format!("expected columns {right}, got {got}"))
}

fn short(expected: &Expected) -> String {
    match expected {
        Expected::Open => "nothing yet".to_owned(),
        Expected::Ok => "ok".to_owned(),
        Expected::Count(n) => format!("count {n}"),
        Expected::Error(code) => format!("error {code}"),
        Expected::Rows { types, rows, .. } => {
            let text = rows.iter().take(6).cloned().collect::<Vec<_>>().join(" ⏎ ");
            format!("{types} [{} rows] {text}", rows.len())
        }
    }
}

/// Files under `keystead/` are about what PostgreSQL does not have; their results are written by hand.
pub fn is_own(file: &str) -> bool {
    file.starts_with("keystead/")
}

/// The `.slt` files under a directory whose path contains the filter, sorted.
pub fn files(root: &Path, filter: &str) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut open = vec![root.to_path_buf()];
    while let Some(place) = open.pop() {
        for entry in fs::read_dir(place)? {
            let path = entry?.path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|e| e == "slt")
                && path.display().to_string().contains(filter)
            {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// The differences that are allowed: `file :: statement :: why`, one a line.
pub fn allowed(text: &str) -> Vec<(String, String)> {
    text.lines()
        .filter(|line| !line.trim().is_empty() && !line.starts_with('#'))
        .filter_map(|line| {
            let mut parts = line.splitn(3, " :: ");
            let (file, sql, why) = (parts.next()?, parts.next()?, parts.next()?);
            (!why.trim().is_empty()).then(|| (file.trim().to_owned(), sql.trim().to_owned()))
        })
        .collect()
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::wire::{Answer, Column, Problem};

    #[test]
    fn a_file_survives_reading_and_writing() {
        let text = "# About joins.\n\nstatement ok\nCREATE TABLE t (a int)\n\nstatement count 2\nINSERT INTO t VALUES (1),\n (2)\n\nconnection b\nquery IT rowsort\nSELECT a, 'x'\nFROM t\n----\n1|x\n2|x\n\nstatement error 22012\nSELECT 1/0\n";
        assert_eq!(print(&parse(text).unwrap()), text);
    }

    #[test]
    fn open_statements_are_split_at_line_ends() {
        let records = parse("SELECT 1;\nSELECT ';' || 2,\n 3;\n").unwrap();
        let sql: Vec<&str> = records.iter().map(|r| r.sql.as_str()).collect();
        assert_eq!(sql, ["SELECT 1", "SELECT ';' || 2,\n 3"]);
    }

    #[test]
    fn a_wrong_row_a_wrong_type_and_a_wrong_error_are_seen() {
        let column = |oid| Column { name: "a".into(), table: 0, oid, format: 0 };
        let reply = |oid, value: &str| Reply {
            answers: vec![Answer {
                columns: Some(vec![column(oid)]),
                rows: vec![vec![Some(value.to_owned())]],
                tag: "SELECT 1".into(),
            }],
            ..Reply::default()
        };
        let record = &parse("query I\nSELECT a\n----\n1\n").unwrap()[0];
        assert_eq!(disagreement(record, &reply(23, "1")), None);
        assert!(disagreement(record, &reply(23, "2")).is_some());
        assert!(disagreement(record, &reply(25, "1")).is_some());
        assert!(types_differ(&reply(23, "1"), &reply(20, "1")).is_some());
        let error = &parse("statement error 22012\nSELECT 1/0\n").unwrap()[0];
        let problem = |code: &str| Reply {
            error: Some(Problem { code: code.into(), ..Problem::default() }),
            ..Reply::default()
        };
        assert_eq!(disagreement(error, &problem("22012")), None);
        assert!(disagreement(error, &problem("XX000")).is_some());
        assert!(disagreement(error, &reply(23, "1")).is_some());
    }

    #[test]
    fn a_difference_without_a_reason_is_not_allowed() {
        assert_eq!(allowed("a.slt :: SELECT 1 ::  \n").len(), 0);
        assert_eq!(allowed("a.slt :: SELECT 1 :: no such thing here\n").len(), 1);
    }
}
