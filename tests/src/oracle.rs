//! PostgreSQL 15 as the oracle: a private server on a free loopback port, thrown away at the end.
//!
//! Invariants:
//! - Its data directory is new, has C collation, UTF-8 and UTC, and is removed on drop.
//! - The process ends when the value is dropped, also when a test panics.
//!
//! Not here: what is compared. Durability is off unless asked for: an oracle is not there to survive.

use std::fs;
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::Address;
use crate::wire::Wire;

const START_TIMEOUT: Duration = Duration::from_secs(60);
const ATTEMPTS_MAX: u32 = 5;

/// A running PostgreSQL.
pub struct Oracle {
    process: Child,
    address: Address,
    directory: TempDir,
    durability: Durability,
}

/// Whether commits of the oracle wait for the disk.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// For comparing answers.
    Off,
    /// For comparing speed.
    On,
}

impl Oracle {
    /// Makes a cluster and starts it.
    pub fn start(durability: Durability) -> io::Result<Oracle> {
        let binaries = binaries()?;
        let directory = tempfile::Builder::new().prefix("keystead-oracle-").tempdir_in("/tmp")?;
        let data = directory.path().join("data");
        let password_file = directory.path().join("password");
        fs::write(&password_file, "oracle-password\n")?;
        if is_root() {
            run(Command::new("chown").args(["-R", "postgres"]).arg(directory.path()))?;
        }
        run(as_postgres(&binaries.join("initdb"))
            .arg("-D")
            .arg(&data)
            .args(["-U", "admin", "-A", "scram-sha-256", "-E", "UTF8", "--locale=C", "--no-sync"])
            .arg(format!("--pwfile={}", password_file.display())))?;
        let mut last = io::Error::other("never tried");
        for _ in 0..ATTEMPTS_MAX {
            match Oracle::start_on_free_port(&binaries, &data, durability) {
                Ok((process, port)) => {
                    let address = Address {
                        host: "127.0.0.1".into(),
                        port,
                        user: "admin".into(),
                        password: "oracle-password".into(),
                        database: "keystead".into(),
                    };
                    let oracle = Oracle { process, address, directory, durability };
                    let mut wire = Wire::connect(&oracle.address.with_database("postgres"))?;
                    let reply = wire.query("CREATE DATABASE keystead")?;
                    assert_eq!(reply.code(), "", "the oracle makes its database");
                    return Ok(oracle);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Where it listens.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Its directory, readable by the user the server runs as.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Process id of the postmaster.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Ends the server at once, without a checkpoint, so that the next start recovers from its log.
    pub fn crash(&mut self) -> io::Result<()> {
        self.quit();
        Ok(())
    }

    /// Starts again on the same data.
    pub fn restart(&mut self) -> io::Result<()> {
        let data = self.directory.path().join("data");
        let (process, port) = Oracle::start_on_free_port(&binaries()?, &data, self.durability)?;
        self.process = process;
        self.address.port = port;
        Ok(())
    }

    fn quit(&mut self) {
        let postmaster = fs::read_to_string(self.directory.path().join("data/postmaster.pid"))
            .ok()
            .and_then(|text| text.lines().next().and_then(|line| line.trim().parse::<i32>().ok()));
        let pid = postmaster.unwrap_or(self.process.id() as i32);
        let _ = crate::keystead::signal(pid as u32, "QUIT");
        let _ = self.process.wait();
    }

    fn start_on_free_port(binaries: &Path, data: &Path, durability: Durability) -> io::Result<(Child, u16)> {
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let mut command = as_postgres(&binaries.join("postgres"));
        command.arg("-D").arg(data).args(["-p", &port.to_string()]);
        let mut settings = vec![
            "listen_addresses=127.0.0.1".to_owned(),
            format!("unix_socket_directories={}", data.display()),
            "timezone=UTC".to_owned(),
            "log_timezone=UTC".to_owned(),
            "max_connections=200".to_owned(),
            "shared_buffers=256MB".to_owned(),
            "work_mem=64MB".to_owned(),
            "logging_collector=off".to_owned(),
            "log_min_messages=panic".to_owned(),
        ];
        if durability == Durability::Off {
            settings
                .extend(["fsync=off", "synchronous_commit=off", "full_page_writes=off"].map(String::from));
        }
        for setting in settings {
            command.args(["-c", &setting]);
        }
        let mut process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let address = Address {
            host: "127.0.0.1".into(),
            port,
            user: "admin".into(),
            password: "oracle-password".into(),
            database: "postgres".into(),
        };
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            match Wire::connect(&address) {
                Ok(_) => return Ok((process, port)),
                Err(error) => {
                    if process.try_wait()?.is_some() || Instant::now() > deadline {
                        let _ = process.kill();
                        let _ = process.wait();
                        return Err(error);
                    }
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
        }
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        self.quit();
    }
}

/// Where PostgreSQL 15's server programs are.
pub fn binaries() -> io::Result<PathBuf> {
    let place = std::env::var_os("KEYSTEAD_PG_BIN")
        .map_or_else(|| PathBuf::from("/usr/lib/postgresql/15/bin"), PathBuf::from);
    if place.join("postgres").exists() {
        return Ok(place);
    }
    Err(io::Error::new(
        io::ErrorKind::NotFound,
        format!("no PostgreSQL 15 in {}: install postgresql-15 or set KEYSTEAD_PG_BIN", place.display()),
    ))
}

/// A command that runs as a user PostgreSQL accepts: it refuses to run as root.
fn as_postgres(program: &Path) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    // `setpriv` replaces itself with the program, so the child is the server itself and a kill reaches it.
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]).arg(program);
    command.current_dir("/");
    command
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|meta| std::os::unix::fs::MetadataExt::uid(&meta) == 0)
}

fn run(command: &mut Command) -> io::Result<()> {
    let output = command.stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr))))
}
