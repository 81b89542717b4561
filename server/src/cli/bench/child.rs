//! A server of this very binary as a child process, for benches and the crash test.
//!
//! Invariants:
//! - Whoever holds a [`Child`] has seen its `ready` line and can log in.
//! - `kill` is SIGKILL and waits, so that a successor never meets its predecessor. Dropping kills.
//! - The child gets none of our `KEYSTEAD_…` variables except those given here.

use std::{
    fs::{self, File},
    io::{self, BufRead, BufReader},
    path::{Path, PathBuf},
    process::{self, Command, ExitStatus, Stdio},
    sync::{
        atomic::{AtomicU32, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use crate::{
    auth::secrets::Admin,
    cli::client::{Client, Target},
    exit::{Failure, Kind},
};

/// Far more than any gate allows: a slow start is a figure, not an error, also on a machine that does other things.
const READY_MAX: Duration = Duration::from_secs(180);
const STOP_MAX: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(5);

/// How a server is started.
#[derive(Clone, Debug)]
pub(in crate::cli) struct Launch {
    /// Its data directory.
    pub(in crate::cli) data: PathBuf,
    /// Where its log lines go.
    pub(in crate::cli) log: PathBuf,
    /// `--set` of each.
    pub(in crate::cli) settings: Vec<String>,
    /// More environment.
    pub(in crate::cli) environment: Vec<(String, String)>,
    /// The longest it may take.
    pub(in crate::cli) ready_max: Duration,
}

impl Launch {
    /// A start with defaults and a log beside the data directory.
    pub(in crate::cli) fn new(data: &Path) -> Self {
        let mut log = data.as_os_str().to_owned();
        log.push(".log");
        Self {
            data: data.to_owned(),
            log: log.into(),
            settings: Vec::new(),
            environment: Vec::new(),
            ready_max: READY_MAX,
        }
    }

    /// Starts it and waits until it is ready.
    pub(in crate::cli) fn start(&self) -> Result<Child, Failure> {
        let failed = |error: io::Error| Failure::from_io("the server cannot be started", &error);
        let log = File::options().create(true).append(true).open(&self.log).map_err(failed)?;
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("KEYSTEAD_") {
                command.env_remove(name);
            }
        }
        command.arg("serve").arg("--data").arg(&self.data);
        for door in ["--sql", "--http", "--grpc", "--peer"] {
            command.args([door, "127.0.0.1:0"]);
        }
        for setting in &self.settings {
            command.args(["--set", setting]);
        }
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        let begun = now();
        let mut process = command.spawn().map_err(failed)?;
        let stdout = process.stdout.take().expect("stdout was asked to be a pipe");
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if let Some(address) = sql_address(&line) {
                    let _ = sender.send((address, now()));
                }
            }
        });
        let Ok((address, ready_at)) = receiver.recv_timeout(self.ready_max) else {
            let _ = process.kill();
            let ended = process.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
            return Err(Failure::new(
                Kind::Unavailable,
                format!("the server was not ready ({ended}); its log ends with\n{}", self.log_tail()),
            ));
        };
        let mut child = Child { process, target: None, ready_after: ready_at - begun };
        child.target = Some(self.target(&address)?);
        Ok(child)
    }

    fn target(&self, address: &str) -> Result<Target, Failure> {
        let admin = Admin::read(&self.data).map_err(|error| Failure::from_io("admin.json", &error))?;
        let wrong = || Failure::new(Kind::Software, format!("the ready line names {address:?}"));
        let (host, port) = address.rsplit_once(':').ok_or_else(wrong)?;
        let port = port.parse().map_err(|_| wrong())?;
        let database = "keystead".to_owned();
        Ok(Target { host: host.to_owned(), port, user: admin.user, password: admin.password, database })
    }

    /// What it logged last.
    pub(in crate::cli) fn log_tail(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }
}

fn sql_address(line: &str) -> Option<String> {
    let fields = line.strip_prefix("ready ")?;
    fields.split_whitespace().find_map(|field| field.strip_prefix("sql=")).map(str::to_owned)
}

/// A running server.
pub(in crate::cli) struct Child {
    process: process::Child,
    target: Option<Target>,
    ready_after: Duration,
}

impl Child {
    /// Where to connect, as the administrator of its first start.
    pub(in crate::cli) fn target(&self) -> &Target {
        self.target.as_ref().expect("a child is handed out with its target")
    }

    /// Its process.
    pub(in crate::cli) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// From the spawn to the `ready` line.
    pub(in crate::cli) fn ready_after(&self) -> Duration {
        self.ready_after
    }

    /// A connection.
    pub(in crate::cli) fn connect(&self) -> Result<Client, Failure> {
        Client::connect(self.target()).map_err(Failure::from)
    }

    /// Ends it at once, as a crash does.
    pub(in crate::cli) fn kill(&mut self) -> Result<(), Failure> {
        let killed = self.process.kill().and_then(|()| self.process.wait());
        killed.map(|_| ()).map_err(|error| Failure::from_io("the server cannot be killed", &error))
    }

    /// How it ended, if it did by itself.
    pub(in crate::cli) fn ended(&mut self) -> Option<ExitStatus> {
        self.process.try_wait().ok().flatten()
    }

    /// Waits until it ends by itself, but not longer than `longest`.
    pub(in crate::cli) fn wait(&mut self, longest: Duration) -> Option<ExitStatus> {
        let begun = now();
        loop {
            if let Some(status) = self.ended() {
                return Some(status);
            }
            let left = longest.checked_sub(begun.elapsed())?;
            pause(left.min(POLL));
        }
    }

    /// Asks it to stop and waits for its end.
    pub(in crate::cli) fn stop(&mut self) -> Result<ExitStatus, Failure> {
        let pid = i32::try_from(self.process.id()).ok().and_then(rustix::process::Pid::from_raw);
        let pid = pid.ok_or_else(|| Failure::new(Kind::Software, "a process id that is none"))?;
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)
            .map_err(|error| Failure::from_io("the server cannot be stopped", &error.into()))?;
        self.wait(STOP_MAX)
            .ok_or_else(|| Failure::new(Kind::Answer, format!("the server did not stop within {STOP_MAX:?}")))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A directory of our own, removed at the end.
pub(in crate::cli) struct Scratch {
    path: PathBuf,
    is_kept: bool,
}

impl Scratch {
    /// Makes one below `parent`, else where the system keeps temporary files.
    pub(in crate::cli) fn new(parent: Option<&Path>, name: &str) -> Result<Self, Failure> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let parent = parent.map_or_else(std::env::temp_dir, Path::to_owned);
        loop {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let path = parent.join(format!("keystead-{name}-{}-{number}", process::id()));
            let made = fs::create_dir_all(&parent).and_then(|()| fs::create_dir(&path));
            match made {
                Ok(()) => return Ok(Self { path, is_kept: false }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    return Err(Failure::new(Kind::CannotCreate, format!("{}: {error}", path.display())));
                }
            }
        }
    }

    /// Where it is.
    pub(in crate::cli) fn path(&self) -> &Path {
        &self.path
    }

    /// Leaves it there, for who wants to look at what went wrong.
    pub(in crate::cli) fn keep(&mut self) {
        self.is_kept = true;
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !self.is_kept {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// The time, for measuring.
#[expect(clippy::disallowed_methods, reason = "a bench measures real time")]
pub(in crate::cli) fn now() -> Instant {
    Instant::now()
}

/// Waits. Only on threads of benches and of the crash test, which have no neighbours.
#[expect(clippy::disallowed_methods, reason = "the load itself is timed: there is no event to wait for")]
pub(in crate::cli) fn pause(time: Duration) {
    thread::sleep(time);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sql_door_is_read_from_the_ready_line() {
        let line = "ready sql=127.0.0.1:5 http=127.0.0.1:6 grpc=127.0.0.1:7 peer=127.0.0.1:8";
        assert_eq!(sql_address(line).as_deref(), Some("127.0.0.1:5"));
        assert_eq!(sql_address("not ready sql=127.0.0.1:5"), None);
    }

    #[test]
    fn a_scratch_directory_is_gone_afterwards_unless_it_is_kept() {
        let scratch = Scratch::new(None, "test").expect("a temporary directory can be made");
        let path = scratch.path().to_owned();
        assert!(path.is_dir());
        drop(scratch);
        assert!(!path.exists());
        let mut scratch = Scratch::new(None, "test").expect("a temporary directory can be made");
        let path = scratch.path().to_owned();
        scratch.keep();
        drop(scratch);
        assert!(path.is_dir());
        fs::remove_dir_all(path).expect("it is ours");
    }
}
