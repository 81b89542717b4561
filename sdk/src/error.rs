//! Errors of the client: what the server refused, and what happened on the way to it.

use model::Code;

/// The result of what can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server judged the request and refused it.
    #[error("{} ({})", .0.message(), .0.code().sqlstate())]
    Refused(model::Error),
    /// The address is not one.
    #[error("not an address: {0}")]
    Address(String),
    /// The connection failed before the server answered: nothing is known of a write without a command id.
    #[error("connection failed: {0}")]
    Connection(String),
    /// A row has no such column, or its value is not of the wanted type.
    #[error("column {column}: {reason}")]
    Column {
        /// Name or position.
        column: String,
        /// What is wrong.
        reason: String,
    },
    /// The server's answer does not follow the contract.
    #[error("malformed answer: {0}")]
    Malformed(String),
}

impl Error {
    /// The code of a refusal; `08006` for a lost connection, `08P01` for a malformed answer.
    pub fn code(&self) -> Code {
        match self {
            Self::Refused(error) => error.code(),
            Self::Address(_) => Code::InvalidParameterValue,
            Self::Connection(_) => Code::ConnectionFailure,
            Self::Column { .. } => Code::UndefinedColumn,
            Self::Malformed(_) => Code::ProtocolViolation,
        }
    }

    /// True if the same call may succeed when it is sent again. Writes need a command id for that.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Connection(_)) || self.code().is_retryable()
    }
}

impl From<tonic::Status> for Error {
    fn from(status: tonic::Status) -> Self {
        match crate::convert::error_from_status(&status) {
            Some(refused) => Self::Refused(refused),
            None => Self::Connection(status.message().to_owned()),
        }
    }
}
