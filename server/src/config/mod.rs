//! Configuration: one tree of settings, from defaults, one TOML file, the environment and flags; later wins.
//!
//! Invariants:
//! - Every setting is one row of [`keys::KEYS`]: its name, its flag, how it is read and shown. The file, the environment
//!   and `--print-config` all go by that table, so none of them can know a setting that another does not.
//! - An unknown key is an error, whichever way it comes in.
//! - Limits end in `_max`; sizes and times carry their unit in the text (`64MiB`, `10s`).
//!
//! Not here: session parameters such as `statement_timeout`; those are SQL's.

mod check;
mod keys;
mod load;
mod units;

use std::{net::SocketAddr, path::PathBuf, time::Duration};

pub use check::check;
pub use keys::{KEYS, Key};
pub use load::{Origin, Origins, Sources, load, print};

/// All settings of a server.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Where everything is kept.
    pub data: PathBuf,
    /// The SQL door.
    pub sql: Sql,
    /// HTTP door: `/mcp`, health, metrics.
    pub http_listen: SocketAddr,
    /// gRPC door.
    pub grpc_listen: SocketAddr,
    /// Node-to-node door.
    pub peer_listen: SocketAddr,
    /// Certificates, and whether to go without.
    pub tls: Tls,
    /// The process's own log lines.
    pub log: Log,
    /// Memory.
    pub memory: Memory,
    /// Shards a new cluster starts with.
    pub shards: u32,
    /// How long a graceful stop waits for running work.
    pub drain_max: Duration,
    /// The write-ahead log's scheduling.
    pub log_priority: LogPriority,
    /// How large the pieces on disk are, and how often state is made durable.
    pub pace: Pace,
}

/// How large the pieces on disk are, and how often state is made durable.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// Size of a segment of the write-ahead log.
    pub segment_bytes: u64,
    /// Entries of each shard kept in it behind a checkpoint.
    pub keep_entries: u64,
    /// A checkpoint is made this often while anything is written.
    pub checkpoint_every: Duration,
    /// A checkpoint is made after this much was logged.
    pub checkpoint_bytes: u64,
    /// What a shard holds in memory before it is written to a table.
    pub memtable_bytes: u64,
}

/// The SQL door.
#[derive(Clone, Debug, PartialEq)]
pub struct Sql {
    /// Address.
    pub listen: SocketAddr,
    /// Connections at a time; more are refused with `53300`.
    pub connections_max: usize,
    /// Connections that are not yet authenticated at a time; more wait.
    pub unauthenticated_max: usize,
    /// Operations of one session at a time.
    pub operations_max: usize,
    /// From accepted to authenticated.
    pub startup_max: Duration,
    /// The longest message.
    pub frame_bytes_max: usize,
}

/// Certificates.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Tls {
    /// Certificate chain (PEM).
    pub cert: Option<PathBuf>,
    /// Private key (PEM), readable by its owner only.
    pub key: Option<PathBuf>,
    /// Listen off loopback without TLS.
    pub insecure_no_tls: bool,
}

/// Log lines.
#[derive(Clone, Debug, PartialEq)]
pub struct Log {
    /// Which lines: a level or directives such as `info,server=debug`.
    pub filter: String,
    /// What they look like.
    pub format: LogFormat,
    /// Statements that take longer are logged; none for never.
    pub slow_statement: Option<Duration>,
}

/// What log lines look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Text on a terminal, JSON otherwise.
    Auto,
    /// For eyes.
    Text,
    /// For machines.
    Json,
}

/// How the log's writer is scheduled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogPriority {
    /// Real-time where it is permitted.
    Auto,
    /// As every thread.
    Normal,
}

/// Memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Memory {
    /// What the process may use in all.
    pub limit: u64,
}

impl Memory {
    /// What statements may hold: 40 %.
    pub fn query_bytes_max(self) -> u64 {
        self.limit / 10 * 4
    }

    /// What log and apply may hold: 20 %.
    pub fn log_bytes_max(self) -> u64 {
        self.limit / 10 * 2
    }

    /// What large messages of clients may hold: 10 %.
    pub fn network_bytes_max(self) -> u64 {
        self.limit / 10
    }

    /// What the engine's block cache may hold: 10 %, at most 8 GiB.
    pub fn cache_bytes_max(self) -> u64 {
        (self.limit / 10).min(8 << 30)
    }
}

impl Default for Config {
    fn default() -> Self {
        let loopback = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
        Self {
            data: PathBuf::from("./keystead-data"),
            sql: Sql {
                listen: loopback(7432),
                connections_max: 4096,
                unauthenticated_max: 256,
                operations_max: 8,
                startup_max: Duration::from_secs(60),
                frame_bytes_max: 256 << 20,
            },
            http_listen: loopback(7480),
            grpc_listen: loopback(7450),
            peer_listen: loopback(7470),
            tls: Tls::default(),
            log: Log {
                filter: "info,openraft=warn".to_owned(),
                format: LogFormat::Auto,
                slow_statement: Some(Duration::from_secs(1)),
            },
            memory: Memory { limit: units::memory_of_machine() },
            shards: 8,
            drain_max: Duration::from_secs(10),
            log_priority: LogPriority::Auto,
            pace: Pace {
                segment_bytes: 64 << 20,
                keep_entries: 10_000,
                checkpoint_every: Duration::from_secs(30),
                checkpoint_bytes: 256 << 20,
                memtable_bytes: 16 << 20,
            },
        }
    }
}
