//! The Rust client of Keystead, and the contract both ends of its gRPC door share.
//!
//! ```no_run
//! # async fn example() -> keystead::Result<()> {
//! let client = keystead::Client::connect("http://127.0.0.1:7450", "token").await?;
//! let rows = client.query("SELECT id, name FROM people WHERE id = $1").bind(7).rows().await?;
//! for row in rows {
//!     let name: String = row.get("name")?;
//!     println!("{name}");
//! }
//! client
//!     .batch()
//!     .statement("INSERT INTO people (id, name) VALUES ($1, $2)", [8.into(), "Ada".into()])
//!     .statement("UPDATE people SET name = $1 WHERE id = $2", ["Grace".into(), 7.into()])
//!     .commit()
//!     .await?;
//! # Ok(())
//! # }
//! ```
//!
//! A write that is sent again after a lost answer carries the same command id, so that it happens at most once.

mod batch;
mod client;
pub mod convert;
mod error;
mod query;
mod row;

/// The generated contract (`proto/keystead.proto`). The server answers it; clients rarely need it.
#[allow(missing_docs, unreachable_pub, clippy::all, reason = "generated code")]
pub mod proto {
    tonic::include_proto!("keystead.v1");
}

pub use batch::Batch;
pub use client::Client;
pub use error::{Error, Result};
pub use query::{Parameter, Query, RowStream};
pub use row::{FromValue, Row};

pub use model::{Type, Value};
