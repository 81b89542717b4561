//! `keystead status`: whether a server runs for a directory, where, and how it is.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

use clap::Args;

use super::target::{Running, Where};
use crate::exit::{Failure, Kind};

/// Arguments of `keystead status`.
#[derive(Args, Debug)]
pub(super) struct Options {
    #[command(flatten)]
    to: Where,
    /// One JSON object instead of lines
    #[arg(long)]
    json: bool,
}

/// Runs `keystead status`.
pub(super) fn run(options: &Options) -> Result<(), Failure> {
    let running = Running::read(&options.to.data).map_err(|_| {
        Failure::new(Kind::Unavailable, format!("no server runs in {}", options.to.data.display()))
    })?;
    let health = |path: &str| match get(&running.http, path) {
        Ok(200) => "yes".to_owned(),
        Ok(status) => format!("no (HTTP {status})"),
        Err(error) => format!("no ({error})"),
    };
    let (live, ready) = (health("/health/live"), health("/health/ready"));
    let mut facts = vec![
        ("process", running.pid.to_string()),
        ("sql", running.sql.clone()),
        ("http", running.http.clone()),
        ("grpc", running.grpc.clone()),
        ("peer", running.peer.clone()),
        ("live", live),
        ("ready", ready.clone()),
    ];
    let mut client = options.to.connect()?;
    for (name, query) in [
        ("version", "select version()"),
        ("sessions", "select count(*) from pg_catalog.pg_stat_activity"),
        (
            "tables",
            "select count(*) from pg_catalog.pg_class where relkind = 'r' and relnamespace <> 'pg_catalog'::regnamespace",
        ),
    ] {
        let rows = client.rows(query);
        let shown = match rows {
            Ok(rows) => rows.into_iter().flatten().flatten().next().unwrap_or_default(),
            Err(error) => format!("? ({error})"),
        };
        facts.push((name, shown));
    }
    if let Some(bytes) = resident(running.pid) {
        facts.push(("memory", format!("{} MiB", bytes >> 20)));
    }
    if options.json {
        let object: serde_json::Map<String, serde_json::Value> =
            facts.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
        println!("{}", serde_json::Value::Object(object));
    } else {
        facts.iter().for_each(|(name, value)| println!("{name:<10}{value}"));
    }
    if ready == "yes" { Ok(()) } else { Err(Failure::new(Kind::Answer, "the server is not ready")) }
}

/// The status of a GET.
fn get(address: &str, path: &str) -> Result<u16, String> {
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.take(64 << 10).read_to_string(&mut answer)?;
        Ok(answer)
    };
    let answer = ask().map_err(|error| error.to_string())?;
    let status = answer.split_whitespace().nth(1).and_then(|status| status.parse().ok());
    status.ok_or_else(|| "no HTTP answer".to_owned())
}

/// Resident memory of a process.
pub(super) fn resident(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib << 10)
}
