//! Runs the statement files: `slt [--complete | --rewrite | --oracle-only] [FILTER]`.
//!
//! Without a flag it starts the server and PostgreSQL 15, runs every file on both and prints what differs beyond
//! `differences.txt`. `--complete` fills open records from PostgreSQL; `--rewrite` all of them;
//! `KEYSTEAD_URL` names a running server instead of starting one.

use std::path::Path;
use std::process::ExitCode;

use tests::Address;
use tests::keystead::Keystead;
use tests::oracle::{Durability, Oracle};
use tests::slt::{self, Difference};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let flag = |name: &str| arguments.iter().any(|a| a == name);
    let filter = arguments.iter().find(|a| !a.starts_with("--")).map_or("", String::as_str);
    let root = tests::source::root().join("tests/slt");
    let files = slt::files(&root, filter).expect("the suite's directory is readable");
    let own =
        |path: &Path| path.strip_prefix(&root).is_ok_and(|file| slt::is_own(&file.display().to_string()));
    let oracle = Oracle::start(Durability::Off).expect("PostgreSQL 15 starts");
    if flag("--complete") || flag("--rewrite") {
        let mut total = 0;
        for path in files.iter().filter(|path| !own(path)) {
            match slt::complete(path, oracle.address(), flag("--rewrite")) {
                Ok(count) => total += count,
                Err(error) => println!("{}: {error}", path.display()),
            }
        }
        println!("{total} statements in {} files", files.len());
        return ExitCode::SUCCESS;
    }
    let given = std::env::var("KEYSTEAD_URL").ok().and_then(|url| Address::parse(&url));
    let server =
        (!flag("--oracle-only") && given.is_none()).then(|| Keystead::start().expect("the server starts"));
    let subject =
        given.or_else(|| server.as_ref().map(|s| s.address().expect("a started server has an address")));

    let text = std::fs::read_to_string(root.join("differences.txt")).unwrap_or_default();
    let allowed = slt::allowed(&text);
    let is_allowed = |d: &Difference| allowed.iter().any(|(file, sql)| *file == d.file && *sql == d.sql);
    let mut statements = 0;
    let (mut differences, mut wrong): (Vec<Difference>, Vec<Difference>) = (Vec::new(), Vec::new());
    let mut broken = 0;
    for path in files.iter().filter(|path| subject.is_some() || !own(path)) {
        match slt::run(&root, path, oracle.address(), subject.as_ref()) {
            Ok(outcome) => {
                statements += outcome.statements;
                let name = path.strip_prefix(&root).unwrap_or(path).display();
                println!("{name}: {} statements, {} differ", outcome.statements, outcome.differences.len());
                let unknown = outcome.differences.iter().filter(|d| !is_allowed(d));
                for difference in unknown.chain(&outcome.wrong_files) {
                    println!("DIFFERS {} {}\n  {}", difference.file, difference.detail, difference.sql);
                }
                differences.extend(outcome.differences);
                wrong.extend(outcome.wrong_files);
            }
            Err(error) => {
                println!("{error}");
                broken += 1;
            }
        }
    }
    let known = differences.iter().filter(|d| is_allowed(d)).count();
    let unknown = differences.len() - known;
    let mut stale = 0;
    if subject.is_some() && filter.is_empty() {
        for (file, sql) in &allowed {
            if !differences.iter().any(|d| d.file == *file && d.sql == *sql) {
                println!("STALE {file} no longer differs: {sql}");
                stale += 1;
            }
        }
    }
    let failed = unknown + wrong.len() + stale + broken;
    println!("{statements} statements in {} files, {known} known differences", files.len());
    println!("{} passed, {failed} failed", statements.saturating_sub(unknown + wrong.len()));
    if failed == 0 && statements > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
