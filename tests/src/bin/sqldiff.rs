//! Random statements on the server and on PostgreSQL: `sqldiff [--statements N] [--seed S] [--round R] [--oracle-only]`.
//!
//! Prints the seed, what was exercised, each difference shrunk, and `N passed, N failed`. `KEYSTEAD_URL` names a running
//! server instead of starting one.

use std::process::ExitCode;

use tests::Address;
use tests::differential;
use tests::keystead::Keystead;
use tests::oracle::{Durability, Oracle};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |name: &str| -> Option<u64> {
        let at = arguments.iter().position(|a| a == name)?;
        arguments.get(at + 1)?.parse().ok()
    };
    let clock =
        || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(1, |d| d.as_secs());
    let seed = number("--seed").unwrap_or_else(clock);
    let statements = number("--statements").unwrap_or(30_000);
    let oracle = Oracle::start(Durability::Off).expect("PostgreSQL 15 starts");
    let given = std::env::var("KEYSTEAD_URL").ok().and_then(|url| Address::parse(&url));
    let oracle_only = arguments.iter().any(|a| a == "--oracle-only");
    let server = (!oracle_only && given.is_none()).then(|| Keystead::start().expect("the server starts"));
    let subject = given
        .or_else(|| server.as_ref().map(|s| s.address().expect("a started server has an address")))
        .unwrap_or_else(|| oracle.address().clone());
    println!("seed {seed}");
    let report =
        differential::run(&subject, oracle.address(), seed, number("--round").unwrap_or(0), statements);
    let report = match report {
        Ok(report) => report,
        Err(error) => {
            println!("seed {seed}: {error}");
            if let Some(server) = &server {
                println!("--- the server's last lines ---\n{}", server.log_tail());
            }
            println!("0 passed, 1 failed");
            return ExitCode::FAILURE;
        }
    };
    for difference in &report.differences {
        println!("DIFFERS {difference}");
    }
    println!(
        "{} statements: {} with rows, {} equal errors, {} depend on evaluation order, {} partition checks, {} twins",
        report.statements,
        report.with_rows,
        report.equal_errors,
        report.order_dependent,
        report.partitions,
        report.twins
    );
    let mut failed = report.differences.len() as u64;
    // An empty run proves nothing: most statements must return rows and few may fail.
    if failed == 0
        && (report.with_rows * 3 < report.statements || report.equal_errors * 10 > report.statements)
    {
        println!("the statements exercise too little");
        failed = 1;
    }
    println!("{} passed, {failed} failed", report.statements.saturating_sub(failed));
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
