//! The server: front doors, sessions and the node behind them, in one process.
//!
//! The life of a SQL request:
//!
//! 1. `pg::accept` takes a socket; `pg::startup` does TLS and SCRAM through [`auth::scram`].
//! 2. [`session::Registry`] takes the session in and gives it its cancel key.
//! 3. `pg::connection` reads frames in place; `pg::simple` and `pg::extended` turn them into statements of a
//!    `sql::Session`.
//! 4. `sql` binds, plans and runs; its reads and commands go through `model::port::Dispatch` to `cluster`.
//! 5. Rows are encoded page by page into the connection's buffer; a full buffer waits for the client.
//! 6. An error at any step ends in `pg::error`.
//!
//! [`node`] puts the parts together and takes them apart again in reverse order. [`cli`] is what the binary runs.

pub mod auth;
pub mod cli;
pub mod clock;
pub mod config;
pub mod descriptors;
pub mod exit;
pub mod grpc;
pub mod http;
pub mod mcp;
pub mod metrics;
pub mod node;
pub mod pg;
pub mod session;
pub mod shutdown;
pub mod spawn;
pub mod telemetry;
