//! Rows of a COPY that are on their way to the owner of their partition before the command that adds them.
//!
//! Invariants:
//! - What is held here is bounded: a buffer that fills, and those that are on their way. It is charged to the statement.
//! - A stage that is dropped before its load was executed gives the load up.
//!
//! Not here: which COPY does so (`load`), what becomes of the load (`session`).

use std::{collections::VecDeque, sync::Arc};

use model::{
    Result,
    id::{PartitionId, TableId},
    load::{LoadId, Loaded, PART_BYTES, Rows},
    port::{Dispatch, Reply},
};

use parking_lot::Mutex;

use crate::memory::{Budget, Charge};

/// Buffers that are on their way while the next one fills.
const AHEAD_MAX: usize = 2;

/// A load that goes on.
pub(super) struct Stage {
    dispatch: Arc<dyn Dispatch>,
    partition: PartitionId,
    table: TableId,
    id: LoadId,
    /// The buffer that fills.
    pub(super) rows: Rows,
    sent: u32,
    bytes: usize,
    /// Used through `get_mut` only: the lock is there so that a session can be looked at from any thread.
    ahead: VecDeque<Mutex<Reply<()>>>,
    /// Not to be given up when dropped.
    done: bool,
    _charge: Charge,
}

impl Stage {
    /// Begins a load.
    pub(super) async fn begin(
        dispatch: &Arc<dyn Dispatch>,
        partition: PartitionId,
        table: TableId,
        budget: &Budget,
    ) -> Result<Self> {
        let mut charge = budget.charge("COPY");
        charge.set(PART_BYTES * (1 + AHEAD_MAX))?;
        Ok(Self {
            id: dispatch.begin_load(&partition).await?,
            dispatch: Arc::clone(dispatch),
            partition,
            table,
            rows: Self::buffer(),
            sent: 0,
            bytes: 0,
            ahead: VecDeque::new(),
            done: false,
            _charge: charge,
        })
    }

    fn buffer() -> Rows {
        // A batch of rows may go a little beyond.
        Rows::with_capacity(PART_BYTES + PART_BYTES / 8)
    }

    /// Bytes it has taken so far.
    pub(super) fn bytes(&self) -> usize {
        self.bytes + self.rows.bytes()
    }

    /// Sends the buffer, if it is full.
    pub(super) async fn send_full(&mut self) -> Result<()> {
        if self.rows.bytes() >= PART_BYTES { self.send().await } else { Ok(()) }
    }

    async fn send(&mut self) -> Result<()> {
        while self.ahead.len() >= AHEAD_MAX {
            self.arrive().await?;
        }
        let rows = std::mem::replace(&mut self.rows, Self::buffer());
        self.bytes += rows.bytes();
        let sent = self.dispatch.load(&self.partition, self.id, self.sent, rows.into_bytes());
        self.ahead.push_back(Mutex::new(sent));
        self.sent += 1;
        Ok(())
    }

    /// Waits for the oldest buffer on its way. It stays there until it has arrived, whoever stops waiting.
    async fn arrive(&mut self) -> Result<()> {
        if let Some(oldest) = self.ahead.front_mut() {
            let arrived = oldest.get_mut().await;
            self.ahead.pop_front();
            arrived?;
        }
        Ok(())
    }

    /// Sends what is left, and waits until all of it is there.
    pub(super) async fn finish(&mut self) -> Result<()> {
        if !self.rows.is_empty() {
            self.send().await?;
        }
        while !self.ahead.is_empty() {
            self.arrive().await?;
        }
        Ok(())
    }

    /// The load, to be executed by the caller: it is not given up any more.
    pub(super) fn into_loaded(mut self) -> (PartitionId, Loaded) {
        self.done = true;
        (self.partition.clone(), Loaded { id: self.id, parts: self.sent, table: self.table })
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let given_up = self.dispatch.abort_load(&self.partition, self.id);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                // Without an answer a sweep removes it.
                let _ = given_up.await;
            });
        }
    }
}
