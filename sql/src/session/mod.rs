//! Sessions: what a door does with SQL. One [`Session`] per connection, one `Engine` per server.
//!
//! How a wire uses it (all `async` functions are cancelled by [`CancelHandle::cancel`] or by dropping them):
//!
//! ```text
//! let engine  = Engine::new(dispatch, clock, Options::default());
//! let session = Session::open(&engine, Login { … })?;              // 3D000, 42704, …
//!
//! // extended protocol
//! session.parse(name, text, &[oid, …]).await?;                     // 42601, 42P05 for a name that is taken
//! session.describe_statement(name).await? -> StatementDescription  // 26000
//! session.bind(portal, statement, Parameters { formats, values }, result_formats).await?;   // 34000, 08P01, 42P03
//! session.describe_portal(portal)? -> PortalDescription
//! let mut next = session.execute(portal, max_rows).await?;         // max_rows ≤ 0: all
//! while let Executed::Rows(page) = next { encode(page); next = session.resume(portal).await?; }
//! session.close_statement(name); session.close_portal(name);
//! session.sync().await?;                                           // ends the implicit transaction
//!
//! // simple protocol: the whole text is one implicit transaction
//! for statement in session.split(text)? {                          // empty: EmptyQueryResponse
//!     let description = session.begin_simple(&statement).await?;   // as a portal: columns and formats (all text)
//!     let mut next = session.resume_simple().await?;               // Rows …, then Complete, CopyIn or CopyOut
//! }
//! session.sync().await?;
//!
//! session.status() -> Status;                                      // I, T or E for ReadyForQuery
//! session.drain_notices() -> Vec<Notice>;                          // before each message that ends something
//! session.drain_parameters() -> Vec<(&'static str, String)>;       // ParameterStatus
//! ```
//!
//! Any error of these functions puts an open transaction into the failed state; the wire skips to Sync as the protocol says.
//!
//! Not here: bytes of the protocol (`server::pg`), who may log in (`server::auth`).

use std::sync::Arc;

use bytes::Bytes;
use model::{Code, Error, Type, Value, id::SessionId};

pub use model::request::Column;

/// Who opens a session, and with what.
#[derive(Clone, Debug)]
pub struct Login {
    /// The id the server gave it.
    pub session: SessionId,
    /// The role's name, proven.
    pub role: String,
    /// The database's name.
    pub database: String,
    /// `pg_backend_pid()`, and the first half of the cancel key.
    pub process_id: i32,
    /// The client's address, for `pg_stat_activity`.
    pub client: Option<String>,
    /// Settings of the startup message.
    pub parameters: Vec<(String, String)>,
}

/// ReadyForQuery's status.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// `I`: no transaction block.
    Idle,
    /// `T`: in a block.
    InTransaction,
    /// `E`: in a failed block.
    Failed,
}

impl Status {
    /// The protocol's letter.
    pub fn letter(self) -> u8 {
        match self {
            Self::Idle => b'I',
            Self::InTransaction => b'T',
            Self::Failed => b'E',
        }
    }
}

/// How a parameter or result column travels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// As text.
    Text,
    /// As PostgreSQL's binary form.
    Binary,
    /// A code that means nothing; refused where a value would travel so.
    Unknown(i16),
}

impl Format {
    /// `22023` for a code that means nothing.
    pub fn unsupported(code: i16) -> Error {
        Error::new(Code::InvalidParameterValue, format!("unsupported format code: {code}"))
    }
}

/// What Bind carries. One format stands for all, none for text.
#[derive(Clone, Debug, Default)]
pub struct Parameters {
    /// Formats.
    pub formats: Vec<Format>,
    /// Values; none for null.
    pub values: Vec<Option<Bytes>>,
}

/// What Describe of a statement answers.
#[derive(Clone, Debug)]
pub struct StatementDescription {
    /// The types of the parameters.
    pub parameters: Vec<Type>,
    /// The columns of the result; none for NoData.
    pub columns: Option<Arc<[Column]>>,
}

/// What Describe of a portal answers.
#[derive(Clone, Debug)]
pub struct PortalDescription {
    /// The columns of the result; none for NoData.
    pub columns: Option<Arc<[Column]>>,
    /// One format per column.
    pub formats: Vec<Format>,
}

/// What a step of an execution gives.
pub enum Executed {
    /// Rows; ask again.
    Rows(Page),
    /// The rows that were asked for are out and there may be more: PortalSuspended.
    Suspended,
    /// The end, with its command tag.
    Complete(String),
    /// The statement was empty.
    Empty,
    /// `COPY … FROM STDIN`: feed the data with `Session::copy_data`, end with `copy_done` or `copy_fail`.
    CopyIn(CopyFormat),
    /// `COPY … TO STDOUT` begins: ask again for [`Executed::CopyData`].
    CopyOut(CopyFormat),
    /// Rows of a COPY to the client.
    CopyData(CopyChunk),
}

/// Rows of a COPY to the client: clients expect one message for each.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CopyChunk {
    /// All bytes.
    pub bytes: Bytes,
    /// Where each message ends.
    pub ends: Vec<usize>,
}

/// What CopyInResponse and CopyOutResponse say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CopyFormat {
    /// Of the whole and of each column.
    pub format: Format,
    /// How many columns.
    pub columns: usize,
}

/// A page of rows on its way to the client.
pub enum Page {
    /// Rows of values: what the direct path and utility statements give.
    Values(Vec<Vec<Value>>),
    /// A batch of the executor.
    Batch(Box<crate::batch::Batch>),
}

/// A notice.
#[derive(Clone, Debug)]
pub struct Notice {
    /// `WARNING`, `NOTICE`, `INFO`, ….
    pub severity: &'static str,
    /// Code, message and the rest.
    pub error: Error,
}

mod cancel;
mod copy;
mod core;
mod definition;
mod door;
mod locks;
mod message;
mod name;
mod now;
mod planning;
mod portal;
mod run;
pub(crate) mod scram;
mod sequences;
mod temporary;
mod transaction;
mod utility;

pub use self::{cancel::CancelHandle, core::Session, message::SimpleStatement, now::Got};
pub(crate) use self::{locks::HeldLocks, temporary::drop_leftovers};
