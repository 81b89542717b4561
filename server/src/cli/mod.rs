//! The command line: one command per file, each ending in an exit code of [`crate::exit`].
//!
//! Invariants: results go to stdout, everything else to stderr; a secret is never an argument.

mod bench;
pub mod client;
mod doctor;
mod serve;
mod shell;
mod status;
pub mod target;
mod torture;
mod transfer;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::exit::{Failure, Kind};

#[derive(Parser)]
#[command(name = "keystead", version, about = "A database server for agents and the services beside them")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the server
    Serve(Box<serve::Options>),
    /// Ask it: a shell, or statements from arguments, files and pipes
    Sql(shell::Options),
    /// Show whether a server runs and how it is
    Status(status::Options),
    /// Load a CSV or JSONL file into a table
    Import(transfer::ImportOptions),
    /// Write a table or query to a CSV or JSONL file
    Export(transfer::ExportOptions),
    /// Say what is wrong with this machine or a data directory, and what to do
    Doctor(doctor::Options),
    /// Kill a server under load, again and again, and check that it kept every promise
    Torture(torture::Options),
    /// Measure it, as ratios to what the machine and PostgreSQL do in the same run
    Bench(bench::Options),
}

/// Runs the command that was given.
pub fn run() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print();
            let is_wrong = error.use_stderr();
            return if is_wrong { ExitCode::from(Kind::Usage as u8) } else { ExitCode::SUCCESS };
        }
    };
    if !matches!(arguments.command, Command::Serve(_)) {
        leave_when_nobody_reads();
    }
    let result = match arguments.command {
        Command::Serve(options) => serve::run(*options),
        Command::Sql(options) => shell::run(&options),
        Command::Status(options) => status::run(&options),
        Command::Import(options) => transfer::import(&options),
        Command::Export(options) => transfer::export(&options),
        Command::Doctor(options) => doctor::run(&options),
        Command::Torture(options) => torture::run(&options),
        Command::Bench(options) => bench::run(&options),
    };
    result.map_or_else(report, |()| ExitCode::SUCCESS)
}

/// A command whose reader has gone, as `head` goes, has nothing more to do and did nothing wrong.
fn leave_when_nobody_reads() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let says = |text: &str| text.starts_with("failed printing to stdout") && text.contains("Broken pipe");
        if panic.payload_as_str().is_some_and(says) {
            std::process::exit(0);
        }
        report(panic);
    }));
}

fn report(failure: Failure) -> ExitCode {
    let text = failure.to_string();
    if !text.is_empty() {
        eprintln!("keystead: {text}");
    }
    failure.code()
}
