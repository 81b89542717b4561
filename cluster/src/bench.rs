//! How many commands a node commits, beside what its disk can do: both measured in one run, turn by turn.
//!
//! The ceiling is a loop of 512-byte appends to a growing file, each with its own sync: what a server would do that
//! commits one command at a time. Commands go through the router: locks, slot, log, apply, outcome.

use std::{
    fmt, fs,
    io::Write as _,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use model::{
    Type, Value,
    catalog::{ADMIN, Catalog, Change, Object},
    command::{Command, Identity, Outcome, Write},
    id::{ColumnNumber, IndexId, PartitionId, TableId},
    key::{self, KeyPart},
    port::Dispatch,
    read::At,
    row,
    schema::{Column, Index, IndexPart, IndexState, KeyConstraint, Kind, Table},
    time::Clock,
    types::Typmod,
};
use tokio::task::JoinSet;

use crate::{Error, Node, Options, Result, Router};

/// Bytes of a row's text.
const TEXT_BYTES: usize = 240;

/// Rows of each writer, written over and over.
const ROWS: u64 = 4_096;

/// Rows that are read over and over.
const KEYS: i64 = 256;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Commands in flight.
    pub writers: usize,
    /// Partitions they are spread over; each is in some shard.
    pub partitions: usize,
    /// Turns.
    pub turns: usize,
    /// Length of each loop in a turn.
    pub slice: Duration,
    /// Scheduling of the log's writer.
    pub priority: storage::log::Priority,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            writers: 16,
            partitions: 64,
            turns: 5,
            slice: Duration::from_millis(500),
            priority: storage::log::Priority::Normal,
        }
    }
}

/// Medians over the turns.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Report {
    /// Appends of 512 bytes with a sync, per second.
    pub raw_appends_per_sec: f64,
    /// Commands committed, per second.
    pub commits_per_sec: f64,
    /// Commits ÷ raw appends, of the same turn.
    pub ratio: f64,
    /// Commands that shared a sync, on average over the run.
    pub commits_per_sync: f64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.0} commits/s, {:.1} x raw append+sync ({:.0}/s), {:.1} commits per sync",
            self.commits_per_sec, self.ratio, self.raw_appends_per_sec, self.commits_per_sync
        )
    }
}

/// Runs the bench in a directory of its own, which it fills.
pub fn commits(directory: &Path, clock: Arc<dyn Clock>, settings: &Settings) -> Result<Report> {
    let system = |action| move |source| Error::System { action, source };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(system("start a runtime"))?;
    let mut options = Options::new(directory.join("data"), clock.clone());
    options.log.priority = settings.priority;
    let node = runtime.block_on(Node::open(options))?;
    let router = node.router();
    let (table, partitions) = runtime.block_on(prepare(&router, settings.partitions))?;
    let mut raw = fs::File::create(directory.join("raw")).map_err(system("create a file"))?;
    let mut turns = Vec::new();
    let before = node.stats();
    let mut commits_total = 0.0;
    for _ in 0..settings.turns {
        let appends = raw_appends(&mut raw, &*clock, settings.slice).map_err(system("append to a file"))?;
        let commits = runtime.block_on(turn(&router, table, &partitions, &clock, settings))?;
        commits_total += commits * settings.slice.as_secs_f64();
        turns.push(Report {
            raw_appends_per_sec: appends,
            commits_per_sec: commits,
            ratio: commits / appends,
            ..Report::default()
        });
    }
    let syncs = node.stats().log.syncs - before.log.syncs;
    runtime.block_on(node.close())?;
    let median = |of: fn(&Report) -> f64| {
        let mut values: Vec<_> = turns.iter().map(of).collect();
        values.sort_unstable_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or_default()
    };
    Ok(Report {
        raw_appends_per_sec: median(|turn| turn.raw_appends_per_sec),
        commits_per_sec: median(|turn| turn.commits_per_sec),
        ratio: median(|turn| turn.ratio),
        commits_per_sync: commits_total / (syncs.max(1) as f64),
    })
}

/// How many point reads one thread answers through the router per second, on rows that lie in memory.
pub fn gets(directory: &Path, clock: Arc<dyn Clock>, slice: Duration) -> Result<f64> {
    let system = |action| move |source| Error::System { action, source };
    let runtime = tokio::runtime::Runtime::new().map_err(system("start a runtime"))?;
    let node = runtime.block_on(Node::open(Options::new(directory.join("data"), clock.clone())))?;
    let router = node.router();
    let counted = runtime.block_on(async {
        let (table, partitions) = prepare(&router, 1).await?;
        for id in 0..KEYS {
            let command = put(&router, &partitions[0], table, id).map_err(Error::Refused)?;
            router.execute(command, slice).await.map_err(Error::Refused)?;
        }
        let keys = (0..KEYS).map(key_of).collect::<model::Result<Vec<_>>>().map_err(Error::Refused)?;
        let start = clock.monotonic();
        let mut reads = 0.0;
        while clock.monotonic() - start < slice {
            for key in &keys {
                let row =
                    router.get(&partitions[0], table, key, &At::Latest).await.map_err(Error::Refused)?;
                assert!(row.is_some(), "every key was written");
            }
            reads += keys.len() as f64;
        }
        Ok(reads / (clock.monotonic() - start).as_secs_f64())
    });
    runtime.block_on(node.close())?;
    counted
}

fn raw_appends(file: &mut fs::File, clock: &dyn Clock, slice: Duration) -> std::io::Result<f64> {
    let record = [7; 512];
    let start = clock.monotonic();
    let mut appends = 0.0;
    while clock.monotonic() - start < slice {
        file.write_all(&record)?;
        file.sync_data()?;
        appends += 1.0;
    }
    Ok(appends / (clock.monotonic() - start).as_secs_f64())
}

async fn turn(
    router: &Arc<Router>,
    table: TableId,
    partitions: &[PartitionId],
    clock: &Arc<dyn Clock>,
    settings: &Settings,
) -> Result<f64> {
    let stop = Arc::new(AtomicBool::new(false));
    let commits = Arc::new(AtomicU64::new(0));
    let mut writers = JoinSet::new();
    let start = clock.monotonic();
    for writer in 0..settings.writers {
        let partition = partitions[writer % partitions.len()].clone();
        let (router, stop, commits) = (router.clone(), stop.clone(), commits.clone());
        writers.spawn(async move {
            let mut row = writer as u64 * ROWS;
            while !stop.load(Ordering::Relaxed) {
                row = (row + 1) % ROWS + writer as u64 * ROWS;
                let command = put(&router, &partition, table, row as i64)?;
                match router.execute(command, Duration::from_secs(5)).await? {
                    Outcome::Applied(_) => commits.fetch_add(1, Ordering::Relaxed),
                    Outcome::Rejected(rejection) => return Err(rejection.to_error()),
                };
            }
            Ok(())
        });
    }
    tokio::time::sleep(settings.slice).await;
    stop.store(true, Ordering::Relaxed);
    let elapsed = clock.monotonic() - start;
    let done = commits.load(Ordering::Relaxed);
    while let Some(writer) = writers.join_next().await {
        let written: model::Result<()> =
            writer.map_err(|error| Error::Refused(model::Error::internal(error.to_string())))?;
        written.map_err(Error::Refused)?;
    }
    Ok(done as f64 / elapsed.as_secs_f64())
}

fn put(router: &Router, partition: &PartitionId, table: TableId, id: i64) -> model::Result<Command> {
    let (node, boot) = router.gateway();
    let write = Write::Put { table, key: key_of(id)?, row: row_of(id, id, &"x".repeat(TEXT_BYTES))? };
    Ok(Command {
        identity: Identity::unassigned(node, boot),
        time_left: None,
        partition: partition.clone(),
        principal: ADMIN,
        catalog: router.catalog().version(),
        locks: None,
        conditions: Vec::new(),
        writes: vec![write],
    })
}

async fn prepare(router: &Arc<Router>, partitions: usize) -> Result<(TableId, Vec<PartitionId>)> {
    let catalog = router.catalog();
    let first = router.allocate_ids(2).await.map_err(Error::Refused)?;
    let table = table(&catalog, TableId(first), IndexId(first + 1), "bench").map_err(Error::Refused)?;
    let (database, schema) = (table.database, table.schema);
    let change = Change { put: vec![Object::Table(table)], ..Change::default() };
    router.change_catalog(change).await.map_err(Error::Refused)?;
    let partition = |number: usize| {
        PartitionId::new(database, schema, &[Value::Int8(number as i64)]).map_err(Error::Refused)
    };
    Ok((TableId(first), (0..partitions.max(1)).map(partition).collect::<Result<_>>()?))
}

/// A table `(id int8 primary key, n int8, name text)` in the first schema there is.
pub(crate) fn table(catalog: &Catalog, id: TableId, key: IndexId, name: &str) -> model::Result<Table> {
    let missing = || model::Error::internal("a new cluster has a database and a schema");
    let database = catalog.first_database().ok_or_else(missing)?;
    let schema = catalog.schemas(database.id).next().ok_or_else(missing)?;
    let column = |number: u16, name: &str, data_type, not_null| Column {
        number: ColumnNumber(number),
        name: name.to_owned(),
        data_type,
        typmod: Typmod::NONE,
        not_null,
        default: None,
        missing: None,
        hidden: false,
        dropped: false,
        moved: None,
        comment: None,
    };
    Ok(Table {
        id,
        database: database.id,
        schema: schema.id,
        name: name.to_owned(),
        owner: ADMIN,
        kind: Kind::Table,
        version: 1,
        columns: vec![
            column(1, "id", Type::Int8, true),
            column(2, "n", Type::Int8, false),
            column(3, "name", Type::Text, false),
        ],
        primary_key: Some(key),
        indexes: vec![Index {
            id: key,
            name: format!("{name}_pkey"),
            parts: vec![IndexPart { column: ColumnNumber(1), order: KeyPart::default() }],
            unique: true,
            nulls_not_distinct: false,
            constraint: Some(KeyConstraint::Primary),
            predicate: None,
            predicate_text: None,
            state: IndexState::Ready,
            comment: None,
        }],
        partition_by: Vec::new(),
        checks: Vec::new(),
        foreign_keys: Vec::new(),
        feed: true,
        temporary: None,
        comment: None,
    })
}

pub(crate) fn key_of(id: i64) -> model::Result<Bytes> {
    let mut out = Vec::with_capacity(16);
    key::encode_into(&mut out, &[Value::Int8(id)])
        .map_err(|error| model::Error::internal(error.to_string()))?;
    Ok(out.into())
}

pub(crate) fn row_of(id: i64, n: i64, name: &str) -> model::Result<Bytes> {
    let mut out = Vec::with_capacity(48 + name.len());
    let values = [Value::Int8(id), Value::Int8(n), Value::Text(name.into())];
    row::encode(&values, &[Type::Int8, Type::Int8, Type::Text], &mut out)
        .map_err(|error| model::Error::internal(error.to_string()))?;
    Ok(out.into())
}
