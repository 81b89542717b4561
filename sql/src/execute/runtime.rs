//! What the operators of one statement share.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
};

use model::{Code, Error, Result, Value, port::BoxFuture};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{NodeStatistics, Statistics, cte::Shelf};
use crate::{
    context::Context,
    dml::TableRules,
    eval::Scope,
    memory::{Budget, Charge},
    spill,
    txn::Statement,
};

/// What a transaction may buffer where nobody says otherwise.
const TRANSACTION_BYTES_MAX: usize = 256 * 1024 * 1024;

/// What the operators of one statement share. Cheap to clone; a clone for a correlated plan has other `outer` values.
#[derive(Clone)]
pub struct Runtime {
    /// Reads, locks and writes.
    pub statement: Arc<Statement>,
    /// What expressions may know. It is locked for the evaluation of one batch, never across a wait.
    pub context: Arc<Mutex<Context>>,
    /// What the statement may hold.
    pub budget: Budget,
    /// Where it spills.
    pub spill: Arc<spill::Directory>,
    /// Whether it shall stop.
    pub cancel: Cancel,
    /// How sequence numbers are had.
    pub reserve: Arc<dyn Reserve>,
    /// What rows of tables that the plan does not name go through.
    pub rules: Arc<dyn TableRules>,
    /// What EXPLAIN ANALYZE wants to know.
    pub statistics: Option<Arc<Statistics>>,
    /// How many rows each changing node changed, by the node's id.
    pub affected: Arc<Mutex<BTreeMap<usize, u64>>>,
    /// What the transaction may buffer, in bytes (`transaction.bytes_max`).
    pub transaction_bytes_max: usize,
    /// An UPDATE leaves the rest of its rows alone when so many bytes are buffered.
    pub piece_bytes_max: Option<usize>,
    /// The node of the plan that an operator stands for.
    pub node: usize,
    /// What the row around a correlated plan hands in.
    pub outer: Arc<[Value]>,
    pub(super) shelf: Arc<Shelf>,
}

/// Gets what `context::Sequences` was asked for and did not have.
pub trait Reserve: Send + Sync {
    /// Reserves; the evaluation is then done again.
    fn reserve(&self) -> BoxFuture<'_, Result<()>>;
}

impl Runtime {
    /// The runtime of one statement.
    pub fn new(
        statement: Arc<Statement>,
        mut context: Context,
        budget: Budget,
        spill: Arc<spill::Directory>,
        cancel: Cancel,
        reserve: Arc<dyn Reserve>,
        rules: Arc<dyn TableRules>,
    ) -> Self {
        context.making = Making::new(cancel.clone(), budget.charge("expressions"));
        Self {
            statement,
            context: Arc::new(Mutex::new(context)),
            budget,
            spill,
            cancel,
            reserve,
            rules,
            statistics: None,
            affected: Arc::default(),
            transaction_bytes_max: TRANSACTION_BYTES_MAX,
            piece_bytes_max: None,
            node: 0,
            outer: Arc::new([]),
            shelf: Arc::default(),
        }
    }

    /// The same statement, measured.
    pub fn with_statistics(mut self) -> Self {
        self.statistics = Some(Arc::default());
        self
    }

    /// The runtime of a plan that takes these values from around it.
    pub fn with_outer(&self, outer: Arc<[Value]>) -> Self {
        Self { outer, ..self.clone() }
    }

    /// The runtime of one node's operator.
    pub(super) fn at(&self, node: usize) -> Self {
        Self { node, ..self.clone() }
    }

    /// Adds to the figures of the node, if they are asked for.
    pub(super) fn note(&self, add: impl FnOnce(&mut NodeStatistics)) {
        if let Some(statistics) = &self.statistics {
            statistics.add(self.node, add);
        }
    }

    /// Evaluates something.
    pub fn evaluate<T>(&self, evaluate: impl FnOnce(&mut Scope<'_>) -> Result<T>) -> Result<T> {
        self.evaluate_behind(0, evaluate)
    }

    /// Evaluates another part of a batch, of which so many bytes are there.
    pub(super) fn evaluate_behind<T>(
        &self,
        held: usize,
        evaluate: impl FnOnce(&mut Scope<'_>) -> Result<T>,
    ) -> Result<T> {
        let mut context = self.context.lock();
        context.making.begin(held);
        evaluate(&mut Scope { context: &mut context, outer: &self.outer })
    }

    /// Once per batch: stops if the statement was cancelled, and lets others run.
    pub async fn pace(&self) -> Result<()> {
        self.cancel.check()?;
        tokio::task::consume_budget().await;
        Ok(())
    }

    /// How many rows a changing node has changed.
    pub fn affected_by(&self, node: usize) -> u64 {
        self.affected.lock().get(&node).copied().unwrap_or(0)
    }

    pub(crate) fn count_affected(&self, node: usize, rows: u64) {
        *self.affected.lock().entry(node).or_default() += rows;
    }
}

/// Whether a statement shall stop, and why. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<Stop>);

#[derive(Debug, Default)]
struct Stop {
    reason: AtomicU8,
    /// When its time is over: looked at also where no timer can be heard, in the middle of a batch.
    deadline: Mutex<Option<Instant>>,
}

/// Why a statement shall stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// Its client asked for it.
    Request,
    /// It ran for longer than `statement_timeout`.
    Timeout,
    /// The server is stopping.
    Shutdown,
}

impl Cancel {
    /// A flag that is not set.
    pub fn new() -> Self {
        Self::default()
    }

    /// When the statement shall stop by itself: work that never waits lets no timer say so.
    pub fn stop_at(&self, deadline: Option<Instant>) {
        *self.0.deadline.lock() = deadline;
    }

    /// Asks the statement to stop. The first reason counts.
    pub fn cancel(&self, reason: Reason) {
        let code = match reason {
            Reason::Request => 1,
            Reason::Timeout => 2,
            Reason::Shutdown => 3,
        };
        // If it fails there was a reason before.
        let _ = self.0.reason.compare_exchange(0, code, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// The error of a statement that shall stop, if it shall.
    pub fn check(&self) -> Result<()> {
        if self.0.reason.load(Ordering::Relaxed) == 0 {
            match *self.0.deadline.lock() {
                Some(deadline) if deadline <= Instant::now() => self.cancel(Reason::Timeout),
                Some(_) | None => return Ok(()),
            }
        }
        match self.0.reason.load(Ordering::Relaxed) {
            1 => Err(Error::new(Code::QueryCanceled, "canceling statement due to user request")),
            2 => Err(Error::new(Code::QueryCanceled, "canceling statement due to statement timeout")),
            _ => Err(Error::new(Code::AdminShutdown, "terminating connection due to administrator command")),
        }
    }
}

/// What the evaluation of one batch has made: bounded in memory and in time, wherever it is in the batch.
#[derive(Default)]
pub struct Making {
    cancel: Cancel,
    charge: Option<Charge>,
    /// Bytes of the batch's earlier parts, which are still held.
    held: usize,
    made: usize,
    /// What was made when it was last looked at.
    seen: usize,
}

/// Whether the statement shall stop is looked at whenever so many bytes were made.
const LOOK_BYTES: usize = 1 << 20;
/// What a value costs beside its bytes.
const VALUE_BYTES: usize = 32;

impl Making {
    /// Of a statement; what is held goes to a charge.
    pub fn new(cancel: Cancel, charge: Charge) -> Self {
        Self { cancel, charge: Some(charge), ..Self::default() }
    }

    /// Whether the statement shall stop.
    pub fn cancel(&self) -> &Cancel {
        &self.cancel
    }

    /// A batch begins, or goes on behind parts of so many bytes.
    fn begin(&mut self, held: usize) {
        (self.held, self.made, self.seen) = (held, 0, 0);
        if let Some(charge) = &mut self.charge {
            // What is held already was charged when it was made.
            let _ = charge.try_set(held);
        }
    }

    /// Counts a value (`53200` if there is no room for more, `57014` if the statement shall stop).
    #[inline]
    pub fn count(&mut self, value: &Value) -> Result<()> {
        self.made += VALUE_BYTES
            + match value {
                Value::Text(text) | Value::Json(text) => text.len(),
                Value::Bytea(bytes) => bytes.len(),
                Value::Jsonb(json) => json.as_bytes().len(),
                Value::Array(array) => array.len() * VALUE_BYTES,
                _ => 0,
            };
        if self.made - self.seen < LOOK_BYTES { Ok(()) } else { self.look() }
    }

    /// Looks whether there is room for so many bytes, before they are made.
    pub fn room(&mut self, bytes: usize) -> Result<()> {
        if bytes < LOOK_BYTES {
            return Ok(());
        }
        self.cancel.check()?;
        match &mut self.charge {
            Some(charge) => charge.set(self.held.saturating_add(self.made).saturating_add(bytes)),
            None => Ok(()),
        }
    }

    #[cold]
    fn look(&mut self) -> Result<()> {
        self.seen = self.made;
        self.cancel.check()?;
        match &mut self.charge {
            Some(charge) => charge.set(self.held.saturating_add(self.made)),
            None => Ok(()),
        }
    }
}

/// Runs a long computation where it holds up nobody.
pub(super) async fn blocking<T: Send + 'static>(compute: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(compute)
        .await
        .map_err(|fault| Error::internal("a computation of a statement did not end").with_source(fault))
}
