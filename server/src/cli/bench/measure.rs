//! What is read from the system during a bench: time of CPU, memory, and how fast a sync of the disk is.
//!
//! Invariants: a figure that the system does not give is absent, never zero.

use std::{fs, io, io::Write as _, path::Path, time::Duration};

use super::child::now;

/// Linux reports process times to user space in this unit (`USER_HZ`), whatever the kernel ticks with.
const TICKS_PER_SEC: f64 = 100.0;
const SYNCS: usize = 40;
/// Above this the disk, or the scheduler between it and us, is too slow to judge anything by.
pub(super) const SYNC_MAX: Duration = Duration::from_millis(1);
/// Before and after may differ by this much.
const SYNC_DRIFT_MAX: f64 = 2.0;

/// A process, alone or with its children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Process {
    /// One process.
    Alone(u32),
    /// One that works through children, such as a postmaster.
    Family(u32),
}

impl Process {
    /// Seconds of CPU used so far, in user and kernel mode.
    pub(super) fn cpu_secs(self) -> Option<f64> {
        match self {
            Self::Alone(pid) => Some(Stat::read(pid)?.own),
            Self::Family(pid) => {
                let parent = Stat::read(pid)?;
                // A child that ends moves from the second term to the first.
                Some(parent.own + parent.reaped + children(pid).iter().map(|(_, stat)| stat.own).sum::<f64>())
            }
        }
    }

    /// Resident bytes. Pages that a family shares are counted once.
    pub(super) fn resident_bytes(self) -> Option<u64> {
        match self {
            Self::Alone(pid) => field_bytes(&format!("/proc/{pid}/status"), "VmRSS:"),
            Self::Family(pid) => {
                let own = field_bytes(&format!("/proc/{pid}/smaps_rollup"), "Pss:")?;
                let of = |(pid, _): &(u32, Stat)| field_bytes(&format!("/proc/{pid}/smaps_rollup"), "Pss:");
                Some(own + children(pid).iter().filter_map(of).sum::<u64>())
            }
        }
    }
}

struct Stat {
    parent: u32,
    own: f64,
    reaped: f64,
}

impl Stat {
    fn read(pid: u32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// The name in parentheses may hold anything, so fields are counted from its end.
    fn parse(text: &str) -> Option<Self> {
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        let ticks = |at: usize| fields.get(at)?.parse::<f64>().ok();
        Some(Self {
            parent: fields.get(1)?.parse().ok()?,
            own: (ticks(11)? + ticks(12)?) / TICKS_PER_SEC,
            reaped: (ticks(13)? + ticks(14)?) / TICKS_PER_SEC,
        })
    }
}

fn children(parent: u32) -> Vec<(u32, Stat)> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| Some((pid, Stat::read(pid)?))).filter(|(_, stat)| stat.parent == parent).collect()
}

fn field_bytes(path: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(rest.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

/// The median time of an append of 512 bytes with a sync.
pub(super) fn sync_time(directory: &Path) -> io::Result<Duration> {
    let path = directory.join("sync-probe");
    let mut file = fs::File::create(&path)?;
    let mut times = Vec::with_capacity(SYNCS);
    for _ in 0..SYNCS {
        let begun = now();
        file.write_all(&[7; 512])?;
        file.sync_data()?;
        times.push(begun.elapsed());
    }
    fs::remove_file(path)?;
    times.sort_unstable();
    Ok(times[SYNCS / 2])
}

/// Whether ratios measured between these two syncs mean anything.
pub(super) fn is_calm(before: Duration, after: Duration) -> bool {
    let (low, high) = (before.min(after), before.max(after));
    high <= SYNC_MAX && high.as_secs_f64() <= low.as_secs_f64() * SYNC_DRIFT_MAX
}

/// The middle value; of an even count the upper one.
pub(super) fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_name_with_spaces_and_parentheses_does_not_shift_the_fields() {
        let line = "42 (a) b) S 7 42 42 0 -1 0 0 0 0 0 100 50 30 20 20 0 1 0 0";
        let stat = Stat::parse(line).expect("a line of the kernel's shape");
        assert_eq!(stat.parent, 7);
        assert!((stat.own - 1.5).abs() < 1e-9, "{}", stat.own);
        assert!((stat.reaped - 0.5).abs() < 1e-9, "{}", stat.reaped);
    }

    #[test]
    fn a_slow_or_drifting_disk_is_not_judged() {
        let micros = Duration::from_micros;
        assert!(is_calm(micros(200), micros(399)));
        assert!(!is_calm(micros(200), micros(401)));
        assert!(!is_calm(micros(900), micros(1_001)));
    }

    #[test]
    fn the_median_ignores_outliers() {
        assert!((median(&[5.0, 1.0, 1_000.0, 4.0, 6.0]) - 5.0).abs() < f64::EPSILON);
        assert!(median(&[]).abs() < f64::EPSILON);
    }

    #[test]
    fn this_process_has_used_memory() {
        assert!(Process::Alone(std::process::id()).resident_bytes().is_some_and(|bytes| bytes > 0));
        assert!(Process::Alone(std::process::id()).cpu_secs().is_some());
    }
}
