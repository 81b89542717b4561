//! Slowing down guessing: after ten failures within a minute from one address or for one name, each further failure is
//! answered later, up to ten seconds. Nobody is locked out.
//!
//! Invariants:
//! - Memory is bounded: at most [`ENTRIES_MAX`] addresses and names; when it is full, the stale ones go, else all.
//! - A success is never delayed.

use std::{collections::HashMap, net::IpAddr, time::Duration};

use parking_lot::Mutex;

const FREE_FAILURES: u32 = 10;
const WINDOW: Duration = Duration::from_secs(60);
const DELAY_MAX: Duration = Duration::from_secs(10);
/// How many addresses and names are remembered.
pub const ENTRIES_MAX: usize = 4_096;

#[derive(Clone, PartialEq, Eq, Hash)]
enum Who {
    Address(IpAddr),
    Name(String),
}

/// Failures of the last minute.
#[derive(Default)]
pub struct Failures {
    entries: Mutex<HashMap<Who, (Duration, u32)>>,
}

impl Failures {
    /// Notes a failure at a monotonic time; answers how long its answer must wait.
    pub fn note(&self, now: Duration, address: IpAddr, name: &str) -> Duration {
        let mut entries = self.entries.lock();
        let name: String = name.chars().take(64).collect();
        let mut count = 0;
        for who in [Who::Address(address), Who::Name(name)] {
            if entries.len() >= ENTRIES_MAX && !entries.contains_key(&who) {
                entries.retain(|_, (since, _)| now.saturating_sub(*since) < WINDOW);
                if entries.len() >= ENTRIES_MAX {
                    entries.clear();
                }
            }
            let (since, failures) = entries.entry(who).or_insert((now, 0));
            if now.saturating_sub(*since) >= WINDOW {
                (*since, *failures) = (now, 0);
            }
            *failures = failures.saturating_add(1);
            count = count.max(*failures);
        }
        let over = count.saturating_sub(FREE_FAILURES);
        Duration::from_millis(100).saturating_mul(over).min(DELAY_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_eleventh_failure_within_a_minute_waits() {
        let failures = Failures::default();
        let address = IpAddr::from([127, 0, 0, 1]);
        for _ in 0..10 {
            assert_eq!(failures.note(Duration::ZERO, address, "a"), Duration::ZERO);
        }
        assert_eq!(failures.note(Duration::ZERO, address, "b"), Duration::from_millis(100));
        assert_eq!(failures.note(Duration::from_secs(61), address, "a"), Duration::ZERO);
    }
}
