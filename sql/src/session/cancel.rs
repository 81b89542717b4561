//! Stopping a running statement from outside.

use std::{pin::Pin, sync::Arc, task::Poll, time::Duration};

use model::{Code, Error, Result};
use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};

use crate::execute::{Cancel, Reason};

/// Stops what a session runs. Cheap to clone; an idle session does not notice.
#[derive(Clone, Default)]
pub struct CancelHandle(Arc<Shared>);

#[derive(Default)]
struct Shared {
    running: Mutex<Option<Cancel>>,
    notify: Notify,
}

impl CancelHandle {
    /// Stops the running statement, if there is one: it ends with `57014` within 200 ms.
    pub fn cancel(&self) {
        self.stop(Reason::Request);
    }

    /// Stops the running statement because the server stops.
    pub fn shut_down(&self) {
        self.stop(Reason::Shutdown);
    }

    fn stop(&self, reason: Reason) {
        if let Some(running) = self.0.running.lock().as_ref() {
            running.cancel(reason);
            self.0.notify.notify_waiters();
        }
    }

    /// A statement begins.
    pub(crate) fn begin(&self) -> Cancel {
        let cancel = Cancel::new();
        *self.0.running.lock() = Some(cancel.clone());
        cancel
    }

    /// A statement goes on.
    pub(crate) fn resume(&self, cancel: &Cancel) -> Cancel {
        *self.0.running.lock() = Some(cancel.clone());
        cancel.clone()
    }

    /// What stops the statement that runs, or nothing.
    pub(crate) fn running(&self) -> Cancel {
        self.0.running.lock().clone().unwrap_or_default()
    }

    /// Work of a statement that [`Self::guard`] does not see, and that never waits, begins: until what this gives is
    /// dropped it can be stopped too. Inside a statement that runs already it stops with that.
    pub(crate) fn begin_unguarded(&self, limit: Option<Duration>) -> Unguarded {
        let mut running = self.0.running.lock();
        if running.is_some() {
            return Unguarded(None);
        }
        let cancel = Cancel::new();
        cancel.stop_at(limit.map(|limit| Instant::now() + limit));
        *running = Some(cancel);
        Unguarded(Some(self.clone()))
    }

    /// No statement runs.
    pub(crate) fn end(&self) {
        *self.0.running.lock() = None;
    }

    /// Runs work that ends when it is done, is cancelled, or the time is over.
    pub(crate) async fn guard<T>(
        &self,
        cancel: &Cancel,
        deadline: Option<Instant>,
        mut work: Pin<&mut impl Future<Output = Result<T>>>,
    ) -> Result<T> {
        cancel.stop_at(deadline);
        cancel.check()?;
        // Most work is done when it is first looked at.
        if let Poll::Ready(done) = futures::poll!(work.as_mut()) {
            return done;
        }
        let stopped = async {
            loop {
                let notified = self.0.notify.notified();
                cancel.check()?;
                notified.await;
            }
        };
        let timeout = async {
            match deadline {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        // Work comes last: it may use up the task's budget, and then nothing polled after it would ever be ready.
        tokio::select! {
            biased;
            stop = stopped => {
                let stop: Result<T> = stop;
                stop
            }
            () = timeout => {
                cancel.cancel(Reason::Timeout);
                cancel.check()?;
                Err(Error::new(Code::QueryCanceled, "canceling statement due to statement timeout"))
            }
            result = work => result,
        }
    }
}

/// What [`CancelHandle::begin_unguarded`] began.
pub(crate) struct Unguarded(Option<CancelHandle>);

impl Drop for Unguarded {
    fn drop(&mut self) {
        if let Some(handle) = &self.0 {
            handle.end();
        }
    }
}

impl std::fmt::Debug for CancelHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CancelHandle")
    }
}
