//! Tasks: the one place that starts them, so that each is counted and joined at shutdown.
//!
//! Invariants:
//! - A task started here is known until it ends; `join` returns when none is left.
//! - A panic of a task is logged and ends that task only.

use std::{any::Any, future::Future, panic::AssertUnwindSafe, time::Duration};

use futures::FutureExt;
use tokio_util::task::TaskTracker;
use tracing::error;

/// The tasks of this process.
#[derive(Clone, Default, Debug)]
pub struct Tasks {
    tracker: TaskTracker,
}

impl Tasks {
    /// Starts a task under a fixed name.
    #[expect(clippy::disallowed_methods, reason = "the one home of task starts")]
    pub fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let guarded = self.tracker.track_future(async move {
            if let Err(panic) = AssertUnwindSafe(task).catch_unwind().await {
                error!(task = name, reason = panic_text(&*panic), "task panicked");
            }
        });
        drop(tokio::spawn(guarded));
    }

    /// How many are running.
    pub fn len(&self) -> usize {
        self.tracker.len()
    }

    /// Whether none is running.
    pub fn is_empty(&self) -> bool {
        self.tracker.is_empty()
    }

    /// Waits until every task has ended, at most so long. Answers whether all have.
    pub async fn join(&self, patience: Duration) -> bool {
        self.tracker.close();
        tokio::time::timeout(patience, self.tracker.wait()).await.is_ok()
    }
}

/// What a panic says about itself.
pub fn panic_text(panic: &(dyn Any + Send)) -> &str {
    match panic.downcast_ref::<&'static str>() {
        Some(text) => text,
        None => panic.downcast_ref::<String>().map_or("a panic without a message", String::as_str),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panicking_task_ends_alone_and_is_joined() {
        let tasks = Tasks::default();
        tasks.spawn("panics", async { panic!("planted") });
        tasks.spawn("ends", async {});
        assert!(tasks.join(Duration::from_secs(10)).await);
        assert!(tasks.is_empty());
    }
}
