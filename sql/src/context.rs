//! What an expression may know besides its row: the transaction's time, the session's settings and names.
//!
//! Invariants:
//! - `now` is fixed per transaction, `statement` per statement: both were read once, by the session.
//! - Nothing here waits. What needs the owner of a partition (`nextval`) is asked through [`Sequences`], which answers from
//!   numbers that were reserved before.

use std::{sync::Arc, time::Duration};

use model::{
    Result, Value,
    catalog::Catalog,
    id::{DatabaseId, RoleId, SequenceId, SessionId},
    time::Timestamp,
    value,
};

use crate::execute::Making;

/// What an expression may know.
pub struct Context {
    /// The catalog the statement was bound on.
    pub catalog: Arc<Catalog>,
    /// `now()`: when the transaction began.
    pub now: Timestamp,
    /// `statement_timestamp()`.
    pub statement: Timestamp,
    /// `clock_timestamp()`: reads the gateway's clock.
    pub clock: Arc<dyn model::time::Clock>,
    /// How values are read and written as text: time zone, date order.
    pub text: value::Context,
    /// The session's user.
    pub session_user: RoleId,
    /// Whose rights count (`SET ROLE`).
    pub current_user: RoleId,
    /// The database.
    pub database: DatabaseId,
    /// `search_path`, resolved: names of schemas that exist.
    pub search_path: Arc<[String]>,
    /// `pg_backend_pid()`.
    pub process_id: i32,
    /// The values of parameters `$1`, `$2`, ….
    pub parameters: Vec<Value>,
    /// `current_setting`, `set_config`.
    pub settings: Arc<dyn Settings>,
    /// Reserved numbers.
    pub sequences: Arc<dyn Sequences>,
    /// Random numbers of `random()` and `gen_random_uuid()`.
    pub random: Box<dyn FnMut() -> u64 + Send>,
    /// How the evaluation of a row waits.
    pub pauses: Pauses,
    /// What the evaluation has made.
    pub making: Making,
    /// The session, if it has temporary tables.
    pub temporary: Option<SessionId>,
}

/// How the evaluation of one row waits (`pg_sleep`), though nothing in it may: it ends with an error that the statement's
/// runner recognises; the runner waits and evaluates the row again.
///
/// Invariant: a volatile call that was done is not done again for its row; what it gave stands for it, in the order of calls.
#[derive(Debug, Default)]
pub struct Pauses {
    /// What the row's volatile calls gave so far; none where nobody evaluates again.
    done: Option<Vec<Value>>,
    /// So many of them were met in this evaluation.
    met: usize,
    /// Whether the first call that is not done has been waited for.
    is_over: bool,
    asked: Option<Duration>,
}

impl Pauses {
    /// A first or new evaluation of a row: the volatile calls that are done, and whether a pause was waited for.
    pub fn after(done: Vec<Value>, is_over: bool) -> Self {
        Self { done: Some(done), met: 0, is_over, asked: None }
    }

    /// What the volatile call that is met now gave before.
    pub fn recall(&mut self) -> Option<Value> {
        let known = self.done.as_ref()?.get(self.met)?.clone();
        self.met += 1;
        Some(known)
    }

    /// Keeps what a volatile call gave.
    pub fn keep(&mut self, value: &Value) {
        if let Some(done) = &mut self.done {
            done.push(value.clone());
            self.met += 1;
        }
    }

    /// One pause of the row; an error if it must be waited for first.
    pub fn meet(&mut self, pause: Duration) -> Result<()> {
        if std::mem::take(&mut self.is_over) || pause.is_zero() {
            return Ok(());
        }
        self.asked = Some(pause);
        Err(model::Error::internal(PAUSE))
    }

    /// How an evaluation ended: the volatile calls that are done, and how long it asked to wait.
    pub fn end(&mut self) -> (Vec<Value>, Option<Duration>) {
        (self.done.take().unwrap_or_default(), self.asked.take())
    }
}

/// The session's parameters, as functions see them.
pub trait Settings: Send + Sync {
    /// `SHOW name`; none if there is no such parameter.
    fn get(&self, name: &str) -> Option<String>;
    /// `SET [LOCAL] name = value`.
    fn set(&self, name: &str, value: &str, local: bool) -> Result<String>;
    /// `SHOW ALL` and `pg_settings`: all parameters, by name.
    fn all(&self) -> Vec<Setting>;
    /// `pg_stat_activity`: what every session of this server does now.
    fn activity(&self) -> Vec<Activity>;
}

/// One parameter, as `pg_settings` shows it.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Its name.
    pub name: String,
    /// Its value now.
    pub value: String,
    /// Its value after `RESET`.
    pub reset: String,
    /// What it does, in one sentence.
    pub description: String,
    /// Whether a session may set it.
    pub settable: bool,
}

/// One session, as `pg_stat_activity` shows it.
#[derive(Clone, Debug)]
pub struct Activity {
    /// `pg_backend_pid()` of that session.
    pub process_id: i32,
    /// Its database.
    pub database: DatabaseId,
    /// Its user.
    pub role: RoleId,
    /// What it calls itself.
    pub application_name: String,
    /// Where it comes from, without the port.
    pub client_address: Option<String>,
    /// Since when it exists.
    pub backend_start: Timestamp,
    /// When its transaction began.
    pub transaction_start: Option<Timestamp>,
    /// When its last statement began.
    pub query_start: Option<Timestamp>,
    /// When its state changed.
    pub state_change: Option<Timestamp>,
    /// `active`, `idle`, `idle in transaction`, `idle in transaction (aborted)`.
    pub state: &'static str,
    /// The text of its last statement.
    pub query: Arc<str>,
}

/// Numbers of sequences that this session has reserved.
pub trait Sequences: Send + Sync {
    /// The next number, or [`NextValue::Reserve`] if the statement must reserve some first and evaluate the row again.
    fn next(&self, sequence: SequenceId) -> Result<NextValue>;
    /// `currval`: the number this session got last (`55000` if none).
    fn current(&self, sequence: SequenceId) -> Result<i64>;
    /// `lastval`, and of which sequence.
    fn last(&self) -> Result<(SequenceId, i64)>;
    /// `setval`: asks the statement to set it before the row is evaluated again, or answers that it is done.
    fn set(&self, sequence: SequenceId, value: i64, called: bool) -> Result<NextValue>;
}

/// What a sequence answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NextValue {
    /// The number.
    Number(i64),
    /// The owner must be asked first: the evaluation ends with an error that the statement's runner recognises by
    /// [`is_reservation`], serves, and evaluates the row again.
    Reserve,
}

const PAUSE: &str = "an expression cannot wait here";

const RESERVATION: &str = "sequence numbers must be reserved first";

/// The error by which an evaluation asks for sequence numbers.
pub fn reservation() -> model::Error {
    model::Error::internal(RESERVATION)
}

/// Whether an error is [`reservation`].
pub fn is_reservation(error: &model::Error) -> bool {
    error.code() == model::Code::InternalError && error.message() == RESERVATION
}
