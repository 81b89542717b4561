//! The thread on which consensus lives: Raft cores, heartbeats, log callbacks and their timers.
//!
//! Invariants:
//! - Nothing that computes for long runs here: entries are applied on the pool (`pool`), but for small ones that the engine
//!   takes at once, and what is much is written to the log by its own thread. A query must never cost an election.
//! - As long as no election can be lost, since every group's only voter is here, this thread waits for the log's syncs itself:
//!   what is proposed meanwhile goes with the next one, and nobody has to be woken in between.
//! - Handles made here work from any runtime, or from none.

use std::{future::Future, io, sync::Arc, time::Duration};

use model::time::Clock;
use parking_lot::Mutex;
use storage::log::Log;
use tokio::{
    runtime::Handle,
    sync::{Notify, oneshot},
    task::{JoinHandle, yield_now},
};

/// The thread and its runtime. Dropping it stops both.
#[derive(Debug)]
pub(crate) struct Runtime {
    handle: Handle,
    stop: Mutex<Option<oneshot::Sender<()>>>,
    thread: Mutex<Option<std::thread::JoinHandle<()>>>,
}

impl Runtime {
    /// Starts the thread.
    pub(crate) fn start(name: &str) -> io::Result<Arc<Self>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            // An error means that the handle is gone, which is a stop as well.
            let _ = runtime.block_on(stopped);
            runtime.shutdown_background();
        })?;
        Ok(Arc::new(Self { handle, stop: Mutex::new(Some(stop)), thread: Mutex::new(Some(thread)) }))
    }

    /// Runs a task here.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.handle.spawn(task)
    }

    /// Writes the log on this thread from now on, whenever it has nothing else to do.
    pub(crate) fn drive(&self, log: &Log) {
        let due = Arc::new(Notify::new());
        let call = due.clone();
        log.set_driver(Some(Arc::new(move || call.notify_one())));
        let log = log.clone();
        self.spawn(async move {
            loop {
                due.notified().await;
                // Whoever can run now runs first, and adds to it.
                yield_now().await;
                log.drive();
            }
        });
    }

    /// Runs a future on the caller's thread, driven by this one. Not to be called on an async worker.
    pub(crate) fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.handle.block_on(future)
    }

    /// A timer that is driven by this thread.
    pub(crate) fn timer(&self, clock: Arc<dyn Clock>) -> Timer {
        Timer { clock, handle: self.handle.clone() }
    }

    /// Stops the thread and waits for it. Must not be called on it.
    pub(crate) fn stop(&self) {
        drop(self.stop.lock().take());
        let thread = self.thread.lock().take();
        if let Some(thread) = thread
            && thread.thread().id() != std::thread::current().id()
        {
            // A panic of the thread was reported when it happened.
            let _ = thread.join();
        }
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Time, and waiting for it, on whatever thread the waiter is polled.
#[derive(Clone)]
pub(crate) struct Timer {
    clock: Arc<dyn Clock>,
    handle: Handle,
}

impl Timer {
    /// As good as for ever.
    pub(crate) const FAR: Duration = Duration::from_secs(10 * 365 * 24 * 3_600);

    /// Monotonic time.
    pub(crate) fn now(&self) -> Duration {
        self.clock.monotonic()
    }

    /// The clock behind it.
    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// Runs what may block on a thread for that.
    pub(crate) fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        self.handle.spawn_blocking(work)
    }

    /// Ready after `time`.
    pub(crate) fn sleep(&self, time: Duration) -> tokio::time::Sleep {
        // A sleep belongs to the runtime that is current when it is made, not to the one that polls it.
        let _here = self.handle.enter();
        tokio::time::sleep(time.min(Self::FAR))
    }
}

impl std::fmt::Debug for Timer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Timer")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Still;

    impl Clock for Still {
        fn wall(&self) -> model::time::Timestamp {
            model::time::Timestamp::from_micros(0).unwrap()
        }

        fn monotonic(&self) -> Duration {
            Duration::ZERO
        }
    }

    #[test]
    fn a_sleep_ends_wherever_it_is_polled_and_a_stop_is_joined_twice() {
        let runtime = Runtime::start("raft-test").unwrap();
        let timer = runtime.timer(Arc::new(Still));
        futures::executor::block_on(timer.sleep(Duration::from_millis(1)));
        runtime.stop();
        runtime.stop();
    }
}
