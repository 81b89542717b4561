//! The two logged clocks of a shard, as its owner stamps them.
//!
//! Invariants:
//! - `elapsed` goes on from the last logged value at each claim and grows with monotonic time while led: a lease never
//!   ends early because a node was down.
//! - `wall` is an anchor plus elapsed; it never goes back. A wall clock that went back is waited for; one that jumped
//!   further than [`JUMP_MAX`] is not followed until an operator says so.
//!
//! Below the log nobody reads a clock: what is stamped here is all that `apply` knows of time.

use std::{sync::Arc, time::Duration};

use model::time::{Clock, LoggedTime, Timestamp};
use parking_lot::Mutex;
use tracing::warn;

/// How far forward a lone node follows its wall clock at once: 400 days.
const JUMP_MAX: i64 = 400 * 24 * 3_600 * MICROS;

/// A jump above this is worth a warning: 5 minutes.
const JUMP_QUIET: i64 = 5 * 60 * MICROS;

/// How often the anchor is looked at.
const ANCHOR_EVERY: Duration = Duration::from_secs(60);

const MICROS: i64 = 1_000_000;

/// A shard's clocks.
pub(crate) struct LoggedClock {
    source: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// `elapsed` and `wall` at the moment `since`.
    base: LoggedTime,
    since: Duration,
    anchored: Duration,
    held: bool,
}

impl LoggedClock {
    pub(crate) fn new(source: Arc<dyn Clock>) -> Self {
        Self { source, state: Mutex::default() }
    }

    /// A new claim: the clocks go on from what was logged last.
    pub(crate) fn resume(&self, last: LoggedTime) {
        let now = self.source.monotonic();
        let (wall, held) = follow(last.wall, self.source.wall());
        *self.state.lock() =
            State { base: LoggedTime { elapsed: last.elapsed, wall }, since: now, anchored: now, held };
    }

    /// The time to stamp an entry with.
    pub(crate) fn now(&self) -> LoggedTime {
        let now = self.source.monotonic();
        let mut state = self.state.lock();
        let time = state.at(now);
        if now.saturating_sub(state.anchored) >= ANCHOR_EVERY {
            let (wall, held) = follow(time.wall, self.source.wall());
            *state = State { base: LoggedTime { wall, ..time }, since: now, anchored: now, held };
            return state.base;
        }
        time
    }

    /// Whether the wall clock is too far ahead to be followed, so that schedules and expiry by date stand still.
    pub(crate) fn is_held(&self) -> bool {
        self.state.lock().held
    }
}

impl State {
    fn at(&self, now: Duration) -> LoggedTime {
        let passed = u64::try_from(now.saturating_sub(self.since).as_micros()).unwrap_or(u64::MAX);
        LoggedTime { elapsed: self.base.elapsed.saturating_add(passed), wall: later(self.base.wall, passed) }
    }
}

/// A wall time so much later; at the end of what can be said it stands still.
fn later(wall: Timestamp, micros: u64) -> Timestamp {
    Timestamp::from_micros(wall.micros().saturating_add_unsigned(micros)).unwrap_or(wall)
}

/// Where the anchor goes: to the wall clock if that is ahead, but not too far. The epoch itself is "never logged".
fn follow(logged: Timestamp, wall: Timestamp) -> (Timestamp, bool) {
    let ahead = wall.micros().saturating_sub(logged.micros());
    if ahead <= 0 {
        return (logged, false);
    }
    if logged.micros() != 0 && ahead > JUMP_MAX {
        warn!(ahead_secs = ahead / MICROS, "wall clock is too far ahead; logged time does not follow it");
        return (logged, true);
    }
    if logged.micros() != 0 && ahead > JUMP_QUIET {
        warn!(ahead_secs = ahead / MICROS, "logged time follows the wall clock forward");
    }
    (wall, false)
}

impl std::fmt::Debug for LoggedClock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("LoggedClock").field(&*self.state.lock()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

    use super::*;

    fn at(micros: i64) -> Timestamp {
        Timestamp::from_micros(micros).unwrap()
    }

    #[derive(Default)]
    struct Hands {
        wall: AtomicI64,
        monotonic: AtomicU64,
    }

    impl Clock for Hands {
        fn wall(&self) -> Timestamp {
            at(self.wall.load(Ordering::Relaxed))
        }

        fn monotonic(&self) -> Duration {
            Duration::from_micros(self.monotonic.load(Ordering::Relaxed))
        }
    }

    impl Hands {
        fn set(&self, monotonic: u64, wall: i64) {
            self.monotonic.store(monotonic, Ordering::Relaxed);
            self.wall.store(wall, Ordering::Relaxed);
        }
    }

    #[test]
    fn elapsed_goes_on_from_the_last_claim_and_counts_only_time_led() {
        let hands = Arc::new(Hands::default());
        let clock = LoggedClock::new(hands.clone());
        hands.set(1_000, 50);
        clock.resume(LoggedTime { elapsed: 700, wall: at(40) });
        hands.set(1_005, 55);
        assert_eq!(clock.now(), LoggedTime { elapsed: 705, wall: at(55) });
    }

    #[test]
    fn a_wall_clock_that_went_back_is_waited_for() {
        let hands = Arc::new(Hands::default());
        let clock = LoggedClock::new(hands.clone());
        hands.set(0, 100);
        clock.resume(LoggedTime { elapsed: 0, wall: at(500) });
        hands.set(7, 107);
        assert_eq!(clock.now().wall, at(507));
    }

    #[test]
    fn a_jump_is_followed_at_the_next_look_but_not_beyond_reason() {
        let hands = Arc::new(Hands::default());
        let clock = LoggedClock::new(hands.clone());
        hands.set(0, 100);
        clock.resume(LoggedTime { elapsed: 0, wall: at(100) });
        let minute = 60_000_000;
        hands.set(minute, JUMP_MAX);
        assert_eq!(clock.now().wall, at(JUMP_MAX));
        hands.set(2 * minute, 3 * JUMP_MAX);
        assert_eq!(clock.now().wall, at(JUMP_MAX + minute as i64));
        assert!(clock.is_held());
    }
}
