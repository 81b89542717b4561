//! What can go wrong below a partition: the world says no, never the data.
//!
//! A rejected command is no error; it is an [`model::command::Outcome`]. Every error here but [`Error::Held`] and the other
//! refusals to open stops the replica or the process that meets it.

use std::{io, path::PathBuf};

use model::{
    Code,
    id::{IndexId, ShardId, TableId},
};

use crate::codec;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be read, written, synced or moved.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The disk is full.
    #[error("no space left on the device under {}", path.display())]
    DiskFull {
        /// Where.
        path: PathBuf,
    },
    /// The engine failed; what was being written may or may not be there.
    #[error("the engine failed to {action}: {message}")]
    Engine {
        /// What was tried.
        action: &'static str,
        /// What it said.
        message: String,
    },
    /// The engine refuses everything after an earlier failure; the process must start again.
    #[error("the engine stopped after an earlier failure")]
    EnginePoisoned,
    /// A commit does not end; the process must start again.
    #[error("a commit of the engine has been at work for {secs} s")]
    EngineStuck {
        /// For how long.
        secs: u64,
    },
    /// The engine found its own bytes damaged.
    #[error("the engine's files are damaged: {message}")]
    EngineDamaged {
        /// What it said.
        message: String,
    },
    /// A keyspace was asked for that is not there.
    #[error("there is no keyspace \"{name}\"")]
    KeyspaceMissing {
        /// Its name.
        name: String,
    },
    /// An index is read that the shard no longer holds; the reader's plan is old.
    #[error("index {index} of table {table} is no longer there")]
    IndexMissing {
        /// The table.
        table: TableId,
        /// The index.
        index: IndexId,
    },
    /// Stored bytes do not mean anything.
    #[error("stored bytes are damaged: {what}")]
    Damaged {
        /// Which, and how.
        what: String,
    },
    /// The log failed.
    #[error(transparent)]
    Log(#[from] crate::log::Error),
    /// The log was closed while it was waited for.
    #[error("the log is closed")]
    LogClosed,
    /// Bytes do not decode.
    #[error(transparent)]
    Codec(#[from] codec::Error),
    /// A replica was stopped by a bug; only it.
    #[error("the replica of shard {shard} is quarantined: {reason}")]
    Quarantined {
        /// Which.
        shard: ShardId,
        /// By what.
        reason: String,
    },
    /// An entry came out of its place in the log.
    #[error("shard {shard} has applied entry {applied} and was given {given}")]
    OutOfOrder {
        /// Which shard.
        shard: ShardId,
        /// Its last entry.
        applied: u64,
        /// The one that came.
        given: u64,
    },
    /// An image of a shard's state is damaged or not for here.
    #[error("the image of a shard is refused: {what}")]
    Image {
        /// How.
        what: String,
    },
    /// Another process has the data directory.
    #[error("the data directory {} is in use by process {holder}", path.display())]
    Held {
        /// The directory.
        path: PathBuf,
        /// Who has it.
        holder: String,
    },
    /// The directory is no data directory of this server.
    #[error("{} is not a data directory: {what}", path.display())]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// Why.
        what: String,
    },
    /// The directory was written by a newer version.
    #[error("the data directory {} has format {found}; this server knows formats up to {known}", path.display())]
    Newer {
        /// The directory.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// What we know.
        known: u32,
    },
    /// Synced state is gone and cannot be replayed from the log.
    #[error(
        "shard {shard} lost synced state: it has applied entry {applied}, the checkpoint says {durable}, and the log \
         begins at {log_first}; restore from a backup or rebuild this replica"
    )]
    StateLost {
        /// Which shard.
        shard: ShardId,
        /// What its state holds.
        applied: u64,
        /// What was synced once.
        durable: u64,
        /// Where its log begins.
        log_first: u64,
    },
    /// The log ends before what was applied: the log is not the one this state was made from.
    #[error("shard {shard} has applied entry {applied} but its log ends at {log_last}; the log was lost")]
    LogLost {
        /// Which shard.
        shard: ShardId,
        /// What its state holds.
        applied: u64,
        /// Where its log ends.
        log_last: u64,
    },
}

impl Error {
    /// The code a door answers with.
    pub fn code(&self) -> Code {
        match self {
            Self::Io { .. } => Code::IoError,
            Self::DiskFull { .. } => Code::DiskFull,
            Self::Engine { .. } | Self::EnginePoisoned | Self::EngineStuck { .. } => Code::SystemError,
            Self::EngineDamaged { .. }
            | Self::Damaged { .. }
            | Self::Codec(_)
            | Self::StateLost { .. }
            | Self::LogLost { .. } => Code::DataCorrupted,
            Self::Log(error) => match error {
                crate::log::Error::StorageFull => Code::DiskFull,
                _ => Code::IoError,
            },
            Self::LogClosed => Code::AdminShutdown,
            Self::IndexMissing { .. } => Code::SerializationFailure,
            Self::KeyspaceMissing { .. }
            | Self::OutOfOrder { .. }
            | Self::Quarantined { .. }
            | Self::Image { .. } => Code::InternalError,
            Self::Held { .. } => Code::LockFileExists,
            Self::Foreign { .. } | Self::Newer { .. } => Code::ConfigFileError,
        }
    }

    /// An error of a file; a full disk is told apart.
    pub(crate) fn io(action: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Self {
        let path = path.into();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::DiskFull { path },
            _ => Self::Io { action, path, source },
        }
    }

    /// Stored bytes that mean nothing.
    pub(crate) fn damaged(what: impl Into<String>) -> Self {
        Self::Damaged { what: what.into() }
    }
}

impl From<Error> for model::Error {
    fn from(error: Error) -> Self {
        Self::new(error.code(), error.to_string()).with_source(error)
    }
}
