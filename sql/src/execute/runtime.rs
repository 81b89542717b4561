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

use super::{NodeStatistics, Statistics, cte::Shelf};
use crate::{context::Context, dml::TableRules, eval::Scope, memory::Budget, spill, txn::Statement};

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
        context: Context,
        budget: Budget,
        spill: Arc<spill::Directory>,
        cancel: Cancel,
        reserve: Arc<dyn Reserve>,
        rules: Arc<dyn TableRules>,
    ) -> Self {
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
        let mut context = self.context.lock();
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

/// Whether a statement shall stop, and why. Clones share the flag.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicU8>);

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

    /// Asks the statement to stop. The first reason counts.
    pub fn cancel(&self, reason: Reason) {
        let code = match reason {
            Reason::Request => 1,
            Reason::Timeout => 2,
            Reason::Shutdown => 3,
        };
        // If it fails there was a reason before.
        let _ = self.0.compare_exchange(0, code, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// The error of a statement that shall stop, if it shall.
    pub fn check(&self) -> Result<()> {
        match self.0.load(Ordering::Relaxed) {
            0 => Ok(()),
            1 => Err(Error::new(Code::QueryCanceled, "canceling statement due to user request")),
            2 => Err(Error::new(Code::QueryCanceled, "canceling statement due to statement timeout")),
            _ => Err(Error::new(Code::AdminShutdown, "terminating connection due to administrator command")),
        }
    }
}

/// Runs a long computation where it holds up nobody.
pub(super) async fn blocking<T: Send + 'static>(compute: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(compute)
        .await
        .map_err(|fault| Error::internal("a computation of a statement did not end").with_source(fault))
}
