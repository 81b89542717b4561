//! `keystead bench`: how fast this binary is on this machine, always as a ratio to something measured in the same run.
//!
//! - `sql`: the whole server beside PostgreSQL and beside a server that does nothing ([`sql`]).
//! - `log`: committed commands beside what the disk can do ([`log`]).
//! - `footprint`: memory, start, restart and size ([`footprint`]).
//!
//! Invariants:
//! - Rates are printed, ratios are judged. A run on a disk or machine that is too busy is printed and not judged.
//! - What a bench starts, it ends; what it writes lies in a directory of its own that is removed.

mod ceiling;
pub(in crate::cli) mod child;
mod connection;
mod footprint;
mod log;
mod measure;
mod peer;
mod report;
mod sql;
mod tpcb;
mod workload;

use clap::{Args, Subcommand};

use crate::exit::Failure;

/// Arguments of `keystead bench`.
#[derive(Args, Debug)]
pub(super) struct Options {
    #[command(subcommand)]
    which: Which,
}

#[derive(Subcommand, Debug)]
enum Which {
    /// The server beside PostgreSQL 15, load by load, with gates on the ratios
    Sql(sql::Options),
    /// Committed commands beside raw append and sync, below the wire
    Log(log::Options),
    /// Idle memory, time to be ready, restart after a kill, size of the binary
    Footprint(footprint::Options),
}

/// Runs the bench that was asked for. The answer is no when a judged gate does not hold.
pub(super) fn run(options: &Options) -> Result<(), Failure> {
    match &options.which {
        Which::Sql(options) => sql::run(options),
        Which::Log(options) => log::run(options),
        Which::Footprint(options) => footprint::run(options),
    }
}
