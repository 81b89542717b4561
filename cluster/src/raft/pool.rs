//! The apply pool: threads that write to the engine, so that its stalls never touch an async worker. What the engine takes at
//! once, without waiting for anything, need not come here (`machine`).
//!
//! Invariants:
//! - Jobs of one shard run one after another, on one thread.
//! - A job that panics takes its own shard with it, not the thread.

use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::mpsc,
    thread,
};

use model::id::ShardId;
use parking_lot::Mutex;
use tokio::sync::oneshot;

type Job = Box<dyn FnOnce() + Send>;

/// The threads.
#[derive(Debug)]
pub(crate) struct Pool {
    threads: Mutex<Vec<thread::JoinHandle<()>>>,
    lanes: Vec<Mutex<Option<mpsc::Sender<Job>>>>,
    processors: usize,
}

/// A job's panic, or the end of the pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Lost {
    /// The job panicked with this message.
    Panicked(String),
    /// The pool has stopped.
    Stopped,
}

impl Pool {
    /// Starts so many threads, at least one.
    pub(crate) fn start(threads: usize) -> io::Result<Self> {
        let mut running = Vec::new();
        let mut lanes = Vec::new();
        for number in 0..threads.max(1) {
            let (sender, jobs) = mpsc::channel::<Job>();
            let thread = thread::Builder::new().name(format!("apply-{number}")).spawn(move || {
                for job in jobs {
                    job();
                }
            })?;
            running.push(thread);
            lanes.push(Mutex::new(Some(sender)));
        }
        let processors = thread::available_parallelism().map_or(1, usize::from);
        Ok(Self { threads: Mutex::new(running), lanes, processors })
    }

    /// So many small entries at once are better applied by whoever has them than by a thread here. With two processors that
    /// are all there are: others have work too, and what is waited for is the sync.
    pub(crate) fn little(&self) -> usize {
        if self.processors <= 2 { 256 } else { 8 }
    }

    /// Runs a job of a shard on its thread; the answer comes as soon as it is done.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        shard: ShardId,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> oneshot::Receiver<Result<T, Lost>> {
        let (sender, answer) = oneshot::channel();
        let lane = shard.0 as usize % self.lanes.len();
        let job: Job = Box::new(move || {
            let done = caught(job);
            // Whoever asked may have stopped listening; the job is done all the same.
            let _ = sender.send(done);
        });
        // Without a lane the job is dropped with the sender inside it, and the answer is an error.
        if let Some(lane) = &*self.lanes[lane].lock() {
            let _ = lane.send(job);
        }
        answer
    }

    /// Finishes what was given and ends the threads. Does nothing the second time.
    pub(crate) fn stop(&self) {
        for lane in &self.lanes {
            lane.lock().take();
        }
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads.into_iter().filter(|thread| thread.thread().id() != thread::current().id()) {
            // Jobs catch their panics; nothing else can end a thread badly.
            let _ = thread.join();
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Waits for a job.
pub(crate) async fn finished<T>(answer: oneshot::Receiver<Result<T, Lost>>) -> Result<T, Lost> {
    answer.await.unwrap_or(Err(Lost::Stopped))
}

/// Runs a job here; its panic stays in it.
pub(crate) fn caught<T>(job: impl FnOnce() -> T) -> Result<T, Lost> {
    catch_unwind(AssertUnwindSafe(job)).map_err(|panic| Lost::Panicked(message(&*panic)))
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    if let Some(text) = panic.downcast_ref::<&str>() {
        return (*text).to_owned();
    }
    panic.downcast_ref::<String>().cloned().unwrap_or_else(|| "a panic without a message".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_of_a_shard_keep_their_order_and_a_panic_stays_in_its_job() {
        let pool = Pool::start(2).unwrap();
        let first = pool.run(ShardId(3), || panic!("planted"));
        let second = pool.run(ShardId(3), || 7);
        let first: Result<(), _> = futures::executor::block_on(finished(first));
        assert_eq!(first, Err(Lost::Panicked("planted".to_owned())));
        assert_eq!(futures::executor::block_on(finished(second)), Ok(7));
        pool.stop();
    }
}
