//! What EXPLAIN ANALYZE shows: rows, batches, runs and time of each node.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use model::{Result, port::BoxFuture, time::Clock};
use parking_lot::Mutex;

use super::{Operator, Runtime};
use crate::batch::Batch;

/// Figures of all nodes of a statement, by node id.
#[derive(Debug, Default)]
pub struct Statistics {
    nodes: Mutex<BTreeMap<usize, NodeStatistics>>,
}

/// Figures of one node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NodeStatistics {
    /// How often it was started.
    pub loops: u64,
    /// Rows it gave, all runs together.
    pub rows: u64,
    /// Time spent in it and below it.
    pub time: Duration,
    /// Time until its first batch, of the first run.
    pub startup: Duration,
    /// Rows that were read and did not pass its filter.
    pub rows_removed: u64,
    /// Bytes of stored rows it read.
    pub bytes_read: u64,
    /// Partitions it read.
    pub partitions: u64,
    /// Bytes it wrote to spill files.
    pub spilled: u64,
}

impl Statistics {
    /// The figures of a node.
    pub fn node(&self, id: usize) -> NodeStatistics {
        self.nodes.lock().get(&id).copied().unwrap_or_default()
    }

    /// Adds to the figures of a node.
    pub fn add(&self, id: usize, add: impl FnOnce(&mut NodeStatistics)) {
        add(self.nodes.lock().entry(id).or_default());
    }
}

/// An operator whose rows and time are noted.
pub(super) fn measured(
    id: usize,
    operator: Box<dyn Operator>,
    statistics: Arc<Statistics>,
    runtime: &Runtime,
) -> Box<dyn Operator> {
    statistics.add(id, |node| node.loops += 1);
    let clock = Arc::clone(&runtime.context.lock().clock);
    Box::new(Measured { id, operator, statistics, clock, first: true })
}

struct Measured {
    id: usize,
    operator: Box<dyn Operator>,
    statistics: Arc<Statistics>,
    clock: Arc<dyn Clock>,
    first: bool,
}

impl Operator for Measured {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Batch>>> {
        Box::pin(async move {
            let from = self.clock.monotonic();
            let batch = self.operator.next().await?;
            let time = self.clock.monotonic().saturating_sub(from);
            let first = std::mem::take(&mut self.first);
            self.statistics.add(self.id, |node| {
                node.time += time;
                node.rows += batch.as_ref().map_or(0, |batch| batch.len() as u64);
                if first && node.loops == 1 {
                    node.startup = time;
                }
            });
            Ok(batch)
        })
    }
}
