//! What a node is made of, and taking it down.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use model::id::{Boot, NodeId};
use parking_lot::Mutex;
use storage::{checkpoint::Bounds, cut, directory::Directory, engine::Engine, log::Log};
use tokio::{sync::watch, task::JoinHandle};
use tracing::{info, warn};

use super::background::{self, Watching};
use crate::{
    Error, Options, Result,
    owner::Owner,
    raft::{Consensus, Control, Pool, Runtime, Timer},
    router::Router,
};

/// How long requests inside may take to finish.
const DRAIN_MAX: Duration = Duration::from_secs(5);

/// How long it may take until the last handle on the engine is gone.
const LET_GO_MAX: Duration = Duration::from_secs(10);

/// How often it is looked whether they are.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// How a node is closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Manner {
    /// State is synced, so that the next start replays nothing.
    Checkpointed,
    /// The next start replays what was not synced.
    AtOnce,
}

/// What a node is made of, as far as it must be taken down.
pub(super) struct Parts {
    pub(super) options: Options,
    pub(super) id: NodeId,
    pub(super) boot: Boot,
    pub(super) timer: Timer,
    pub(super) running: Mutex<Option<Running>>,
    pub(super) closing: Arc<AtomicBool>,
    pub(super) closed: watch::Sender<bool>,
}

/// The parts that run. Fields are let go in this order.
pub(super) struct Running {
    pub(super) router: Arc<Router>,
    pub(super) owners: Vec<Arc<Owner>>,
    pub(super) control: Arc<Control>,
    pub(super) tasks: Vec<JoinHandle<()>>,
    pub(super) stop: watch::Sender<bool>,
    pub(super) watching: Watching,
    pub(super) runtime: Arc<Runtime>,
    pub(super) pool: Arc<Pool>,
    pub(super) engine: Engine,
    pub(super) log: Log,
    pub(super) home: Directory,
}

impl Parts {
    pub(super) fn id(&self) -> NodeId {
        self.id
    }

    pub(super) fn boot(&self) -> Boot {
        self.boot
    }

    /// Closes the node, or waits for whoever does.
    pub(super) async fn close(self: &Arc<Self>, manner: Manner) -> Result<()> {
        let mut closed = self.closed.subscribe();
        self.begin(manner)?;
        // The sender lives in `self`.
        let _ = closed.wait_for(|closed| *closed).await;
        Ok(())
    }

    /// The same, for whoever cannot await. A failure to start the thread leaves it to this one.
    pub(super) fn close_and_wait(self: &Arc<Self>, manner: Manner) {
        match self.begin(manner) {
            Ok(Some(thread)) => drop(thread.join()),
            Ok(None) => {}
            Err(_) => self.take_down(manner),
        }
    }

    fn begin(self: &Arc<Self>, manner: Manner) -> Result<Option<thread::JoinHandle<()>>> {
        if self.closing.swap(true, Ordering::AcqRel) {
            return Ok(None);
        }
        let parts = self.clone();
        let thread = thread::Builder::new().name("close".to_owned()).spawn(move || parts.take_down(manner));
        thread.map(Some).map_err(|source| {
            self.closing.store(false, Ordering::Release);
            Error::System { action: "start a thread", source }
        })
    }

    fn take_down(&self, manner: Manner) {
        if let Some(running) = self.running.lock().take() {
            running.take_down(&self.timer, &self.options, manner);
        }
        self.closed.send_replace(true);
        info!(node = %self.id, boot = %self.boot, "node is closed");
    }
}

impl Running {
    fn take_down(self, timer: &Timer, options: &Options, manner: Manner) {
        for owner in &self.owners {
            owner.close();
        }
        let wait = async {
            let inside = || self.owners.iter().map(|owner| owner.admission().inside()).sum::<usize>();
            wait_until(timer, DRAIN_MAX, || inside() == 0).await;
            // Nobody listens if the tasks have ended by themselves.
            let _ = self.stop.send(true);
        };
        self.runtime.block_on(wait);
        cut::point("stop.drained");
        if manner == Manner::Checkpointed {
            let Self { engine, log, control, owners, .. } = &self;
            let bounds = Bounds { keep_entries: options.keep_entries, ..Bounds::default() };
            let parts = background::checkpoint_parts(control, owners, bounds);
            if let Err(error) = storage::checkpoint::run(engine, log, &parts) {
                warn!(%error, "last checkpoint failed; the next start replays the log");
            }
            cut::point("stop.checkpointed");
        }
        drop(self.watching);
        self.engine.stop_waiting();
        let groups: Vec<Arc<dyn Consensus>> = self
            .owners
            .iter()
            .map(|owner| owner.consensus().clone())
            .chain([self.control.consensus().clone()])
            .collect();
        self.runtime.block_on(async {
            futures::future::join_all(groups.iter().map(|group| group.shutdown())).await;
            for task in self.tasks {
                // A task that panicked has said so.
                let _ = task.await;
            }
        });
        for owner in &self.owners {
            owner.stop();
        }
        let inner = self.router.close();
        let let_go = || Weak::strong_count(&inner) == 0;
        self.runtime.block_on(wait_until(timer, LET_GO_MAX, let_go));
        drop((groups, self.owners, self.control, self.router));
        self.log.set_driver(None);
        self.runtime.stop();
        self.pool.stop();
        self.log.close();
        drop(self.engine);
        if let_go() {
            self.home.close();
        } else {
            // Somebody still reads the files: nobody may open them beside him, so the lock stays until the process ends.
            warn!("a request did not end; the data directory stays locked");
            std::mem::forget(self.home);
        }
    }
}

async fn wait_until(timer: &Timer, at_most: Duration, done: impl Fn() -> bool) {
    let deadline = timer.now() + at_most;
    while !done() && timer.now() < deadline {
        timer.sleep(LOOK_AGAIN).await;
    }
}
