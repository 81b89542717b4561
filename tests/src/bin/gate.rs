//! `cargo gate`: every check of the repository in one word. It never writes; `cargo gate --fix` does.
//!
//! Steps: format, clippy with warnings as errors, the server binary, tests, doc tests, docs with warnings as
//! errors, and cargo-deny and cargo-machete where they are installed. Client suites and everything that needs
//! PostgreSQL run by `tests/run`.

use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

fn main() -> ExitCode {
    let fix = match std::env::args().nth(1).as_deref() {
        None => false,
        Some("--fix") => true,
        Some(other) => {
            eprintln!("unknown argument {other}; usage: cargo gate [--fix]");
            return ExitCode::from(2);
        }
    };
    let mut failed = 0;
    let mut step = |name: &str, arguments: &[&str], environment: &[(&str, &str)]| {
        let begun = Instant::now();
        println!("== {name}");
        let status = Command::new(env!("CARGO")).args(arguments).envs(environment.iter().copied()).status();
        let passed = status.is_ok_and(|s| s.success());
        println!(
            "== {name}: {} in {:.1} s",
            if passed { "passed" } else { "FAILED" },
            begun.elapsed().as_secs_f64()
        );
        failed += u32::from(!passed);
    };
    if fix {
        step("format", &["fmt", "--all"], &[]);
        step(
            "clippy",
            &["clippy", "--workspace", "--all-targets", "--fix", "--allow-dirty", "--allow-staged"],
            &[],
        );
        return if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    step("format", &["fmt", "--all", "--check"], &[]);
    step("clippy", &["clippy", "-q", "--workspace", "--all-targets", "--", "-D", "warnings"], &[]);
    step("server", &["build", "-q", "-p", "keystead-server"], &[]);
    if installed("nextest") {
        step("tests", &["nextest", "run", "--workspace", "--no-fail-fast", "--no-tests", "warn"], &[]);
    } else {
        step("tests", &["test", "-q", "--workspace", "--all-targets", "--no-fail-fast"], &[]);
    }
    step("doc tests", &["test", "-q", "--workspace", "--doc"], &[]);
    step("docs", &["doc", "-q", "--workspace", "--no-deps"], &[("RUSTDOCFLAGS", "-D warnings")]);
    if installed("deny") {
        step("deny", &["deny", "check", "bans", "licenses", "sources"], &[]);
    }
    if installed("machete") {
        step("machete", &["machete"], &[]);
    }
    println!(
        "{}",
        if failed == 0 { "gate: open".to_owned() } else { format!("gate: shut, {failed} steps failed") }
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn installed(tool: &str) -> bool {
    let mut command = Command::new(env!("CARGO"));
    command.args([tool, "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|s| s.success())
}
