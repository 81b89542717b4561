//! Starts the server and PostgreSQL 15, runs a command beside them, and stops both.
//!
//! `servers [--durable] [--oracle-only] COMMAND ARGUMENT…`: the command finds `KEYSTEAD_URL` and `ORACLE_URL` in its
//! environment. With `--oracle-only` both are PostgreSQL, which is how a client suite is tried on the oracle itself.

use std::process::{Command, ExitCode};

use tests::keystead::Keystead;
use tests::oracle::{Durability, Oracle};

fn main() -> ExitCode {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut take = |name: &str| match arguments.first() {
        Some(first) if first == name => {
            arguments.remove(0);
            true
        }
        _ => false,
    };
    let durable = take("--durable");
    let oracle_only = take("--oracle-only");
    let Some((program, rest)) = arguments.split_first() else {
        eprintln!("usage: servers [--durable] [--oracle-only] COMMAND ARGUMENT…");
        return ExitCode::from(2);
    };
    let oracle =
        Oracle::start(if durable { Durability::On } else { Durability::Off }).expect("PostgreSQL 15 starts");
    let server = (!oracle_only).then(|| Keystead::start().expect("the server starts"));
    let subject = server.as_ref().map_or_else(
        || oracle.address().clone(),
        |server| server.address().expect("a started server has an address"),
    );
    let mut command = Command::new(program);
    command.args(rest).env("KEYSTEAD_URL", subject.url()).env("ORACLE_URL", oracle.address().url());
    command.env("ORACLE_PID", oracle.pid().to_string()).env("ORACLE_DIR", oracle.directory());
    if let Some(server) = &server {
        command.env("KEYSTEAD_PID", server.pid().to_string()).env("KEYSTEAD_DATA", server.data());
        command.env("KEYSTEAD_BIN", tests::keystead::binary().expect("it was just started"));
    }
    let status = command.status().expect("the command starts");
    if !status.success()
        && let Some(server) = &server
    {
        eprintln!("--- the server's last lines ---\n{}", server.log_tail());
    }
    if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
