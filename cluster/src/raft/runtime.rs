//! The thread on which consensus lives: Raft cores, heartbeats, log callbacks and their timers.
//!
//! Invariants:
//! - Nothing that computes for long runs here: entries are applied on the pool (`pool`), but for small ones that the engine
//!   takes at once, and what is much is written to the log by its own thread. A query must never cost an election.
//! - As long as no election can be lost, since every group's only voter is here, this thread waits for the log's syncs itself:
//!   what is proposed meanwhile goes with the next one, and nobody has to be woken in between. While any group has other
//!   voters, the log's own thread does that: heartbeats and votes never wait for a disk.
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
    driver: Arc<Driver>,
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
        let driver = Arc::new(Driver { due: Arc::new(Notify::new()), state: Mutex::default() });
        Ok(Arc::new(Self { handle, driver, stop: Mutex::new(Some(stop)), thread: Mutex::new(Some(thread)) }))
    }

    /// Runs a task here.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.handle.spawn(task)
    }

    /// Writes the log on this thread from now on, whenever it has nothing else to do and no group has other voters.
    pub(crate) fn drive(&self, log: &Log) {
        self.driver.start(log);
        let (driver, log) = (self.driver.clone(), log.clone());
        self.spawn(async move {
            loop {
                driver.due.notified().await;
                // Whoever can run now runs first, and adds to it.
                yield_now().await;
                // A call from before it was given up may still come.
                if driver.is_driving() {
                    log.drive();
                }
            }
        });
    }

    /// Who writes the log.
    pub(crate) fn driver(&self) -> &Arc<Driver> {
        &self.driver
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

/// Whether the thread of consensus waits for the log's syncs.
#[derive(Debug)]
pub(crate) struct Driver {
    due: Arc<Notify>,
    state: Mutex<Driving>,
}

#[derive(Debug, Default)]
struct Driving {
    log: Option<Log>,
    /// Groups with other voters.
    shared: usize,
}

impl Driver {
    fn start(&self, log: &Log) {
        let mut state = self.state.lock();
        state.log = Some(log.clone());
        self.set(&state);
    }

    /// The log's own thread writes it until what is answered is dropped.
    pub(crate) fn give_up(self: &Arc<Self>) -> Shared {
        let mut state = self.state.lock();
        state.shared += 1;
        self.set(&state);
        Shared(self.clone())
    }

    /// Whether this thread writes it.
    pub(crate) fn is_driving(&self) -> bool {
        let state = self.state.lock();
        state.log.is_some() && state.shared == 0
    }

    fn set(&self, state: &Driving) {
        let Some(log) = &state.log else { return };
        if state.shared > 1 {
            return;
        }
        let due = self.due.clone();
        let call: Arc<dyn Fn() + Send + Sync> = Arc::new(move || due.notify_one());
        log.set_driver((state.shared == 0).then_some(call));
    }
}

/// Keeps the log's writing from the thread of consensus.
#[derive(Debug)]
pub(crate) struct Shared(Arc<Driver>);

impl Drop for Shared {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.shared -= 1;
        if state.shared == 0 {
            self.0.set(&state);
        }
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
