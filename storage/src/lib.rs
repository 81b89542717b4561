//! One node's data: engine, log, partition state machine.
//!
//! The life of a command below the owner:
//!
//! 1. [`codec::entry`] turns the command and the owner's stamp into the bytes of a log entry.
//! 2. The [`log`] makes it durable, in one sync with its neighbours.
//! 3. [`shard::Shard::apply`] judges and executes a group of entries, one engine batch for all, and answers an
//!    outcome for each; a crash before the next checkpoint replays them from the log.
//! 4. [`shard::Snapshot`] reads what was applied, at one moment.
//! 5. [`checkpoint`] syncs the [`engine`] and lets the log forget what is in it.
//!
//! [`recovery`] puts engine and log together again at the next start. [`catalog`] is the same for the control group; [`directory`] is the folder all of it lies in; [`standalone`] is one shard
//! without a log, for tests of what stands above; [`cut`] names the places at which a crash test ends the process.
//!
//! Always true here: no network, no async runtime, no reading of clocks; fjall only in [`engine`].

pub mod catalog;
pub mod checkpoint;
mod chunk;
pub mod codec;
pub mod cut;
pub mod directory;
pub mod engine;
pub mod error;
pub mod keyspace;
pub mod log;
pub mod recovery;
pub mod shard;
pub mod standalone;

pub use error::{Error, Result};
