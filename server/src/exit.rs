//! How the process ends: exit codes as in BSD's `sysexits.h`, so that a supervisor can tell a typing error from a
//! broken disk.
//!
//! | code | means |
//! |---|---|
//! | 0 | done; for `serve`: stopped as asked |
//! | 1 | the command ran and its answer is no (a failed statement, skipped rows, an unhealthy machine) |
//! | 64 | wrong use of the command line |
//! | 69 | the server cannot be reached |
//! | 70 | a bug of ours |
//! | 71 | the system refused (memory, threads) |
//! | 73 | a file or directory cannot be made |
//! | 74 | reading or writing failed; the log's first failed write or sync ends the process so |
//! | 75 | someone else holds it: port or directory; try again later |
//! | 77 | not permitted |
//! | 78 | the configuration is wrong |

use std::{fmt, io, process::ExitCode};

/// Why a command ends without success.
#[derive(Debug)]
pub struct Failure {
    kind: Kind,
    message: String,
}

/// What kind of end it is; its number is the exit code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// The command's answer is no.
    Answer = 1,
    /// Wrong use.
    Usage = 64,
    /// Not reachable.
    Unavailable = 69,
    /// A bug.
    Software = 70,
    /// The system refused.
    System = 71,
    /// A file or directory cannot be made.
    CannotCreate = 73,
    /// Reading or writing failed.
    Io = 74,
    /// Held by someone else.
    Busy = 75,
    /// Not permitted.
    NotPermitted = 77,
    /// The configuration is wrong.
    Config = 78,
}

impl Failure {
    /// A failure of a kind with what there is to say.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// What an operation on files or sockets came to.
    pub fn from_io(what: impl fmt::Display, error: &io::Error) -> Self {
        let kind = match error.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Kind::NotPermitted,
            io::ErrorKind::AddrInUse | io::ErrorKind::WouldBlock => Kind::Busy,
            io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset => Kind::Unavailable,
            _ => Kind::Io,
        };
        Self::new(kind, format!("{what}: {error}"))
    }

    /// Which kind.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The exit code.
    pub fn code(&self) -> ExitCode {
        ExitCode::from(self.kind as u8)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

impl From<model::Error> for Failure {
    fn from(error: model::Error) -> Self {
        use model::Code;
        let kind = match error.code() {
            Code::LockFileExists | Code::ObjectInUse => Kind::Busy,
            Code::ConfigFileError => Kind::Config,
            Code::InsufficientPrivilege => Kind::NotPermitted,
            Code::DiskFull | Code::IoError | Code::SystemError | Code::DataCorrupted => Kind::Io,
            Code::InternalError => Kind::Software,
            _ => Kind::Answer,
        };
        let mut message = error.message().to_owned();
        for more in [error.detail(), error.hint()].into_iter().flatten() {
            message.push_str("\n  ");
            message.push_str(more);
        }
        Self::new(kind, message)
    }
}
