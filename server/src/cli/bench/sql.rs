//! `keystead bench sql`: the whole server beside PostgreSQL, slice by slice.
//!
//! 1. Servers are started and filled: ours, PostgreSQL, the no-op server, and ours again with the log's other priority.
//! 2. For each load and number of connections, slices take turns on all of them.
//! 3. A ratio is the median of the ratios of neighbouring slices; the machine drifts less within a turn than in a run.
//!
//! Invariants:
//! - One thread drives all connections, the same for each server; connections of the others are idle meanwhile.
//! - An error of a statement ends its load with a failure.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use futures::future::join_all;
use serde::Serialize;
use tokio::runtime::{Builder, Runtime};

use super::{
    ceiling::Ceiling,
    child::{Child, Launch, Scratch, now},
    connection::Connection,
    measure::{self, Process, median},
    peer::Peer,
    report::{self, Bound, Figures, Gate, Row},
    tpcb::{self, Sums},
    workload::{self, Draw, Kind, Protocol, Sizes, Statement, WORKLOADS, Workload},
};
use crate::{
    cli::client::{ClientError, Target},
    exit::{Failure, Kind as End},
};

const SLICES_MIN: usize = 5;
/// A load is measured again when the machine was not calm, this often.
const ATTEMPTS_MAX: usize = 2;
const WARM_UP: Duration = Duration::from_millis(300);
/// count(*) of many rows may be this much slower than of few.
const CONSTANT_RATIO_MIN: f64 = 0.5;
const SEED: u64 = 0x6b65_7973;

/// Arguments of `keystead bench sql`.
#[derive(Args, Debug)]
#[command(after_help = after_help())]
pub(super) struct Options {
    /// Length of a slice
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0)]
    secs_per_slice: f64,
    /// Slices of each load on each server, at least 5
    #[arg(long, value_name = "COUNT", default_value_t = SLICES_MIN)]
    slices: usize,
    /// Only loads with these numbers of connections
    #[arg(long, value_name = "COUNTS", value_delimiter = ',')]
    clients: Vec<usize>,
    /// Only these loads (several, or separated by commas)
    #[arg(long, value_name = "NAMES", value_delimiter = ',', num_args = 1..)]
    only: Vec<String>,
    /// Size of the tables as of pgbench: 100,000 accounts each
    #[arg(long, value_name = "COUNT", default_value_t = 10)]
    scale: i64,
    /// Do not start PostgreSQL; no ratio to it is judged
    #[arg(long)]
    no_peer: bool,
    /// Do not measure log.priority=auto beside normal
    #[arg(long)]
    no_auto: bool,
    /// Where the servers' directories are made [default: the system's temporary directory]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Write all figures as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn after_help() -> String {
    let lines = WORKLOADS.iter().map(|it| {
        let clients: Vec<String> = it.clients.iter().map(usize::to_string).collect();
        format!("  {:<16} {} (clients {})\n", it.name, it.about, clients.join(", "))
    });
    format!("Loads:\n{}\nExit code 0 if all judged gates hold, 1 otherwise.", lines.collect::<String>())
}

/// Which server a slice ran on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Side {
    Ours,
    Peer,
    Ceiling,
    Auto,
}

struct Subject {
    side: Side,
    target: Target,
    process: Option<Process>,
}

struct Servers {
    ours: Child,
    launch: Launch,
    peer: Option<Peer>,
    ceiling: Ceiling,
    auto: Option<Child>,
}

#[derive(Serialize)]
struct Whole<'a> {
    version: &'static str,
    peer: Option<&'a str>,
    scale: i64,
    slices: usize,
    secs_per_slice: f64,
    rows: &'a [Row],
}

/// Runs `keystead bench sql`.
pub(super) fn run(options: &Options) -> Result<(), Failure> {
    let selected = select(options)?;
    let scratch = Scratch::new(options.dir.as_deref(), "bench")?;
    let sizes = Sizes { scale: options.scale };
    let is_auto_due = !options.no_auto && selected.iter().any(|(workload, _)| workload.is_durable);
    let mut servers = Servers::start(options, &scratch, sizes, is_auto_due)?;
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(End::System, error.to_string()))?;
    println!(
        "Keystead {} beside {}; scale {}; {} slices of {} s, in turns",
        env!("CARGO_PKG_VERSION"),
        servers
            .peer
            .as_ref()
            .map_or_else(|| "nobody".to_owned(), |peer| format!("PostgreSQL {}", peer.version)),
        options.scale,
        options.slices,
        options.secs_per_slice
    );
    println!("{}", report::head());
    let mut rows = Vec::new();
    for (workload, clients) in selected {
        let mut row = Row::default();
        for _ in 0..ATTEMPTS_MAX {
            row = measure_row(&runtime, &mut servers, &scratch, options, sizes, workload, clients)?;
            if row.is_judged || row.failure.is_some() {
                break;
            }
        }
        println!("{}", report::line(&row));
        rows.push(row);
    }
    if let Some(path) = &options.json {
        let whole = Whole {
            version: env!("CARGO_PKG_VERSION"),
            peer: servers.peer.as_ref().map(|peer| peer.version.as_str()),
            scale: options.scale,
            slices: options.slices,
            secs_per_slice: options.secs_per_slice,
            rows: &rows,
        };
        report::write_json(path, &whole)?;
    }
    let failed: Vec<String> = rows
        .iter()
        .filter(|row| !row.holds())
        .map(|row| format!("{} at {}", row.workload, row.clients))
        .collect();
    report::verdict(&failed)
}

fn select(options: &Options) -> Result<Vec<(&'static Workload, usize)>, Failure> {
    let usage = |text: String| Err(Failure::new(End::Usage, text));
    if options.slices < SLICES_MIN {
        return usage(format!("--slices {}: at least {SLICES_MIN}, or a median says little", options.slices));
    }
    if !(0.05..=3_600.0).contains(&options.secs_per_slice) {
        return usage(format!("--secs-per-slice {}: between 0.05 and 3600", options.secs_per_slice));
    }
    if !(1..=1_000).contains(&options.scale) {
        return usage(format!("--scale {}: between 1 and 1000", options.scale));
    }
    if let Some(unknown) =
        options.only.iter().find(|name| WORKLOADS.iter().all(|it| it.name != name.as_str()))
    {
        let names: Vec<&str> = WORKLOADS.iter().map(|it| it.name).collect();
        return usage(format!("--only {unknown}: there are {}", names.join(", ")));
    }
    let is_meant =
        |it: &&Workload| options.only.is_empty() || options.only.iter().any(|name| name == it.name);
    let selected: Vec<_> = WORKLOADS
        .iter()
        .filter(is_meant)
        .flat_map(|it| it.clients.iter().map(move |clients| (it, *clients)))
        .filter(|(_, clients)| options.clients.is_empty() || options.clients.contains(clients))
        .collect();
    if selected.is_empty() {
        return usage("no load has this name and this number of clients".to_owned());
    }
    Ok(selected)
}

impl Servers {
    fn start(options: &Options, scratch: &Scratch, sizes: Sizes, is_auto_due: bool) -> Result<Self, Failure> {
        let launch = |name: &str, priority: &str| Launch {
            settings: vec![format!("log.priority={priority}")],
            ..Launch::new(&scratch.path().join(name))
        };
        let normal = launch("normal", "normal");
        let filled = |launch: &Launch| -> Result<Child, Failure> {
            let child = launch.start()?;
            workload::load(&mut child.connect()?, sizes)?;
            Ok(child)
        };
        eprintln!("loading {} accounts per server …", sizes.accounts());
        let ours = filled(&normal)?;
        let auto = if is_auto_due { Some(filled(&launch("auto", "auto"))?) } else { None };
        let peer = if options.no_peer { None } else { Some(Peer::start(options.dir.as_deref())?) };
        if let Some(peer) = &peer {
            let mut client = crate::cli::client::Client::connect(peer.target())?;
            workload::load(&mut client, sizes)?;
            // What it owes from loading is paid before anything is measured.
            client.query("CHECKPOINT", |_| {})?;
        }
        Ok(Self { ours, launch: normal, peer, ceiling: Ceiling::start()?, auto })
    }

    fn subjects(&self, workload: &Workload) -> Vec<Subject> {
        let mut subjects = vec![Subject {
            side: Side::Ours,
            target: self.ours.target().clone(),
            process: Some(Process::Alone(self.ours.pid())),
        }];
        if let Some(peer) = &self.peer {
            subjects.push(Subject {
                side: Side::Peer,
                target: peer.target().clone(),
                process: Some(peer.process()),
            });
        }
        if workload.name.starts_with("get-") {
            subjects.push(Subject { side: Side::Ceiling, target: self.ceiling.target(), process: None });
        }
        if let Some(auto) = self.auto.as_ref().filter(|_| workload.is_durable) {
            subjects.push(Subject {
                side: Side::Auto,
                target: auto.target().clone(),
                process: Some(Process::Alone(auto.pid())),
            });
        }
        subjects
    }
}

/// What the slices of one subject came to.
#[derive(Default)]
struct Tally {
    rates: Vec<f64>,
    operations: f64,
    cpu_secs: Option<f64>,
    retried: u64,
}

fn measure_row(
    runtime: &Runtime,
    servers: &mut Servers,
    scratch: &Scratch,
    options: &Options,
    sizes: Sizes,
    workload: &'static Workload,
    clients: usize,
) -> Result<Row, Failure> {
    let probe =
        || measure::sync_time(scratch.path()).map_err(|error| Failure::from_io("the sync probe", &error));
    let unit = if matches!(workload.kind, Kind::Copy) { "rows" } else { "operations" };
    let mut row = Row { workload: workload.name.to_owned(), clients, unit, ..Row::default() };
    let before = probe()?;
    if let Err(failure) = fill_row(runtime, servers, options, sizes, workload, &mut row) {
        row.failure = Some(failure.to_string());
    }
    let after = probe()?;
    row.sync_before_micros = before.as_secs_f64() * 1e6;
    row.sync_after_micros = after.as_secs_f64() * 1e6;
    row.is_judged = measure::is_calm(before, after);
    Ok(row)
}

fn fill_row(
    runtime: &Runtime,
    servers: &mut Servers,
    options: &Options,
    sizes: Sizes,
    workload: &'static Workload,
    row: &mut Row,
) -> Result<(), Failure> {
    let time = Duration::from_secs_f64(options.secs_per_slice);
    let clients = row.clients;
    let subjects = servers.subjects(workload);
    let mut tallies: Vec<Tally> = subjects.iter().map(|_| Tally::default()).collect();
    let is_tpcb = matches!(workload.kind, Kind::Tpcb);
    let sums = if is_tpcb { Some(Sums::read(&mut servers.ours.connect()?)?) } else { None };
    let mut load = Load::start(runtime, &subjects, workload.kind, clients, sizes, row)?;
    for turn in 0..options.slices {
        for step in 0..subjects.len() {
            // Who begins changes, so that nobody always follows the same neighbour.
            let at = (turn + step) % subjects.len();
            let cpu_before = subjects[at].process.and_then(Process::cpu_secs);
            let slice = load.slice(runtime, &subjects[at], at, time)?;
            let cpu_after = subjects[at].process.and_then(Process::cpu_secs);
            let tally = &mut tallies[at];
            tally.rates.push(slice.rate());
            tally.operations += slice.operations as f64;
            tally.retried += slice.retried;
            if let (Some(before), Some(after)) = (cpu_before, cpu_after) {
                *tally.cpu_secs.get_or_insert(0.0) += after - before;
            }
        }
    }
    if let Kind::Constant { small, .. } = workload.kind {
        let ours = &tallies[0].rates;
        let mut seats =
            runtime.block_on(seats(&subjects[0].target, Kind::Statement(small), clients, sizes))?;
        let mut rates = Vec::new();
        for _ in 0..options.slices {
            rates.push(runtime.block_on(slice(&mut seats, Kind::Statement(small), time)).checked()?.rate());
        }
        let value = median(ours) / median(&rates);
        row.gates.push(Gate {
            name: "÷ few rows".to_owned(),
            value,
            bound: Bound::AtLeast(CONSTANT_RATIO_MIN),
        });
    }
    drop(load);
    for (subject, tally) in subjects.iter().zip(&tallies) {
        if tally.retried > 0 {
            row.notes.push(format!("{:?}: {} transactions were retried", subject.side, tally.retried));
        }
        let figures = Figures {
            per_sec: median(&tally.rates),
            slices: tally.rates.clone(),
            cpu_micros: tally
                .cpu_secs
                .filter(|_| tally.operations > 0.0)
                .map(|secs| secs * 1e6 / tally.operations),
            resident_bytes: subject.process.and_then(Process::resident_bytes),
        };
        let ratio = ratio(&tallies[0].rates, &tally.rates);
        let gates = match subject.side {
            Side::Ours => {
                row.ours = figures;
                continue;
            }
            Side::Peer => {
                row.peer = Some(figures);
                row.ratio = Some(ratio);
                workload.peer_gates
            }
            Side::Ceiling => {
                row.ceiling = Some(figures);
                workload.ceiling_gates
            }
            Side::Auto => {
                row.auto = Some(figures);
                continue;
            }
        };
        let name = if subject.side == Side::Peer { "÷ peer" } else { "÷ no-op" };
        let bounds = gates.iter().filter(|(at, _)| *at == clients);
        row.gates.extend(bounds.map(|(_, bound)| Gate {
            name: name.to_owned(),
            value: ratio,
            bound: Bound::AtLeast(*bound),
        }));
    }
    if let Some(before) = sums {
        let after = Sums::read(&mut servers.ours.connect()?)?;
        after.change_since(before).map_err(|wrong| Failure::new(End::Answer, wrong))?;
        let launch = servers.launch.clone();
        row.notes.push(tpcb::survive(&launch, &mut servers.ours, sizes, clients, before, time)?);
    }
    Ok(())
}

/// Median of the ratios within turns.
fn ratio(ours: &[f64], theirs: &[f64]) -> f64 {
    median(&ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect::<Vec<f64>>())
}

/// What is needed to run slices of one load on all subjects.
enum Load {
    Seats(Kind, Vec<Vec<Seat>>),
    Copy(String),
    Pgbench(usize),
}

impl Load {
    fn start(
        runtime: &Runtime,
        subjects: &[Subject],
        kind: Kind,
        clients: usize,
        sizes: Sizes,
        row: &mut Row,
    ) -> Result<Self, Failure> {
        match kind {
            Kind::Copy => return Ok(Self::Copy(workload::narrow_rows(sizes.accounts()))),
            Kind::Tpcb => {
                let targets: Vec<&Target> = subjects.iter().map(|subject| &subject.target).collect();
                match tpcb::is_pgbench_usable(&targets) {
                    Ok(()) => {
                        row.notes.push("load generator: pgbench -b tpcb-like".to_owned());
                        return Ok(Self::Pgbench(clients));
                    }
                    Err(reason) => row.notes.push(format!("load generator: our own ({reason})")),
                }
            }
            Kind::Statement(_) | Kind::Constant { .. } => {}
        }
        let kind = match kind {
            Kind::Constant { large, .. } => Kind::Statement(large),
            other => other,
        };
        let mut all = Vec::new();
        for subject in subjects {
            let mut seats = runtime.block_on(seats(&subject.target, kind, clients, sizes))?;
            runtime.block_on(slice(&mut seats, kind, WARM_UP)).checked()?;
            all.push(seats);
        }
        Ok(Self::Seats(kind, all))
    }

    fn slice(
        &mut self,
        runtime: &Runtime,
        subject: &Subject,
        at: usize,
        time: Duration,
    ) -> Result<Slice, Failure> {
        match self {
            Self::Seats(kind, all) => runtime.block_on(slice(&mut all[at], *kind, time)).checked(),
            Self::Copy(text) => {
                let mut client = crate::cli::client::Client::connect(&subject.target)?;
                client.query("TRUNCATE bench_copy", |_| {})?;
                let begun = now();
                workload::copy_text(&mut client, "bench_copy", text)?;
                let operations = text.lines().count() as u64;
                Ok(Slice { operations, time: begun.elapsed(), ..Slice::default() })
            }
            Self::Pgbench(clients) => {
                let rate = tpcb::pgbench(&subject.target, *clients, time)?;
                let time = Duration::from_secs(time.as_secs().max(1));
                Ok(Slice { operations: (rate * time.as_secs_f64()) as u64, time, ..Slice::default() })
            }
        }
    }
}

/// A connection and where its parameters come from.
pub(super) struct Seat {
    connection: Connection,
    draw: Draw,
}

/// Connects `clients` times and prepares.
pub(super) async fn seats(
    target: &Target,
    kind: Kind,
    clients: usize,
    sizes: Sizes,
) -> Result<Vec<Seat>, ClientError> {
    let mut seats = Vec::with_capacity(clients);
    for number in 0..clients {
        let mut connection = Connection::open(target).await?;
        if let Kind::Statement(Statement { sql, protocol: Protocol::Prepared, .. }) = kind {
            connection.prepare(sql).await?;
        }
        seats.push(Seat { connection, draw: Draw::new(SEED + number as u64, sizes) });
    }
    Ok(seats)
}

/// What was done in a slice.
#[derive(Debug, Default)]
pub(super) struct Slice {
    /// Operations acknowledged.
    pub(super) operations: u64,
    /// How long it took, the last answers included.
    time: Duration,
    /// Transactions that were rolled back for a conflict.
    retried: u64,
    failure: Option<ClientError>,
}

impl Slice {
    fn checked(self) -> Result<Self, Failure> {
        match self.failure {
            None => Ok(self),
            Some(error) => Err(error.into()),
        }
    }

    fn rate(&self) -> f64 {
        self.operations as f64 / self.time.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

/// Runs all connections for a time. Whoever fails stops; the others go on.
pub(super) async fn slice(seats: &mut [Seat], kind: Kind, time: Duration) -> Slice {
    let begun = now();
    let all = join_all(seats.iter_mut().map(|seat| async move {
        let mut done = Slice::default();
        while begun.elapsed() < time {
            match seat.operate(kind).await {
                Ok(()) => done.operations += 1,
                Err(error) if is_conflict(&error) && matches!(kind, Kind::Tpcb) => {
                    done.retried += 1;
                    if let Err(error) = seat.connection.simple("ROLLBACK").await {
                        done.failure = Some(error);
                        break;
                    }
                }
                Err(error) => {
                    done.failure = Some(error);
                    break;
                }
            }
        }
        done
    }))
    .await;
    let mut sum = Slice { time: begun.elapsed(), ..Slice::default() };
    for one in all {
        sum.operations += one.operations;
        sum.retried += one.retried;
        sum.failure = sum.failure.or(one.failure);
    }
    sum
}

fn is_conflict(error: &ClientError) -> bool {
    matches!(error.code(), Some("40001" | "40P01"))
}

impl Seat {
    async fn operate(&mut self, kind: Kind) -> Result<(), ClientError> {
        match kind {
            Kind::Statement(statement) | Kind::Constant { large: statement, .. } => {
                let parameters = (statement.draw)(&mut self.draw);
                let count = match statement.protocol {
                    Protocol::Prepared => self.connection.execute(&parameters).await?,
                    Protocol::Simple => self.connection.simple(&statement.text(&parameters)).await?,
                };
                match statement.count {
                    Some(due) if due != count => Err(ClientError::Protocol(format!(
                        "{} with {parameters:?}: {count} rows instead of {due}",
                        statement.sql
                    ))),
                    _ => Ok(()),
                }
            }
            Kind::Tpcb => {
                for statement in self.draw.transaction() {
                    self.connection.simple(&statement).await?;
                }
                Ok(())
            }
            Kind::Copy => Err(ClientError::Protocol("COPY is no operation of a seat".to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_taken_within_turns() {
        // The machine became twice as slow after the first turn: the ratio did not change.
        let (ours, theirs) = ([200.0, 100.0, 100.0], [100.0, 50.0, 50.0]);
        assert!((ratio(&ours, &theirs) - 2.0).abs() < 1e-9);
    }

    #[tokio::test]
    async fn a_load_runs_against_a_server_that_does_nothing() {
        let ceiling = std::thread::spawn(|| Ceiling::start().expect("a loopback port is free"));
        let ceiling = ceiling.join().expect("it starts");
        let kind = WORKLOADS[0].kind;
        let mut seats = seats(&ceiling.target(), kind, 4, Sizes { scale: 1 }).await.expect("it lets in");
        let done = slice(&mut seats, kind, Duration::from_millis(20)).await;
        assert!(done.failure.is_none() && done.operations > 0, "{done:?}");
        std::thread::spawn(move || drop(ceiling)).join().expect("it ends");
    }
}
