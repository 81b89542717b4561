//! Partitions in memory, and a runtime over them: what the tests of operators, DML and COPY stand on.
//!
//! One state, no concurrency: a read point sees the newest, a lock is always free.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use bytes::Bytes;
use model::{
    Code, Error, Result, Type, Value,
    catalog::{ADMIN, Catalog, Change, Object},
    command::{Command, Condition, Effect, LockSet, Outcome, Receipt, Rejection, Write},
    id::{
        Boot, ColumnNumber, DatabaseId, Epoch, IndexId, NodeId, PartitionId, Revision, SchemaId, SequenceId,
        SessionId, ShardId, TableId,
    },
    key::{self, KeyPart},
    port::{BoxFuture, Dispatch, LockRequest, Lockable, Locked, Reply},
    read::{At, Page, ReadPoint, Scan, Stored},
    row,
    schema::{Column, Index, IndexPart, IndexState, KeyConstraint, Kind, Table},
    time::{Clock, Timestamp},
    value,
};
use parking_lot::Mutex;

use super::{Cancel, Operator, Reserve, Runtime, collect};
use crate::{
    batch::Batch,
    context::{Activity, Context, NextValue, Sequences, Setting, Settings},
    dml::TableRules,
    expr::Expr,
    memory::Pool,
    plan::RowRules,
    spill,
    txn::{Isolation, Overlay, State, Statement, command_parts},
};

pub(crate) const DATABASE: DatabaseId = DatabaseId(1);
pub(crate) const SCHEMA: SchemaId = SchemaId(2);

/// The partition of all tables here.
pub(crate) fn partition() -> PartitionId {
    PartitionId::default_of(DATABASE, SCHEMA)
}

type Rows = BTreeMap<(PartitionId, TableId), BTreeMap<Bytes, Bytes>>;

/// Partitions in memory.
pub(crate) struct Memory {
    rows: Mutex<Rows>,
    revision: AtomicU64,
    catalog: Mutex<Arc<Catalog>>,
}

impl Memory {
    pub(crate) fn new(tables: Vec<Table>) -> Arc<Self> {
        let schema = model::schema::Schema {
            id: SCHEMA,
            database: DATABASE,
            name: "public".into(),
            owner: ADMIN,
            comment: None,
        };
        let mut put = vec![Object::Schema(schema)];
        put.extend(tables.into_iter().map(Object::Table));
        let catalog = Catalog::default().apply(&Change { put, ..Change::default() }).expect("new tables");
        Arc::new(Self {
            rows: Mutex::default(),
            revision: AtomicU64::new(1),
            catalog: Mutex::new(Arc::new(catalog)),
        })
    }

    pub(crate) fn table(&self, id: u32) -> Arc<Table> {
        Arc::clone(self.catalog.lock().table(TableId(id)).expect("a table of the fixture"))
    }

    /// The catalog of all tables.
    pub(crate) fn table_catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.catalog.lock())
    }

    /// The rows of a table as values, in key order.
    pub(crate) fn rows(&self, id: u32) -> Vec<Vec<Value>> {
        let table = self.table(id);
        let rows = self.rows.lock();
        let stored = rows.get(&(partition(), table.id)).into_iter().flatten();
        stored.map(|(_, row)| super::whole_row(&table, row).expect("a stored row")).collect()
    }

    fn index_key(table: &Table, index: IndexId, stored: &Stored) -> Bytes {
        let values = super::whole_row(table, &stored.row).expect("a stored row");
        let mut bytes = Vec::new();
        for part in &table.find_index(index).expect("an index of the table").parts {
            key::encode_part(&mut bytes, &values[usize::from(part.column.0) - 1], part.order).expect("a key");
        }
        bytes.extend_from_slice(&stored.key);
        bytes.into()
    }

    /// All rows of a table with the keys of an order.
    fn ordered(&self, place: &PartitionId, id: TableId, index: Option<IndexId>) -> Vec<(Bytes, Stored)> {
        let table = self.table(id.0);
        let rows = self.rows.lock();
        let stored = rows.get(&(place.clone(), id)).into_iter().flatten();
        let mut all: Vec<(Bytes, Stored)> = stored
            .map(|(key, row)| {
                let stored = Stored { key: key.clone(), row: row.clone() };
                let key = index.map_or_else(|| key.clone(), |index| Self::index_key(&table, index, &stored));
                (key, stored)
            })
            .collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }

    /// Commits what a statement has buffered.
    pub(crate) fn commit(&self, writes: Overlay) -> Result<()> {
        let (partition, (conditions, writes)) = command_parts(writes);
        let Some(partition) = partition else { return Ok(()) };
        match self.apply(&partition, &conditions, &writes) {
            Ok(()) => Ok(()),
            Err(Rejection::UniqueViolation { table, index, key }) => {
                let catalog = Arc::clone(&self.catalog.lock());
                let table = catalog.table(table).expect("a table of the fixture");
                let viewer = crate::dml::Viewer { catalog: &catalog, role: ADMIN };
                Err(crate::dml::unique_violation_by_key(viewer, table, index, &key))
            }
            Err(rejection) => Err(rejection.to_error()),
        }
    }

    fn apply(
        &self,
        partition: &PartitionId,
        conditions: &[Condition],
        writes: &[Write],
    ) -> std::result::Result<(), Rejection> {
        let revision = 1 + self.revision.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        for condition in conditions {
            let rows = self.rows.lock();
            let found = |table: &TableId, key: &Bytes| {
                rows.get(&(partition.clone(), *table)).and_then(|rows| rows.get(key)).cloned()
            };
            match condition {
                Condition::RowRevision { table, key, revision } => {
                    let now = found(table, key)
                        .map(|row| Revision(row::RowView::new(&row).expect("a row").revision()));
                    if now != Some(*revision) {
                        return Err(Rejection::RowChanged { table: *table, key: key.clone() });
                    }
                }
                Condition::RowExists { table, key } if found(table, key).is_none() => {
                    return Err(Rejection::RowMissing { table: *table, key: key.clone() });
                }
                Condition::RangeEmpty { table, index: None, from, to } => {
                    let range = rows
                        .get(&(partition.clone(), *table))
                        .map(|rows| rows.range(from.clone()..to.clone()).count());
                    if range.is_some_and(|count| count > 0) {
                        return Err(Rejection::RangeChanged { table: *table });
                    }
                }
                _ => {}
            }
        }
        let mut done = self.rows.lock().clone();
        for write in writes {
            let (table, key, row) = match write {
                Write::Insert { table, key, row } | Write::Put { table, key, row } => (table, key, Some(row)),
                Write::Delete { table, key } => (table, key, None),
                _ => continue,
            };
            let rows = done.entry((partition.clone(), *table)).or_default();
            if matches!(write, Write::Insert { .. }) && rows.contains_key(key) {
                return Err(Rejection::UniqueViolation { table: *table, index: None, key: key.clone() });
            }
            match row {
                Some(row) => {
                    let mut row = row.to_vec();
                    row::set_revision(&mut row, revision);
                    rows.insert(key.clone(), row.into());
                }
                None => {
                    rows.remove(key);
                }
            }
        }
        *self.rows.lock() = done;
        Ok(())
    }
}

impl Dispatch for Memory {
    fn gateway(&self) -> (NodeId, Boot) {
        (NodeId(1), Boot(1))
    }

    fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.catalog.lock())
    }

    fn refresh_catalog(&self) -> Reply<Arc<Catalog>> {
        Reply::now(Ok(self.catalog()))
    }

    fn allocate_ids(&self, _count: u32) -> Reply<u32> {
        Reply::now(Err(Error::unsupported("no ids here", "")))
    }

    fn change_catalog(&self, _change: Change) -> Reply<Arc<Catalog>> {
        Reply::now(Err(Error::unsupported("no DDL here", "")))
    }

    fn build_index(&self, _table: TableId, _index: IndexId) -> Reply<Arc<Catalog>> {
        Reply::now(Err(Error::unsupported("no DDL here", "")))
    }

    fn execute(&self, command: Command, _lock_wait: Duration) -> Reply<Outcome> {
        let outcome = match self.apply(&command.partition, &command.conditions, &command.writes) {
            Ok(()) => Outcome::Applied(Receipt {
                revision: Revision(1),
                effects: vec![Effect::Rows(1); command.writes.len()],
            }),
            Err(rejection) => Outcome::Rejected(rejection),
        };
        Reply::now(Ok(outcome))
    }

    fn get(&self, partition: &PartitionId, table: TableId, key: &[u8], _at: &At) -> Reply<Option<Bytes>> {
        let rows = self.rows.lock();
        Reply::now(Ok(rows.get(&(partition.clone(), table)).and_then(|rows| rows.get(key)).cloned()))
    }

    fn get_many(
        &self,
        partition: &PartitionId,
        table: TableId,
        index: Option<IndexId>,
        keys: Vec<Bytes>,
        _at: &At,
    ) -> Reply<Vec<Option<Stored>>> {
        let all = self.ordered(partition, table, index);
        let find = |key: &Bytes| {
            let fits =
                |at: &&(Bytes, Stored)| if index.is_some() { at.0.starts_with(key) } else { at.0 == *key };
            all.iter().find(fits).map(|(_, stored)| stored.clone())
        };
        Reply::now(Ok(keys.iter().map(find).collect()))
    }

    fn scan(&self, scan: Scan) -> Reply<Page> {
        let inside = |key: &Bytes| *key >= scan.from && scan.to.as_ref().is_none_or(|to| key < to);
        let mut all: Vec<(Bytes, Stored)> = self
            .ordered(&scan.partition, scan.table, scan.index)
            .into_iter()
            .filter(|(key, _)| inside(key))
            .collect();
        if scan.reverse {
            all.reverse();
        }
        // Small pages, so that every test goes over their edges.
        let size = scan.rows_max.min(3);
        let next = match (all.len() > size, scan.reverse) {
            (false, _) => None,
            (true, false) => Some(all[size].0.clone()),
            (true, true) => Some(all[size - 1].0.clone()),
        };
        all.truncate(size);
        let page = Page { rows: all.into_iter().map(|(_, stored)| stored).collect(), next };
        Reply::later(async move {
            tokio::task::yield_now().await;
            Ok(page)
        })
    }

    fn count(&self, partition: &PartitionId, table: TableId, _at: &At) -> Reply<u64> {
        Reply::now(Ok(self.rows.lock().get(&(partition.clone(), table)).map_or(0, |rows| rows.len() as u64)))
    }

    fn partitions(&self, _table: TableId) -> Reply<Vec<PartitionId>> {
        Reply::now(Ok(vec![partition()]))
    }

    fn read_point(&self, _partition: &PartitionId) -> Reply<ReadPoint> {
        let revision = Revision(self.revision.load(std::sync::atomic::Ordering::Relaxed));
        Reply::now(Ok(ReadPoint { shard: ShardId(1), epoch: Epoch(1), id: 1, revision, lease: Arc::new(()) }))
    }

    fn begin_locks(&self, _partition: &PartitionId, session: SessionId) -> Reply<LockSet> {
        Reply::now(Ok(LockSet { epoch: Epoch(1), session, id: 1 }))
    }

    fn lock(&self, request: LockRequest) -> Reply<Vec<Locked>> {
        let held = request.locks.iter().map(|(what, _)| {
            let row = match what {
                Lockable::Row(table, key) => {
                    self.ordered(&request.partition, *table, None).into_iter().find(|(at, _)| at == key)
                }
                Lockable::Unique(table, index, key) => self
                    .ordered(&request.partition, *table, Some(*index))
                    .into_iter()
                    .find(|(at, _)| at.starts_with(key)),
                Lockable::Table(_) => None,
            };
            Locked::Held { row: row.map(|(_, stored)| stored), waited: false }
        });
        Reply::now(Ok(held.collect()))
    }

    fn unlock(&self, _partition: &PartitionId, _set: LockSet, _keep: Option<usize>) -> Reply<()> {
        Reply::now(Ok(()))
    }
}

struct Still;

impl Clock for Still {
    fn wall(&self) -> Timestamp {
        Timestamp::from_unix_micros(1_700_000_000_000_000).expect("a time of our calendar")
    }

    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }
}

impl Settings for Still {
    fn get(&self, _name: &str) -> Option<String> {
        None
    }

    fn set(&self, _name: &str, value: &str, _local: bool) -> Result<String> {
        Ok(value.to_owned())
    }

    fn all(&self) -> Vec<Setting> {
        Vec::new()
    }

    fn activity(&self) -> Vec<Activity> {
        Vec::new()
    }
}

impl Sequences for Still {
    fn next(&self, _sequence: SequenceId) -> Result<NextValue> {
        Err(Error::new(Code::UndefinedTable, "no sequences here"))
    }

    fn current(&self, _sequence: SequenceId) -> Result<i64> {
        Err(Error::new(Code::UndefinedTable, "no sequences here"))
    }

    fn last(&self) -> Result<(SequenceId, i64)> {
        Err(Error::new(Code::UndefinedTable, "no sequences here"))
    }

    fn set(&self, _sequence: SequenceId, _value: i64, _called: bool) -> Result<NextValue> {
        Err(Error::new(Code::UndefinedTable, "no sequences here"))
    }
}

impl Reserve for Still {
    fn reserve(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async { Ok(()) })
    }
}

impl TableRules for Still {
    fn rules(&self, _table: &Arc<Table>) -> Result<RowRules> {
        Ok(no_rules())
    }

    fn default(&self, _table: &Arc<Table>, _column: ColumnNumber) -> Result<Option<Expr>> {
        Ok(None)
    }
}

pub(crate) fn no_rules() -> RowRules {
    RowRules { generated: Vec::new(), checks: Vec::new() }
}

/// What expressions know in tests.
pub(crate) fn context(catalog: Arc<Catalog>) -> Context {
    let mut state: u64 = 7;
    Context {
        catalog,
        now: Still.wall(),
        statement: Still.wall(),
        clock: Arc::new(Still),
        text: value::Context::default(),
        session_user: ADMIN,
        current_user: ADMIN,
        database: DATABASE,
        search_path: Arc::from(["public".to_owned()]),
        process_id: 1,
        pauses: crate::context::Pauses::default(),
        making: crate::execute::Making::default(),
        temporary: None,
        parameters: Vec::new(),
        settings: Arc::new(Still),
        sequences: Arc::new(Still),
        random: Box::new(move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state
        }),
    }
}

/// A runtime over partitions, with a memory budget, inside or outside a transaction that has written `overlay`.
pub(crate) fn runtime_over(memory: &Arc<Memory>, bytes: usize, explicit: bool, overlay: Overlay) -> Runtime {
    let state = State::new(SessionId(1), Isolation::ReadCommitted, explicit);
    let dispatch: Arc<dyn Dispatch> = Arc::clone(memory) as _;
    let statement = Statement::new(dispatch, state, Arc::new(overlay), Duration::from_secs(1));
    static DIRECTORY: AtomicU64 = AtomicU64::new(0);
    let number = DIRECTORY.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("keystead-sql-{}-{number}", std::process::id()));
    Runtime::new(
        statement,
        context(memory.catalog()),
        Pool::new(bytes).budget(bytes),
        spill::Directory::open(path, u64::MAX),
        Cancel::new(),
        Arc::new(Still),
        Arc::new(Still),
    )
}

/// A runtime without tables.
pub(crate) fn runtime(bytes: usize) -> Runtime {
    runtime_over(&Memory::new(Vec::new()), bytes, false, Overlay::default())
}

/// Memory enough for every test.
pub(crate) const PLENTY: usize = 1 << 30;

/// Runs a future to its end.
pub(crate) fn wait<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(future)
}

/// All rows an operator gives.
pub(crate) fn rows_of(mut operator: Box<dyn Operator>) -> Result<Vec<Vec<Value>>> {
    Ok(wait(collect(operator.as_mut()))?.iter().flat_map(Batch::rows).collect())
}

/// A table whose first column is its key; columns by name, type and NOT NULL.
pub(crate) fn table(id: u32, name: &str, columns: &[(&str, Type, bool)]) -> Table {
    let columns: Vec<Column> = columns
        .iter()
        .enumerate()
        .map(|(place, (name, data_type, not_null))| Column {
            number: ColumnNumber(place as u16 + 1),
            name: (*name).to_owned(),
            data_type: *data_type,
            typmod: model::types::Typmod::NONE,
            not_null: *not_null,
            default: None,
            missing: None,
            hidden: false,
            dropped: false,
            moved: None,
            comment: None,
        })
        .collect();
    Table {
        id: TableId(id),
        database: DATABASE,
        schema: SCHEMA,
        name: name.to_owned(),
        owner: ADMIN,
        kind: Kind::Table,
        version: 1,
        columns,
        primary_key: Some(IndexId(id + 1)),
        indexes: vec![Index {
            constraint: Some(KeyConstraint::Primary),
            ..index(id + 1, &format!("{name}_pkey"), 1, true)
        }],
        partition_by: Vec::new(),
        checks: Vec::new(),
        foreign_keys: Vec::new(),
        feed: true,
        temporary: None,
        comment: None,
    }
}

/// An index of one column.
pub(crate) fn index(id: u32, name: &str, column: u16, unique: bool) -> Index {
    Index {
        id: IndexId(id),
        name: name.to_owned(),
        parts: vec![IndexPart { column: ColumnNumber(column), order: KeyPart::ASC }],
        unique,
        nulls_not_distinct: false,
        constraint: unique.then_some(KeyConstraint::Unique),
        predicate: None,
        predicate_text: None,
        state: IndexState::Ready,
        comment: None,
    }
}
