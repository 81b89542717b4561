//! The PostgreSQL protocol, version 3: sockets to statements, and rows to bytes.
//!
//! Invariants:
//! - The connection loop is ours, and so is the codec: frames are read in place and rows are written straight into the
//!   buffer that is sent. One write answers one Sync.
//! - Exactly one ReadyForQuery per Sync and per simple query; after an error everything up to Sync is skipped.
//! - A FATAL error closes the connection; every other error leaves it usable. A panic of a statement is an error of that
//!   statement.
//!
//! Not here: what statements mean (`sql`), who may log in (`auth`).

mod accept;
mod attend;
mod connection;
mod copy;
mod encode;
mod error;
mod extended;
mod frame;
mod now;
mod rows;
mod simple;
mod startup;
mod stream;

pub use accept::{Door, serve};
