//! A node's share of its disk: what it keeps free, and how large its files may be on a small one.
//!
//! Invariants:
//! - What is being applied must still find room below the low water: in journals, in memtables on their way to disk, and
//!   in what compacts them. A failed write there ends the process.
//! - Settings are made smaller for a small disk and never larger.
//!
//! Not here: who is refused below the low water (`storage::log`, `owner`).

use std::{io, sync::Arc};

use storage::{directory::Directory, engine::Disk, log::LowWater};

use crate::{Error, Options, Result, options::SEGMENT_BYTES_MIN};

const MIB: u64 = 1 << 20;

/// Free bytes below which new data is refused, on a disk that is neither small nor large. It holds the memtables of all
/// shards and a compaction beside them.
const LOW_WATER_BYTES: u64 = 256 * MIB;
/// The same on a large one, where several compactions of whole levels may run at once.
const LOW_WATER_BYTES_MAX: u64 = 2_048 * MIB;

/// Fits a node's settings to the disk its directory is on.
pub(super) fn fit(options: &mut Options, home: &Directory) -> Result<()> {
    let path = home.log_path();
    let look = move || rustix::fs::statvfs(&path).map_err(io::Error::from);
    let disk = look().map_err(|source| Error::System { action: "measure the disk", source })?;
    shrink(options, disk.f_blocks.saturating_mul(disk.f_frsize));
    let available: Arc<dyn Fn() -> io::Result<u64> + Send + Sync> =
        Arc::new(move || look().map(|disk| disk.f_bavail.saturating_mul(disk.f_frsize)));
    if options.log.low_water.is_none() {
        let bytes_min = low_water(disk.f_blocks.saturating_mul(disk.f_frsize));
        let available = available.clone();
        options.log.low_water = Some(LowWater { bytes_min, frees_bytes_min: bytes_min / 2, available });
    }
    if options.engine.disk.is_none() {
        options.engine.disk = Some(Disk(available));
    }
    Ok(())
}

fn low_water(disk_bytes: u64) -> u64 {
    (disk_bytes / 16).clamp(LOW_WATER_BYTES, LOW_WATER_BYTES_MAX).min(disk_bytes / 4)
}

/// On 300 MB: segments of 9 MiB, one sealed journal, memtables of 1 MiB. From 8 GB on nothing changes.
fn shrink(options: &mut Options, disk_bytes: u64) {
    let shrink = |bytes: &mut u64, divisor: u64, bytes_min: u64| {
        // Whole MiB: segments are made of pages.
        *bytes = (*bytes).min((disk_bytes / divisor / MIB * MIB).max(bytes_min));
    };
    shrink(&mut options.log.segment_bytes, 32, SEGMENT_BYTES_MIN);
    shrink(&mut options.log_bytes_max, 8, 4 * SEGMENT_BYTES_MIN);
    shrink(&mut options.checkpoint_bytes, 16, SEGMENT_BYTES_MIN);
    shrink(&mut options.engine.memtable_bytes_max, 512, MIB);
    shrink(&mut options.engine.journal_bytes_max, 16, 64 * MIB);
}

#[cfg(test)]
mod tests {
    use storage::{engine, log};

    use super::*;

    struct Still;

    impl model::time::Clock for Still {
        fn wall(&self) -> model::time::Timestamp {
            model::time::Timestamp::from_micros(0).unwrap()
        }

        fn monotonic(&self) -> std::time::Duration {
            std::time::Duration::ZERO
        }
    }

    #[test]
    fn a_small_disk_makes_files_small_and_a_large_one_changes_nothing() {
        for mib in [100, 300, 1_000, 4_000, 16_000, 1_000_000] {
            let bytes = mib * MIB;
            let mut options = Options::new("/nowhere", Arc::new(Still));
            shrink(&mut options, bytes);
            let (log, engine) = (&options.log, &options.engine);
            assert_eq!(log.segment_bytes % 4_096, 0);
            assert!(low_water(bytes) <= bytes / 4, "{mib} MiB");
            // The segment in use, the one ahead and two that are free; two journals; memtables of nine keyspaces.
            let files = 4 * log.segment_bytes + 2 * engine.journal_bytes_max.max(64 * MIB);
            if mib >= 300 {
                assert!(files + low_water(bytes) < bytes * 9 / 10, "{mib} MiB");
                assert!(9 * engine.memtable_bytes_max <= low_water(bytes) / 2, "{mib} MiB");
            }
            if mib >= 16_000 {
                assert_eq!(log.segment_bytes, log::Options::default().segment_bytes);
                assert_eq!(engine.memtable_bytes_max, engine::Options::default().memtable_bytes_max);
            }
        }
        assert_eq!(low_water(100 << 30), LOW_WATER_BYTES_MAX);
        assert_eq!(low_water(2 << 30), LOW_WATER_BYTES);
        assert_eq!(low_water(300 * MIB), 75 * MIB);
    }
}
