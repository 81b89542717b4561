//! Rows of a COPY that are on their way to the owner of their partition before the command that adds them.
//!
//! Invariants:
//! - What is held here is bounded: a buffer that fills, and those that are on their way. It is charged to the statement.
//! - A stage that is dropped before its load is known to be executed gives the load up; one that was executed all the same
//!   does not mind.
//!
//! Not here: which COPY does so (`load`), what becomes of the load (`session`).

use std::{collections::VecDeque, sync::Arc};

use model::{
    Result,
    id::{PartitionId, TableId},
    load::{LoadId, Loaded, PART_BYTES, PART_BYTES_MAX, Rows},
    port::{Dispatch, Reply},
};

use parking_lot::Mutex;

use crate::memory::{Budget, Charge};

/// Buffers that are on their way while the next one fills.
const AHEAD_MAX: usize = 2;

/// The buffer that fills and those on their way.
const HELD_BYTES: usize = PART_BYTES + AHEAD_MAX * PART_BYTES_MAX;

/// A load that goes on.
pub struct Stage {
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
    charge: Charge,
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
        charge.set(HELD_BYTES)?;
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
            charge,
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
        let rows = std::mem::replace(&mut self.rows, Self::buffer());
        self.bytes += rows.bytes();
        // Wide rows make more than one part of a buffer.
        self.charge.set(HELD_BYTES + rows.bytes())?;
        for part in rows.into_parts() {
            while self.ahead.len() >= AHEAD_MAX {
                self.arrive().await?;
            }
            let sent = self.dispatch.load(&self.partition, self.id, self.sent, part);
            self.ahead.push_back(Mutex::new(sent));
            self.sent += 1;
        }
        self.charge.set(HELD_BYTES)
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

    /// The load, to be executed by the caller, and where.
    pub(crate) fn loaded(&self) -> (PartitionId, Loaded) {
        (self.partition.clone(), Loaded { id: self.id, parts: self.sent, table: self.table })
    }

    /// The load was executed: there is nothing to be given up.
    pub(crate) fn executed(mut self) {
        self.done = true;
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
