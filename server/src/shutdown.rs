//! Shutdown: one signal that everyone can wait for, in two strengths.
//!
//! Invariants:
//! - *Draining* comes first: readiness is off, nothing new is accepted, idle sessions end, running statements go on.
//! - *Stopping* follows: running statements are cancelled. Neither is ever taken back.

use tokio_util::sync::CancellationToken;

/// What the process is told when it shall end.
#[derive(Clone, Default, Debug)]
pub struct Shutdown {
    draining: CancellationToken,
    stopping: CancellationToken,
}

impl Shutdown {
    /// No new work.
    pub fn drain(&self) {
        self.draining.cancel();
    }

    /// No work at all.
    pub fn stop(&self) {
        self.draining.cancel();
        self.stopping.cancel();
    }

    /// Whether draining has begun.
    pub fn is_draining(&self) -> bool {
        self.draining.is_cancelled()
    }

    /// Whether running work is to end.
    pub fn is_stopping(&self) -> bool {
        self.stopping.is_cancelled()
    }

    /// Waits for draining.
    pub async fn draining(&self) {
        self.draining.cancelled().await;
    }

    /// Waits for the stop.
    pub async fn stopping(&self) {
        self.stopping.cancelled().await;
    }

    /// The token of draining, for libraries that take one.
    pub fn draining_token(&self) -> CancellationToken {
        self.draining.clone()
    }
}
