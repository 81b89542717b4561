//! How a gate ended, and waiting for it.
//!
//! Invariants:
//! - The end is stored once, and the error in it is the very object its driver failed with, for every waiter, also for one
//!   that comes later or after an abort.
//! - Waiters are woken in the order they came, outside the lock. One that goes away takes only itself out.
//! - A waiter looks at the end and leaves its waker under one lock: no end passes between the two.
//!
//! Not here: what may end a gate (`lifecycle`).

use std::{
    collections::BTreeMap,
    error::Error,
    fmt, mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use model::id::ViewId;
use tracing::warn;

use crate::sync::{AtomicBool, Mutex, Ordering, order};

use super::lifecycle::{Kind, Misstep, Phase, Progress, Status, Step, Taken};

/// What a transition failed with.
pub type Failure = Arc<dyn Error + Send + Sync>;

/// How a gate ended.
#[derive(Clone, Debug)]
pub enum Ended {
    /// All was done.
    Completed,
    /// This newer view took the unit away before anything was installed.
    Superseded(ViewId),
    /// It failed, and goes on blocking.
    Failed(Failure),
    /// Its runtime was torn down. What waited may try again elsewhere.
    Aborted,
}

/// Waits for a gate's end.
#[derive(Debug)]
#[must_use = "a completion does nothing unless it is awaited"]
pub struct Completion {
    core: Arc<Core>,
    ticket: Option<u64>,
}

/// A gate's state, behind one lock.
pub(super) struct Core {
    /// Mirrors the status; written under the lock, read without.
    blocking: AtomicBool,
    state: Mutex<State>,
    target: ViewId,
    previous: Option<ViewId>,
}

struct State {
    progress: Progress,
    ended: Option<Ended>,
    waiters: BTreeMap<u64, Waker>,
    next: u64,
}

impl Core {
    pub(super) fn new(kind: Kind, target: ViewId, previous: Option<ViewId>) -> Arc<Self> {
        let state =
            State { progress: Progress::new(kind, target), ended: None, waiters: BTreeMap::new(), next: 0 };
        Arc::new(Self { blocking: AtomicBool::new(true), state: Mutex::new(state), target, previous })
    }

    pub(super) fn target(&self) -> ViewId {
        self.target
    }

    pub(super) fn previous(&self) -> Option<ViewId> {
        self.previous
    }

    /// One load. Whoever sees that it does not block sees all that its driver did before it ended.
    pub(super) fn is_blocking(&self) -> bool {
        self.blocking.load(Ordering::SeqCst)
    }

    pub(super) fn phase(&self) -> Phase {
        self.state.lock().progress.phase
    }

    pub(super) fn status(&self) -> Status {
        self.state.lock().progress.status
    }

    pub(super) fn kind(&self) -> Kind {
        self.state.lock().progress.kind
    }

    pub(super) fn advance(&self, step: Step) -> Result<(), Misstep> {
        self.take(step, None)
    }

    /// Ends the gate as completed; if its phase is not the last, as failed.
    pub(super) fn complete(&self) -> Result<(), Misstep> {
        self.take(Step::Complete, Some(Ended::Completed))
    }

    pub(super) fn supersede(&self, by: ViewId) -> Result<(), Misstep> {
        self.take(Step::Supersede(by), Some(Ended::Superseded(by)))
    }

    /// Whether this was the first end.
    pub(super) fn fail(&self, failure: Failure) -> bool {
        match self.take(Step::Fail, Some(Ended::Failed(failure.clone()))) {
            Ok(()) => true,
            Err(_) => {
                warn!(target_view = %self.target, later = %failure, "a gate that has ended failed again");
                false
            }
        }
    }

    /// Ends the gate at shutdown; one that has failed keeps its error. Nothing if it has ended.
    pub(super) fn abort(&self) {
        // Refused means that it has ended, which is as good.
        let _ = self.take(Step::Abort, Some(Ended::Aborted));
    }

    /// Fails the gate unless it has ended: its driver is no more.
    pub(super) fn abandon(&self) {
        let Progress { kind, target, phase, status } = self.state.lock().progress;
        if status == Status::Pending {
            // Aborting may have come between, and then stands.
            let abandoned = Arc::new(Misstep::Abandoned { kind, target, phase });
            let _ = self.take(Step::Fail, Some(Ended::Failed(abandoned)));
        }
    }

    fn take(&self, step: Step, end: Option<Ended>) -> Result<(), Misstep> {
        let mut state = self.state.lock();
        let (progress, end, answer) = match state.progress.step(step)? {
            Taken::Done(progress) => (progress, end, Ok(())),
            Taken::Failed(progress, misstep) => {
                (progress, Some(Ended::Failed(Arc::new(misstep))), Err(misstep))
            }
        };
        state.progress = progress;
        self.blocking.store(progress.status.is_blocking(), Ordering::SeqCst);
        order();
        let Some(end) = end else { return answer };
        // The first end stands: after an abort, that of the failure.
        state.ended.get_or_insert(end);
        let waiters = mem::take(&mut state.waiters);
        drop(state);
        for waiter in waiters.into_values() {
            waiter.wake();
        }
        answer
    }
}

impl Completion {
    pub(super) fn new(core: Arc<Core>) -> Self {
        Self { core, ticket: None }
    }

    /// How it ended, if it has.
    pub fn now(&self) -> Option<Ended> {
        self.core.state.lock().ended.clone()
    }
}

impl Future for Completion {
    type Output = Ended;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Ended> {
        let this = &mut *self;
        let mut state = this.core.state.lock();
        if let Some(ended) = &state.ended {
            this.ticket = None;
            return Poll::Ready(ended.clone());
        }
        let ticket = *this.ticket.get_or_insert_with(|| {
            state.next += 1;
            state.next
        });
        match state.waiters.get_mut(&ticket) {
            Some(waker) if waker.will_wake(context.waker()) => {}
            Some(waker) => {
                let old = mem::replace(waker, context.waker().clone());
                // A waker may do anything when it is dropped.
                drop(state);
                drop(old);
            }
            None => {
                state.waiters.insert(ticket, context.waker().clone());
            }
        }
        Poll::Pending
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            let waker = self.core.state.lock().waiters.remove(&ticket);
            drop(waker);
        }
    }
}

impl Core {
    /// How many wait.
    #[cfg(test)]
    pub(super) fn waiters(&self) -> usize {
        self.state.lock().waiters.len()
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let progress = self.state.lock().progress;
        f.debug_tuple("Gate").field(&progress).finish()
    }
}
