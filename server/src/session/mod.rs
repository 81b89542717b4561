//! Sessions: who is connected, what each is doing, and how it is told to stop.
//!
//! Invariants:
//! - A session belongs to one accepted connection and is gone when that connection's task has ended.
//! - A cancel request stops the operation that runs when it arrives, and nothing later: it is a change of one atomic
//!   state, not a message that could be read by the next statement.
//!
//! Not here: SQL's own state of a session (`sql::Session`).

pub mod handler;
pub mod registry;
pub mod shape;

pub use registry::{Ending, Entry, Membership, Registry};
