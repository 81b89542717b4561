//! The statement files of `tests/slt`, on a store in memory: every record is run, and what differs is listed.
//!
//! Environment: `SLT` runs only files whose path contains it; `SLT_FAULTS_MAX` is how many records may differ in all
//! (the suite over the wire, which is compared with PostgreSQL in the same run, is the judge).

mod support;

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
};

use support::{Connection, Server};

/// Records that may differ here: COPY, notifications, sessions with settings of the wire.
const FAULTS_MAX: usize = 60;

struct Record {
    line: usize,
    connection: String,
    head: String,
    sql: String,
    rows: Option<Vec<String>>,
}

fn files(at: &Path, into: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(at) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            files(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "slt") {
            into.push(path);
        }
    }
}

fn parse(text: &str) -> Vec<Record> {
    let mut records = Vec::new();
    let mut connection = String::new();
    let mut lines = text.lines().enumerate().peekable();
    while let Some((number, line)) = lines.next() {
        if line.starts_with('#') || line.trim().is_empty() {
            continue;
        }
        if let Some(name) = line.strip_prefix("connection ") {
            connection = name.to_owned();
            continue;
        }
        let mut sql = Vec::new();
        let mut rows: Option<Vec<String>> = None;
        for (_, line) in lines.by_ref() {
            if line.is_empty() {
                break;
            }
            match &mut rows {
                Some(rows) => rows.push(line.to_owned()),
                None if line == "----" => rows = Some(Vec::new()),
                None => sql.push(line),
            }
        }
        let sql = sql.join("\n");
        records.push(Record {
            line: number + 1,
            connection: std::mem::take(&mut connection),
            head: line.to_owned(),
            sql,
            rows,
        });
    }
    records
}

fn shown(cell: Option<String>) -> String {
    match cell {
        None => "NULL".to_owned(),
        Some(text) if text.is_empty() => "(empty)".to_owned(),
        Some(text) => {
            text.replace('\\', "\\\\").replace('\n', "\\n").replace('\t', "\\t").replace('\r', "\\r")
        }
    }
}

/// A row as one line; a blank at its end is written out.
fn line_of(cells: Vec<String>) -> String {
    if cells.is_empty() {
        return "(no columns)".to_owned();
    }
    let line = cells.join("|");
    match line.strip_suffix(' ') {
        Some(rest) => format!("{rest}\\x20"),
        None => line,
    }
}

async fn check(connection: &mut Connection, record: &Record) -> Result<(), String> {
    let result = connection.run(&record.sql).await;
    let words: Vec<&str> = record.head.split_whitespace().collect();
    match (&words[..], result) {
        (["statement", "error", code, ..], Err(error)) if error.code().sqlstate() == *code => Ok(()),
        (["statement", "error", code, ..], Ok(_)) => Err(format!("executed, not {code}")),
        (_, Err(error)) => Err(format!("{error:?}")),
        (["statement", "count", count], Ok(answer)) => {
            let tag = answer.tag.rsplit(' ').next().unwrap_or("").to_owned();
            if tag == *count { Ok(()) } else { Err(format!("{} instead of {count}", answer.tag)) }
        }
        (["query", ..], Ok(answer)) => {
            let mut got: Vec<String> =
                answer.rows.into_iter().map(|row| line_of(row.into_iter().map(shown).collect())).collect();
            let mut expected = record.rows.clone().unwrap_or_default();
            if words.contains(&"rowsort") {
                got.sort();
                expected.sort();
            }
            if got == expected { Ok(()) } else { Err(format!("{got:?} instead of {expected:?}")) }
        }
        (_, Ok(_)) => Ok(()),
    }
}

#[tokio::test]
async fn the_statement_files_are_answered_as_written() {
    let here = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo says where the crate is");
    let root = Path::new(&here).join("../tests/slt");
    let wanted = std::env::var("SLT").unwrap_or_default();
    let mut paths = Vec::new();
    files(&root, &mut paths);
    paths.sort();
    let (mut run, mut faults) = (0, 0);
    for path in paths.iter().filter(|path| path.to_string_lossy().contains(&wanted)) {
        let text = fs::read_to_string(path).expect("a readable file");
        let server = Server::new();
        let mut connections: HashMap<String, Connection> = HashMap::new();
        let name = path.strip_prefix(&root).expect("under the root").display().to_string();
        let (mut file_run, mut file_faults) = (0, 0);
        for record in parse(&text) {
            let connection = connections.entry(record.connection.clone()).or_insert_with(|| server.connect());
            file_run += 1;
            let checked =
                tokio::time::timeout(std::time::Duration::from_secs(20), check(connection, &record)).await;
            if let Err(fault) = checked.unwrap_or_else(|_| Err("no answer".to_owned())) {
                file_faults += 1;
                println!("{name}:{}: {}\n    {}", record.line, record.sql.replace('\n', " "), fault);
            }
        }
        println!("== {name}: {file_run} run, {file_faults} differ");
        run += file_run;
        faults += file_faults;
    }
    println!("== all: {run} run, {faults} differ");
    let limit = std::env::var("SLT_FAULTS_MAX").ok().and_then(|text| text.parse().ok()).unwrap_or(FAULTS_MAX);
    assert!(faults <= limit, "{faults} of {run} records differ");
}
