//! The transport: rmcp's streamable HTTP service, stateless, with JSON answers.
//!
//! Invariants:
//! - No session lives in this node's memory: any node answers any request.
//! - `Host` and `Origin` are checked against lists; an empty list of origins refuses every browser.

use std::sync::Arc;

use rmcp::transport::streamable_http_server::{
    StreamableHttpServerConfig, StreamableHttpService, session::never::NeverSessionManager,
};

use crate::server::Server;

/// What the transport needs to know.
#[derive(Clone, Debug)]
pub struct Options {
    /// Host names (with or without port) under which this server is reached.
    pub hosts: Vec<String>,
    /// Origins of browsers that may call: `scheme://host:port`, or `scheme://host:*`.
    pub origins: Vec<String>,
    /// The largest request body, in bytes; more is 413.
    pub body_bytes_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        let loopback = ["localhost", "127.0.0.1", "[::1]", "::1"];
        let origins = ["http://localhost:*", "http://127.0.0.1:*", "http://[::1]:*"];
        Self {
            hosts: loopback.map(str::to_owned).to_vec(),
            origins: origins.map(str::to_owned).to_vec(),
            body_bytes_max: 4 * 1024 * 1024,
        }
    }
}

/// A `tower` service to be mounted at `/mcp`.
pub type Service = StreamableHttpService<Server, NeverSessionManager>;

/// Makes the service.
pub fn service(options: Options) -> Service {
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .with_allowed_hosts(options.hosts)
        .with_allowed_origins(options.origins)
        .enforce_origin_validation()
        .with_max_request_body_bytes(options.body_bytes_max);
    StreamableHttpService::new(|| Ok(Server), Arc::new(NeverSessionManager::default()), config)
}
