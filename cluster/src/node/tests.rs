//! A whole node over a temporary directory.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use model::{
    Code, Type, Value,
    catalog::{ADMIN, Catalog, Change, Object},
    command::{Command, Condition, Effect, Identity, LockSet, Outcome, Rejection, Write},
    expr::{Arithmetic, Expr, Program},
    id::{ColumnNumber, CommandId, IndexId, PartitionId, SessionId, TableId},
    key::KeyPart,
    port::{Dispatch, LockMode, LockRequest, Lockable, Locked, Wait},
    read::{At, Scan},
    row::RowView,
    schema::{Index, IndexPart, IndexState, KeyConstraint, Table},
    time::{Clock, Timestamp},
};
use tempfile::TempDir;

use super::*;
use crate::bench::{key_of, row_of, table};

const WAIT: Duration = Duration::from_secs(10);

/// Real time: what a node does by itself is not under test here.
struct SystemClock(Instant);

impl Clock for SystemClock {
    fn wall(&self) -> Timestamp {
        Timestamp::from_micros(1_000_000 + self.0.elapsed().as_micros() as i64).unwrap()
    }

    fn monotonic(&self) -> Duration {
        self.0.elapsed()
    }
}

#[expect(clippy::disallowed_methods, reason = "the tests' clock is made here")]
fn clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock(Instant::now()))
}

fn options(directory: &TempDir) -> Options {
    let mut options = Options::new(directory.path().join("data"), clock());
    options.log.segment_bytes = crate::SEGMENT_BYTES_MIN;
    options.log.priority = storage::log::Priority::Normal;
    options
}

async fn open(directory: &TempDir) -> Node {
    Node::open(options(directory)).await.unwrap()
}

/// A node's router with the table `t (id int8 primary key, n int8, name text unique)`.
struct World {
    router: Arc<Router>,
    table: TableId,
    name: IndexId,
    partition: PartitionId,
}

fn unique_name(table: TableId, state: IndexState) -> Index {
    Index {
        id: IndexId(table.0 + 2),
        name: "t_name_key".to_owned(),
        parts: vec![IndexPart { column: ColumnNumber(3), order: KeyPart::default() }],
        unique: true,
        nulls_not_distinct: false,
        constraint: Some(KeyConstraint::Unique),
        predicate: None,
        predicate_text: None,
        state,
        comment: None,
    }
}

impl World {
    async fn new(node: &Node) -> Self {
        let world = Self::bare(node).await;
        let mut changed = world.descriptor();
        changed.indexes.push(unique_name(world.table, IndexState::Ready));
        world.put_table(changed).await;
        world
    }

    /// Without the unique index.
    async fn bare(node: &Node) -> Self {
        let router = node.router();
        let first = router.allocate_ids(3).await.unwrap();
        let table = table(&router.catalog(), TableId(first), IndexId(first + 1), "t").unwrap();
        let partition = PartitionId::default_of(table.database, table.schema);
        let change = Change { put: vec![Object::Table(table)], ..Change::default() };
        router.change_catalog(change).await.unwrap();
        Self { router, table: TableId(first), name: IndexId(first + 2), partition }
    }

    /// The same table, found again after a restart.
    fn again(node: &Node) -> Self {
        let router = node.router();
        let catalog = router.catalog();
        let table = catalog.tables().next().unwrap();
        let partition = PartitionId::default_of(table.database, table.schema);
        Self { table: table.id, name: IndexId(table.id.0 + 2), partition, router }
    }

    fn descriptor(&self) -> Table {
        self.router.catalog().table(self.table).unwrap().as_ref().clone()
    }

    async fn put_table(&self, mut table: Table) -> Arc<Catalog> {
        table.version += 1;
        let change = Change { put: vec![Object::Table(table)], ..Change::default() };
        self.router.change_catalog(change).await.unwrap()
    }

    fn command(&self, writes: Vec<Write>) -> Command {
        let (node, boot) = self.router.gateway();
        Command {
            identity: Identity::unassigned(node, boot),
            time_left: None,
            partition: self.partition.clone(),
            principal: ADMIN,
            catalog: self.router.catalog().version(),
            locks: None,
            conditions: Vec::new(),
            writes,
        }
    }

    fn insert(&self, id: i64, n: i64, name: &str) -> Command {
        let (key, row) = (key_of(id).unwrap(), row_of(id, n, name).unwrap());
        self.command(vec![Write::Insert { table: self.table, key, row }])
    }

    fn add(&self, id: i64, by: i64) -> Command {
        let sum = Expr::Arithmetic(
            Arithmetic::Add,
            Box::new(Expr::Column(ColumnNumber(2), Type::Int8)),
            Box::new(Expr::Constant(Value::Int8(by), Type::Int8)),
        );
        let program = Program { guard: None, assignments: vec![(ColumnNumber(2), sum)] };
        let key = key_of(id).unwrap();
        self.command(vec![Write::Program { table: self.table, key, program, returning: false }])
    }

    async fn execute(&self, command: Command) -> Outcome {
        self.router.execute(command, WAIT).await.unwrap()
    }

    async fn applied(&self, command: Command) {
        let outcome = self.execute(command).await;
        assert!(matches!(outcome, Outcome::Applied(_)), "{outcome:?}");
    }

    async fn n_of(&self, id: i64) -> Option<i64> {
        let key = key_of(id).unwrap();
        let row = self.router.get(&self.partition, self.table, &key, &At::Latest).await.unwrap();
        row.map(|row| n_in(&row))
    }

    fn row(&self, id: i64) -> Lockable {
        Lockable::Row(self.table, key_of(id).unwrap())
    }

    async fn begin(&self, session: u64) -> LockSet {
        self.router.begin_locks(&self.partition, SessionId(session)).await.unwrap()
    }

    async fn lock(&self, set: LockSet, thing: Lockable, mode: LockMode, wait: Wait) -> model::Result<Locked> {
        let request =
            LockRequest { partition: self.partition.clone(), set, locks: vec![(thing, mode)], wait };
        self.router.lock(request).await.map(|mut locked| locked.remove(0))
    }
}

fn n_in(row: &Bytes) -> i64 {
    match RowView::new(row).unwrap().column(1, Type::Int8).unwrap() {
        Some(Value::Int8(n)) => n,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn what_was_acknowledged_is_there_after_a_restart() {
    let directory = TempDir::new().unwrap();
    let node = open(&directory).await;
    let first_boot = node.boot();
    let world = World::new(&node).await;
    world.applied(world.insert(1, 10, "a")).await;
    assert_eq!(world.n_of(1).await, Some(10));
    assert_eq!(world.n_of(2).await, None);
    node.close().await.unwrap();

    let node = open(&directory).await;
    assert!(node.boot() > first_boot);
    let world = World::again(&node);
    assert_eq!(world.n_of(1).await, Some(10));
    world.applied(world.insert(2, 20, "b")).await;
    drop(node);

    let node = open(&directory).await;
    let world = World::again(&node);
    assert_eq!(world.n_of(1).await, Some(10));
    assert_eq!(world.n_of(2).await, Some(20), "a drop without a checkpoint is replayed");
    assert_eq!(world.router.count(&world.partition, world.table, &At::Latest).await.unwrap(), 2);
    node.close().await.unwrap();
}

#[tokio::test]
async fn closing_twice_and_cancelling_a_close_gives_the_directory_back_once() {
    let directory = TempDir::new().unwrap();
    let node = open(&directory).await;
    let world = World::new(&node).await;
    world.applied(world.insert(1, 1, "a")).await;
    {
        let mut close = Box::pin(node.close());
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(close.as_mut().poll(&mut context).is_pending());
    }
    node.close().await.unwrap();
    node.close().await.unwrap();
    let refused = world.router.get(&world.partition, world.table, b"", &At::Latest).await.unwrap_err();
    assert_eq!(refused.code(), Code::AdminShutdown);
    let again = open(&directory).await;
    drop(node);
    assert_eq!(World::again(&again).n_of(1).await, Some(1));
    again.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_increments_of_one_row_add_up() {
    let directory = TempDir::new().unwrap();
    let node = open(&directory).await;
    let world = Arc::new(World::new(&node).await);
    world.applied(world.insert(1, 0, "a")).await;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let world = world.clone();
        tasks.spawn(async move {
            for _ in 0..100 {
                world.applied(world.add(1, 1)).await;
            }
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
    assert_eq!(world.n_of(1).await, Some(10_000));
    node.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_inserts_of_one_unique_key_exactly_one_wins() {
    let directory = TempDir::new().unwrap();
    let node = open(&directory).await;
    let world = World::new(&node).await;
    for round in 0..50 {
        let name = format!("name {round}");
        let one = world.router.execute(world.insert(2 * round, 0, &name), WAIT);
        let other = world.router.execute(world.insert(2 * round + 1, 0, &name), WAIT);
        let (one, other) = tokio::join!(one, other);
        let outcomes = [one.unwrap(), other.unwrap()];
        let won = outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Applied(_))).count();
        let lost = |outcome: &&Outcome| matches!(outcome, Outcome::Rejected(Rejection::UniqueViolation { index: Some(index), .. }) if *index == world.name);
        assert_eq!((won, outcomes.iter().filter(lost).count()), (1, 1), "{outcomes:?}");
    }
    node.close().await.unwrap();
}

#[tokio::test]
async fn a_named_command_is_applied_once_and_its_outcome_is_remembered() {
    let directory = TempDir::new().unwrap();
    let node = open(&directory).await;
    let world = World::new(&node).await;
    world.applied(world.insert(1, 0, "a")).await;
    let id = CommandId(0x9b2b_5c0e_6a6b_4f0e_8a34_0d1f_2c3b_4a59);
    let mut command = world.add(1, 5);
    command.identity = Identity::Named { id, attempt: 0, fingerprint: 7, remember_secs: 600 };
    let first = world.execute(command.clone()).await;
    assert_eq!(world.execute(command).await, first);
    assert_eq!(world.n_of(1).await, Some(5));
    let status = |id| world.router.command_status(&world.partition, ADMIN, id);
    assert_eq!(status(id).await.unwrap(), Some(first));
    assert_eq!(status(CommandId(4)).await.unwrap(), None);
    node.close().await.unwrap();
}

#[tokio::test]
async fn an_open_transaction_holds_its_rows_until_its_commit_is_applied() {
    let directory = TempDir::new().unwrap();
    let node = open(&directory).await;
    let world = World::new(&node).await;
    world.applied(world.insert(1, 1, "a")).await;
    let set = world.begin(1).await;
    let locked = world.lock(set, world.row(1), LockMode::NoKeyUpdate, Wait::Never).await.unwrap();
    assert!(matches!(locked, Locked::Held { row: Some(_), waited: false }));

    let other = world.begin(2).await;
    let skipped = world.lock(other, world.row(1), LockMode::Update, Wait::Skip).await.unwrap();
    assert_eq!(skipped, Locked::Skipped);
    let refused = world.lock(other, world.row(1), LockMode::Update, Wait::Never).await.unwrap_err();
    assert_eq!(refused.code(), Code::LockNotAvailable);
    let short = Wait::For(Duration::from_millis(5));
    let refused = world.lock(other, world.row(1), LockMode::Update, short).await.unwrap_err();
    assert_eq!(refused.code(), Code::LockNotAvailable);

    // An autocommit command waits, and sees what the transaction wrote.
    let waiting = world.router.execute(world.add(1, 1), WAIT);
    let mut commit = world.command(vec![Write::Put {
        table: world.table,
        key: key_of(1).unwrap(),
        row: row_of(1, 41, "a").unwrap(),
    }]);
    commit.locks = Some(set);
    let (commit, waiting) = tokio::join!(world.router.execute(commit, WAIT), waiting);
    assert!(matches!(commit.unwrap(), Outcome::Applied(_)));
    assert!(matches!(waiting.unwrap(), Outcome::Applied(_)));
    assert_eq!(world.n_of(1).await, Some(42));
    let gone = world.lock(set, world.row(1), LockMode::Share, Wait::Never).await.unwrap_err();
    assert_eq!(gone.code(), Code::SerializationFailure);
    node.close().await.unwrap();
}

#[tokio::test]
async fn transactions_that_wait_in_a_circle_are_broken_up() {
    let directory = TempDir::new().unwrap();
    let node = open(&directory).await;
    let world = World::new(&node).await;
    let (a, b) = (world.begin(1).await, world.begin(2).await);
    world.lock(a, world.row(1), LockMode::Update, Wait::Never).await.unwrap();
    world.lock(b, world.row(2), LockMode::Update, Wait::Never).await.unwrap();
    let first = world.lock(a, world.row(2), LockMode::Update, Wait::For(WAIT));
    let second = async {
        let refused = world.lock(b, world.row(1), LockMode::Update, Wait::For(WAIT)).await.unwrap_err();
        world.router.unlock(&world.partition, b, None).await.unwrap();
        refused
    };
    let (first, refused) = tokio::join!(first, second);
    assert_eq!(refused.code(), Code::DeadlockDetected);
    assert!(matches!(first.unwrap(), Locked::Held { row: None, waited: true }));
    node.close().await.unwrap();
}

#[tokio::test]
async fn a_savepoint_gives_its_locks_back_and_a_session_all_of_them() {
    let directory = TempDir::new().unwrap();
    let node = open(&directory).await;
    let world = World::new(&node).await;
    let (a, b) = (world.begin(1).await, world.begin(2).await);
    world.lock(a, world.row(1), LockMode::Update, Wait::Never).await.unwrap();
    world.lock(a, world.row(2), LockMode::Update, Wait::Never).await.unwrap();
    world.router.unlock(&world.partition, a, Some(1)).await.unwrap();
    world.lock(b, world.row(2), LockMode::Update, Wait::Never).await.unwrap();
    assert!(world.lock(b, world.row(1), LockMode::Update, Wait::Never).await.is_err());
    world.router.end_session(SessionId(1));
    world.lock(b, world.row(1), LockMode::Update, Wait::Never).await.unwrap();
    node.close().await.unwrap();
}

#[tokio::test]
async fn a_read_point_sees_its_moment_until_the_node_closes() {
    let directory = TempDir::new().unwrap();
    let node = open(&directory).await;
    let world = World::new(&node).await;
    world.applied(world.insert(1, 1, "a")).await;
    let point = At::Point(world.router.read_point(&world.partition).await.unwrap());
    world.applied(world.add(1, 1)).await;
    let key = key_of(1).unwrap();
    let then = world.router.get(&world.partition, world.table, &key, &point).await.unwrap().unwrap();
    assert_eq!(n_in(&then), 1);
    assert_eq!(world.n_of(1).await, Some(2));
    node.close().await.unwrap();
}

#[tokio::test]
async fn a_changed_table_sends_old_plans_back() {
    let directory = TempDir::new().unwrap();
    let node = open(&directory).await;
    let world = World::new(&node).await;
    world.applied(world.insert(1, 1, "a")).await;
    let old = world.insert(2, 2, "b");
    let mut changed = world.descriptor();
    changed.columns[1].not_null = true;
    world.put_table(changed).await;
    let outcome = world.execute(old).await;
    assert_eq!(outcome, Outcome::Rejected(Rejection::DescriptorChanged { table: world.table }));
    world.applied(world.insert(2, 2, "b")).await;

    let drop = Change { drop: vec![model::catalog::ObjectId::Table(world.table)], ..Change::default() };
    let late = world.insert(3, 3, "c");
    world.router.change_catalog(drop).await.unwrap();
    let outcome = world.execute(late).await;
    assert_eq!(outcome, Outcome::Rejected(Rejection::TableMissing { table: world.table }));
    node.close().await.unwrap();
}

#[tokio::test]
async fn an_index_is_built_over_what_is_there_and_refused_over_duplicates() {
    let directory = TempDir::new().unwrap();
    let node = open(&directory).await;
    let world = World::bare(&node).await;
    for id in 0..2_500 {
        let writes = (0..10).map(|at| {
            let id = id * 10 + at;
            let (key, row) = (key_of(id).unwrap(), row_of(id, 0, &format!("name {id}")).unwrap());
            Write::Insert { table: world.table, key, row }
        });
        if id % 10 == 0 {
            world.applied(world.command(writes.collect())).await;
        }
    }
    let mut changed = world.descriptor();
    changed.indexes.push(unique_name(world.table, IndexState::Building));
    world.put_table(changed).await;
    let catalog = world.router.build_index(world.table, world.name).await.unwrap();
    let index = catalog.table(world.table).unwrap().find_index(world.name).unwrap().clone();
    assert_eq!(index.state, IndexState::Ready);
    let scan = Scan {
        partition: world.partition.clone(),
        table: world.table,
        index: Some(world.name),
        from: Bytes::new(),
        to: None,
        reverse: false,
        rows_max: 100_000,
        bytes_max: usize::MAX,
        at: At::Latest,
    };
    assert_eq!(world.router.scan(scan).await.unwrap().rows.len(), 2_500);

    let mut changed = world.descriptor();
    changed.indexes.retain(|index| index.id != world.name);
    world.put_table(changed).await;
    world.applied(world.insert(100_000, 0, "name 0")).await;
    let mut changed = world.descriptor();
    changed
        .indexes
        .push(Index { id: IndexId(world.name.0 + 1), ..unique_name(world.table, IndexState::Building) });
    world.put_table(changed).await;
    let refused = world.router.build_index(world.table, IndexId(world.name.0 + 1)).await.unwrap_err();
    assert_eq!(refused.code(), Code::UniqueViolation);
    node.close().await.unwrap();
}

#[tokio::test]
async fn partitions_are_spread_over_shards_and_found_again() {
    let directory = TempDir::new().unwrap();
    let node = open(&directory).await;
    let world = World::new(&node).await;
    let (database, schema, _) = world.partition.parts();
    let mut shards = std::collections::BTreeSet::new();
    let mut made = Vec::new();
    for number in 0..32 {
        let partition = PartitionId::new(database, schema, &[Value::Int8(number)]).unwrap();
        shards.insert(world.router.shard_of(&partition).unwrap());
        let mut command = world.insert(1, number, "same name everywhere");
        command.partition = partition.clone();
        world.applied(command).await;
        made.push(partition);
    }
    assert!(shards.len() > 4, "{shards:?}");
    let mut found = world.router.partitions(world.table).await.unwrap();
    found.sort();
    made.sort();
    assert_eq!(found, made);
    let stats = node.stats();
    assert_eq!(stats.shards.len(), 8);
    assert!(stats.shards.iter().all(|shard| shard.owned && shard.epoch.0 > 0));
    node.close().await.unwrap();
}

#[tokio::test]
async fn a_condition_that_does_not_hold_is_a_rejection_and_frees_its_locks() {
    let directory = TempDir::new().unwrap();
    let node = open(&directory).await;
    let world = World::new(&node).await;
    let mut command = world.insert(1, 1, "a");
    command.conditions = vec![Condition::RowExists { table: world.table, key: key_of(9).unwrap() }];
    let outcome = world.execute(command).await;
    assert!(matches!(outcome, Outcome::Rejected(Rejection::RowMissing { .. })), "{outcome:?}");
    let stats = node.stats();
    assert!(
        stats.shards.iter().all(|shard| shard.locks == crate::LockCounts::default() && shard.inside == 0)
    );
    let outcome = world.execute(world.add(9, 1)).await;
    let Outcome::Applied(receipt) = outcome else { panic!("{outcome:?}") };
    assert_eq!(receipt.effects, [Effect::Rows(0)]);
    node.close().await.unwrap();
}

#[tokio::test]
async fn a_close_sends_back_who_waits_for_a_lock() {
    let directory = TempDir::new().unwrap();
    let node = open(&directory).await;
    let world = World::new(&node).await;
    let set = world.begin(1).await;
    world.lock(set, world.row(1), LockMode::Update, Wait::Never).await.unwrap();
    let other = world.begin(2).await;
    let waiting = world.lock(other, world.row(1), LockMode::Update, Wait::For(WAIT));
    let (refused, closed) = tokio::join!(waiting, node.close());
    assert_eq!(refused.unwrap_err().code(), Code::SerializationFailure);
    closed.unwrap();
}

#[tokio::test]
async fn a_whole_table_lock_keeps_writers_out_and_readers_in() {
    let directory = TempDir::new().unwrap();
    let node = open(&directory).await;
    let world = World::new(&node).await;
    world.applied(world.insert(1, 1, "a")).await;
    let set = world.begin(1).await;
    world.lock(set, Lockable::Table(world.table), LockMode::Update, Wait::Never).await.unwrap();
    assert_eq!(world.n_of(1).await, Some(1));
    let refused = world.router.execute(world.add(1, 1), Duration::from_millis(5)).await.unwrap_err();
    assert_eq!(refused.code(), Code::LockNotAvailable);
    world.router.unlock(&world.partition, set, None).await.unwrap();
    world.applied(world.add(1, 1)).await;
    node.close().await.unwrap();
}

#[tokio::test]
async fn a_second_node_on_a_directory_is_refused() {
    let directory = TempDir::new().unwrap();
    let node = open(&directory).await;
    let refused = Node::open(options(&directory)).await.unwrap_err();
    assert_eq!(refused.code(), Code::LockFileExists);
    node.close().await.unwrap();
}

#[tokio::test]
async fn a_cancelled_open_leaves_nothing_open() {
    let directory = TempDir::new().unwrap();
    {
        let mut opening = Box::pin(Node::open(options(&directory)));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(opening.as_mut().poll(&mut context).is_pending());
    }
    loop {
        match Node::open(options(&directory)).await {
            Ok(node) => break node.close().await.unwrap(),
            // The unwanted node is on its way up, or down again.
            Err(error) => assert_eq!(error.code(), Code::LockFileExists),
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_lock_request_that_fails_gives_back_what_it_took_and_skipped_places_count() {
    let directory = TempDir::new().unwrap();
    let node = open(&directory).await;
    let world = World::new(&node).await;
    let (a, b) = (world.begin(1).await, world.begin(2).await);
    world.lock(a, world.row(2), LockMode::Update, Wait::Never).await.unwrap();
    let both = |wait| LockRequest {
        partition: world.partition.clone(),
        set: b,
        locks: vec![(world.row(1), LockMode::Update), (world.row(2), LockMode::Update)],
        wait,
    };
    assert!(world.router.lock(both(Wait::Never)).await.is_err());
    world.lock(a, world.row(1), LockMode::Update, Wait::Never).await.unwrap();
    world.router.unlock(&world.partition, a, Some(1)).await.unwrap();

    let places = world.router.lock(both(Wait::Skip)).await.unwrap();
    assert!(matches!(places[..], [Locked::Held { .. }, Locked::Skipped]), "{places:?}");
    world.lock(b, world.row(3), LockMode::Update, Wait::Never).await.unwrap();
    world.router.unlock(&world.partition, b, Some(2)).await.unwrap();
    world.lock(a, world.row(3), LockMode::Update, Wait::Never).await.unwrap();
    assert!(world.lock(a, world.row(1), LockMode::Update, Wait::Never).await.is_err());
    node.close().await.unwrap();
}

#[tokio::test]
async fn a_full_disk_refuses_new_data_and_lets_go_of_old() {
    let directory = TempDir::new().unwrap();
    let free = Arc::new(std::sync::atomic::AtomicU64::new(u64::MAX));
    let mut options = options(&directory);
    let looked_at = free.clone();
    let available = move || Ok(looked_at.load(std::sync::atomic::Ordering::Relaxed));
    options.log.low_water = Some(storage::log::LowWater {
        bytes_min: 1 << 20,
        frees_bytes_min: 0,
        available: Arc::new(available),
    });
    options.log.retry_after = Duration::from_millis(1);
    let node = Node::open(options).await.unwrap();
    let world = World::new(&node).await;
    world.applied(world.insert(1, 1, "a")).await;

    free.store(0, std::sync::atomic::Ordering::Relaxed);
    while !node.stats().log.read_only {
        tokio::task::yield_now().await;
    }
    let refused = world.router.execute(world.insert(2, 2, "b"), WAIT).await.unwrap_err();
    assert_eq!(refused.code(), Code::DiskFull);
    assert_eq!(world.n_of(1).await, Some(1));
    let key = key_of(1).unwrap();
    world.applied(world.command(vec![Write::Delete { table: world.table, key }])).await;

    free.store(u64::MAX, std::sync::atomic::Ordering::Relaxed);
    while node.stats().log.read_only {
        tokio::task::yield_now().await;
    }
    world.applied(world.insert(2, 2, "b")).await;
    node.close().await.unwrap();
}

/// The thread that applies stands still, as it does while four memtables wait to be flushed (there, and here for want of
/// room, it sleeps inside the engine's commit). Consensus does not live on it.
#[tokio::test]
async fn case_29_an_apply_that_stands_still_costs_no_leader_and_no_reader() {
    let directory = TempDir::new().unwrap();
    let free = Arc::new(std::sync::atomic::AtomicU64::new(u64::MAX));
    let mut options = options(&directory);
    let looked_at = free.clone();
    let available = move || Ok(looked_at.load(std::sync::atomic::Ordering::Relaxed));
    options.engine.disk = Some(storage::engine::Disk(Arc::new(available)));
    let node = Node::open(options).await.unwrap();
    let world = World::new(&node).await;
    world.applied(world.insert(1, 1, "a")).await;
    let groups = || -> Vec<_> {
        node.stats().shards.iter().map(|shard| (shard.term, shard.epoch, shard.owned)).collect()
    };
    let before = groups();

    free.store(0, std::sync::atomic::Ordering::Relaxed);
    let waiting = world.router.execute(world.insert(2, 2, "b"), WAIT);
    tokio::pin!(waiting);
    let last = |stats: Stats| stats.shards.iter().map(|shard| shard.last).collect::<Vec<_>>();
    let logged = last(node.stats());
    let owners = node.parts.running.lock().as_ref().unwrap().owners.clone();
    let consensus = async {
        // The entry is in the log, and every group leads; those that wait for no entry confirm it.
        while last(node.stats()) == logged {
            tokio::task::yield_now().await;
        }
        for owner in &owners {
            let metrics = owner.consensus().metrics();
            assert!(owner.consensus().is_sole_voter_leader());
            if metrics.last == metrics.applied {
                owner.consensus().read_index().await.unwrap();
            }
        }
    };
    tokio::select! {
        outcome = &mut waiting => panic!("it was applied without room: {outcome:?}"),
        () = consensus => {}
    }
    drop(owners);
    assert_eq!(groups(), before);
    assert_eq!(world.n_of(1).await, Some(1));
    assert_eq!(world.n_of(2).await, None);
    free.store(u64::MAX, std::sync::atomic::Ordering::Relaxed);
    assert!(matches!(waiting.await.unwrap(), Outcome::Applied(_)));
    assert_eq!(world.n_of(2).await, Some(2));

    // A node that is closed does not wait for room.
    free.store(0, std::sync::atomic::Ordering::Relaxed);
    let insert = world.insert(3, 3, "c");
    let (late, closed) = tokio::join!(world.router.execute(insert, WAIT), node.close());
    closed.unwrap();
    assert!(late.is_err());
    let node = open(&directory).await;
    assert_eq!(World::again(&node).n_of(2).await, Some(2));
    node.close().await.unwrap();
}

#[tokio::test]
async fn a_command_larger_than_a_log_entry_is_applied_as_one_and_survives() {
    let directory = TempDir::new().unwrap();
    // Segments of the smallest size: each still takes two parts.
    let node = open(&directory).await;
    let world = World::new(&node).await;
    let insert = |id: i64| Write::Insert {
        table: world.table,
        key: key_of(id).unwrap(),
        row: row_of(id, id, &format!("name {id}")).unwrap(),
    };
    // 100,000 rows are more than one part.
    world.applied(world.command((0..100_000).map(insert).collect())).await;
    assert_eq!(world.router.count(&world.partition, world.table, &At::Latest).await.unwrap(), 100_000);
    // One row that is taken refuses all of it.
    let refused =
        world.router.execute(world.command((99_000..110_000).map(insert).collect()), WAIT).await.unwrap();
    assert!(matches!(refused, Outcome::Rejected(Rejection::UniqueViolation { .. })), "{refused:?}");
    assert_eq!(world.router.count(&world.partition, world.table, &At::Latest).await.unwrap(), 100_000);
    node.close().await.unwrap();
    let node = open(&directory).await;
    let world = World::again(&node);
    assert_eq!(world.n_of(99_999).await, Some(99_999));
    assert_eq!(world.n_of(100_000).await, None);
    node.close().await.unwrap();
}

#[tokio::test]
async fn a_log_segment_without_room_for_two_parts_is_refused() {
    let directory = TempDir::new().unwrap();
    let mut options = options(&directory);
    options.log.segment_bytes = 4 << 20;
    let refused = Node::open(options).await.map(drop);
    assert!(
        matches!(refused, Err(crate::Error::SegmentTooSmall { min: crate::SEGMENT_BYTES_MIN, .. })),
        "{refused:?}"
    );
}
