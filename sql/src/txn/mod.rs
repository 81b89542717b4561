//! Transactions as a session sees them: what is read, what is locked, what is written, and the one command of COMMIT.
//!
//! Invariants:
//! - A transaction writes and locks in one partition; the first write or lock pins it, a second partition is `0A000`.
//! - A statement reads at one point per partition: its own under READ COMMITTED, the transaction's otherwise.
//! - Writes are buffered in [`Overlay`] and sent as one command with the conditions of the isolation level.
//!
//! Not here: which rows a statement changes (`dml`), the session's states (`session`).

mod commit;
pub mod overlay;
mod statement;

pub use commit::command_parts;
pub use overlay::{Base, Entry, Mark, Overlay};
pub use statement::{Isolation, State, Statement, check_size};
