//! What a node can be told: one plain struct, a default only where one value is right.

use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

use model::time::Clock;
pub use storage::codec::entry::FeedRetention;

use crate::Error;

/// How many shards a new directory gets.
pub const SHARDS: u32 = 8;

/// The smallest segment of a log: one holds at least two parts of a large command.
pub const SEGMENT_BYTES_MIN: u64 = 8 << 20;

/// Settings of a node.
#[derive(Clone)]
pub struct Options {
    /// The data directory; it is made if it is not there.
    pub directory: PathBuf,
    /// How many shards a new directory gets, 1 to 64. An existing one keeps what it has.
    pub shards: u32,
    /// The log.
    pub log: storage::log::Options,
    /// The engine.
    pub engine: storage::engine::Options,
    /// Who and what exists after the first start; ignored by an existing directory.
    pub bootstrap: Bootstrap,
    /// Threads that apply entries; 0 for one per processor core, at most four.
    pub apply_threads: usize,
    /// A checkpoint is made this often while anything is written.
    pub checkpoint_every: Duration,
    /// A checkpoint is made after this much was logged.
    pub checkpoint_bytes: u64,
    /// Entries kept in the log behind a checkpoint.
    pub keep_entries: u64,
    /// A log that is larger lets go of those too.
    pub log_bytes_max: u64,
    /// Old receipts, feed records and slots are looked for this often.
    pub sweep_every: Duration,
    /// What the feed of each partition keeps.
    pub feed: FeedRetention,
    /// Read points open at once, per shard.
    pub read_points_max: usize,
    /// A read point older than this is given up.
    pub read_point_age_max: Duration,
    /// How long `open` waits for its groups to lead.
    pub start_wait: Duration,
    /// Where time comes from.
    pub clock: Arc<dyn Clock>,
    /// Called once if the node cannot go on: the log or the engine has failed. The server then ends its process, so that
    /// nothing is acknowledged that is not durable.
    pub on_fatal: Arc<dyn Fn(&Error) + Send + Sync>,
}

/// What a new cluster starts with.
#[derive(Clone, Default)]
pub struct Bootstrap {
    /// The name of the superuser.
    pub admin: String,
    /// Its SCRAM-SHA-256 verifier; none for no password.
    pub password: Option<String>,
    /// The name of the first database.
    pub database: String,
}

impl Options {
    /// Settings that suit a server, for a directory.
    pub fn new(directory: impl Into<PathBuf>, clock: Arc<dyn Clock>) -> Self {
        Self {
            directory: directory.into(),
            shards: SHARDS,
            log: storage::log::Options::default(),
            engine: storage::engine::Options::default(),
            bootstrap: Bootstrap {
                admin: "admin".to_owned(),
                password: None,
                database: "keystead".to_owned(),
            },
            apply_threads: 0,
            checkpoint_every: Duration::from_secs(30),
            checkpoint_bytes: 256 << 20,
            keep_entries: 10_000,
            log_bytes_max: 1 << 30,
            sweep_every: Duration::from_secs(5),
            feed: FeedRetention::default(),
            read_points_max: 4_096,
            read_point_age_max: Duration::from_secs(600),
            start_wait: Duration::from_secs(60),
            clock,
            on_fatal: Arc::new(|_| {}),
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("directory", &self.directory)
            .field("shards", &self.shards)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Bootstrap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bootstrap")
            .field("admin", &self.admin)
            .field("database", &self.database)
            .finish_non_exhaustive()
    }
}
