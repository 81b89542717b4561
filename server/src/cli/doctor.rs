//! `keystead doctor`: looks at this machine and a data directory, says what is wrong and what to do about it.
//!
//! Invariants: it changes nothing; what it writes to measure the disk it removes again. Each finding has a remedy.

use std::{
    fs::{self, File},
    io::{self, Write},
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use model::time::Clock;
use storage::directory::Directory;

use super::target::Running;
use crate::{
    clock::SystemClock,
    config::Config,
    exit::{Failure, Kind},
};

/// Arguments of `keystead doctor`.
#[derive(Args, Debug)]
pub(super) struct Options {
    /// Data directory
    #[arg(long, value_name = "DIR", env = "KEYSTEAD_DATA", default_value = "./keystead-data")]
    data: PathBuf,
}

/// What one check found.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Finding {
    /// As it should be.
    Fine(String),
    /// Works, but not well: what, and what to do.
    Odd(String, String),
    /// Does not work: what, and what to do.
    Wrong(String, String),
}

/// Below this, writes will soon be refused.
const FREE_BYTES_MIN: u64 = 1 << 30;
/// A disk that needs longer for one sync makes every commit slow.
const SYNC_MAX: Duration = Duration::from_millis(20);
/// Keystead was written after this date (2025-01-01, in seconds since 1970).
const CLOCK_SECS_MIN: i64 = 1_735_689_600;

/// Runs `keystead doctor`.
pub(super) fn run(options: &Options) -> Result<(), Failure> {
    let clock = SystemClock::new();
    let data = &options.data;
    let mut findings = vec![descriptors(), memory(), wall_clock(&clock)];
    findings.extend(directory(data));
    findings.push(free_space(data));
    findings.push(sync_speed(data, &clock));
    findings.extend(server(data));
    let mut wrong = 0;
    for finding in &findings {
        match finding {
            Finding::Fine(what) => println!("ok     {what}"),
            Finding::Odd(what, remedy) => println!("odd    {what}\n       {remedy}"),
            Finding::Wrong(what, remedy) => {
                wrong += 1;
                println!("wrong  {what}\n       {remedy}");
            }
        }
    }
    match wrong {
        0 => Ok(()),
        count => Err(Failure::new(Kind::Answer, format!("{count} things are wrong"))),
    }
}

fn descriptors() -> Finding {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    let needed = Config::default().sql.connections_max as u64 + crate::descriptors::RESERVED;
    match limit {
        Some(limit) if limit < needed => Finding::Wrong(
            format!("{limit} file descriptors at most; {needed} are needed for all connections"),
            "Raise the hard limit: LimitNOFILE= in the unit, or `ulimit -Hn`.".to_owned(),
        ),
        Some(limit) => Finding::Fine(format!("file descriptors: up to {limit}")),
        None => Finding::Fine("file descriptors: no limit".to_owned()),
    }
}

fn memory() -> Finding {
    let limit = Config::default().memory.limit;
    let shown = format!("memory: the server would use up to {} MiB", limit >> 20);
    if limit < 512 << 20 {
        let remedy = "Large sorts and joins will spill or be refused; give the machine or its cgroup 1 GiB.";
        return Finding::Odd(shown, remedy.to_owned());
    }
    Finding::Fine(shown)
}

fn wall_clock(clock: &dyn Clock) -> Finding {
    if clock.wall().unix_micros() / 1_000_000 < CLOCK_SECS_MIN {
        return Finding::Wrong(
            "the clock stands before 2025".to_owned(),
            "Set it, and keep it set (chrony, systemd-timesyncd).".to_owned(),
        );
    }
    Finding::Fine("clock: plausible".to_owned())
}

fn directory(data: &Path) -> Vec<Finding> {
    let shown = data.display();
    let metadata = match fs::metadata(data) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return vec![Finding::Fine(format!("{shown}: not there; `keystead serve` will make it"))];
        }
        Err(error) => {
            return vec![Finding::Wrong(
                format!("{shown}: {error}"),
                "Give this user access, or name another directory with --data.".to_owned(),
            )];
        }
    };
    if !metadata.is_dir() {
        let remedy = "Name a directory with --data.".to_owned();
        return vec![Finding::Wrong(format!("{shown} is not a directory"), remedy)];
    }
    let mut findings = vec![match Directory::is_fresh(data) {
        Ok(true) => Finding::Fine(format!("{shown}: empty; `keystead serve` will begin in it")),
        Ok(false) => Finding::Fine(format!("{shown}: a data directory")),
        Err(error) => Finding::Wrong(
            error.to_string(),
            "Name the right directory with --data; a newer format needs the newer server.".to_owned(),
        ),
    }];
    if metadata.permissions().readonly() {
        findings
            .push(Finding::Wrong(format!("{shown} is read-only"), "Mount or chmod it writable.".to_owned()));
    }
    for name in ["admin.json", "secrets.json"] {
        let path = data.join(name);
        if let Ok(metadata) = fs::metadata(&path)
            && metadata.permissions().mode() & 0o077 != 0
        {
            findings.push(Finding::Wrong(
                format!("{} can be read by others", path.display()),
                "Run chmod 600 on it and change the password.".to_owned(),
            ));
        }
    }
    findings
}

/// The directory itself, or the nearest one above that is there.
fn existing(data: &Path) -> PathBuf {
    let mut at = fs::canonicalize(data).unwrap_or_else(|_| data.to_path_buf());
    while !at.is_dir() {
        match at.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => at = parent.to_path_buf(),
            _ => return PathBuf::from("."),
        }
    }
    at
}

fn free_space(data: &Path) -> Finding {
    match rustix::fs::statvfs(existing(data)) {
        Ok(facts) => {
            let free = facts.f_bavail.saturating_mul(facts.f_frsize);
            let shown = format!("disk: {} MiB free", free >> 20);
            if free < FREE_BYTES_MIN {
                let remedy = "Below the low-water mark writes are refused with 53100; make room.".to_owned();
                return Finding::Wrong(shown, remedy);
            }
            Finding::Fine(shown)
        }
        Err(error) => Finding::Odd(format!("disk: {error}"), "Free space is not known.".to_owned()),
    }
}

fn sync_speed(data: &Path, clock: &dyn Clock) -> Finding {
    let path = existing(data).join(format!(".keystead-doctor-{}", std::process::id()));
    let measured = measure_sync(&path, clock);
    let _ = fs::remove_file(&path);
    match measured {
        Ok(took) if took > SYNC_MAX => Finding::Odd(
            format!("disk: one sync takes {} ms (median of 9)", took.as_millis()),
            "Every commit waits for it; use a disk with a power-safe cache.".to_owned(),
        ),
        Ok(took) => Finding::Fine(format!("disk: one sync takes {} µs (median of 9)", took.as_micros())),
        Err(error) => Finding::Wrong(
            format!("disk: a file cannot be written and synced: {error}"),
            "Give this user a directory it can write, or name another with --data.".to_owned(),
        ),
    }
}

fn measure_sync(path: &Path, clock: &dyn Clock) -> io::Result<Duration> {
    let mut file = File::create(path)?;
    let mut times = Vec::new();
    for _ in 0..9 {
        let started = clock.monotonic();
        file.write_all(&[0x5a; 4096])?;
        file.sync_data()?;
        times.push(clock.monotonic().saturating_sub(started));
    }
    times.sort();
    Ok(times[times.len() / 2])
}

fn server(data: &Path) -> Vec<Finding> {
    let Ok(running) = Running::read(data) else {
        return vec![Finding::Fine("server: none runs here".to_owned())];
    };
    let is_there = Path::new("/proc").join(running.pid.to_string()).is_dir();
    if !is_there {
        return vec![Finding::Odd(
            format!("server: process {} of server.json is gone; it did not stop cleanly", running.pid),
            "Start it again: the log is replayed and nothing that was acknowledged is lost.".to_owned(),
        )];
    }
    match running.sql.parse().map(|address| TcpStream::connect_timeout(&address, Duration::from_secs(2))) {
        Ok(Ok(_)) => {
            vec![Finding::Fine(format!("server: process {} serves at {}", running.pid, running.sql))]
        }
        Ok(Err(error)) => vec![Finding::Wrong(
            format!("server: process {} does not answer at {}: {error}", running.pid, running.sql),
            "Look at its log; if it hangs, stop it with SIGTERM and start it again.".to_owned(),
        )],
        Err(error) => vec![Finding::Wrong(
            format!("server.json names no address: {error}"),
            "Restart the server; it writes the file anew.".to_owned(),
        )],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_where_the_directory_should_be_is_wrong() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "x").unwrap();
        assert!(matches!(directory(&path)[0], Finding::Wrong(..)));
        assert!(matches!(directory(folder.path())[0], Finding::Wrong(..)), "it holds what is not ours");
        fs::remove_file(&path).unwrap();
        assert!(matches!(directory(folder.path())[0], Finding::Fine(_)));
        assert!(matches!(directory(&folder.path().join("none"))[0], Finding::Fine(_)));
    }

    #[test]
    fn open_secrets_and_a_gone_server_are_noticed() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("admin.json"), "{}").unwrap();
        fs::set_permissions(folder.path().join("admin.json"), fs::Permissions::from_mode(0o644)).unwrap();
        assert!(directory(folder.path()).iter().any(|finding| matches!(finding, Finding::Wrong(..))));
        let gone = Running {
            pid: u32::MAX,
            sql: "127.0.0.1:1".to_owned(),
            http: String::new(),
            grpc: String::new(),
            peer: String::new(),
        };
        gone.write(folder.path()).unwrap();
        assert!(matches!(server(folder.path())[0], Finding::Odd(..)));
    }
}
