//! The process's clock: the one place that reads the wall clock and the monotonic clock.
//!
//! Invariants:
//! - `monotonic` never goes back; `wall` is whatever the machine says.
//! - Everyone else takes a `model::time::Clock` and can therefore be tested at any time of day.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use model::time::{Clock, Timestamp};

/// The machine's clocks.
#[derive(Debug)]
pub struct SystemClock {
    started: Instant,
}

impl SystemClock {
    /// A clock whose monotonic time begins now.
    #[expect(clippy::disallowed_methods, reason = "the one home of clock reads")]
    pub fn new() -> Self {
        Self { started: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one home of clock reads")]
    fn wall(&self) -> Timestamp {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => {
                let micros = i64::try_from(since.as_micros()).unwrap_or(i64::MAX);
                Timestamp::from_unix_micros(micros).unwrap_or(Timestamp::MAX)
            }
            Err(before) => {
                let micros = i64::try_from(before.duration().as_micros()).unwrap_or(i64::MAX);
                Timestamp::from_unix_micros(-micros).unwrap_or(Timestamp::MIN)
            }
        }
    }

    fn monotonic(&self) -> Duration {
        self.started.elapsed()
    }
}
