//! The life of the process: first start, clean end, restart, and the starts that are refused.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use tests::keystead::{self, Keystead, signal};
use tests::wire;

fn refused(arguments: &[&str], code: i32, words: &[&str]) {
    let output = keystead::run(arguments).unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
    for word in words {
        assert!(said.contains(word), "{arguments:?} does not say {word:?}: {said}");
    }
}

const PORTS: [&str; 8] =
    ["--sql", "127.0.0.1:0", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--peer", "127.0.0.1:0"];

#[test]
fn the_first_start_makes_a_secret_only_its_owner_can_read() {
    let server = Keystead::start().unwrap();
    for name in ["admin.json", "server.json"] {
        let mode = fs::metadata(server.data().join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{name}");
    }
    let address = server.address().unwrap();
    assert_eq!(address.user, "admin");
    assert!(address.password.len() >= 16, "the password is short");
    let state: serde_json::Value =
        serde_json::from_slice(&fs::read(server.data().join("server.json")).unwrap()).unwrap();
    assert_eq!(state["pid"].as_u64(), Some(u64::from(server.pid())));
    assert!(!server.log().contains(&address.password), "the password is in the log");
    let other = Keystead::start().unwrap();
    assert_ne!(other.address().unwrap().password, address.password);
}

#[test]
fn a_clean_stop_keeps_everything_and_gives_the_directory_back() {
    let mut server = Keystead::start().unwrap();
    let mut wire = server.connect().unwrap();
    assert_eq!(wire.query("CREATE TABLE t (a int PRIMARY KEY, b text)").unwrap().code(), "");
    let password = server.address().unwrap().password;
    for round in 0..5 {
        let mut wire = server.connect().unwrap();
        assert_eq!(wire.query(&format!("INSERT INTO t VALUES ({round}, 'r')")).unwrap().code(), "");
        // An open transaction does not survive, and does not hold the stop up for ever.
        wire.query("BEGIN").unwrap();
        wire.query(&format!("INSERT INTO t VALUES ({}, 'open')", 100 + round)).unwrap();
        let begun = Instant::now();
        let status = if round % 2 == 0 { server.stop().unwrap() } else { interrupt(&mut server) };
        assert!(status.success(), "{status}");
        assert!(begun.elapsed() < Duration::from_secs(15), "the stop took {:?}", begun.elapsed());
        let ready = server.restart().unwrap();
        assert!(ready < Duration::from_secs(5), "ready after {ready:?}");
        assert_eq!(server.address().unwrap().password, password, "a restart keeps the secret");
    }
    let mut wire = server.connect().unwrap();
    assert_eq!(wire.query("SELECT count(*) FROM t").unwrap().scalar(), Some("5"));
}

/// SIGINT twice, as an impatient hand does it.
fn interrupt(server: &mut Keystead) -> std::process::ExitStatus {
    signal(server.pid(), "INT").unwrap();
    server.stop().unwrap()
}

#[test]
fn a_kill_at_once_after_an_answer_loses_nothing() {
    let mut server = Keystead::start().unwrap();
    server.connect().unwrap().query("CREATE TABLE t (a int PRIMARY KEY)").unwrap();
    for n in 0..5 {
        let mut wire = server.connect().unwrap();
        assert_eq!(wire.query(&format!("INSERT INTO t VALUES ({n})")).unwrap().code(), "");
        server.kill().unwrap();
        server.restart().unwrap();
        let mut wire = server.connect().unwrap();
        let count = (n + 1).to_string();
        assert_eq!(wire.query("SELECT count(*) FROM t").unwrap().scalar(), Some(count.as_str()));
    }
}

#[test]
fn starts_that_cannot_work_are_refused_with_their_reason() {
    let server = Keystead::start().unwrap();
    let data = server.data().to_str().unwrap().to_owned();
    let pid = server.pid().to_string();
    // A second process on the directory, named after its holder; the first goes on.
    refused(&[&["serve", "--data", &data][..], &PORTS].concat(), 75, &[&pid]);
    assert_eq!(server.connect().unwrap().query("SELECT 1").unwrap().scalar(), Some("1"));

    let place = tempfile::tempdir().unwrap();
    let fresh = place.path().join("fresh");
    let fresh = fresh.to_str().unwrap();
    let taken = server.ready().sql.clone();
    let ports = ["--sql", &taken, "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--peer", "127.0.0.1:0"];
    refused(&[&["serve", "--data", fresh][..], &ports].concat(), 75, &[&taken]);

    // Off loopback without TLS, unless it is asked for by name.
    let open =
        ["--sql", "0.0.0.0:0", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--peer", "127.0.0.1:0"];
    refused(&[&["serve", "--data", fresh][..], &open].concat(), 78, &["TLS"]);

    // Something that is not a directory of ours.
    let file = place.path().join("file");
    fs::write(&file, "not a directory").unwrap();
    let output = keystead::run(&[&["serve", "--data", file.to_str().unwrap()][..], &PORTS].concat()).unwrap();
    assert!(!output.status.success());

    refused(&["serve", "--nosuch"], 64, &["--nosuch"]);
    // A segment holds two parts of a large command, or that command would stop its shard.
    for size in ["4MiB", "8MiB-1", "8388609", "2GiB"] {
        let setting = format!("log.segment_bytes={size}");
        refused(&["serve", "--set", &setting], 78, &["log.segment_bytes"]);
    }
}

#[test]
fn health_and_metrics_tell_the_state() {
    let server = Keystead::start().unwrap();
    assert_eq!(server.http_get("/health/live").unwrap().0, 200);
    assert_eq!(server.http_get("/health/ready").unwrap().0, 200);
    let (status, text) = server.http_get("/metrics").unwrap();
    assert_eq!(status, 200);
    let families: Vec<&str> = text.lines().filter(|line| line.starts_with("# TYPE ")).collect();
    assert!(families.len() >= 5, "only {families:?}");
    assert_eq!(server.http_get("/nosuch").unwrap().0, 404);
}

#[test]
fn no_secret_reaches_log_metrics_or_errors() {
    let server = Keystead::start().unwrap();
    let canaries = ["canary-value-4711", "canary-password-4712", "canary-parameter-4713"];
    let mut wire = server.connect().unwrap();
    let mut said = String::new();
    for sql in [
        "CREATE TABLE secrets (id int PRIMARY KEY, v text)".to_owned(),
        format!("INSERT INTO secrets VALUES (1, '{}')", canaries[0]),
        format!("CREATE ROLE guest LOGIN PASSWORD '{}'", canaries[1]),
        format!("ALTER ROLE guest PASSWORD '{}x'", canaries[1]),
    ] {
        if let Some(error) = wire.query(&sql).unwrap().error {
            said.push_str(&format!("{error:?}"));
        }
    }
    let bind = wire::bind("", "", &[], &[Some(canaries[2].as_bytes())], &[]);
    let frames = [wire::parse("", "SELECT $1::int", &[]), bind, wire::execute("", 0), wire::sync()].concat();
    wire.send(&frames).unwrap();
    wire.read_until_ready().unwrap();
    let mut wrong = server.address().unwrap();
    wrong.password = canaries[1].to_owned();
    assert!(tests::wire::Wire::connect(&wrong).is_err());
    let metrics = server.http_get("/metrics").unwrap().1;
    for (what, text) in [("log", server.log()), ("metrics", metrics), ("errors", said)] {
        for canary in canaries {
            assert!(!text.contains(canary), "{canary} is in the {what}");
        }
        assert!(!text.contains(&server.address().unwrap().password), "the admin's password is in the {what}");
    }
}
