//! What a node does by itself: checkpoints, and looking for work that is due.
//!
//! Invariants:
//! - A checkpoint notes an applied index only after the engine's journal was synced past it; the log lets go of entries
//!   only behind what is noted.
//! - A failed pass is tried at the next tick; none of it is kept in memory.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use model::id::LogIndex;
use storage::{
    catalog::CONTROL,
    engine::Engine,
    log::{GroupId, Log},
};
use tokio::sync::{oneshot, watch};
use tracing::{debug, warn};

use crate::{
    Error, Result,
    owner::Owner,
    raft::{Consensus, Control, Timer},
};

/// How often the size of the log is looked at between checkpoints.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What the background tasks work on.
#[derive(Clone)]
pub(super) struct Work {
    pub(super) engine: Engine,
    pub(super) log: Log,
    pub(super) control: Arc<Control>,
    pub(super) owners: Vec<Arc<Owner>>,
    pub(super) timer: Timer,
}

/// How often, and after how much, a checkpoint is made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    pub(super) every: Duration,
    pub(super) bytes: u64,
    pub(super) keep_entries: u64,
}

/// Makes checkpoints until it is stopped.
pub(super) async fn checkpoints(work: Work, pace: Pace, mut stop: watch::Receiver<bool>) {
    let mut last = (work.timer.now(), work.log.stats().bytes);
    while sleep(&work.timer, pace.every.min(LOOK_EVERY), &mut stop).await {
        let (now, bytes) = (work.timer.now(), work.log.stats().bytes);
        let written = bytes.saturating_sub(last.1);
        if written == 0 || (now.saturating_sub(last.0) < pace.every && written < pace.bytes) {
            continue;
        }
        let Work { engine, log, control, owners, .. } = &work;
        match checkpoint(engine, log, control, owners, pace.keep_entries).await {
            // What the checkpoint itself wrote does not count as something to be checkpointed.
            Ok(()) => last = (now, work.log.stats().bytes),
            Err(error) => warn!(%error, "checkpoint failed; it is tried again"),
        }
    }
}

/// Looks for due work until it is stopped.
pub(super) async fn sweeps(work: Work, every: Duration, mut stop: watch::Receiver<bool>) {
    while sleep(&work.timer, every, &mut stop).await {
        for owner in &work.owners {
            match owner.sweep().await {
                Ok(0) => {}
                Ok(done) => debug!(shard = %owner.shard(), done, "due records are done"),
                Err(error) => debug!(shard = %owner.shard(), %error, "sweep failed; it is tried again"),
            }
            let collecting = owner.clone();
            let collected = work.timer.blocking(move || collecting.state().collect()).await;
            if let Ok(Err(error)) = collected {
                warn!(shard = %owner.shard(), %error, "rows nobody sees could not be collected");
            }
        }
    }
}

/// Waits for the next tick; false when it is time to end.
async fn sleep(timer: &Timer, time: Duration, stop: &mut watch::Receiver<bool>) -> bool {
    tokio::select! {
        () = timer.sleep(time) => true,
        _ = stop.wait_for(|stop| *stop) => false,
    }
}

/// Syncs what is applied, notes it in the log, and lets the log go up to there, but for the entries to keep.
pub(super) async fn checkpoint(
    engine: &Engine,
    log: &Log,
    control: &Arc<Control>,
    owners: &[Arc<Owner>],
    keep_entries: u64,
) -> Result<()> {
    let mut applied = BTreeMap::new();
    let mut groups: Vec<(GroupId, Arc<dyn Consensus>)> = Vec::new();
    let noted = |group: GroupId| log.state(group).map(|state| state.durable_applied);
    let mut note = |group: GroupId, index: Option<u64>, consensus: &Arc<dyn Consensus>| -> Result<()> {
        if let Some(index) = index
            && noted(group)? < Some(index)
        {
            applied.insert(group, index);
            groups.push((group, consensus.clone()));
        }
        Ok(())
    };
    note(GroupId(CONTROL.0), control.replica().state().applied_index(), control.consensus())?;
    for owner in owners {
        note(GroupId(owner.shard().0), owner.state().applied_index(), owner.consensus())?;
    }
    if applied.is_empty() {
        return Ok(());
    }
    let engine = engine.clone();
    tokio::task::spawn_blocking(move || engine.persist()).await.map_err(|_| Error::Stopping)??;
    let (sender, durable) = oneshot::channel();
    log.checkpoint(&applied, Box::new(move |result| drop(sender.send(result))))?;
    durable.await.map_err(|_| Error::Stopping)??;
    for (group, consensus) in groups {
        if let Some(upto) = applied[&group].checked_sub(keep_entries) {
            // A group that has stopped keeps its log.
            let _ = consensus.purge(LogIndex(upto)).await;
        }
    }
    Ok(())
}
