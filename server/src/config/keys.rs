//! The table of settings: one row each.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use super::{
    Config, LogFormat, LogPriority,
    units::{read_size, read_size_between, read_time, show_size, show_time},
};

/// One setting.
pub struct Key {
    /// Its name in the file; `sql.listen` is `KEYSTEAD_SQL_LISTEN` in the environment.
    pub name: &'static str,
    /// What it is, for `--print-config`.
    pub help: &'static str,
    /// Reads it from text.
    pub set: fn(&mut Config, &str) -> Result<(), String>,
    /// Shows it as the file would say it.
    pub get: fn(&Config) -> String,
}

impl Key {
    /// Its name in the environment.
    pub fn environment(&self) -> String {
        format!("KEYSTEAD_{}", self.name.replace('.', "_").to_uppercase())
    }
}

/// Every setting there is.
pub const KEYS: &[Key] = &[
    Key {
        name: "data",
        help: "the data directory",
        set: |c, text| read_path(text).map(|path| c.data = path),
        get: |c| c.data.display().to_string(),
    },
    Key {
        name: "sql.listen",
        help: "address of the SQL door",
        set: |c, text| read_address(text).map(|at| c.sql.listen = at),
        get: |c| c.sql.listen.to_string(),
    },
    Key {
        name: "sql.connections_max",
        help: "connections at a time; more are refused with 53300",
        set: |c, text| read_count(text, 1, 100_000).map(|n| c.sql.connections_max = n),
        get: |c| c.sql.connections_max.to_string(),
    },
    Key {
        name: "sql.unauthenticated_max",
        help: "connections in login at a time; more wait",
        set: |c, text| read_count(text, 1, 100_000).map(|n| c.sql.unauthenticated_max = n),
        get: |c| c.sql.unauthenticated_max.to_string(),
    },
    Key {
        name: "sql.operations_max",
        help: "operations of one session at a time",
        set: |c, text| read_count(text, 1, 1_024).map(|n| c.sql.operations_max = n),
        get: |c| c.sql.operations_max.to_string(),
    },
    Key {
        name: "sql.startup_max",
        help: "time from accepted to authenticated",
        set: |c, text| read_limit(text).map(|time| c.sql.startup_max = time),
        get: |c| show_time(c.sql.startup_max),
    },
    Key {
        name: "sql.frame_bytes_max",
        help: "the longest message; a longer one is 54000",
        set: |c, text| {
            let bytes = read_size_between(text, 1 << 16, 1 << 30)?;
            c.sql.frame_bytes_max = usize::try_from(bytes).map_err(|error| error.to_string())?;
            Ok(())
        },
        get: |c| show_size(c.sql.frame_bytes_max as u64),
    },
    Key {
        name: "http.listen",
        help: "address of the HTTP door: /mcp, /health, /metrics",
        set: |c, text| read_address(text).map(|at| c.http_listen = at),
        get: |c| c.http_listen.to_string(),
    },
    Key {
        name: "grpc.listen",
        help: "address of the gRPC door",
        set: |c, text| read_address(text).map(|at| c.grpc_listen = at),
        get: |c| c.grpc_listen.to_string(),
    },
    Key {
        name: "peer.listen",
        help: "address of the node-to-node door",
        set: |c, text| read_address(text).map(|at| c.peer_listen = at),
        get: |c| c.peer_listen.to_string(),
    },
    Key {
        name: "tls.cert",
        help: "certificate chain, PEM",
        set: |c, text| read_path(text).map(|path| c.tls.cert = Some(path)),
        get: |c| c.tls.cert.as_ref().map(|path| path.display().to_string()).unwrap_or_default(),
    },
    Key {
        name: "tls.key",
        help: "private key, PEM, readable by its owner only",
        set: |c, text| read_path(text).map(|path| c.tls.key = Some(path)),
        get: |c| c.tls.key.as_ref().map(|path| path.display().to_string()).unwrap_or_default(),
    },
    Key {
        name: "tls.insecure_no_tls",
        help: "listen off loopback without TLS",
        set: |c, text| read_bool(text).map(|on| c.tls.insecure_no_tls = on),
        get: |c| c.tls.insecure_no_tls.to_string(),
    },
    Key {
        name: "log.filter",
        help: "which log lines: a level or directives such as info,server=debug",
        set: |c, text| {
            c.log.filter = text.to_owned();
            Ok(())
        },
        get: |c| c.log.filter.clone(),
    },
    Key {
        name: "log.format",
        help: "auto (text on a terminal, else JSON), text or json",
        set: |c, text| {
            c.log.format = match text {
                "auto" => LogFormat::Auto,
                "text" => LogFormat::Text,
                "json" => LogFormat::Json,
                _ => return Err(format!("\"{text}\" is not auto, text or json")),
            };
            Ok(())
        },
        get: |c| match c.log.format {
            LogFormat::Auto => "auto".to_owned(),
            LogFormat::Text => "text".to_owned(),
            LogFormat::Json => "json".to_owned(),
        },
    },
    Key {
        name: "log.slow_statement",
        help: "statements that take longer are logged; off for none",
        set: |c, text| {
            c.log.slow_statement = if text == "off" { None } else { Some(read_time(text)?) };
            Ok(())
        },
        get: |c| c.log.slow_statement.map_or_else(|| "off".to_owned(), show_time),
    },
    Key {
        name: "log.priority",
        help: "auto (real-time writer where permitted) or normal",
        set: |c, text| {
            c.log_priority = match text {
                "auto" => LogPriority::Auto,
                "normal" => LogPriority::Normal,
                _ => return Err(format!("\"{text}\" is not auto or normal")),
            };
            Ok(())
        },
        get: |c| match c.log_priority {
            LogPriority::Auto => "auto".to_owned(),
            LogPriority::Normal => "normal".to_owned(),
        },
    },
    Key {
        name: "log.segment_bytes",
        help: "size of a segment of the write-ahead log",
        set: |c, text| {
            let bytes = read_size(text)?;
            if !(cluster::SEGMENT_BYTES_MIN..=1 << 30).contains(&bytes) || !bytes.is_multiple_of(4096) {
                return Err("must be a multiple of 4KiB between 8MiB and 1GiB".to_owned());
            }
            c.pace.segment_bytes = bytes;
            Ok(())
        },
        get: |c| show_size(c.pace.segment_bytes),
    },
    Key {
        name: "log.keep_entries",
        help: "entries of each shard kept in the write-ahead log behind a checkpoint",
        set: |c, text| read_count(text, 0, 100_000_000).map(|count| c.pace.keep_entries = count as u64),
        get: |c| c.pace.keep_entries.to_string(),
    },
    Key {
        name: "checkpoint.every",
        help: "a checkpoint is made this often while anything is written",
        set: |c, text| read_limit(text).map(|time| c.pace.checkpoint_every = time),
        get: |c| show_time(c.pace.checkpoint_every),
    },
    Key {
        name: "checkpoint.bytes",
        help: "a checkpoint is made after this much was logged",
        set: |c, text| {
            read_size_between(text, 1 << 20, u64::MAX).map(|bytes| c.pace.checkpoint_bytes = bytes)
        },
        get: |c| show_size(c.pace.checkpoint_bytes),
    },
    Key {
        name: "memory.memtable_bytes",
        help: "what a shard holds in memory before it is written to a table",
        set: |c, text| read_size_between(text, 1 << 20, 1 << 30).map(|bytes| c.pace.memtable_bytes = bytes),
        get: |c| show_size(c.pace.memtable_bytes),
    },
    Key {
        name: "memory.limit",
        help: "what the process may use; the default follows the cgroup or machine",
        set: |c, text| read_size_between(text, 64 << 20, u64::MAX).map(|bytes| c.memory.limit = bytes),
        get: |c| show_size(c.memory.limit),
    },
    Key {
        name: "cluster.shards",
        help: "shards a new cluster starts with",
        set: |c, text| {
            let count = read_count(text, 1, 64)?;
            c.shards = u32::try_from(count).map_err(|error| error.to_string())?;
            Ok(())
        },
        get: |c| c.shards.to_string(),
    },
    Key {
        name: "shutdown.drain_max",
        help: "how long a graceful stop waits for running work",
        set: |c, text| read_time(text).map(|time| c.drain_max = time),
        get: |c| show_time(c.drain_max),
    },
];

fn read_address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let local = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
    let address = local.and_then(|text| text.parse().ok());
    address.ok_or_else(|| format!("\"{text}\" is not an address such as 127.0.0.1:7432"))
}

fn read_path(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() {
        return Err("a path must not be empty".to_owned());
    }
    Ok(PathBuf::from(text))
}

fn read_bool(text: &str) -> Result<bool, String> {
    match text {
        "true" | "on" | "1" => Ok(true),
        "false" | "off" | "0" => Ok(false),
        _ => Err(format!("\"{text}\" is not true or false")),
    }
}

fn read_count(text: &str, min: usize, max: usize) -> Result<usize, String> {
    let count: usize = text.parse().map_err(|_| format!("\"{text}\" is not a number"))?;
    if !(min..=max).contains(&count) {
        return Err(format!("must lie between {min} and {max}"));
    }
    Ok(count)
}

fn read_limit(text: &str) -> Result<Duration, String> {
    let time = read_time(text)?;
    if time.is_zero() { Err("must be longer than 0".to_owned()) } else { Ok(time) }
}
