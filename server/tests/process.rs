//! The binary as its users meet it: how it starts, whom it lets in, what it says, and how it ends.
//!
//! Invariants: every test has a server and a directory of its own; nothing sleeps and no port is fixed.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::Duration,
};

use server::{
    auth::secrets::Admin,
    cli::client::{Client, Event, Target},
};

const PATIENCE: Duration = Duration::from_secs(60);

struct Running {
    process: Child,
    folder: tempfile::TempDir,
    sql: String,
    http: String,
}

fn binary() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_keystead"));
    for name in [
        "KEYSTEAD_PASSWORD",
        "POSTGRES_PASSWORD",
        "POSTGRES_USER",
        "POSTGRES_DB",
        "PGPASSWORD",
        "KEYSTEAD_DATA",
    ] {
        command.env_remove(name);
    }
    command
}

fn serve(data: &Path, more: &[&str]) -> Command {
    let mut command = binary();
    command.arg("serve").arg("--data").arg(data);
    for door in ["--sql", "--http", "--grpc", "--peer"] {
        if !more.contains(&door) {
            command.args([door, "127.0.0.1:0"]);
        }
    }
    command.args(more);
    command
}

impl Running {
    fn start(more: &[&str], environment: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self::start_in(folder, more, environment)
    }

    fn start_in(folder: tempfile::TempDir, more: &[&str], environment: &[(&str, &str)]) -> Self {
        let log = fs::File::options().create(true).append(true).open(folder.path().join("log")).unwrap();
        let mut process = serve(&folder.path().join("data"), more)
            .envs(environment.iter().copied())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let get = |name: &str| {
            let found = line.split_whitespace().find_map(|word| word.strip_prefix(name));
            found
                .unwrap_or_else(|| {
                    panic!(
                        "no ready line but {line:?}; log: {:?}",
                        fs::read_to_string(folder.path().join("log"))
                    )
                })
                .to_owned()
        };
        let (sql, http) = (get("sql="), get("http="));
        Self { process, folder, sql, http }
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    fn target(&self) -> Target {
        let admin = Admin::read(&self.data()).unwrap();
        let (host, port) = self.sql.rsplit_once(':').unwrap();
        Target {
            host: host.to_owned(),
            port: port.parse().unwrap(),
            user: admin.user,
            password: admin.password,
            database: "keystead".to_owned(),
        }
    }

    fn socket(&self) -> TcpStream {
        let socket = TcpStream::connect(&self.sql).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    }

    fn get(&self, path: &str) -> String {
        let mut socket = TcpStream::connect(&self.http).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(socket, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        answer
    }

    fn signal(&self, name: &str) {
        let status =
            Command::new("kill").args([&format!("-{name}"), &self.process.id().to_string()]).status();
        assert!(status.unwrap().success());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        if std::thread::panicking() {
            eprintln!("{}", self.log());
        }
    }
}

fn refused(output: &Output, code: i32, says: &str) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{text}");
    assert!(text.contains(says), "{text}");
}

fn startup(version: u32, pairs: &[(&str, &str)]) -> Vec<u8> {
    let mut body = version.to_be_bytes().to_vec();
    for text in pairs.iter().flat_map(|(name, value)| [*name, *value]) {
        body.extend(text.as_bytes());
        body.push(0);
    }
    body.push(0);
    let mut packet = u32::try_from(body.len() + 4).unwrap().to_be_bytes().to_vec();
    packet.extend(body);
    packet
}

/// Everything the server answers until it closes.
fn answer(socket: &mut TcpStream, bytes: &[u8]) -> Vec<u8> {
    let _ = socket.write_all(bytes);
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer);
    answer
}

fn error_code(target: &Target) -> String {
    let failed = Client::connect(target).err().expect("the login is refused");
    failed.code().unwrap_or_else(|| panic!("{failed}")).to_owned()
}

#[test]
fn a_server_starts_answers_and_stops_when_it_is_asked_to() {
    let mut server = Running::start(&[], &[]);
    let mut client = Client::connect(&server.target()).unwrap();
    assert_eq!(client.rows("SELECT 1").unwrap(), [[Some("1".to_owned())]]);
    assert!(server.get("/health/ready").starts_with("HTTP/1.1 200"));
    assert!(server.get("/metrics").contains("server_connections 1\n"));
    server.signal("TERM");
    assert_eq!(server.process.wait().unwrap().code(), Some(0));
    assert!(!server.data().join("server.json").exists());
    let failed = client.query("SELECT 1", |_| ()).expect_err("the server is gone");
    assert!(matches!(failed.code(), None | Some("57P01")), "{failed}");
}

#[test]
fn what_cannot_start_says_why_and_with_which_code() {
    let server = Running::start(&[], &[]);
    refused(&serve(&server.data(), &[]).output().unwrap(), 75, "");

    let folder = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = serve(&folder.path().join("a"), &["--sql", &address]).output().unwrap();
    refused(&output, 75, "sql.listen");

    let output = serve(&folder.path().join("b"), &["--sql", "0.0.0.0:0"]).output().unwrap();
    refused(&output, 78, "--insecure-no-tls");
    let output = serve(&folder.path().join("c"), &["--set", "sql.nope=1"]).output().unwrap();
    refused(&output, 78, "unknown key");
    let output = serve(&folder.path().join("d"), &[]).env("KEYSTEAD_PASSWORD", "").output().unwrap();
    refused(&output, 78, "empty");
    refused(&binary().arg("serve").arg("--no-such-flag").output().unwrap(), 64, "--no-such-flag");

    fs::write(folder.path().join("file"), "x").unwrap();
    let output = serve(&folder.path().join("file"), &[]).output().unwrap();
    refused(&output, 73, "data directory");
    fs::create_dir(folder.path().join("foreign")).unwrap();
    fs::write(folder.path().join("foreign/something"), "x").unwrap();
    let output = serve(&folder.path().join("foreign"), &[]).output().unwrap();
    refused(&output, 78, "it has no identity, but holds \"something\"");
}

#[test]
fn the_environment_may_name_the_first_role_its_password_and_database() {
    let environment = [
        ("POSTGRES_USER", "ada"),
        ("POSTGRES_PASSWORD", "a long enough password"),
        ("POSTGRES_DB", "engine"),
    ];
    let server = Running::start(&[], &environment);
    let target = Target {
        user: "ada".to_owned(),
        password: "a long enough password".to_owned(),
        database: "engine".to_owned(),
        ..server.target()
    };
    assert!(Client::connect(&target).is_ok());
}

#[test]
fn who_is_not_known_learns_nothing() {
    let server = Running::start(&[], &[]);
    let target = server.target();
    let wrong = Target { password: "wrong".to_owned(), ..target.clone() };
    let unknown = Target { user: "nobody".to_owned(), ..target.clone() };
    assert_eq!(error_code(&wrong), "28P01");
    assert_eq!(error_code(&unknown), "28P01");
    let elsewhere = Target { database: "nowhere".to_owned(), ..target.clone() };
    assert_eq!(error_code(&elsewhere), "3D000");
    assert!(Client::connect(&target).is_ok());
}

#[test]
fn hostile_startups_are_closed_and_the_server_lives() {
    let server = Running::start(&[], &[]);
    for garbage in [
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        vec![0xff; 64],
        vec![0; 64],
        0x7fff_ffff_u32.to_be_bytes().to_vec(),
        10_001_u32.to_be_bytes().to_vec(),
        7_u32.to_be_bytes().to_vec(),
        b"\x16\x03\x01\x02\x00".to_vec(),
    ] {
        assert_eq!(answer(&mut server.socket(), &garbage), b"", "{garbage:?}");
    }
    let old = answer(&mut server.socket(), &startup(131_072, &[("user", "u")]));
    assert!(old.windows(5).any(|bytes| bytes == b"0A000"), "{old:?}");
    let nobody = answer(&mut server.socket(), &startup(196_608, &[]));
    assert!(nobody.windows(5).any(|bytes| bytes == b"28000"), "{nobody:?}");

    // A client that says half of it and goes.
    let mut half = server.socket();
    half.write_all(&startup(196_608, &[("user", "u")])[..9]).unwrap();
    half.shutdown(Shutdown::Both).unwrap();

    assert!(Client::connect(&server.target()).is_ok());
    assert!(!server.log().contains("panicked"), "{}", server.log());
}

#[test]
fn encryption_that_is_not_offered_is_declined_and_injected_bytes_are_refused() {
    let server = Running::start(&[], &[]);
    let request = |code: u32| [8_u32.to_be_bytes(), code.to_be_bytes()].concat();
    let (ssl, gss) = (request(80_877_103), request(80_877_104));
    let mut socket = server.socket();
    for ask in [&gss, &ssl] {
        socket.write_all(ask).unwrap();
        let mut byte = [0];
        socket.read_exact(&mut byte).unwrap();
        assert_eq!(byte, *b"N");
    }
    socket.write_all(&startup(196_608, &[("user", "admin")])).unwrap();
    let mut byte = [0];
    socket.read_exact(&mut byte).unwrap();
    assert_eq!(byte, *b"R", "startup goes on in the clear");

    let both = [ssl, startup(196_608, &[("user", "admin")])].concat();
    let answer = answer(&mut server.socket(), &both);
    assert!(answer.windows(5).any(|bytes| bytes == b"08P01"), "{answer:?}");
}

#[test]
fn one_connection_too_many_is_refused_and_its_place_becomes_free() {
    let server = Running::start(&["--set", "sql.connections_max=2"], &[]);
    let first = Client::connect(&server.target()).unwrap();
    let _second = Client::connect(&server.target()).unwrap();
    assert_eq!(error_code(&server.target()), "53300");
    drop(first);
    // The place is given back when the server has seen the end of the first.
    let mut tries = 0;
    while Client::connect(&server.target()).is_err() {
        tries += 1;
        assert!(tries < 10_000, "the place never became free");
    }
}

#[test]
fn hostile_frames_end_their_connection_with_a_code_and_reserve_nothing() {
    let server = Running::start(&[], &[]);
    for (bytes, code) in [
        (b"Q\x7f\xff\xff\xff".to_vec(), "54000"),
        (b"Q\0\0\0\x03".to_vec(), "08P01"),
        (b"Q\xff\xff\xff\xff".to_vec(), "08P01"),
        (b"z\0\0\0\x04".to_vec(), "08P01"),
        (b"S\0\x10\0\0".to_vec(), "08P01"),
    ] {
        let mut client = Client::connect(&server.target()).unwrap();
        client.set_patience(Some(PATIENCE)).unwrap();
        client.send(&bytes).unwrap();
        let failed = client.drain().expect_err("the frame is refused");
        assert_eq!(failed.code(), Some(code), "{bytes:?}");
    }
    let mut client = Client::connect(&server.target()).unwrap();
    // A Bind with a count of -1, then Sync: one error, one ReadyForQuery, and the connection goes on.
    client.send(b"B\0\0\0\x0c\0\0\0\0\xff\xff\0\0S\0\0\0\x04").unwrap();
    assert!(client.drain().is_err());
    assert!(client.drain().is_ok(), "ReadyForQuery follows");
    assert_eq!(client.rows("SELECT 2").unwrap(), [[Some("2".to_owned())]]);
    assert!(!server.log().contains("panicked"), "{}", server.log());
}

#[test]
fn no_secret_and_no_payload_reaches_the_log_or_the_metrics() {
    const CANARY: &str = "canary9f2b7c";
    let server = Running::start(
        &["--log", "trace", "--set", "log.slow_statement=0ms"],
        &[("KEYSTEAD_PASSWORD", "canary9f2b7c-password-of-admin")],
    );
    let target = server.target();
    let wrong = Target { password: format!("{CANARY}-wrong"), ..target.clone() };
    assert_eq!(error_code(&wrong), "28P01");
    let mut client = Client::connect(&target).unwrap();
    for statement in [
        format!("SELECT '{CANARY}'"),
        format!("SELECT '{CANARY}'::int4"),
        format!("CREATE ROLE someone LOGIN PASSWORD '{CANARY}-role'"),
        format!("SELECT $a${CANARY}$a$, E'{CANARY}\\'', 1 / 0"),
        "CREATE TABLE t (a text PRIMARY KEY)".to_owned(),
        format!("INSERT INTO t VALUES ('{CANARY}')"),
        format!("INSERT INTO t VALUES ('{CANARY}')"),
        format!("SELECT '{CANARY} without an end"),
    ] {
        let _ = client.query(&statement, |event| drop(format!("{event:?}")));
    }
    let token = Admin::read(&server.data()).unwrap().token;
    let log = server.log();
    for secret in [CANARY, &token] {
        assert!(!log.contains(secret), "the log holds a secret:\n{log}");
        assert!(!server.get("/metrics").contains(secret));
    }
    assert!(log.contains("slow statement"), "the log has lines to look at");
}

#[test]
fn the_shell_prints_what_programs_can_read_and_fails_with_its_statement() {
    let server = Running::start(&[], &[]);
    let shell = |arguments: &[&str]| {
        let mut command = binary();
        command.args(["sql", "--data"]).arg(server.data()).args(arguments).output().unwrap()
    };
    let output = shell(&["-c", "SELECT 1 AS a, 'x' AS b", "--format", "json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let rows: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(rows, serde_json::json!([{"a": 1, "b": "x"}]));
    let failed = shell(&["-c", "SELECT 1 / 0"]);
    assert_eq!(failed.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&failed.stderr).contains("division by zero"));
}

#[test]
fn import_skips_and_counts_bad_rows_and_export_gives_the_good_ones_back() {
    let server = Running::start(&[], &[]);
    let mut client = Client::connect(&server.target()).unwrap();
    client.query("CREATE TABLE people (id int4 PRIMARY KEY, name text)", |_| ()).unwrap();
    let file = server.folder.path().join("people.csv");
    fs::write(&file, "id,name\n1,Ada\nx,Nobody\n2,\"Grace, H.\"\n3,\n").unwrap();
    let run = |arguments: &[&str], file: &Path| {
        let mut command = binary();
        command
            .arg(arguments[0])
            .arg("--data")
            .arg(server.data())
            .arg(arguments[1])
            .arg(file)
            .output()
            .unwrap()
    };
    let output = run(&["import", "people"], &file);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("3 rows imported, 1 skipped"), "{said}");
    let out = server.folder.path().join("out.csv");
    assert!(run(&["export", "(SELECT * FROM people ORDER BY id)"], &out).status.success());
    assert_eq!(fs::read_to_string(out).unwrap(), "id,name\n1,Ada\n2,\"Grace, H.\"\n3,\n");
    let mut tag = String::new();
    client
        .query("SELECT * FROM people WHERE name IS NULL", |event| {
            if let Event::Done(done) = event {
                tag = done.to_owned();
            }
        })
        .unwrap();
    assert_eq!(tag, "SELECT 1");
}
