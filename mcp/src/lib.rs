//! Tools for agents, over the Model Context Protocol (revisions 2025-11-25 and 2026-07-28).
//!
//! The life of a tool call:
//!
//! 1. The server's middleware proves who calls, and puts a [`Caller`] into the request's extensions.
//! 2. [`service`] (rmcp's streamable HTTP, stateless, JSON answers) checks `Host` and `Origin` and decodes the call.
//! 3. [`server`] finds the tool; [`tools`] decodes its arguments and asks the caller's session with a
//!    `model::request::Request`.
//! 4. The answer is structured content, equal to its text block. What the model can mend is a result with `isError`; only
//!    what cannot be routed at all is a protocol error.
//!
//! Always true here: a tool is listed only if it works, and reads are read-only by the engine's plan, not by looking at
//! the text.

mod encode;
mod error;
mod server;
mod service;
mod tools;

use std::sync::Arc;

use model::port::Handler;

pub use service::{Options, Service, service};

/// On whose behalf a request runs: the session that answers it. The server puts it into the request's extensions.
#[derive(Clone)]
pub struct Caller(pub Arc<dyn Handler>);
