//! Time as a parameter: the clock port and logged time.
//!
//! Nothing below the log reads a clock; what a command needs to know of time was stamped into it by the owner.

use std::time::Duration;

pub use crate::value::Timestamp;

/// The two logged clocks of a shard, as an entry carries them.
///
/// `elapsed` counts monotonic microseconds while the shard was led (leases, deadlines, receipts); `wall` is anchor plus
/// elapsed (schedules, TTL, delays). Neither goes back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LoggedTime {
    /// Microseconds of monotonic time while led.
    pub elapsed: u64,
    /// Wall clock as the log knows it.
    pub wall: Timestamp,
}

impl Default for LoggedTime {
    fn default() -> Self {
        let wall = Timestamp::from_micros(0).expect("2000-01-01 is a timestamp");
        Self { elapsed: 0, wall }
    }
}

/// Where time comes from. The process has one; tests have their own.
pub trait Clock: Send + Sync {
    /// The wall clock.
    fn wall(&self) -> Timestamp;
    /// Monotonic time since some fixed moment of this process.
    fn monotonic(&self) -> Duration;
}
