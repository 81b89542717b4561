//! What a node does by itself: checkpoints, and looking for work that is due.
//!
//! Invariants:
//! - A checkpoint notes an applied index only after the engine's journal was synced past it; the log lets go of entries
//!   only behind what is noted.
//! - A failed sweep is tried at the next tick; none of it is kept in memory. A failed checkpoint is not: what a failed
//!   sync has dropped no later sync brings back, so the node ends and the next start replays the log.

use std::{
    io,
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use model::id::LogIndex;
use storage::{
    catalog::CONTROL,
    checkpoint::{self, Bounds, Part},
    cut,
    engine::{Engine, Watch},
    log::{GroupId, Log},
};
use tokio::sync::watch;
use tracing::{debug, error};

use crate::{
    Error, Result,
    owner::Owner,
    raft::{Control, Timer},
};

/// How often the size of the log is looked at between checkpoints.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How often it is looked whether there are rows that nobody sees.
const COLLECT_EVERY: Duration = Duration::from_millis(250);

/// For how long rows that nobody sees are taken away at each look, per shard.
const COLLECT_MAX: Duration = Duration::from_millis(50);

/// What the background tasks work on.
#[derive(Clone)]
pub(super) struct Work {
    pub(super) engine: Engine,
    pub(super) log: Log,
    pub(super) control: Arc<Control>,
    pub(super) owners: Vec<Arc<Owner>>,
    pub(super) timer: Timer,
    /// Ends the node, unless it is closing already.
    pub(super) fail: Arc<dyn Fn(&Error) + Send + Sync>,
}

/// How often, and after how much, a checkpoint is made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    pub(super) every: Duration,
    pub(super) bytes: u64,
    pub(super) keep_entries: u64,
    pub(super) log_bytes: u64,
}

impl Pace {
    /// What holds the groups' logs back.
    fn bounds(&self, log: &Log) -> Bounds {
        let stats = log.stats();
        let over_size = stats.read_only || stats.disk_bytes > self.log_bytes;
        Bounds { keep_entries: self.keep_entries, over_size, ..Bounds::default() }
    }
}

/// Makes checkpoints until it is stopped, or one fails.
pub(super) async fn checkpoints(work: Work, pace: Pace, mut stop: watch::Receiver<bool>) {
    let mut last = (work.timer.now(), work.log.stats().bytes);
    // The number of entries, and when, as of the last look that found the disk full.
    let mut freed: Option<(u64, Duration)> = None;
    while sleep(&work.timer, pace.every.min(LOOK_EVERY), &mut stop).await {
        let (now, stats) = (work.timer.now(), work.log.stats());
        let written = stats.bytes.saturating_sub(last.1);
        let is_due = written > 0 && (now.saturating_sub(last.0) >= pace.every || written >= pace.bytes);
        // A full disk gets back what the log can do without and what was deleted: at once, after each change, and now and
        // then, because readers hold back what they see.
        let frees = stats.read_only
            && freed
                .is_none_or(|(entries, at)| entries != stats.entries || now.saturating_sub(at) >= pace.every);
        if frees || !stats.read_only {
            freed = stats.read_only.then_some((stats.entries, now));
        }
        if !is_due && !frees {
            continue;
        }
        let mut made = checkpoint(&work, pace.bounds(&work.log)).await;
        if made.is_ok() && frees {
            made = compact(&work).await;
        }
        match made {
            // What the checkpoint itself wrote does not count as something to be checkpointed.
            Ok(()) => last = (now, work.log.stats().bytes),
            Err(Error::Stopping) => return,
            Err(failure) => {
                error!(error = %failure, "checkpoint failed");
                (work.fail)(&failure);
                return;
            }
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
        }
    }
}

/// Takes away what nobody sees any more, until it is stopped: soon after it came about, before it is compacted for nothing.
pub(super) async fn collections(work: Work, mut stop: watch::Receiver<bool>) {
    let mut rest = vec![false; work.owners.len()];
    while sleep(&work.timer, COLLECT_EVERY, &mut stop).await {
        for (owner, is_due) in work.owners.iter().zip(&mut rest) {
            *is_due |= owner.state().take_buried();
            if *is_due {
                *is_due = collect(&work, owner, &stop).await;
            }
        }
    }
}

/// One shard's turn; answers whether something is left.
async fn collect(work: &Work, owner: &Arc<Owner>, stop: &watch::Receiver<bool>) -> bool {
    let until = work.timer.now() + COLLECT_MAX;
    while !*stop.borrow() && work.timer.now() < until {
        let collecting = owner.clone();
        match work.timer.blocking(move || collecting.state().collect()).await {
            Ok(Ok(0)) | Err(_) => return false,
            Ok(Ok(_)) => {}
            Ok(Err(error)) => {
                // The engine has failed, or a sync has: what that dropped no later one brings back.
                error!(shard = %owner.shard(), %error, "rows nobody sees could not be collected");
                (work.fail)(&error.into());
                return false;
            }
        }
    }
    true
}

/// Ends the node if a commit of the engine does not end. A thread of its own: the thread of consensus may be the one that stands
/// still.
pub(super) struct Watching {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Watching {
    pub(super) fn start(work: Work) -> io::Result<Self> {
        let (stop, stopped) = mpsc::channel::<()>();
        let watch = move || {
            let mut watch = Watch::default();
            while stopped.recv_timeout(LOOK_EVERY) == Err(mpsc::RecvTimeoutError::Timeout) {
                if let Err(failure) = watch.look(&work.engine, LOOK_EVERY) {
                    error!(error = %failure, "the engine stands still");
                    (work.fail)(&failure.into());
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("watch".to_owned()).spawn(watch)?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != thread::current().id()
        {
            // It cannot end badly: looking does not panic.
            let _ = thread.join();
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

/// Makes one checkpoint, and lets the log go up to where it may.
async fn checkpoint(work: &Work, bounds: Bounds) -> Result<()> {
    let parts = checkpoint_parts(&work.control, &work.owners, bounds);
    let (engine, log) = (work.engine.clone(), work.log.clone());
    let made = work.timer.blocking(move || checkpoint::run(&engine, &log, &parts)).await;
    for (group, upto) in made.map_err(|_| Error::Stopping)?? {
        let consensus = if group.0 == CONTROL.0 {
            Some(work.control.consensus())
        } else {
            work.owners.iter().find(|owner| owner.shard().0 == group.0).map(|owner| owner.consensus())
        };
        if let Some(consensus) = consensus
            && consensus.metrics().purged < Some(LogIndex(upto))
        {
            // A group that has stopped keeps its log.
            let _ = consensus.purge(LogIndex(upto)).await;
            cut::point("purge.asked");
        }
    }
    Ok(())
}

/// Gives a full disk the room of what was deleted.
async fn compact(work: &Work) -> Result<()> {
    let engine = work.engine.clone();
    let keyspaces: Vec<_> = work.owners.iter().map(|owner| owner.state().keyspace().clone()).collect();
    let compacted = work.timer.blocking(move || {
        for keyspace in keyspaces {
            if !engine.compact(&keyspace)? {
                debug!(?keyspace, "the disk has no room to compact what was deleted");
            }
        }
        Ok::<_, storage::Error>(())
    });
    Ok(compacted.await.map_err(|_| Error::Stopping)??)
}

/// What a checkpoint made now is about.
pub(super) fn checkpoint_parts(control: &Control, owners: &[Arc<Owner>], bounds: Bounds) -> Vec<Part> {
    let state = control.replica().state();
    let first = Part {
        group: GroupId(CONTROL.0),
        keyspace: state.keyspace().clone(),
        applied: state.applied_index(),
        bounds,
    };
    let part = |owner: &Arc<Owner>| {
        let state = owner.state();
        Part {
            group: GroupId(owner.shard().0),
            keyspace: state.keyspace().clone(),
            applied: state.applied_index(),
            bounds,
        }
    };
    [first].into_iter().chain(owners.iter().map(part)).collect()
}
