//! Metrics: a handful of atomics and how Prometheus reads them.
//!
//! Invariants:
//! - Names are `<crate>_<noun>_<unit>[_total]` and stand in one list; labels are fixed words, never names of tables, roles
//!   or clients.
//! - Counting is one relaxed atomic addition; nothing is allocated but at `render`.

use std::{
    fmt::Write as _,
    fs,
    sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed},
    time::Duration,
};

/// A number that only grows.
#[derive(Default, Debug)]
pub struct Counter(AtomicU64);

impl Counter {
    /// One more.
    pub fn increment(&self) {
        self.add(1);
    }

    /// So many more.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Relaxed);
    }

    /// How many.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// A number that goes up and down.
#[derive(Default, Debug)]
pub struct Gauge(AtomicI64);

impl Gauge {
    /// Changes it.
    pub fn add(&self, change: i64) {
        self.0.fetch_add(change, Relaxed);
    }

    /// What it is.
    pub fn get(&self) -> i64 {
        self.0.load(Relaxed)
    }

    /// One more, until the returned value is dropped.
    pub fn hold(self: &std::sync::Arc<Self>) -> Held {
        self.add(1);
        Held(self.clone())
    }
}

/// One of a gauge.
#[derive(Debug)]
pub struct Held(std::sync::Arc<Gauge>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.add(-1);
    }
}

/// Upper bounds of the histogram's buckets, in microseconds.
const BOUNDS: [u64; 12] =
    [100, 250, 500, 1_000, 2_500, 5_000, 10_000, 50_000, 100_000, 500_000, 1_000_000, 10_000_000];

/// How long things took.
#[derive(Default, Debug)]
pub struct Histogram {
    buckets: [AtomicU64; BOUNDS.len() + 1],
    sum_micros: AtomicU64,
}

impl Histogram {
    /// One more that took so long.
    pub fn observe(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bucket = BOUNDS.partition_point(|bound| *bound < micros);
        self.buckets[bucket].fetch_add(1, Relaxed);
        self.sum_micros.fetch_add(micros, Relaxed);
    }
}

/// What the server counts.
#[derive(Default, Debug)]
pub struct Metrics {
    /// Connections of the SQL door.
    pub connections: std::sync::Arc<Gauge>,
    /// Connections ever taken in.
    pub connections_accepted: Counter,
    /// Connections refused because there were too many.
    pub connections_refused: Counter,
    /// Failed logins.
    pub logins_failed: Counter,
    /// Operations that run now.
    pub operations: std::sync::Arc<Gauge>,
    /// Statements by how they ended.
    pub statements_done: Counter,
    /// Statements that ended with an error.
    pub statements_failed: Counter,
    /// Statements that were cancelled or timed out.
    pub statements_cancelled: Counter,
    /// Statements that panicked.
    pub statements_panicked: Counter,
    /// Time per statement.
    pub statement_time: Histogram,
    /// Bytes sent on the SQL door.
    pub bytes_sent: Counter,
    /// Bytes received on the SQL door.
    pub bytes_received: Counter,
    /// Requests on the HTTP door.
    pub http_requests: Counter,
}

impl Metrics {
    /// Everything in Prometheus' text format.
    pub fn render(&self) -> String {
        let mut text = String::with_capacity(4096);
        let mut line = |name: &str, kind: &str, help: &str, value: i128| {
            let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n");
        };
        line("server_connections", "gauge", "Connections of the SQL door.", self.connections.get().into());
        line("server_operations", "gauge", "Operations that run now.", self.operations.get().into());
        let counters: [(&str, &str, &Counter); 10] = [
            ("server_connections_accepted_total", "Connections taken in.", &self.connections_accepted),
            ("server_connections_refused_total", "Connections beyond the limit.", &self.connections_refused),
            ("server_logins_failed_total", "Logins that failed.", &self.logins_failed),
            ("server_statements_done_total", "Statements that succeeded.", &self.statements_done),
            ("server_statements_failed_total", "Statements that failed.", &self.statements_failed),
            ("server_statements_cancelled_total", "Statements cancelled.", &self.statements_cancelled),
            ("server_statements_panicked_total", "Statements that panicked.", &self.statements_panicked),
            ("server_sql_sent_bytes_total", "Bytes sent on the SQL door.", &self.bytes_sent),
            ("server_sql_received_bytes_total", "Bytes received on the SQL door.", &self.bytes_received),
            ("server_http_requests_total", "Requests on the HTTP door.", &self.http_requests),
        ];
        for (name, help, counter) in counters {
            line(name, "counter", help, counter.get().into());
        }
        line(
            "process_resident_memory_bytes",
            "gauge",
            "Resident memory of this process.",
            resident_bytes().unwrap_or(0).into(),
        );
        self.render_histogram(&mut text);
        text
    }

    fn render_histogram(&self, text: &mut String) {
        let name = "server_statement_seconds";
        let _ = write!(text, "# HELP {name} Time per statement.\n# TYPE {name} histogram\n");
        let mut count = 0;
        for (at, bucket) in self.statement_time.buckets.iter().enumerate() {
            count += bucket.load(Relaxed);
            match BOUNDS.get(at) {
                Some(bound) => {
                    let seconds = Duration::from_micros(*bound).as_secs_f64();
                    let _ = writeln!(text, "{name}_bucket{{le=\"{seconds}\"}} {count}");
                }
                None => {
                    let _ = writeln!(text, "{name}_bucket{{le=\"+Inf\"}} {count}");
                }
            }
        }
        let sum = Duration::from_micros(self.statement_time.sum_micros.load(Relaxed)).as_secs_f64();
        let _ = writeln!(text, "{name}_sum {sum}\n{name}_count {count}");
    }
}

/// What the node below counts: shards by number, which are at most 64.
pub fn render_node(stats: &cluster::Stats, sql_bytes: usize) -> String {
    let mut text = String::with_capacity(4096);
    let mut line = |name: &str, kind: &str, help: &str, value: u64| {
        let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n");
    };
    let log = &stats.log;
    line("storage_log_entries_total", "counter", "Entries written.", log.entries);
    line("storage_log_bytes_total", "counter", "Bytes written.", log.bytes);
    line("storage_log_syncs_total", "counter", "Writes with a sync.", log.syncs);
    line("storage_log_segments", "gauge", "Segments on disk.", log.segments as u64);
    line("storage_log_queue_bytes", "gauge", "Bytes that wait for the writer.", log.queue_bytes as u64);
    line(
        "storage_log_is_full",
        "gauge",
        "1 if writes are refused for want of room.",
        u64::from(log.read_only),
    );
    line("storage_engine_journals", "gauge", "Journals with data not flushed.", stats.journals as u64);
    line("sql_memory_bytes", "gauge", "Bytes that statements hold.", sql_bytes as u64);
    let per_shard: [(&str, &str, fn(&cluster::ShardStats) -> u64); 4] = [
        ("cluster_shard_revision", "Newest revision.", |shard| shard.revision.0),
        ("cluster_shard_is_owned", "1 if this node owns it.", |shard| u64::from(shard.owned)),
        ("cluster_shard_inside", "Requests inside.", |shard| shard.inside as u64),
        ("cluster_shard_read_points", "Open read points.", |shard| shard.read_points as u64),
    ];
    for (name, help, of) in per_shard {
        let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} gauge\n");
        for shard in &stats.shards {
            let _ = writeln!(text, "{name}{{shard=\"{}\"}} {}", shard.shard.0, of(shard));
        }
    }
    text
}

/// Resident memory of this process, from `/proc`.
pub fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prometheus_can_read_what_is_rendered() {
        let metrics = Metrics::default();
        metrics.connections_accepted.increment();
        metrics.statement_time.observe(Duration::from_micros(300));
        let text = metrics.render();
        assert!(text.contains("\nserver_connections_accepted_total 1\n"), "{text}");
        assert!(text.contains("server_statement_seconds_bucket{le=\"0.0005\"} 1\n"), "{text}");
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (name, value) = line.rsplit_once(' ').expect("name and value");
            assert!(!name.is_empty() && value.parse::<f64>().is_ok(), "{line}");
        }
    }

    #[test]
    fn a_held_gauge_goes_back() {
        let gauge = std::sync::Arc::new(Gauge::default());
        let held = gauge.hold();
        assert_eq!(gauge.get(), 1);
        drop(held);
        assert_eq!(gauge.get(), 0);
    }
}
