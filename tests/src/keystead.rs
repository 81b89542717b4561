//! The server under test: the real binary in a directory of its own, on free ports.
//!
//! Invariants:
//! - A started server has printed its `ready` line: whoever holds a [`Keystead`] can connect.
//! - `kill` is SIGKILL and waits until the process is gone, so that a restart never meets its predecessor.
//! - Its stderr is kept in `DIR/../server.log` and shown when a start fails.
//!
//! Not here: what is asked of it.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::Address;
use crate::wire::Wire;

const READY_TIMEOUT: Duration = Duration::from_secs(30);
const STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// The addresses of the `ready` line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ready {
    /// SQL door.
    pub sql: String,
    /// HTTP door.
    pub http: String,
    /// gRPC door.
    pub grpc: String,
    /// Peer door.
    pub peer: String,
}

impl Ready {
    /// Reads `ready sql=… http=… grpc=… peer=…`.
    pub fn parse(line: &str) -> Option<Ready> {
        let rest = line.trim().strip_prefix("ready ")?;
        let get = |name: &str| {
            rest.split_whitespace()
                .find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
                .map(String::from)
        };
        Some(Ready { sql: get("sql")?, http: get("http")?, grpc: get("grpc")?, peer: get("peer")? })
    }
}

/// A directory and, most of the time, a server running in it.
pub struct Keystead {
    /// Removed at the end, unless the caller brought the directory.
    _temporary: Option<TempDir>,
    data: PathBuf,
    log: PathBuf,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    running: Option<(Child, Ready)>,
}

impl Keystead {
    /// Starts in a new directory.
    pub fn start() -> io::Result<Keystead> {
        Keystead::start_with(&[], &[])
    }

    /// Starts in a new directory with more arguments for `serve` and more environment.
    pub fn start_with(arguments: &[&str], environment: &[(&str, &str)]) -> io::Result<Keystead> {
        let temporary = tempfile::Builder::new().prefix("keystead-test-").tempdir()?;
        let data = temporary.path().join("data");
        let mut server = Keystead {
            log: temporary.path().join("server.log"),
            _temporary: Some(temporary),
            data,
            arguments: arguments.iter().map(|a| (*a).to_owned()).collect(),
            environment: environment.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect(),
            running: None,
        };
        server.restart()?;
        Ok(server)
    }

    /// Starts in a directory that stays when this value goes.
    pub fn open(data: &Path) -> io::Result<Keystead> {
        Keystead::open_with(data, &[], &[])
    }

    /// The same with more arguments for `serve` and more environment.
    pub fn open_with(
        data: &Path,
        arguments: &[&str],
        environment: &[(String, String)],
    ) -> io::Result<Keystead> {
        let mut server = Keystead::at(data, arguments, environment);
        server.restart()?;
        Ok(server)
    }

    /// The same, not started yet.
    pub fn at(data: &Path, arguments: &[&str], environment: &[(String, String)]) -> Keystead {
        Keystead {
            log: data.with_extension("log"),
            _temporary: None,
            data: data.to_path_buf(),
            arguments: arguments.iter().map(|a| (*a).to_owned()).collect(),
            environment: environment.to_vec(),
            running: None,
        }
    }

    /// What the next start finds in its environment, beside the test's own.
    pub fn replace_environment(&mut self, environment: &[(String, String)]) {
        self.environment = environment.to_vec();
    }

    /// Sets an environment variable for the next start.
    pub fn set_environment(&mut self, name: &str, value: &str) {
        self.environment.retain(|(n, _)| n != name);
        self.environment.push((name.to_owned(), value.to_owned()));
    }

    /// Starts again in the same directory, on new ports. Returns how long it took to be ready.
    pub fn restart(&mut self) -> io::Result<Duration> {
        let status = match self.attempt()? {
            Ok(ready) => return Ok(ready),
            Err(status) => status,
        };
        Err(io::Error::other(format!("the server was not ready ({status}); its log:\n{}", self.log_tail())))
    }

    /// The same for a start that may end: how the process ended, if it did.
    pub fn attempt(&mut self) -> io::Result<Result<Duration, ExitStatus>> {
        assert!(self.running.is_none(), "stop or kill the server before starting it again");
        let begun = Instant::now();
        let log = File::options().create(true).append(true).open(&self.log)?;
        let mut command = clean_command()?;
        command.arg("serve").arg("--data").arg(&self.data);
        for door in ["--sql", "--http", "--grpc", "--peer"] {
            if !self.arguments.iter().any(|argument| argument == door) {
                command.args([door, "127.0.0.1:0"]);
            }
        }
        command.args(&self.arguments).envs(self.environment.iter().map(|(n, v)| (n, v)));
        let mut process =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::from(log)).spawn()?;
        let stdout = process.stdout.take().expect("stdout was piped");
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || {
            // When the process ends the channel closes, and the wait below with it.
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if let Some(ready) = Ready::parse(&line) {
                    let _ = sender.send(ready);
                }
            }
        });
        match receiver.recv_timeout(READY_TIMEOUT) {
            Ok(ready) => {
                self.running = Some((process, ready));
                Ok(Ok(begun.elapsed()))
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => Ok(Err(process.wait()?)),
            Err(mpsc::RecvTimeoutError::Timeout) => {
                process.kill()?;
                Ok(Err(process.wait()?))
            }
        }
    }

    /// Waits until the process has ended by itself; one that does not is killed, and an error.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        let (mut process, _) = self.running.take().expect("a server is running");
        within(STOP_TIMEOUT, process.id(), move || process.wait())?
    }

    /// Whether a server runs here, as far as is known.
    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// SIGKILL, and waits until the process is gone.
    pub fn kill(&mut self) -> io::Result<()> {
        let (mut process, _) = self.running.take().expect("a server is running");
        process.kill()?;
        process.wait()?;
        Ok(())
    }

    /// SIGTERM, and waits for the clean end.
    pub fn stop(&mut self) -> io::Result<ExitStatus> {
        signal(self.pid(), "TERM")?;
        self.wait()
    }

    /// Where the SQL door is, as the admin of the first start.
    pub fn address(&self) -> io::Result<Address> {
        let (_, ready) = self.running.as_ref().expect("a server is running");
        let (host, port) =
            ready.sql.rsplit_once(':').ok_or_else(|| io::Error::other("address without port"))?;
        let secret: serde_json::Value = serde_json::from_slice(&fs::read(self.data.join("admin.json"))?)?;
        let text = |name: &str| secret[name].as_str().unwrap_or_default().to_owned();
        Ok(Address {
            host: host.to_owned(),
            port: port.parse().map_err(io::Error::other)?,
            user: text("user"),
            password: text("password"),
            database: "keystead".into(),
        })
    }

    /// A raw connection as admin.
    pub fn connect(&self) -> io::Result<Wire> {
        Wire::connect(&self.address()?)
    }

    /// The four doors.
    pub fn ready(&self) -> &Ready {
        &self.running.as_ref().expect("a server is running").1
    }

    /// Asks the HTTP door for a path; returns status and body.
    pub fn http_get(&self, path: &str) -> io::Result<(u16, String)> {
        self.http(&format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.ready().http))
    }

    /// Posts to the HTTP door; returns status and body.
    pub fn http_post(&self, path: &str, headers: &[(&str, &str)], body: &str) -> io::Result<(u16, String)> {
        let mut head =
            format!("POST {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n", self.ready().http);
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str(&format!("Content-Length: {}\r\n\r\n", body.len()));
        self.http(&(head + body))
    }

    /// Sends one HTTP request as it is.
    pub fn http(&self, request: &str) -> io::Result<(u16, String)> {
        let mut stream = std::net::TcpStream::connect(&self.ready().http)?;
        stream.set_read_timeout(Some(READY_TIMEOUT))?;
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let status = answer.split(' ').nth(1).and_then(|code| code.parse().ok());
        let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        Ok((status.ok_or_else(|| io::Error::other(format!("no status in {answer:?}")))?, body.to_owned()))
    }

    /// The token of the first start.
    pub fn token(&self) -> io::Result<String> {
        let secret: serde_json::Value = serde_json::from_slice(&fs::read(self.data.join("admin.json"))?)?;
        Ok(secret["token"].as_str().unwrap_or_default().to_owned())
    }

    /// Resident memory of the process in bytes.
    pub fn resident_bytes(&self) -> io::Result<u64> {
        resident_bytes(self.pid())
    }

    /// The most that was ever resident, in bytes.
    pub fn peak_resident_bytes(&self) -> io::Result<u64> {
        status_bytes(self.pid(), "VmHWM:")
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.running.as_ref().expect("a server is running").0.id()
    }

    /// The data directory.
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// Whether the process has ended by itself, and how.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.running.as_mut().map_or(Ok(None), |(process, _)| process.try_wait())
    }

    /// The last lines the server logged.
    pub fn log_tail(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    /// Everything the server logged.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Keystead {
    fn drop(&mut self) {
        if let Some((mut process, _)) = self.running.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
        if std::thread::panicking() {
            eprintln!("--- the server's last lines ---\n{}", self.log_tail());
        }
    }
}

/// The binary without the variables of the tests: the server takes `KEYSTEAD_…` for settings.
fn clean_command() -> io::Result<Command> {
    let mut command = Command::new(binary()?);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("KEYSTEAD_") {
            command.env_remove(name);
        }
    }
    Ok(command)
}

/// Runs the binary to its end: for starts that must be refused and commands that only ask.
pub fn run(arguments: &[&str]) -> io::Result<std::process::Output> {
    let process = clean_command()?
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    within(READY_TIMEOUT, process.id(), move || process.wait_with_output())?
}

/// What `wait` gives once a process has ended. A process that takes longer is killed, and an error.
fn within<T: Send + 'static>(
    limit: Duration,
    pid: u32,
    wait: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let (sender, receiver) = mpsc::channel();
    let waiter = std::thread::spawn(move || drop(sender.send(wait())));
    let ended = receiver.recv_timeout(limit);
    if ended.is_err() {
        signal(pid, "KILL")?;
    }
    waiter.join().expect("waiting does not panic");
    ended.map_err(|_| io::Error::other(format!("process {pid} had to be killed after {limit:?}")))
}

/// Starts the binary with pipes on all three sides, for commands that are fed or interrupted.
pub fn spawn(arguments: &[&str]) -> io::Result<Child> {
    clean_command()?
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
}

/// Sends a signal by name, through the shell's own `kill`: this crate has no unsafe code, and a bare system no such
/// program.
pub fn signal(pid: u32, name: &str) -> io::Result<()> {
    let status =
        Command::new("sh").args(["-c", &format!("kill -{name} {pid}")]).stderr(Stdio::null()).status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("kill -{name} {pid} failed"))) }
}

/// Resident memory of a process in bytes.
pub fn resident_bytes(pid: u32) -> io::Result<u64> {
    status_bytes(pid, "VmRSS:")
}

fn status_bytes(pid: u32, name: &str) -> io::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|rest| rest.split_whitespace().next()).and_then(|n| n.parse::<u64>().ok());
    number.map(|kib| kib * 1024).ok_or_else(|| io::Error::other(format!("no {name}")))
}

/// The binary under test: `KEYSTEAD_BIN`, else what was built last beside this test.
pub fn binary() -> io::Result<PathBuf> {
    if let Some(path) = std::env::var_os("KEYSTEAD_BIN") {
        return Ok(PathBuf::from(path));
    }
    // target/debug/deps/it-1234 → target
    let me = std::env::current_exe()?;
    let target = me
        .ancestors()
        .find(|place| place.join("release").is_dir() || place.join("debug").is_dir())
        .ok_or_else(|| io::Error::other("this test does not run from a target directory"))?;
    let newest = ["release", "debug"]
        .into_iter()
        .map(|profile| target.join(profile).join("keystead"))
        .filter(|path| path.is_file())
        .max_by_key(|path| path.metadata().and_then(|m| m.modified()).ok());
    newest.ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::NotFound,
            format!("no keystead binary in {}: run `cargo build --release`", target.display()),
        )
    })
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn the_ready_line_is_read_in_any_order() {
        let ready =
            Ready::parse("ready sql=127.0.0.1:1 http=127.0.0.1:2 grpc=127.0.0.1:3 peer=127.0.0.1:4").unwrap();
        assert_eq!((ready.sql.as_str(), ready.peer.as_str()), ("127.0.0.1:1", "127.0.0.1:4"));
        assert_eq!(Ready::parse("ready sql=127.0.0.1:1"), None);
    }
}
