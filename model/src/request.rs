//! The waist of the hourglass: what any door can ask of a session, and what comes back.

use std::sync::Arc;

use crate::{
    command::Outcome,
    error::Result,
    port::BoxFuture,
    types::{Type, Typmod},
    value::Value,
};

/// What any door can ask.
#[derive(Debug)]
pub enum Request {
    /// One SQL statement.
    Query(Query),
    /// Statements that succeed or fail together, in one transaction.
    Batch(Vec<Query>),
    /// What became of a command id.
    CommandStatus(crate::id::CommandId),
}

/// One SQL statement with its parameters.
#[derive(Clone, Debug, Default)]
pub struct Query {
    /// The text.
    pub text: String,
    /// `$1`, `$2`, … as text or as typed values.
    pub parameters: Vec<Parameter>,
    /// Refuse anything that writes, decided on the plan (`25006`).
    pub read_only: bool,
    /// The name of this command, to make it safe to send again.
    pub command_id: Option<crate::id::CommandId>,
}

/// One parameter of a statement.
#[derive(Clone, Debug, PartialEq)]
pub enum Parameter {
    /// A value of a known type.
    Typed(Value, Type),
    /// Text of a type that the statement decides.
    Text(String),
    /// Null.
    Null,
}

/// What comes back.
pub enum Response {
    /// A result with rows.
    Rows(Rows),
    /// A statement without rows: its command tag.
    Done(Done),
    /// One result per statement of a batch.
    Batch(Vec<Response>),
    /// What became of a command id: none if it is not known.
    CommandStatus(Option<Outcome>),
}

/// The end of a statement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// The command tag, such as `INSERT 0 3`.
    pub tag: String,
    /// Rows that were changed.
    pub rows: u64,
}

/// A column of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its type.
    pub data_type: Type,
    /// The type's modifier.
    pub typmod: Typmod,
    /// The table and column number it comes from, for clients that ask (0 for none).
    pub origin: (u32, u16),
}

/// Rows on their way.
pub struct Rows {
    /// What they consist of.
    pub columns: Arc<[Column]>,
    /// Where they come from.
    pub source: Box<dyn RowSource>,
}

/// A source of rows that is pulled. Dropping it ends the work behind it.
pub trait RowSource: Send {
    /// The next rows: at most `rows_max`, at least one; none at the end.
    fn next(&mut self, rows_max: usize) -> BoxFuture<'_, Result<Option<Vec<Box<[Value]>>>>>;

    /// The command tag, once the rows are exhausted.
    fn tag(&self) -> String;
}
