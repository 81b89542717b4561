//! `keystead bench log`: commands committed through router, log and apply, beside what the disk does alone.
//!
//! Invariants: both are measured in one run, turn by turn; what is held to a gate has `log.priority = normal`.

use std::{path::PathBuf, sync::Arc, time::Duration};

use clap::Args;
use serde::Serialize;
use storage::log::{Priority, bench as raw};

use super::{
    child::Scratch,
    measure,
    report::{self, Bound, Gate},
};
use crate::{
    clock::SystemClock,
    exit::{Failure, Kind},
};

/// Writers, and what their commits must be of raw appends with a sync.
const LOADS: &[(usize, Option<f64>)] = &[(1, None), (16, Some(7.0)), (64, Some(16.0)), (256, Some(25.0))];

/// Arguments of `keystead bench log`.
#[derive(Args, Debug)]
#[command(
    after_help = "Gates: commits ÷ raw appends of 512 bytes with a sync ≥ 7 at 16 writers, ≥ 16 at 64, ≥ 25 at \
                        256.\nExit code 0 if all judged gates hold, 1 otherwise."
)]
pub(super) struct Options {
    /// Length of each loop in a turn
    #[arg(long, value_name = "SECONDS", default_value_t = 0.5)]
    secs_per_slice: f64,
    /// Turns
    #[arg(long, value_name = "COUNT", default_value_t = 5)]
    slices: usize,
    /// Only these numbers of writers
    #[arg(long, value_name = "COUNTS", value_delimiter = ',')]
    writers: Vec<usize>,
    /// Do not measure log.priority=auto beside normal
    #[arg(long)]
    no_auto: bool,
    /// Where the directories are made [default: the system's temporary directory]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Write all figures as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Serialize)]
struct Row {
    writers: usize,
    commits_per_sec: f64,
    raw_appends_per_sec: f64,
    ratio: f64,
    commits_per_sync: f64,
    auto_ratio: Option<f64>,
    log_entries_per_sec: f64,
    log_syncs_to_zeroed: f64,
    sync_before_micros: f64,
    sync_after_micros: f64,
    is_judged: bool,
    gate: Option<Gate>,
}

/// Runs `keystead bench log`.
pub(super) fn run(options: &Options) -> Result<(), Failure> {
    if options.slices == 0 || !(0.01..=600.0).contains(&options.secs_per_slice) {
        return Err(Failure::new(
            Kind::Usage,
            "--slices: at least 1; --secs-per-slice: between 0.01 and 600",
        ));
    }
    println!(
        "{:>7} {:>11} {:>10} {:>6} {:>9} {:>6} {:>12} {:>8} {:>13}  gate",
        "writers", "commits/s", "raw/s", "ratio", "per sync", "auto", "log alone/s", "÷ zeroed", "sync µs"
    );
    let mut rows = Vec::new();
    for (writers, bound) in LOADS {
        if options.writers.is_empty() || options.writers.contains(writers) {
            let row = measure_row(options, *writers, *bound)?;
            print(&row);
            rows.push(row);
        }
    }
    if let Some(path) = &options.json {
        report::write_json(path, &rows)?;
    }
    let fails = |row: &&Row| row.is_judged && row.gate.as_ref().is_some_and(|gate| !gate.holds());
    let failed: Vec<String> =
        rows.iter().filter(fails).map(|row| format!("{} writers", row.writers)).collect();
    report::verdict(&failed)
}

fn measure_row(options: &Options, writers: usize, bound: Option<f64>) -> Result<Row, Failure> {
    let slice = Duration::from_secs_f64(options.secs_per_slice);
    let probe_in = Scratch::new(options.dir.as_deref(), "bench-log")?;
    let probe =
        || measure::sync_time(probe_in.path()).map_err(|error| Failure::from_io("the sync probe", &error));
    let commits = |priority| {
        let scratch = Scratch::new(options.dir.as_deref(), "bench-log")?;
        let settings = cluster::bench::Settings {
            writers,
            turns: options.slices,
            slice,
            priority,
            ..Default::default()
        };
        cluster::bench::commits(scratch.path(), Arc::new(SystemClock::new()), &settings)
            .map_err(|error| Failure::new(Kind::Software, error.to_string()))
    };
    let before = probe()?;
    let normal = commits(Priority::Normal)?;
    let auto = if options.no_auto { None } else { Some(commits(Priority::Auto)?) };
    let log_in = Scratch::new(options.dir.as_deref(), "bench-log")?;
    let settings = raw::Settings { writers, turns: options.slices, slice, ..raw::Settings::default() };
    let log = raw::run(log_in.path(), &settings)
        .map_err(|error| Failure::new(Kind::Software, error.to_string()))?;
    let after = probe()?;
    let gate = bound.map(|bound| Gate {
        name: "÷ raw".to_owned(),
        value: normal.ratio,
        bound: Bound::AtLeast(bound),
    });
    Ok(Row {
        writers,
        commits_per_sec: normal.commits_per_sec,
        raw_appends_per_sec: normal.raw_appends_per_sec,
        ratio: normal.ratio,
        commits_per_sync: normal.commits_per_sync,
        auto_ratio: auto.map(|report| report.ratio),
        log_entries_per_sec: log.entries_per_sec,
        log_syncs_to_zeroed: log.syncs_to_zeroed,
        sync_before_micros: before.as_secs_f64() * 1e6,
        sync_after_micros: after.as_secs_f64() * 1e6,
        is_judged: measure::is_calm(before, after),
        gate,
    })
}

fn print(row: &Row) {
    println!(
        "{:>7} {:>11.0} {:>10.0} {:>6.1} {:>9.1} {:>6} {:>12.0} {:>8.2} {:>13}  {}",
        row.writers,
        row.commits_per_sec,
        row.raw_appends_per_sec,
        row.ratio,
        row.commits_per_sync,
        row.auto_ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.1}")),
        row.log_entries_per_sec,
        row.log_syncs_to_zeroed,
        format!("{:.0} → {:.0}", row.sync_before_micros, row.sync_after_micros),
        row.gate.as_ref().map_or_else(|| "-".to_owned(), |gate| gate.text(row.is_judged)),
    );
}
