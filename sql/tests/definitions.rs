//! Definitions that are broken off: by a cancel, by the end of their session, by the end of the process.

#![expect(clippy::disallowed_methods, reason = "tests run statements in tasks of their own")]

mod support;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use model::{
    Result,
    catalog::{Catalog, Change, Object},
    command::{Command, LockSet, Outcome},
    id::{Boot, IndexId, NodeId, PartitionId, SessionId, TableId},
    port::{Dispatch, LockRequest, Locked, Reply},
    read::{At, Page, ReadPoint, Scan, Stored},
    schema::{IndexState, Table},
};
use parking_lot::Mutex;
use sql::engine::Options;
use storage::standalone::Standalone;
use support::{Connection, Server};
use tokio::task::JoinHandle;

/// A kind of call that gets no answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Held {
    Build,
    Execute,
}

/// A store before which calls of one kind can be held.
#[derive(Clone)]
struct Gate {
    store: Standalone,
    held: Arc<Mutex<(Option<Held>, usize)>>,
}

impl Gate {
    fn server() -> (Server, Self) {
        Self::server_with(Options::default())
    }

    fn server_with(options: Options) -> (Server, Self) {
        let mut gate = None;
        let front =
            |store| Arc::new(gate.insert(Self { store, held: Arc::default() }).clone()) as Arc<dyn Dispatch>;
        let server = Server::over(front, options);
        (server, gate.expect("made with the server"))
    }

    fn hold(&self, held: Option<Held>) {
        *self.held.lock() = (held, 0);
    }

    fn is_held(&self, call: Held) -> bool {
        let mut held = self.held.lock();
        let stops = held.0 == Some(call);
        held.1 += usize::from(stops);
        stops
    }

    async fn wait_for_held(&self) {
        until(|| self.held.lock().1 > 0).await;
    }

    fn table(&self, name: &str) -> Arc<Table> {
        let catalog = self.store.catalog();
        catalog.tables().find(|table| table.name == name).cloned().expect("a table")
    }

    /// Waits until a table has no index under construction and no hidden column.
    async fn wait_until_clean(&self, name: &str) {
        until(|| {
            let table = self.table(name);
            table.indexes.iter().all(|index| index.state == IndexState::Ready)
                && table.columns.iter().all(|column| !column.hidden)
        })
        .await;
    }
}

impl Dispatch for Gate {
    fn gateway(&self) -> (NodeId, Boot) {
        self.store.gateway()
    }

    fn catalog(&self) -> Arc<Catalog> {
        self.store.catalog()
    }

    fn refresh_catalog(&self) -> Reply<Arc<Catalog>> {
        self.store.refresh_catalog()
    }

    fn allocate_ids(&self, count: u32) -> Reply<u32> {
        self.store.allocate_ids(count)
    }

    fn change_catalog(&self, change: Change) -> Reply<Arc<Catalog>> {
        self.store.change_catalog(change)
    }

    fn build_index(&self, table: TableId, index: IndexId) -> Reply<Arc<Catalog>> {
        if self.is_held(Held::Build) {
            return Reply::later(std::future::pending());
        }
        self.store.build_index(table, index)
    }

    fn execute(&self, command: Command, lock_wait: Duration) -> Reply<Outcome> {
        if self.is_held(Held::Execute) {
            // As an owner does it: whoever stops waiting before the command is proposed gives its locks back.
            let kept = Kept(self.store.clone(), command.partition, command.locks);
            return Reply::later(async move {
                let _kept = kept;
                std::future::pending().await
            });
        }
        self.store.execute(command, lock_wait)
    }

    fn get(&self, partition: &PartitionId, table: TableId, key: &[u8], at: &At) -> Reply<Option<Bytes>> {
        self.store.get(partition, table, key, at)
    }

    fn get_many(
        &self,
        partition: &PartitionId,
        table: TableId,
        index: Option<IndexId>,
        keys: Vec<Bytes>,
        at: &At,
    ) -> Reply<Vec<Option<Stored>>> {
        self.store.get_many(partition, table, index, keys, at)
    }

    fn scan(&self, scan: Scan) -> Reply<Page> {
        self.store.scan(scan)
    }

    fn count(&self, partition: &PartitionId, table: TableId, at: &At) -> Reply<u64> {
        self.store.count(partition, table, at)
    }

    fn partitions(&self, table: TableId) -> Reply<Vec<PartitionId>> {
        self.store.partitions(table)
    }

    fn read_point(&self, partition: &PartitionId) -> Reply<ReadPoint> {
        self.store.read_point(partition)
    }

    fn begin_locks(&self, partition: &PartitionId, session: SessionId) -> Reply<LockSet> {
        self.store.begin_locks(partition, session)
    }

    fn lock(&self, request: LockRequest) -> Reply<Vec<Locked>> {
        self.store.lock(request)
    }

    fn unlock(&self, partition: &PartitionId, set: LockSet, keep: Option<usize>) -> Reply<()> {
        self.store.unlock(partition, set, keep)
    }
}

/// The locks of a command that is held.
struct Kept(Standalone, PartitionId, Option<LockSet>);

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some(set) = self.2 {
            drop(self.0.unlock(&self.1, set, None));
        }
    }
}

async fn until(holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed().as_secs() < 20, "it never came to that");
        tokio::task::yield_now().await;
    }
}

/// Runs a statement in a task of its own.
fn start(mut connection: Connection, text: &str) -> JoinHandle<(Result<support::Answer>, Connection)> {
    let text = text.to_owned();
    tokio::spawn(async move { (connection.run(&text).await, connection) })
}

/// Runs a statement and cancels it when it has come to the call that is held.
async fn cancelled(gate: &Gate, held: Held, connection: Connection, text: &str) -> Connection {
    gate.hold(Some(held));
    let handle = connection.0.cancel_handle();
    let running = start(connection, text);
    gate.wait_for_held().await;
    handle.cancel();
    let (result, connection) = running.await.expect("no panic");
    assert_eq!(result.expect_err("cancelled").code().sqlstate(), "57014", "{text}");
    gate.hold(None);
    connection
}

const SHAPE: &str = "select attname, attnotnull from pg_attribute where attrelid = 't'::regclass and attnum > 0 and not attisdropped";

#[tokio::test]
async fn a_definition_that_is_cancelled_while_its_index_is_built_leaves_nothing() {
    let (server, gate) = Gate::server();
    let (mut c, mut other) = (server.connect(), server.connect());
    c.run("create table t (id int, n int)").await.expect("made");
    c.run("insert into t values (1, 1), (2, 1)").await.expect("filled");
    for text in [
        "alter table t add primary key (id)",
        "alter table t add unique (id)",
        "alter table t add column m int default 5 unique, add check (m > 2)",
        "alter table t add column m int, drop column n, add primary key (id)",
        "create unique index on t (id)",
        "create index on t (n)",
        "create unique index on t ((id + 1)) where n > 0",
    ] {
        c = cancelled(&gate, Held::Build, c, text).await;
        gate.wait_until_clean("t").await;
        assert_eq!(other.rows(SHAPE).await, ["id|f", "n|f"], "{text}");
        assert_eq!(other.rows("select count(*) from pg_index where indrelid = 't'::regclass").await, ["0"]);
        other.run("insert into t values (1, 7)").await.expect("no constraint and no lock is left");
        other.run("delete from t where n = 7").await.expect("removed");
    }
    c.run("alter table t add primary key (id)").await.expect("added at last");
    assert_eq!(c.rows("select id from t where id = 2").await, ["2"]);
}

#[tokio::test]
async fn an_index_that_cannot_be_built_leaves_no_hidden_columns() {
    let (server, gate) = Gate::server();
    let mut c = server.connect();
    c.run("create table t (id int, n int)").await.expect("made");
    c.run("insert into t values (1, 1), (2, 1)").await.expect("filled");
    assert_eq!(c.fault("create unique index on t ((n + 1)) where id > 0").await.0, "23505");
    assert!(gate.table("t").columns.iter().all(|column| !column.hidden));
    c.run("create index kept on t ((n + 1))").await.expect("made");
    assert_eq!(c.fault("create unique index on t ((n + 1)) where id > 0").await.0, "23505");
    let hidden = gate.table("t").columns.iter().filter(|column| column.hidden).count();
    assert_eq!(hidden, 1, "what another index reads stays");
    let mut c = cancelled(&gate, Held::Execute, c, "create index on t ((id * 2))").await;
    until(|| gate.table("t").columns.iter().filter(|column| column.hidden).count() == 1).await;
    assert_eq!(c.rows("select id from t where n + 1 = 2 order by id").await, ["1", "2"]);
}

#[tokio::test]
async fn of_two_definitions_of_one_table_each_is_done_or_leaves_the_other_alone() {
    let (server, gate) = Gate::server();
    let (mut a, mut b) = (server.connect(), server.connect());
    a.run("create table t (id int, n int)").await.expect("made");
    a.run("insert into t values (1, 1), (2, 1)").await.expect("filled");
    for text in ["begin", "alter table t add column m int", "create unique index second on t (m)"] {
        b.run(text).await.expect("in the block");
    }
    a.run("create unique index first on t ((id + 1))").await.expect("made");
    assert_eq!(b.fault("commit").await.0, "40001");
    let table = gate.table("t");
    assert_eq!(table.indexes.iter().map(|index| index.name.as_str()).collect::<Vec<_>>(), ["first"]);
    assert!(table.columns[2].hidden && !table.columns[2].dropped);
    assert_eq!(a.fault("insert into t values (1, 1)").await.0, "23505");
}

#[tokio::test]
async fn a_commit_that_is_cancelled_while_an_index_is_built_changes_nothing() {
    let (server, gate) = Gate::server();
    let (mut c, mut other) = (server.connect(), server.connect());
    c.run("create table t (id int, n int)").await.expect("made");
    c.run("insert into t values (1, 1), (2, 1)").await.expect("filled");
    for text in [
        "begin",
        "create table made (a int)",
        "insert into made values (1)",
        "alter table t drop column n",
        "alter table t add primary key (id)",
        "set local lock_timeout = '77s'",
    ] {
        c.run(text).await.expect("in the block");
    }
    let mut c = cancelled(&gate, Held::Build, c, "commit").await;
    gate.wait_until_clean("t").await;
    assert_eq!(other.rows(SHAPE).await, ["id|f", "n|f"]);
    assert_eq!(other.rows("select * from t order by id").await, ["1|1", "2|1"]);
    assert_eq!(other.fault("select * from made").await.0, "42P01");
    other.run("insert into t values (1, 7)").await.expect("no constraint and no lock is left");
    assert_eq!(c.rows("show lock_timeout").await, ["0"]);
    assert_eq!(c.rows("select count(*) from t").await, ["3"]);
}

#[tokio::test]
async fn a_session_that_ends_while_its_index_is_built_leaves_nothing() {
    let (server, gate) = Gate::server();
    let (mut c, mut other) = (server.connect(), server.connect());
    c.run("create table t (id int, n int)").await.expect("made");
    c.run("insert into t values (1, 1), (2, 1)").await.expect("filled");
    gate.hold(Some(Held::Build));
    let running = start(c, "alter table t add primary key (id)");
    gate.wait_for_held().await;
    running.abort();
    gate.hold(None);
    assert!(running.await.is_err());
    gate.wait_until_clean("t").await;
    assert_eq!(other.rows(SHAPE).await, ["id|f", "n|f"]);
    other.run("insert into t values (1, 7)").await.expect("no constraint and no lock is left");
}

#[tokio::test]
async fn a_change_of_type_that_is_cancelled_leaves_no_column_behind() {
    let (server, gate) = Gate::server();
    let (mut c, mut other) = (server.connect(), server.connect());
    c.run("create table t (id int, n int)").await.expect("made");
    c.run("insert into t values (1, 1), (2, 1)").await.expect("filled");
    c = cancelled(&gate, Held::Execute, c, "alter table t alter n type text").await;
    gate.wait_until_clean("t").await;
    c.run("create index on t (n)").await.expect("made");
    c = cancelled(&gate, Held::Build, c, "alter table t alter n type text").await;
    gate.wait_until_clean("t").await;
    other.run("insert into t values (3, 7)").await.expect("no lock is left");
    assert_eq!(other.rows("select pg_typeof(n)::text from t limit 1").await, ["integer"]);
    c.run("alter table t alter n type text").await.expect("changed at last");
    assert_eq!(c.rows("select id from t where n = '7'").await, ["3"]);
}

#[tokio::test]
async fn a_type_is_changed_of_more_rows_than_one_transaction_may_write() {
    let (server, gate) = Gate::server_with(Options { transaction_bytes_max: 4 << 20, ..Options::default() });
    let mut c = server.connect();
    c.run("create table t (id int primary key, n int, filler text)").await.expect("made");
    for from in (1..=5_000).step_by(250) {
        let text = format!(
            "insert into t select g, g * 2, repeat('x', 2000) from generate_series({from}, {}) g",
            from + 249
        );
        c.run(&text).await.expect("filled");
    }
    c.run("alter table t alter n type text using 'n' || n").await.expect("changed");
    assert_eq!(c.rows("select count(*) from t where n = 'n' || id * 2").await, ["5000"]);
    gate.wait_until_clean("t").await;
    assert_eq!(c.fault("update t set filler = repeat('y', 2000)").await.0, "54000");
}

#[tokio::test]
async fn what_an_earlier_process_left_is_taken_away() {
    let (server, gate) = Gate::server();
    let mut c = server.connect();
    c.run("create table t (id int, n int)").await.expect("made");
    c.run("insert into t values (1, 1), (1, 1)").await.expect("filled");
    c.run("create index by_text on t ((n::text))").await.expect("made");
    let mut table = Table::clone(&gate.table("t"));
    let mut index = table.indexes[0].clone();
    (index.id, index.name, index.state) = (IndexId(60_000), "half".to_owned(), IndexState::Building);
    table.indexes.push(index);
    let mut column = table.columns[2].clone();
    (column.number.0, column.name, column.default) = (4, "half".to_owned(), None);
    table.columns.push(column);
    table.version += 1;
    let change = Change { put: vec![Object::Table(table)], ..Change::default() };
    gate.store.change_catalog(change).await.expect("changed");
    server.engine.drop_leftovers().await.expect("taken away");
    let table = gate.table("t");
    assert_eq!(table.indexes.iter().map(|index| index.name.as_str()).collect::<Vec<_>>(), ["by_text"]);
    assert!(table.columns[2].hidden && table.columns[3].dropped);
    assert_eq!(c.rows("select id from t where n::text = '1'").await, ["1", "1"]);
}
