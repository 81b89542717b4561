//! PostgreSQL as the peer of a bench: a private server with the durability we have, thrown away at the end.
//!
//! Invariants:
//! - `fsync`, `synchronous_commit` and `full_page_writes` are on: both sides promise the same at a commit.
//! - It gets room (buffers, a long checkpoint distance), so that it is not compared while it starves.
//! - It never runs as root: then `runuser` starts it as `postgres`.

use std::{
    fs, io,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{self, Command, Stdio},
    time::Duration,
};

use super::{
    child::{Scratch, now, pause},
    measure::Process,
};
use crate::{
    auth::{scram, secrets},
    cli::client::{Client, Target},
    exit::{Failure, Kind},
};

const ATTEMPTS_MAX: usize = 5;
const START_MAX: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);
/// The version that ratios are stated against.
const VERSION: u32 = 15;
const SETTINGS: &[&str] = &[
    "listen_addresses=127.0.0.1",
    "fsync=on",
    "synchronous_commit=on",
    "full_page_writes=on",
    "max_connections=300",
    "shared_buffers=1GB",
    "max_wal_size=8GB",
    "checkpoint_timeout=30min",
    "logging_collector=off",
    "log_min_messages=panic",
];

/// A running PostgreSQL.
pub(super) struct Peer {
    launcher: process::Child,
    data: PathBuf,
    target: Target,
    pid: u32,
    /// What it says it is.
    pub(super) version: String,
    _scratch: Scratch,
}

impl Peer {
    /// Makes a cluster below `parent` and starts it.
    pub(super) fn start(parent: Option<&Path>) -> Result<Self, Failure> {
        let failed = |error: io::Error| Failure::from_io("PostgreSQL", &error);
        let binaries = binaries()?;
        let scratch = Scratch::new(parent, "peer")?;
        let data = scratch.path().join("data");
        let password_file = scratch.path().join("password");
        let mut random = [0; 16];
        scram::random(&mut random)?;
        let password = random.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        secrets::write_private(&password_file, password.as_bytes()).map_err(failed)?;
        if is_root() {
            succeed(Command::new("chown").args(["-R", "postgres"]).arg(scratch.path()))?;
        }
        succeed(
            as_postgres(&binaries.join("initdb"))
                .arg("-D")
                .arg(&data)
                .args(["-U", "bench", "-A", "scram-sha-256", "-E", "UTF8", "--locale=C"])
                .arg(format!("--pwfile={}", password_file.display())),
        )?;
        let mut last = Failure::new(Kind::Unavailable, "PostgreSQL was never tried");
        for _ in 0..ATTEMPTS_MAX {
            let free = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
            let target = Target {
                host: "127.0.0.1".to_owned(),
                port: free.map_err(failed)?.port(),
                user: "bench".to_owned(),
                password: password.clone(),
                database: "postgres".to_owned(),
            };
            match launch(&binaries, &data, &target) {
                Ok((launcher, pid, version)) => {
                    return Ok(Self { launcher, data, target, pid, version, _scratch: scratch });
                }
                Err(failure) => last = failure,
            }
        }
        Err(last)
    }

    /// Where to connect.
    pub(super) fn target(&self) -> &Target {
        &self.target
    }

    /// The postmaster and its children.
    pub(super) fn process(&self) -> Process {
        Process::Family(self.pid)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // The postmaster itself, which `runuser` is not.
        let pid = postmaster(&self.data).and_then(|pid| i32::try_from(pid).ok());
        match pid.and_then(rustix::process::Pid::from_raw) {
            Some(pid) => {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::QUIT);
            }
            None => {
                let _ = self.launcher.kill();
            }
        }
        let _ = self.launcher.wait();
    }
}

fn launch(binaries: &Path, data: &Path, target: &Target) -> Result<(process::Child, u32, String), Failure> {
    let mut command = as_postgres(&binaries.join("postgres"));
    command.arg("-D").arg(data).args(["-p", &target.port.to_string()]);
    command.args(["-c", &format!("unix_socket_directories={}", data.display())]);
    for setting in SETTINGS {
        command.args(["-c", setting]);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut launcher = command.spawn().map_err(|error| Failure::from_io("PostgreSQL", &error))?;
    let begun = now();
    loop {
        let refusal = match Client::connect(target) {
            Ok(mut client) => {
                let rows = client.rows("SHOW server_version")?;
                let version = rows.into_iter().flatten().next().flatten().unwrap_or_default();
                let missing = || Failure::new(Kind::Software, "PostgreSQL runs without a postmaster.pid");
                return Ok((launcher, postmaster(data).ok_or_else(missing)?, version));
            }
            Err(error) => error,
        };
        if let Ok(Some(status)) = launcher.try_wait() {
            return Err(Failure::new(Kind::Unavailable, format!("PostgreSQL ended at its start: {status}")));
        }
        if begun.elapsed() > START_MAX {
            let _ = launcher.kill();
            let _ = launcher.wait();
            return Err(Failure::new(Kind::Unavailable, format!("PostgreSQL does not answer: {refusal}")));
        }
        pause(POLL);
    }
}

fn postmaster(data: &Path) -> Option<u32> {
    let text = fs::read_to_string(data.join("postmaster.pid")).ok()?;
    text.lines().next()?.trim().parse().ok()
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn as_postgres(program: &Path) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("runuser");
    command.args(["-u", "postgres", "--"]).arg(program);
    command.current_dir("/");
    command
}

fn succeed(command: &mut Command) -> Result<(), Failure> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| Failure::from_io(&name, &error))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(Failure::new(Kind::Unavailable, format!("{name} failed ({}): {said}", output.status)))
}

/// Version 15 if it is there, else the newest, else what is in `PATH`.
fn binaries() -> Result<PathBuf, Failure> {
    let mut versions: Vec<(u32, PathBuf)> = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
        .filter(|(_, path)| path.join("initdb").is_file())
        .collect();
    versions.sort_by_key(|(version, _)| if *version == VERSION { u32::MAX } else { *version });
    let found = versions.pop().map(|(_, path)| path).or_else(|| Some(find("initdb")?.parent()?.to_owned()));
    found.ok_or_else(|| {
        Failure::new(
            Kind::Unavailable,
            "PostgreSQL is not installed (Debian: apt install postgresql-15); --no-peer measures without it",
        )
    })
}

/// A program in `PATH`.
pub(super) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|place| place.join(program)).find(|path| path.is_file())
}
