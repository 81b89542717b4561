//! The vocabulary of Keystead: what every other crate speaks.
//!
//! The life of a request, in the words defined here:
//!
//! 1. A front door turns bytes into a [`request::Request`] and hands it to a [`port::Handler`], the session.
//! 2. The session resolves names on an immutable [`catalog::Catalog`] and plans.
//! 3. Reads and [`command::Command`]s go through [`port::Dispatch`] to the owner of a partition
//!    ([`id::PartitionId`]), found by its [`id::Point`] on the ring.
//! 4. The owner answers with stored rows ([`row::RowView`]) or a [`command::Outcome`].
//! 5. Whatever goes wrong is an [`error::Error`] with one [`error::Code`], mapped to each wire by a total match.
//!
//! Always true here: no I/O, no async runtime, no locks, no reading of clocks, no serde, and no crate of ours is
//! imported. A type moves in only when a second crate needs it.

pub mod access;
pub mod catalog;
pub mod command;
pub mod error;
pub mod expr;
pub mod id;
pub mod key;
pub mod load;
pub mod port;
pub mod read;
pub mod request;
pub mod row;
pub mod schema;
pub mod time;
pub mod types;
pub mod value;

pub use error::{Code, Error, Result};
pub use types::Type;
pub use value::Value;
