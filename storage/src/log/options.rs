//! How a log is to behave, with the values that suit a server.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::Error;
use super::segment::DATA;

/// Room kept free at the end of a segment, for a seal and the note after a torn tail.
pub(crate) const RESERVE: u64 = 256;
/// The longest vote.
pub(crate) const VOTE_BYTES_MAX: usize = 256;

/// Who a log belongs to. Written into every segment; a log of anybody else is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The cluster's id.
    pub cluster: u128,
    /// The node's id.
    pub node: u64,
    /// Drawn at random when the data directory was made or restored.
    pub incarnation: u128,
}

/// How the writer thread is scheduled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Priority {
    /// Real-time, where the system permits it.
    #[default]
    Auto,
    /// As any thread.
    Normal,
}

/// When the log counts the disk as full although it is not yet.
#[derive(Clone)]
pub struct LowWater {
    /// New entries are refused below this many free bytes.
    pub bytes_min: u64,
    /// And what makes room is refused below this many: deleting writes too.
    pub frees_bytes_min: u64,
    /// Free bytes where the log lies.
    pub available: Arc<dyn Fn() -> io::Result<u64> + Send + Sync>,
}

impl LowWater {
    /// How many bytes are let in between two looks at the disk.
    pub(crate) fn look_bytes(&self) -> u64 {
        (self.bytes_min / 64).clamp(64 << 10, 4 << 20)
    }
}

/// Called once with the first error that the log cannot survive, before anybody who waits hears of it.
pub type OnFatal = Arc<dyn Fn(&Error) + Send + Sync>;

/// The knobs of a log.
#[derive(Clone)]
pub struct Options {
    /// Size of a segment file.
    pub segment_bytes: u64,
    /// Size of the very first segment, small so that a new directory opens fast.
    pub first_segment_bytes: u64,
    /// Bytes written and synced at once (one record may be larger).
    pub batch_bytes_max: usize,
    /// Bytes that may wait for the writer before `append` blocks.
    pub queue_bytes_max: usize,
    /// Bytes of recent entries kept in memory, all groups together.
    pub cache_bytes_max: usize,
    /// Idle time after which the log is sealed.
    pub seal_after: Duration,
    /// Segments made ahead.
    pub ready_segments: usize,
    /// Segments' worth of dead records that may be pinned by slow groups before their live entries are copied.
    pub pinned_segments_max: u64,
    /// How often a full disk is tried again and the low water is looked at.
    pub retry_after: Duration,
    /// Scheduling of the writer.
    pub priority: Priority,
    /// Refuse to begin a new log in an empty directory: the caller knows that there was one.
    pub must_exist: bool,
    /// What to do when the log has failed; the server aborts.
    pub on_fatal: OnFatal,
    /// When to count the disk as full.
    pub low_water: Option<LowWater>,
    /// A bug to plant, so that a test can show that it would be found.
    #[cfg(any(test, feature = "faults"))]
    pub plant: Plant,
}

/// Bugs that the fault suite must find.
#[cfg(any(test, feature = "faults"))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Plant {
    /// None.
    #[default]
    Nothing,
    /// Callbacks run before the sync.
    AckBeforeSync,
    /// Segments are freed before the record that makes them free is synced.
    FreeBeforeSync,
    /// A failed sync is tried again.
    RetrySync,
    /// Whatever is damaged counts as a torn tail.
    BelieveAnyTail,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            segment_bytes: 64 << 20,
            first_segment_bytes: 1 << 20,
            batch_bytes_max: 4 << 20,
            queue_bytes_max: 64 << 20,
            cache_bytes_max: 64 << 20,
            seal_after: Duration::from_millis(50),
            ready_segments: 1,
            pinned_segments_max: 4,
            retry_after: Duration::from_secs(1),
            priority: Priority::Auto,
            must_exist: false,
            on_fatal: Arc::new(|_| {}),
            low_water: None,
            #[cfg(any(test, feature = "faults"))]
            plant: Plant::Nothing,
        }
    }
}

impl Options {
    /// The largest record.
    pub(crate) fn record_bytes_max(&self) -> usize {
        ((self.segment_bytes - DATA - RESERVE) / 2) as usize
    }

    /// The largest head of a segment.
    pub(crate) fn head_bytes_max(&self) -> usize {
        ((self.segment_bytes - DATA) / 4) as usize
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        let invalid = |option: &'static str, what: &'static str| Err(Error::InvalidOption { option, what });
        if self.segment_bytes < 2 * DATA || !self.segment_bytes.is_multiple_of(DATA) {
            return invalid("segment_bytes", "must be a multiple of 4 KiB and at least 8 KiB");
        }
        if self.segment_bytes > 1 << 30 || self.first_segment_bytes > 1 << 30 {
            return invalid("segment_bytes", "must not exceed 1 GiB");
        }
        if self.first_segment_bytes < 2 * DATA || !self.first_segment_bytes.is_multiple_of(DATA) {
            return invalid("first_segment_bytes", "must be a multiple of 4 KiB and at least 8 KiB");
        }
        if self.ready_segments == 0 {
            return invalid("ready_segments", "must be at least 1");
        }
        Ok(())
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("segment_bytes", &self.segment_bytes)
            .field("cache_bytes_max", &self.cache_bytes_max)
            .field("priority", &self.priority)
            .field("must_exist", &self.must_exist)
            .finish_non_exhaustive()
    }
}
