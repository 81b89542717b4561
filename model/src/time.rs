//! Time as a parameter: the clock port and logged time.
//!
//! Nothing below the log reads a clock; what a command needs to know of time was stamped into it by the owner.

use std::time::Duration;

/// Microseconds since 2000-01-01 00:00 UTC, PostgreSQL's epoch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Timestamp(pub i64);

/// Seconds from 1970-01-01 to 2000-01-01, both UTC.
pub const UNIX_TO_EPOCH_SECS: i64 = 946_684_800;

impl Timestamp {
    /// From microseconds since 1970-01-01 UTC.
    pub fn from_unix_micros(micros: i64) -> Self {
        Self(micros - UNIX_TO_EPOCH_SECS * 1_000_000)
    }

    /// Microseconds since 1970-01-01 UTC.
    pub fn unix_micros(self) -> i64 {
        self.0 + UNIX_TO_EPOCH_SECS * 1_000_000
    }
}

/// The two logged clocks of a shard, as an entry carries them.
///
/// `elapsed` counts monotonic microseconds while the shard was led (leases, deadlines, receipts); `wall` is anchor plus
/// elapsed (schedules, TTL, delays). Neither goes back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct LoggedTime {
    /// Microseconds of monotonic time while led.
    pub elapsed: u64,
    /// Wall clock as the log knows it.
    pub wall: Timestamp,
}

/// Where time comes from. The process has one; tests have their own.
pub trait Clock: Send + Sync {
    /// The wall clock.
    fn wall(&self) -> Timestamp;
    /// Monotonic time since some fixed moment of this process.
    fn monotonic(&self) -> Duration;
}
