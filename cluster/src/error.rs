//! What can go wrong between a request and its shard.
//!
//! The data's "no" is not here: that is an [`model::command::Outcome`]. Each variant says whether the request may have
//! taken effect: only [`Error::OutcomeUnknown`] may.

use model::{
    Code,
    id::{IndexId, Point, ShardId, TableId, ViewId},
};

use crate::ring;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Below: the files, the engine, the data directory.
    #[error(transparent)]
    Storage(#[from] storage::Error),
    /// Below: the log.
    #[error(transparent)]
    Log(#[from] storage::log::Error),
    /// A thread could not be started, or another call to the system failed.
    #[error("cannot {action}: {source}")]
    System {
        /// What was tried.
        action: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
    /// The shards of this directory make no ring.
    #[error(transparent)]
    Ring(#[from] ring::Fault),
    /// The number of shards cannot be.
    #[error("{asked} shards are not between 1 and {max}")]
    ShardCount {
        /// What the options say.
        asked: u32,
        /// How many there may be.
        max: u32,
    },
    /// A part of a large command would not fit into a segment of the log.
    #[error("a log segment of {asked} bytes is too small: at least {min} are needed")]
    SegmentTooSmall {
        /// What the options say.
        asked: u64,
        /// How large one must be.
        min: u64,
    },
    /// The control group's view means nothing to this version.
    #[error("view {view} cannot be read")]
    ViewUnknown {
        /// Which.
        view: ViewId,
    },
    /// Nobody serves the shard now.
    #[error("shard {shard} is not serving yet")]
    NotServing {
        /// Which.
        shard: ShardId,
    },
    /// A transition blocks the shard.
    #[error("shard {shard} is changing its owner")]
    Gated {
        /// Which.
        shard: ShardId,
    },
    /// The request was routed by another view than the owner has.
    #[error("shard {shard} is served under view {view}")]
    ViewStale {
        /// Which.
        shard: ShardId,
        /// The owner's view.
        view: ViewId,
    },
    /// The request came to a shard that does not have its point.
    #[error("shard {shard} does not hold point {point}")]
    WrongShard {
        /// Where it came to.
        shard: ShardId,
        /// What it is about.
        point: Point,
    },
    /// The group has no leader, or not this node. The request had no effect.
    #[error("shard {shard} has no leader here")]
    NoLeader {
        /// Which.
        shard: ShardId,
    },
    /// The request was proposed and its fate is not known.
    #[error("the outcome of the command is unknown")]
    OutcomeUnknown {
        /// Of which shard.
        shard: ShardId,
    },
    /// The node is stopping. The request had no effect.
    #[error("the server is shutting down")]
    Stopping,
    /// The replica was stopped by a failure or a bug.
    #[error("shard {shard} has stopped: {reason}")]
    Failed {
        /// Which.
        shard: ShardId,
        /// By what.
        reason: String,
    },
    /// A lock was taken, and the request does not wait (any longer).
    #[error("{}", if *.waited { "canceling statement due to lock timeout" } else { "could not obtain lock" })]
    LockNotAvailable {
        /// Whether it waited.
        waited: bool,
    },
    /// Waiting for a lock would have closed a circle.
    #[error("deadlock detected")]
    Deadlock,
    /// The transaction's locks are gone.
    #[error("could not serialize access: the locks of the transaction ended with their owner")]
    LocksLost,
    /// What a load has staged is gone. Nothing of it was done.
    #[error("could not serialize access: the load ended with its owner")]
    LoadLost,
    /// Too many of something are open at once.
    #[error("too many {what} at once: {max}")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many there may be.
        max: usize,
    },
    /// A read point was given up: by age, or with its owner.
    #[error("the snapshot is too old")]
    ReadPointLost,
    /// A lock set or a read point was used with another partition's shard.
    #[error("a {what} of shard {given} was used in shard {shard}")]
    Foreign {
        /// What.
        what: &'static str,
        /// Whose it is.
        given: ShardId,
        /// Where it was used.
        shard: ShardId,
    },
    /// The command is larger than a log entry may be.
    #[error("command of {given} {unit} exceeds {max} {unit}")]
    CommandTooLarge {
        /// What it has.
        given: usize,
        /// What it may have.
        max: usize,
        /// Of what.
        unit: &'static str,
    },
    /// There is no such table or index in the newest catalog.
    #[error("table {table} has no index {index:?} that could be built")]
    NoIndex {
        /// The table.
        table: TableId,
        /// The index.
        index: IndexId,
    },
    /// The data or the catalog refuses; the reason is the client's to see.
    #[error("{0}")]
    Refused(model::Error),
}

impl Error {
    /// The code a door answers with.
    pub fn code(&self) -> Code {
        match self {
            Self::Storage(error) => error.code(),
            Self::Log(error) => log_code(error),
            Self::System { .. } => Code::SystemError,
            Self::Ring(_) | Self::ShardCount { .. } | Self::SegmentTooSmall { .. } => Code::ConfigFileError,
            Self::NotServing { .. } | Self::Gated { .. } | Self::ViewStale { .. } | Self::NoLeader { .. } => {
                Code::CannotConnectNow
            }
            Self::WrongShard { .. } | Self::Foreign { .. } => Code::InternalError,
            // A bug would have quarantined the shard: what stops a whole group is its log or its engine.
            Self::Failed { .. } => Code::IoError,
            Self::ViewUnknown { .. } => Code::DataCorrupted,
            Self::OutcomeUnknown { .. } => Code::UnknownOutcome,
            Self::Stopping => Code::AdminShutdown,
            Self::LockNotAvailable { .. } => Code::LockNotAvailable,
            Self::Deadlock => Code::DeadlockDetected,
            Self::LocksLost | Self::LoadLost => Code::SerializationFailure,
            Self::TooMany { .. } => Code::ConfigurationLimitExceeded,
            Self::ReadPointLost => Code::SnapshotTooOld,
            Self::CommandTooLarge { .. } => Code::ProgramLimitExceeded,
            Self::NoIndex { .. } => Code::UndefinedObject,
            Self::Refused(error) => error.code(),
        }
    }
}

fn log_code(error: &storage::log::Error) -> Code {
    use storage::log::Error as Log;
    match error {
        Log::StorageFull => Code::DiskFull,
        Log::Closed => Code::AdminShutdown,
        Log::Locked { .. } => Code::LockFileExists,
        Log::Foreign { .. }
        | Log::UnknownVersion { .. }
        | Log::UnknownKind { .. }
        | Log::InvalidOption { .. } => Code::ConfigFileError,
        Log::Corrupt { .. } | Log::MissingSegment { .. } | Log::Missing => Code::DataCorrupted,
        Log::TooLarge { .. } => Code::ProgramLimitExceeded,
        Log::Io { .. } => Code::IoError,
        Log::Failed(cause) => log_code(cause),
        Log::NoGroup(_)
        | Log::GroupExists(_)
        | Log::NotContiguous { .. }
        | Log::OutOfRange { .. }
        | Log::TooManyGroups
        | Log::Panicked { .. } => Code::InternalError,
    }
}

impl From<Error> for model::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Refused(error) => error,
            error => Self::new(error.code(), error.to_string()).with_source(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_unknown_outcome_says_that_something_may_have_happened() {
        let shard = ShardId(3);
        assert_eq!(Error::OutcomeUnknown { shard }.code(), Code::UnknownOutcome);
        for nothing_happened in
            [Error::NoLeader { shard }, Error::NotServing { shard }, Error::Gated { shard }]
        {
            assert_eq!(nothing_happened.code(), Code::CannotConnectNow);
        }
        let full = Error::Log(storage::log::Error::StorageFull);
        assert_eq!(model::Error::from(full).code(), Code::DiskFull);
    }

    #[test]
    fn a_refusal_reaches_the_client_as_it_was_said() {
        let said = model::Error::new(Code::DuplicateTable, "relation \"t\" already exists")
            .with_hint("Drop it first.");
        let heard = model::Error::from(Error::Refused(said));
        assert_eq!((heard.code(), heard.hint()), (Code::DuplicateTable, Some("Drop it first.")));
    }
}
