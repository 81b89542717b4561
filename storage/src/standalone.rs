//! One shard and one catalog in memory, behind [`Dispatch`]: whole statements run on it without a log, Raft or a network.
//!
//! For tests of what stands above the seam. Everything is answered on the spot but waits for locks, which end by a timer of
//! their own thread; a circle of waiters ends the same way (`55P03`).
//!
//! Not here: the owner's lock table with its modes of waiting and its deadlock search (`cluster::owner`).

use std::{
    future::poll_fn,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Poll, Waker},
    thread,
    time::Duration,
};

use bytes::Bytes;
use hashbrown::HashMap;
use model::{
    Code, Error, Result,
    catalog::{Catalog, Change, Expected, Object, ObjectId},
    command::{Command, Identity, LockSet, Outcome, Write},
    id::{Boot, CommandId, Epoch, IndexId, NodeId, PartitionId, RoleId, SequenceId, SessionId, TableId},
    port::{Dispatch, LockMode, LockRequest, Lockable, Locked, Reply, Wait},
    read::{At, Page, ReadPoint, Scan, Stored},
    schema::IndexState,
    time::{Clock, LoggedTime},
};
use parking_lot::Mutex;

use crate::{
    catalog::{Control, ControlEntry, ControlPayload},
    codec::{
        control::{self, Answer},
        entry::{Backfill, Body, Descriptors, Entry as LogEntry, Stamp},
    },
    engine::Engine,
    log::LogId,
    shard::{Backfilled, Entry, EntryOutcome, Payload, Shard, Snapshot},
};

/// The one shard's number; 0 is the control group's.
const SHARD: model::id::ShardId = model::id::ShardId(1);

/// How many rows one entry adds to an index.
const BACKFILL_ROWS: u32 = 1_000;

/// One shard with all partitions, and a catalog. A cheap handle.
#[derive(Clone)]
pub struct Standalone(Arc<Inner>);

struct Inner {
    clock: Arc<dyn Clock>,
    control: Control,
    shard: Shard,
    /// Held from proposing to applied, so that log places follow each other.
    propose: Mutex<()>,
    locks: Mutex<Locks>,
}

#[derive(Default)]
struct Locks {
    next: u64,
    sets: HashMap<u64, Vec<Held>>,
    waiting: Vec<Waker>,
}

struct Held {
    partition: PartitionId,
    lock: Lockable,
    mode: LockMode,
}

impl Standalone {
    /// An empty store with the superuser `admin`, the database `keystead` and its schema `public`.
    pub fn new(clock: Arc<dyn Clock>) -> Result<Self> {
        let engine = Engine::in_memory();
        let control = Control::open(&engine, 0)?;
        let shard = Shard::open(&engine, SHARD, 0)?;
        let inner = Inner { clock, control, shard, propose: Mutex::default(), locks: Mutex::default() };
        let standalone = Self(Arc::new(inner));
        let bootstrap = control::Body::Bootstrap {
            admin: "admin".to_owned(),
            password: None,
            database: "keystead".to_owned(),
        };
        standalone.ask(bootstrap)?;
        Ok(standalone)
    }

    /// The shard, for checks of its state.
    pub fn shard(&self) -> &Shard {
        &self.0.shard
    }

    fn ask(&self, body: control::Body) -> Result<Answer> {
        let _proposing = self.0.propose.lock();
        let index = self.0.control.applied_index().map_or(1, |index| index + 1);
        let request = control::Request { id: u128::from(index), body };
        let log_id = LogId { term: 1, node: 1, index };
        let entry = ControlEntry { log_id, payload: ControlPayload::Decoded(&request) };
        match self.0.control.apply(&[entry])?.pop().flatten() {
            Some(Answer::Refused { code, message }) => Err(Error::new(code, message)),
            Some(answer) => Ok(answer),
            None => Err(Error::internal("a request was not answered")),
        }
    }

    fn propose(&self, body: Body) -> Result<EntryOutcome> {
        let _proposing = self.0.propose.lock();
        let elapsed = u64::try_from(self.0.clock.monotonic().as_micros()).unwrap_or(u64::MAX);
        let time = LoggedTime { elapsed, wall: self.0.clock.wall() };
        let entry = LogEntry { stamp: Stamp { time, epoch: Epoch(0) }, body };
        let index = self.0.shard.applied_index().map_or(1, |index| index + 1);
        let log_id = LogId { term: 1, node: 1, index };
        let entry = Entry { log_id, payload: Payload::Decoded(&entry) };
        let outcome = self.0.shard.apply(&[entry])?.pop();
        outcome.ok_or_else(|| Error::internal("an entry has no outcome"))
    }

    fn change(&self, change: Change) -> Result<Arc<Catalog>> {
        self.ask(control::Body::Change(change.clone()))?;
        let mut descriptors = Descriptors::default();
        for object in &change.put {
            match object {
                Object::Table(table) => descriptors.tables.extend(self.0.control.held(table.id)),
                Object::Sequence(sequence) => descriptors.sequences.push(sequence.clone()),
                Object::Database(_) | Object::Schema(_) | Object::View(_) | Object::Role(_) => {}
            }
        }
        for id in &change.drop {
            match id {
                ObjectId::Table(id) => descriptors.dropped_tables.push(*id),
                ObjectId::Sequence(id) => descriptors.dropped_sequences.push(SequenceId(id.0)),
                ObjectId::Database(_) | ObjectId::Schema(_) | ObjectId::View(_) | ObjectId::Role(_) => {}
            }
        }
        if descriptors != Descriptors::default() {
            self.propose(Body::Descriptors(descriptors))?;
        }
        Ok(self.catalog())
    }

    fn build(&self, table: TableId, index: IndexId) -> Result<Arc<Catalog>> {
        let mut duplicate = None;
        'partitions: for partition in self.0.shard.snapshot().partitions(table)? {
            let mut from = Bytes::new();
            loop {
                let backfill =
                    Backfill { partition: partition.clone(), table, index, from, limit: BACKFILL_ROWS };
                match self.propose(Body::Backfill(backfill))? {
                    EntryOutcome::Backfilled(Backfilled::Next(next)) => from = next,
                    EntryOutcome::Backfilled(Backfilled::Duplicate(key)) => {
                        duplicate = Some(key);
                        break 'partitions;
                    }
                    _ => break,
                }
            }
        }
        let catalog = self.catalog();
        let missing = || Error::new(Code::UndefinedObject, "the index is gone");
        let mut descriptor = catalog.table(table).ok_or_else(missing)?.as_ref().clone();
        let expect = vec![(ObjectId::Table(table), Some(Expected::TableVersion(descriptor.version)))];
        let built = descriptor.indexes.iter_mut().find(|built| built.id == index).ok_or_else(missing)?;
        built.state = if duplicate.is_some() { IndexState::Invalid } else { IndexState::Ready };
        let name = built.name.clone();
        descriptor.version += 1;
        let change = Change { expect, put: vec![Object::Table(descriptor)], ..Change::default() };
        let catalog = self.change(change)?;
        match duplicate {
            None => Ok(catalog),
            Some(_) => {
                let message = format!("could not create unique index \"{name}\"");
                Err(Error::new(Code::UniqueViolation, message))
            }
        }
    }

    fn snapshot(&self, at: &At) -> Result<Snapshot> {
        match at {
            At::Latest => Ok(self.0.shard.snapshot()),
            At::Point(point) => match point.lease.downcast_ref::<Snapshot>() {
                Some(snapshot) => Ok(snapshot.clone()),
                None => Err(Error::new(Code::SnapshotTooOld, "the read point is gone")),
            },
        }
    }

    /// The row behind a lock.
    fn locked_row(&self, partition: &PartitionId, lock: &Lockable) -> Result<Option<Stored>> {
        let snapshot = self.0.shard.snapshot();
        Ok(match lock {
            Lockable::Row(table, key) => {
                let row = snapshot.get(partition, *table, key)?;
                row.map(|row| Stored { key: key.clone(), row })
            }
            Lockable::Unique(table, index, key) => {
                snapshot.get_many(partition, *table, Some(*index), std::slice::from_ref(key))?.pop().flatten()
            }
            Lockable::Table(_) => None,
        })
    }

    fn execute_now(&self, mut command: Command) -> Result<Outcome> {
        // There is no router that gives out slots here, and nothing is sent twice.
        if matches!(command.identity, Identity::Slot { number: 0, .. }) {
            command.identity = Identity::Sweep;
        }
        let ends = command.locks;
        if let Some(set) = ends
            && !self.0.locks.lock().sets.contains_key(&set.id)
        {
            return Err(Error::new(Code::SerializationFailure, "the transaction's locks are gone"));
        }
        let outcome = self.propose(Body::Command(command));
        if let Some(set) = ends {
            self.release(set, 0);
        }
        match outcome? {
            EntryOutcome::Command(outcome) => Ok(outcome),
            _ => Err(Error::internal("a command has no outcome")),
        }
    }

    fn release(&self, set: LockSet, keep: usize) {
        let mut locks = self.0.locks.lock();
        if keep == 0 {
            locks.sets.remove(&set.id);
        } else if let Some(held) = locks.sets.get_mut(&set.id) {
            held.truncate(keep);
        }
        locks.waiting.drain(..).for_each(Waker::wake);
    }
}

impl Locks {
    /// Whether another set stands in the way of a lock.
    fn is_taken(&self, set: Option<u64>, partition: &PartitionId, lock: &Lockable, mode: LockMode) -> bool {
        let others = self.sets.iter().filter(|(id, _)| Some(**id) != set).flat_map(|(_, held)| held);
        others.into_iter().any(|held| held.partition == *partition && held.stands_in_the_way_of(lock, mode))
    }
}

impl Held {
    fn stands_in_the_way_of(&self, lock: &Lockable, mode: LockMode) -> bool {
        let table_of = |lock: &Lockable| match lock {
            Lockable::Row(table, _) | Lockable::Unique(table, ..) | Lockable::Table(table) => *table,
        };
        match (&self.lock, lock) {
            (Lockable::Table(_), _) | (_, Lockable::Table(_)) => table_of(&self.lock) == table_of(lock),
            (held, wanted) => held == wanted && !self.mode.is_compatible_with(mode),
        }
    }
}

/// What a command without a lock set locks while it runs.
fn locks_of(command: &Command) -> Vec<(Lockable, LockMode)> {
    let locks = command.writes.iter().filter_map(|write| match write {
        Write::Insert { table, key, .. } | Write::Put { table, key, .. } | Write::Delete { table, key } => {
            Some((Lockable::Row(*table, key.clone()), LockMode::Update))
        }
        Write::Program { table, key, .. } => Some((Lockable::Row(*table, key.clone()), LockMode::Program)),
        Write::Truncate { table } => Some((Lockable::Table(*table), LockMode::Update)),
        Write::Reserve { .. } | Write::SetSequence { .. } => None,
    });
    locks.collect()
}

fn lock_timeout() -> Error {
    Error::new(Code::LockNotAvailable, "canceling statement due to lock timeout")
}

/// Tries again whenever a lock is released, until `attempt` has an answer or the time is up.
fn wait_until<T: Send + 'static>(
    standalone: Standalone,
    limit: Duration,
    mut attempt: impl FnMut(&Standalone, &mut Locks) -> Option<Result<T>> + Send + Unpin + 'static,
) -> Reply<T> {
    if let Some(answer) = attempt(&standalone, &mut standalone.0.locks.lock()) {
        return Reply::now(answer);
    }
    let expired = Arc::new(AtomicBool::new(false));
    let mut timer = None;
    Reply::later(poll_fn(move |context| {
        let mut locks = standalone.0.locks.lock();
        if let Some(answer) = attempt(&standalone, &mut locks) {
            return Poll::Ready(answer);
        }
        if expired.load(Ordering::Acquire) {
            return Poll::Ready(Err(lock_timeout()));
        }
        locks.waiting.push(context.waker().clone());
        timer.get_or_insert_with(|| {
            let (expired, standalone) = (expired.clone(), standalone.clone());
            thread::spawn(move || {
                thread::park_timeout(limit);
                expired.store(true, Ordering::Release);
                standalone.0.locks.lock().waiting.drain(..).for_each(Waker::wake);
            })
        });
        Poll::Pending
    }))
}

impl Dispatch for Standalone {
    fn gateway(&self) -> (NodeId, Boot) {
        (NodeId(1), Boot(1))
    }

    fn catalog(&self) -> Arc<Catalog> {
        self.0.control.catalog()
    }

    fn refresh_catalog(&self) -> Reply<Arc<Catalog>> {
        Reply::now(Ok(self.catalog()))
    }

    fn allocate_ids(&self, count: u32) -> Reply<u32> {
        Reply::now(self.ask(control::Body::AllocateIds(count)).and_then(|answer| match answer {
            Answer::Ids(first) => Ok(first),
            Answer::Changed(_) | Answer::Registered(_) | Answer::Published | Answer::Refused { .. } => {
                Err(Error::internal("ids were asked for"))
            }
        }))
    }

    fn change_catalog(&self, change: Change) -> Reply<Arc<Catalog>> {
        Reply::now(self.change(change))
    }

    fn build_index(&self, table: TableId, index: IndexId) -> Reply<Arc<Catalog>> {
        Reply::now(self.build(table, index))
    }

    fn execute(&self, command: Command, lock_wait: Duration) -> Reply<Outcome> {
        if command.locks.is_some() {
            return Reply::now(self.execute_now(command));
        }
        let wanted = locks_of(&command);
        let mut command = Some(command);
        wait_until(self.clone(), lock_wait, move |standalone, locks| {
            let partition = &command.as_ref()?.partition;
            if wanted.iter().any(|(lock, mode)| locks.is_taken(None, partition, lock, *mode)) {
                return None;
            }
            // Applied under the table of locks: nobody can take one in between.
            command.take().map(|command| standalone.execute_now(command))
        })
    }

    fn get(&self, partition: &PartitionId, table: TableId, key: &[u8], at: &At) -> Reply<Option<Bytes>> {
        Reply::now(self.snapshot(at).and_then(|snapshot| Ok(snapshot.get(partition, table, key)?)))
    }

    fn get_many(
        &self,
        partition: &PartitionId,
        table: TableId,
        index: Option<IndexId>,
        keys: Vec<Bytes>,
        at: &At,
    ) -> Reply<Vec<Option<Stored>>> {
        Reply::now(
            self.snapshot(at).and_then(|snapshot| Ok(snapshot.get_many(partition, table, index, &keys)?)),
        )
    }

    fn scan(&self, scan: Scan) -> Reply<Page> {
        Reply::now(self.snapshot(&scan.at).and_then(|snapshot| Ok(snapshot.scan(&scan)?)))
    }

    fn count(&self, partition: &PartitionId, table: TableId, at: &At) -> Reply<u64> {
        Reply::now(self.snapshot(at).and_then(|snapshot| Ok(snapshot.count(partition, table)?)))
    }

    fn partitions(&self, table: TableId) -> Reply<Vec<PartitionId>> {
        Reply::now(self.0.shard.snapshot().partitions(table).map_err(Error::from))
    }

    fn read_point(&self, _partition: &PartitionId) -> Reply<ReadPoint> {
        let snapshot = self.0.shard.snapshot_to_sweep();
        Reply::now(snapshot.revision().map_err(Error::from).map(|revision| ReadPoint {
            shard: SHARD,
            epoch: Epoch(0),
            id: revision.0,
            revision,
            lease: Arc::new(snapshot),
        }))
    }

    fn begin_locks(&self, _partition: &PartitionId, session: SessionId) -> Reply<LockSet> {
        let mut locks = self.0.locks.lock();
        locks.next += 1;
        let id = locks.next;
        locks.sets.insert(id, Vec::new());
        Reply::now(Ok(LockSet { epoch: Epoch(0), session, id }))
    }

    fn lock(&self, request: LockRequest) -> Reply<Vec<Locked>> {
        let limit = match request.wait {
            Wait::For(limit) => limit,
            Wait::Never | Wait::Skip => Duration::ZERO,
        };
        let mut found: Vec<Locked> = Vec::with_capacity(request.locks.len());
        let mut waited = false;
        wait_until(self.clone(), limit, move |standalone, locks| {
            let set = request.set.id;
            if !locks.sets.contains_key(&set) {
                let gone = Error::new(Code::SerializationFailure, "the transaction's locks are gone");
                return Some(Err(gone));
            }
            while let Some((lock, mode)) = request.locks.get(found.len()) {
                if locks.is_taken(Some(set), &request.partition, lock, *mode) {
                    match request.wait {
                        Wait::For(_) => {
                            waited = true;
                            return None;
                        }
                        Wait::Never => {
                            let message = "could not obtain lock on row";
                            return Some(Err(Error::new(Code::LockNotAvailable, message)));
                        }
                        Wait::Skip => {
                            found.push(Locked::Skipped);
                            continue;
                        }
                    }
                }
                let row = match standalone.locked_row(&request.partition, lock) {
                    Ok(row) => row,
                    Err(error) => return Some(Err(error)),
                };
                let held = Held { partition: request.partition.clone(), lock: lock.clone(), mode: *mode };
                locks.sets.entry(set).or_default().push(held);
                found.push(Locked::Held { row, waited });
                waited = false;
            }
            Some(Ok(std::mem::take(&mut found)))
        })
    }

    fn unlock(&self, _partition: &PartitionId, set: LockSet, keep: Option<usize>) -> Reply<()> {
        self.release(set, keep.unwrap_or(0));
        if keep == Some(0) {
            self.0.locks.lock().sets.entry(set.id).or_default();
        }
        Reply::now(Ok(()))
    }

    fn command_status(
        &self,
        partition: &PartitionId,
        principal: RoleId,
        id: CommandId,
    ) -> Reply<Option<Outcome>> {
        let named = self.0.shard.snapshot().receipt(principal, partition, id);
        Reply::now(named.map_err(Error::from).map(|named| named.map(|named| named.outcome)))
    }
}

#[cfg(test)]
mod tests {
    use std::{future::Future, pin::pin, task::Context};

    use model::{
        Type, Value,
        catalog::ADMIN,
        command::Identity,
        key::{self, KeyPart},
        row,
        schema::{Column, Index, IndexPart, KeyConstraint, Kind, Table},
        time::Timestamp,
        types::Typmod,
    };

    use super::*;

    struct Still;

    impl Clock for Still {
        fn wall(&self) -> Timestamp {
            LoggedTime::default().wall
        }

        fn monotonic(&self) -> Duration {
            Duration::ZERO
        }
    }

    struct Unpark(thread::Thread);

    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    fn block_on<T>(reply: Reply<T>) -> Result<T>
    where
        T: Unpin,
    {
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut context = Context::from_waker(&waker);
        let mut reply = pin!(reply);
        loop {
            match reply.as_mut().poll(&mut context) {
                Poll::Ready(answer) => return answer,
                Poll::Pending => thread::park(),
            }
        }
    }

    fn with_table() -> (Standalone, PartitionId, Table) {
        let store = Standalone::new(Arc::new(Still)).expect("in memory");
        let catalog = store.catalog();
        let database = catalog.find_database("keystead").expect("made by bootstrap").id;
        let schema = catalog.find_schema(database, "public").expect("made by bootstrap").id;
        let id = block_on(store.allocate_ids(3)).expect("ids");
        let column = |number, name: &str| Column {
            number: model::id::ColumnNumber(number),
            name: name.to_owned(),
            data_type: Type::Int4,
            typmod: Typmod::NONE,
            not_null: false,
            default: None,
            missing: None,
            hidden: false,
            dropped: false,
            moved: None,
            comment: None,
        };
        let index = |id, column, state| Index {
            id: IndexId(id),
            name: format!("i{id}"),
            parts: vec![IndexPart { column: model::id::ColumnNumber(column), order: KeyPart::ASC }],
            unique: true,
            nulls_not_distinct: false,
            constraint: Some(KeyConstraint::Primary),
            predicate: None,
            predicate_text: None,
            state,
            comment: None,
        };
        let table = Table {
            id: TableId(id),
            database,
            schema,
            name: "t".to_owned(),
            owner: ADMIN,
            kind: Kind::Table,
            version: 1,
            columns: vec![column(1, "a"), column(2, "b")],
            primary_key: Some(IndexId(id + 1)),
            indexes: vec![index(id + 1, 1, IndexState::Ready), index(id + 2, 2, IndexState::Building)],
            partition_by: Vec::new(),
            checks: Vec::new(),
            foreign_keys: Vec::new(),
            feed: true,
            temporary: None,
            comment: None,
        };
        let change = Change { put: vec![Object::Table(table.clone())], ..Change::default() };
        block_on(store.change_catalog(change)).expect("a new table");
        (store, PartitionId::default_of(database, schema), table)
    }

    fn key_of(a: i32) -> Bytes {
        let mut out = Vec::new();
        key::encode_part(&mut out, &Value::Int4(a), KeyPart::ASC).expect("an integer");
        out.into()
    }

    fn put(store: &Standalone, partition: &PartitionId, table: TableId, a: i32, b: i32) -> Command {
        let mut encoded = Vec::new();
        row::encode(&[Value::Int4(a), Value::Int4(b)], &[Type::Int4, Type::Int4], &mut encoded)
            .expect("a row");
        Command {
            identity: Identity::Sweep,
            time_left: None,
            partition: partition.clone(),
            principal: ADMIN,
            catalog: store.catalog().version(),
            locks: None,
            conditions: Vec::new(),
            writes: vec![Write::Put { table, key: key_of(a), row: encoded.into() }],
        }
    }

    #[test]
    fn statements_meet_a_catalog_rows_and_an_index_being_built() {
        let (store, partition, table) = with_table();
        for (a, b) in [(1, 10), (2, 20)] {
            let command = put(&store, &partition, table.id, a, b);
            let outcome = block_on(store.execute(command, Duration::ZERO)).expect("executed");
            assert!(matches!(outcome, Outcome::Applied(_)), "{outcome:?}");
        }
        let catalog = block_on(store.build_index(table.id, table.indexes[1].id)).expect("no duplicates");
        let built = catalog.table(table.id).expect("it is there");
        assert_eq!((built.indexes[1].state, built.version), (IndexState::Ready, 2));
        let found =
            store.get_many(&partition, table.id, Some(table.indexes[1].id), vec![key_of(20)], &At::Latest);
        assert_eq!(
            block_on(found).expect("read")[0].as_ref().map(|stored| stored.key.clone()),
            Some(key_of(2))
        );
        assert_eq!(block_on(store.count(&partition, table.id, &At::Latest)).expect("read"), 2);
    }

    #[test]
    fn a_lock_is_waited_for_until_it_is_released_or_time_is_up() {
        let (store, partition, table) = with_table();
        let set = block_on(store.begin_locks(&partition, SessionId(1))).expect("a set");
        let request = |wait, set| LockRequest {
            partition: partition.clone(),
            set,
            locks: vec![(Lockable::Row(table.id, key_of(1)), LockMode::Update)],
            wait,
        };
        let held = block_on(store.lock(request(Wait::Never, set))).expect("free");
        assert_eq!(held, [Locked::Held { row: None, waited: false }]);
        let command = put(&store, &partition, table.id, 1, 10);
        let refused = block_on(store.execute(command.clone(), Duration::ZERO)).expect_err("it is locked");
        assert_eq!(refused.code(), Code::LockNotAvailable);
        let other = block_on(store.begin_locks(&partition, SessionId(2))).expect("a set");
        assert_eq!(block_on(store.lock(request(Wait::Skip, other))).expect("left out"), [Locked::Skipped]);
        let mut waiting = store.lock(request(Wait::For(Duration::from_secs(60)), other));
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        assert!(std::pin::Pin::new(&mut waiting).poll(&mut Context::from_waker(&waker)).is_pending());
        let ending = Command { locks: Some(set), ..command };
        block_on(store.execute(ending, Duration::ZERO)).expect("it holds the lock");
        let answer = block_on(waiting).expect("released");
        assert!(matches!(&answer[0], Locked::Held { row: Some(_), waited: true }), "{answer:?}");
    }
}
