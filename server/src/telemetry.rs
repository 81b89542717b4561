//! Telemetry: where log lines go and what they look like.
//!
//! Invariants:
//! - Everything goes to stderr: text on a terminal, one JSON object per line otherwise.
//! - Control characters in fields never reach a terminal: the formatter escapes them (RUSTSEC-2025-0055).
//! - No line holds a payload or a credential; that is the duty of whoever logs, and a canary test watches it.

use std::io::{self, IsTerminal};

use tracing_subscriber::{EnvFilter, fmt, prelude::*};

use crate::config::LogFormat;

/// Installs the subscriber of the process. `filter` is a directive such as `info` or `server=debug`.
pub fn start(filter: &str, format: LogFormat) -> Result<(), String> {
    let filter = EnvFilter::try_new(filter).map_err(|error| format!("log.filter: {error}"))?;
    let json = match format {
        LogFormat::Auto => !io::stderr().is_terminal(),
        LogFormat::Json => true,
        LogFormat::Text => false,
    };
    let registry = tracing_subscriber::registry().with(filter);
    let installed = if json {
        registry.with(fmt::layer().json().flatten_event(true).with_writer(io::stderr)).try_init()
    } else {
        let colours = io::stderr().is_terminal();
        registry.with(fmt::layer().with_ansi(colours).with_writer(io::stderr)).try_init()
    };
    installed.map_err(|error| error.to_string())
}
