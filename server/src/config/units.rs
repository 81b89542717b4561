//! Sizes and times as people write them, and how much memory this machine gives us.

use std::{fs, time::Duration};

const SIZES: &[(&str, u64)] = &[
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("B", 1),
];

const TIMES: &[(&str, u64)] =
    &[("ms", 1), ("s", 1_000), ("min", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// Reads `64MiB`; a number alone is bytes.
pub(super) fn read_size(text: &str) -> Result<u64, String> {
    read(text, SIZES, 1).ok_or_else(|| format!("\"{text}\" is not a size such as 64MiB"))
}

/// As [`read_size`], of a size that lies between two; `u64::MAX` for no upper end.
pub(super) fn read_size_between(text: &str, min: u64, max: u64) -> Result<u64, String> {
    let bytes = read_size(text)?;
    match (min..=max).contains(&bytes) {
        true => Ok(bytes),
        false if max == u64::MAX => Err(format!("must be at least {}", show_size(min))),
        false => Err(format!("must lie between {} and {}", show_size(min), show_size(max))),
    }
}

/// Reads `10s`; a number alone is milliseconds, as in PostgreSQL.
pub(super) fn read_time(text: &str) -> Result<Duration, String> {
    let millis = read(text, TIMES, 1).ok_or_else(|| format!("\"{text}\" is not a time such as 10s"))?;
    Ok(Duration::from_millis(millis))
}

/// Shows a size in its largest whole unit.
pub(super) fn show_size(bytes: u64) -> String {
    let whole = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let unit = whole.iter().find(|(_, shift)| bytes != 0 && bytes.trailing_zeros() >= *shift);
    unit.map_or_else(|| format!("{bytes}B"), |(name, shift)| format!("{}{name}", bytes >> shift))
}

/// Shows a time in seconds where that is whole.
pub(super) fn show_time(time: Duration) -> String {
    if time.subsec_millis() == 0 { format!("{}s", time.as_secs()) } else { format!("{}ms", time.as_millis()) }
}

fn read(text: &str, units: &[(&str, u64)], alone: u64) -> Option<u64> {
    let text = text.trim();
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let number: u64 = text[..digits].parse().ok()?;
    let unit = text[digits..].trim();
    let factor = if unit.is_empty() { alone } else { units.iter().find(|(name, _)| *name == unit)?.1 };
    number.checked_mul(factor)
}

/// What this process may use: its cgroup's limit if there is one, else 70 % of the machine's memory.
pub(super) fn memory_of_machine() -> u64 {
    let machine = memory_total().unwrap_or(1 << 30);
    let group = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"]
        .iter()
        .filter_map(|path| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok())
        .chain(own_group())
        .filter(|limit| *limit < machine)
        .min();
    // Memory that nobody charges (stacks, allocator slack, the kernel's share of a group) needs room too.
    round_down(group.unwrap_or(machine) / 10 * 7)
}

fn own_group() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    fs::read_to_string(format!("/sys/fs/cgroup{path}/memory.max")).ok()?.trim().parse().ok()
}

fn memory_total() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib << 10)
}

fn round_down(bytes: u64) -> u64 {
    (bytes >> 20).max(64) << 20
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_are_read_with_their_units_and_shown_again() {
        assert_eq!(read_size("64MiB"), Ok(64 << 20));
        assert_eq!(read_size("1 kB"), Ok(1000));
        assert_eq!(read_size("12"), Ok(12));
        assert!(read_size("12 apples").is_err());
        assert!(read_size("99999999999TiB").is_err());
        assert_eq!(read_time("10s"), Ok(Duration::from_secs(10)));
        assert_eq!(read_time("5"), Ok(Duration::from_millis(5)));
        assert_eq!(show_size(64 << 20), "64MiB");
        assert_eq!(show_size(100), "100B");
        assert_eq!(show_time(Duration::from_millis(1500)), "1500ms");
    }

    #[test]
    fn the_machine_has_memory() {
        assert!(memory_of_machine() >= 64 << 20);
    }
}
