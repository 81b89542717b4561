//! Text to rows: PostgreSQL's dialect over partitions.
//!
//! The life of a statement:
//!
//! 1. `parse`: a scan for depth and length, then `sqlparser` with our dialect.
//! 2. `bind`: names, operators, functions, casts and parameter types by PostgreSQL's rules, on one catalog snapshot.
//! 3. `plan` and `optimize`: a typed plan, rewritten by a list of rules.
//! 4. `direct` runs a plan that is pinned to keys, row by row; `execute` runs all others by pulling batches.
//! 5. `dml` turns changed rows into one `model::command::Command`; `txn` keeps it until COMMIT.
//! 6. Rows leave as batches that the wire encodes.
//!
//! A function or operator is defined once, on values, in `functions`.

pub mod batch;
mod bind;
mod cache;
pub mod context;
pub mod copy;
mod cost;
mod ddl;
mod direct;
pub mod dml;
pub mod engine;
pub mod eval;
pub mod execute;
mod explain;
pub mod expr;
pub mod functions;
pub mod memory;
mod optimize;
mod parse;
pub mod pg_catalog;
pub mod plan;
mod rights;
pub mod session;
mod settings;
pub mod spill;
mod stats;
pub mod txn;
