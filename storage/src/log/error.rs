//! What can go wrong with the log, as facts.
//!
//! Invariants:
//! - An error is cheap to clone, so that one failure can be handed to every waiting callback.
//! - `Corrupt` and its neighbours name the segment and the offset: an operator can look at the bytes.
//!
//! Not here: what to do about it. The log calls its fatal hook for what it cannot survive; all else is the caller's.

use std::io;
use std::sync::Arc;

use super::GroupId;

/// A refusal or a failure of the log.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The file system refused an operation on the log's directory.
    #[error("log {operation} failed: {source}")]
    Io {
        /// What was being done.
        operation: &'static str,
        /// What the system said.
        source: Arc<io::Error>,
    },
    /// Bytes that were durable are not what was written.
    #[error("log is corrupt in segment {segment} at offset {offset}: {what}")]
    Corrupt {
        /// The segment's sequence number.
        segment: u64,
        /// Byte offset within the segment file.
        offset: u64,
        /// What is wrong there.
        what: &'static str,
    },
    /// A segment that must be there is not.
    #[error("log segment {segment} is missing")]
    MissingSegment {
        /// The sequence number that is absent.
        segment: u64,
    },
    /// The directory holds no log although there must be one.
    #[error("log is missing: the directory holds no segment")]
    Missing,
    /// A segment was written by a format this build does not know.
    #[error("log segment {segment} has format version {version}, this build reads version {known}")]
    UnknownVersion {
        /// The segment's sequence number.
        segment: u64,
        /// The version it names.
        version: u32,
        /// The version this build reads.
        known: u32,
    },
    /// A whole record has a kind this build does not know.
    #[error(
        "log segment {segment} (format version {version}) holds a record of unknown kind {kind} at offset {offset}"
    )]
    UnknownKind {
        /// The segment's sequence number.
        segment: u64,
        /// Byte offset of the record.
        offset: u64,
        /// The kind it names.
        kind: u8,
        /// The segment's format version.
        version: u32,
    },
    /// The log belongs to another cluster, node or incarnation.
    #[error("log segment {segment} belongs to another {what}: expected {expected}, found {found}")]
    Foreign {
        /// The segment's sequence number.
        segment: u64,
        /// Which part of the identity differs.
        what: &'static str,
        /// Ours.
        expected: String,
        /// The one in the segment header.
        found: String,
    },
    /// Another process has the directory open.
    #[error("log directory is in use by {}", .holder.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}")))]
    Locked {
        /// Its process id, if it could be read.
        holder: Option<u32>,
    },
    /// The group does not exist.
    #[error("log has no group {0}")]
    NoGroup(GroupId),
    /// The group exists already.
    #[error("log already has group {0}")]
    GroupExists(GroupId),
    /// Appended entries do not continue the group's log.
    #[error("log of group {group} continues at index {expected}, not {found}")]
    NotContiguous {
        /// The group.
        group: GroupId,
        /// The index that comes next.
        expected: u64,
        /// The index that was given.
        found: u64,
    },
    /// An index outside what the group's log holds.
    #[error("log of group {group} does not hold index {index}")]
    OutOfRange {
        /// The group.
        group: GroupId,
        /// The first index that is not there.
        index: u64,
    },
    /// A record larger than a segment can carry.
    #[error("log record of {bytes} bytes exceeds {bytes_max}")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The largest allowed.
        bytes_max: usize,
    },
    /// More groups, or larger votes and memberships, than the head of a segment can carry.
    #[error("log has no room for another group at this segment size")]
    TooManyGroups,
    /// No space for the next segment: new entries are refused until there is.
    #[error("log has no space left for its next segment")]
    StorageFull,
    /// The log was closed.
    #[error("log is closed")]
    Closed,
    /// An earlier write or sync failed; nothing is accepted any more.
    #[error("log has failed: {0}")]
    Failed(Arc<Error>),
    /// A thread of the log panicked.
    #[error("log {thread} panicked")]
    Panicked {
        /// Which thread.
        thread: &'static str,
    },
    /// An option has a value that cannot work.
    #[error("log option {option} is invalid: {what}")]
    InvalidOption {
        /// The option's name.
        option: &'static str,
        /// Why not.
        what: &'static str,
    },
}

impl Error {
    pub(crate) fn io(operation: &'static str) -> impl FnOnce(io::Error) -> Error {
        move |source| Error::Io { operation, source: Arc::new(source) }
    }

    /// Whether the file system said that it has no room.
    pub(crate) fn is_storage_full(&self) -> bool {
        match self {
            Error::StorageFull => true,
            Error::Io { source, .. } => {
                matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
            }
            _ => false,
        }
    }

    /// Whether the log on disk is not what was written (and not merely unreachable, foreign or in use).
    #[must_use]
    pub fn is_corruption(&self) -> bool {
        matches!(self, Error::Corrupt { .. } | Error::MissingSegment { .. } | Error::Missing)
    }
}
