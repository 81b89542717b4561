//! What one running statement may do to partitions: read at its point, lock, and buffer writes.
//!
//! Invariants:
//! - [`Statement`] is shared by all operators of one statement; [`State`] by all statements of one transaction.
//! - What the statement writes goes into its own buffer, which the session absorbs when the statement has ended well, and
//!   drops otherwise: a failed statement leaves nothing.
//! - In autocommit no locks are taken here: the command's conditions guard it, the owner locks while it proposes, and the
//!   session runs the statement again on a conflict.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bytes::Bytes;
use model::{
    Code, Error, Result,
    command::{Condition, LockSet},
    id::{PartitionId, Revision, SessionId, TableId},
    port::{Dispatch, LockMode, LockRequest, Lockable, Locked, Wait},
    read::{At, ReadPoint},
};
use parking_lot::Mutex;

use super::overlay::{Base, Overlay};

/// How much a transaction notices of others.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Isolation {
    /// A read point per statement; READ UNCOMMITTED is the same.
    ReadCommitted,
    /// A read point per partition, fixed at first touch.
    RepeatableRead,
    /// And what was read must still hold at COMMIT.
    Serializable,
}

/// Locks beyond this many in one call are sent in several.
const LOCKS_PER_CALL_MAX: usize = 1_000;

/// What all statements of a transaction share.
pub struct State {
    /// Whose it is.
    pub session: SessionId,
    /// How much it notices of others.
    pub isolation: Isolation,
    /// False in autocommit.
    pub explicit: bool,
    /// May change several partitions.
    many: bool,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    points: BTreeMap<PartitionId, ReadPoint>,
    pinned: Option<PartitionId>,
    locks: Option<(PartitionId, LockSet)>,
    locks_held: usize,
    reads: BTreeMap<(PartitionId, TableId), Revision>,
    rows_read: Vec<(PartitionId, Condition)>,
}

/// Single rows read beyond this many count as a read of their table.
const ROWS_READ_MAX: usize = 1_000;

impl State {
    /// A transaction that begins.
    pub fn new(session: SessionId, isolation: Isolation, explicit: bool) -> Arc<Self> {
        Arc::new(Self { session, isolation, explicit, many: false, inner: Mutex::default() })
    }

    /// A statement that stands alone; `many` lets it change several partitions, one command each.
    pub fn alone(session: SessionId, many: bool) -> Arc<Self> {
        let mut state = Self::new(session, Isolation::ReadCommitted, false);
        if let Some(state) = Arc::get_mut(&mut state) {
            state.many = many;
        }
        state
    }

    /// The lock set, once there is one.
    pub fn lock_set(&self) -> Option<(PartitionId, LockSet)> {
        self.inner.lock().locks.clone()
    }

    /// How many locks are held, to release later ones when a savepoint is rolled back.
    pub fn locks_held(&self) -> usize {
        self.inner.lock().locks_held
    }

    /// Notes that locks were released back to a number.
    pub fn set_locks_held(&self, held: usize) {
        self.inner.lock().locks_held = held;
    }

    /// The partition it writes in.
    pub fn pinned(&self) -> Option<PartitionId> {
        self.inner.lock().pinned.clone()
    }

    /// Pins the partition it writes or locks in; another one than before is `0A000`.
    pub fn pin(&self, partition: &PartitionId) -> Result<()> {
        if self.many {
            return Ok(());
        }
        let mut inner = self.inner.lock();
        match &inner.pinned {
            None => inner.pinned = Some(partition.clone()),
            Some(pinned) if pinned == partition => {}
            Some(pinned) => return Err(two_partitions(pinned, partition)),
        }
        Ok(())
    }

    /// What SERIALIZABLE must still find at COMMIT in `partition`; reads in another partition are `0A000`.
    pub fn read_conditions(&self, partition: &PartitionId) -> Result<Vec<Condition>> {
        let inner = self.inner.lock();
        let mut conditions = Vec::new();
        for ((at, table), since) in &inner.reads {
            if at != partition {
                return Err(two_partitions(partition, at));
            }
            conditions.push(Condition::TableUntouched { table: *table, since: *since });
        }
        for (at, condition) in &inner.rows_read {
            if at != partition {
                return Err(two_partitions(partition, at));
            }
            conditions.push(condition.clone());
        }
        Ok(conditions)
    }
}

/// `0A000`: a transaction in two partitions.
pub(super) fn two_partitions(first: &PartitionId, second: &PartitionId) -> Error {
    Error::unsupported(
        format!("a transaction cannot write in two partitions: {first} and {second}"),
        "Change each partition in a transaction of its own, or SET keystead.multi_partition = 'each' for a single statement.",
    )
}

/// One running statement.
pub struct Statement {
    /// Where partitions are reached.
    pub dispatch: Arc<dyn Dispatch>,
    /// The transaction.
    pub state: Arc<State>,
    /// What the transaction had written when the statement began.
    pub overlay: Arc<Overlay>,
    /// How long a lock is waited for.
    pub lock_timeout: Duration,
    points: Mutex<BTreeMap<PartitionId, ReadPoint>>,
    writes: Mutex<Overlay>,
}

impl Statement {
    /// A statement that begins.
    pub fn new(
        dispatch: Arc<dyn Dispatch>,
        state: Arc<State>,
        overlay: Arc<Overlay>,
        lock_timeout: Duration,
    ) -> Arc<Self> {
        Arc::new(Self {
            dispatch,
            state,
            overlay,
            lock_timeout,
            points: Mutex::default(),
            writes: Mutex::new(Overlay::of_statement()),
        })
    }

    /// Whether rows must be locked before they are changed: in an explicit transaction.
    pub fn locks_rows(&self) -> bool {
        self.state.explicit
    }

    /// Whether what is read must be noted for COMMIT.
    pub fn notes_reads(&self) -> bool {
        self.state.explicit && self.state.isolation == Isolation::Serializable
    }

    /// The state of a partition that this statement reads.
    pub async fn read_point(&self, partition: &PartitionId) -> Result<ReadPoint> {
        let held = match self.state.isolation {
            Isolation::ReadCommitted => self.points.lock().get(partition).cloned(),
            Isolation::RepeatableRead | Isolation::Serializable => {
                self.state.inner.lock().points.get(partition).cloned()
            }
        };
        if let Some(point) = held {
            return Ok(point);
        }
        let point = self.dispatch.read_point(partition).await?;
        let kept = match self.state.isolation {
            Isolation::ReadCommitted => self.points.lock().entry(partition.clone()).or_insert(point).clone(),
            Isolation::RepeatableRead | Isolation::Serializable => {
                self.state.inner.lock().points.entry(partition.clone()).or_insert(point).clone()
            }
        };
        Ok(kept)
    }

    /// As [`Statement::read_point`], as what `Dispatch` takes.
    pub async fn at(&self, partition: &PartitionId) -> Result<At> {
        Ok(At::Point(self.read_point(partition).await?))
    }

    /// Notes that a range of a table was read, for SERIALIZABLE.
    pub fn note_table_read(&self, partition: &PartitionId, table: TableId, at: Revision) {
        if self.notes_reads() {
            let mut inner = self.state.inner.lock();
            let since = inner.reads.entry((partition.clone(), table)).or_insert(at);
            *since = (*since).min(at);
        }
    }

    /// Notes that one row was read by its key, present at `revision` or absent, for SERIALIZABLE.
    pub fn note_row_read(
        &self,
        partition: &PartitionId,
        table: TableId,
        key: Bytes,
        revision: Option<Revision>,
        at: Revision,
    ) {
        if !self.notes_reads() {
            return;
        }
        if self.state.inner.lock().rows_read.len() >= ROWS_READ_MAX {
            return self.note_table_read(partition, table, at);
        }
        let condition = match revision {
            Some(revision) => Condition::RowRevision { table, key, revision },
            None => {
                let mut to = key.to_vec();
                to.push(0);
                Condition::RangeEmpty { table, index: None, from: key, to: to.into() }
            }
        };
        self.state.inner.lock().rows_read.push((partition.clone(), condition));
    }

    /// Takes locks in the transaction's set and reads the rows under them; begins the set, and pins the partition, if this
    /// is the first. Waits up to the session's `lock_timeout` for `wait` none.
    pub async fn lock(
        &self,
        partition: &PartitionId,
        mut locks: Vec<(Lockable, LockMode)>,
        wait: Option<Wait>,
    ) -> Result<Vec<Locked>> {
        self.state.pin(partition)?;
        let held = self.state.lock_set();
        let set = match held {
            Some((_, set)) => set,
            None => {
                let set = self.dispatch.begin_locks(partition, self.state.session).await?;
                self.state.inner.lock().locks = Some((partition.clone(), set));
                set
            }
        };
        let wait = wait.unwrap_or(Wait::For(self.lock_timeout));
        let mut answers = Vec::with_capacity(locks.len());
        while !locks.is_empty() {
            let rest = locks.split_off(locks.len().min(LOCKS_PER_CALL_MAX));
            let count = locks.len();
            let request = LockRequest { partition: partition.clone(), set, locks, wait };
            answers.extend(self.dispatch.lock(request).await?);
            self.state.inner.lock().locks_held += count;
            locks = rest;
        }
        Ok(answers)
    }

    /// Buffers a changed row; `row` none removes it.
    pub fn write(
        &self,
        partition: &PartitionId,
        table: TableId,
        key: Bytes,
        base: Base,
        row: Option<Bytes>,
    ) -> Result<()> {
        self.state.pin(partition)?;
        self.writes.lock().write(partition, table, key, base, row);
        Ok(())
    }

    /// Buffers that a table is emptied.
    pub fn truncate(&self, partition: &PartitionId, table: TableId) -> Result<()> {
        self.state.pin(partition)?;
        self.writes.lock().truncate(partition, table);
        Ok(())
    }

    /// Bytes this statement has buffered, together with the transaction's.
    pub fn buffered_bytes(&self) -> usize {
        self.overlay.bytes() + self.writes.lock().bytes()
    }

    /// A row this statement itself has written so far (`Some(None)`: removed).
    pub fn written(&self, partition: &PartitionId, table: TableId, key: &[u8]) -> Option<Option<Bytes>> {
        self.writes.lock().get(partition, table, key).map(Option::<&Bytes>::cloned)
    }

    /// Runs something over what this statement has written so far.
    pub fn with_writes<T>(&self, look: impl FnOnce(&Overlay) -> T) -> T {
        look(&self.writes.lock())
    }

    /// What it wrote, when it has ended.
    pub fn take_writes(&self) -> Overlay {
        std::mem::replace(&mut self.writes.lock(), Overlay::of_statement())
    }

    /// Adds what must hold for the statement's writes besides the rows they were based on (a parent row exists, no child
    /// is there). In autocommit its command carries it; an explicit transaction has a lock for it.
    pub fn require(&self, partition: &PartitionId, condition: Condition) -> Result<()> {
        self.state.pin(partition)?;
        self.writes.lock().require(condition);
        Ok(())
    }

    /// Refuses to buffer more than a transaction may hold (`54000`).
    pub fn check_size(&self, bytes_max: usize) -> Result<()> {
        check_size(self.buffered_bytes(), bytes_max)
    }
}

/// Refuses that a transaction holds more than it may (`54000`).
pub fn check_size(bytes: usize, bytes_max: usize) -> Result<()> {
    if bytes <= bytes_max {
        return Ok(());
    }
    Err(Error::new(
        Code::ProgramLimitExceeded,
        format!("transaction of {bytes} bytes exceeds {bytes_max} bytes"),
    )
    .with_hint("Commit in smaller pieces, load with COPY, or raise transaction.bytes_max."))
}
