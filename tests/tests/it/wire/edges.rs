//! The edges of a connection: startup and its refusals, hostile bytes, cancel requests, clients that die.

use std::io::Write;
use std::time::{Duration, Instant};

use tests::wire::{self, Wire};

use crate::subject::Subject;

#[test]
fn startup_and_its_refusals() {
    let subject = Subject::start();
    let address = subject.address();
    // W01: no TLS here, so the answer is N and plaintext goes on.
    for code in [80_877_103, 80_877_104] {
        let mut wire = Wire::open(&address).unwrap();
        wire.send(&wire::request(code)).unwrap();
        let answer = wire.read_byte().unwrap();
        if crate::subject::is_oracle() && answer == b'G' {
            continue; // the oracle may be built with GSS, which this client does not speak
        }
        assert_eq!(answer, b'N', "request {code}");
        wire.send(&wire::startup(196_608, &[("user", &address.user), ("database", &address.database)]))
            .unwrap();
        wire.log_in(&address.password).unwrap();
        assert_eq!(wire.query("SELECT 1").unwrap().scalar(), Some("1"));
    }
    // W04: what drivers read before their first query.
    let mut wire = subject.connect();
    let parameter =
        |wire: &Wire, name: &str| wire.parameters.iter().find(|(n, _)| n == name).map(|(_, v)| v.clone());
    for (name, value) in [
        ("server_encoding", "UTF8"),
        ("client_encoding", "UTF8"),
        ("DateStyle", "ISO, MDY"),
        ("IntervalStyle", "postgres"),
        ("integer_datetimes", "on"),
        ("standard_conforming_strings", "on"),
        ("is_superuser", "on"),
        ("in_hot_standby", "off"),
        ("default_transaction_read_only", "off"),
    ] {
        assert_eq!(parameter(&wire, name).as_deref(), Some(value), "{name}");
    }
    assert!(parameter(&wire, "server_version").unwrap().starts_with("15."));
    assert!(parameter(&wire, "TimeZone").is_some());
    assert_eq!(parameter(&wire, "session_authorization").as_deref(), Some(address.user.as_str()));
    assert_ne!(wire.key, (0, 0), "BackendKeyData");
    assert_eq!(wire.query("SELECT 1").unwrap().scalar(), Some("1"));

    // W05, W06: refused by name.
    let refused = |change: &dyn Fn(&mut tests::Address)| {
        let mut wrong = address.clone();
        change(&mut wrong);
        Wire::connect(&wrong).err().expect("it is refused").to_string()
    };
    assert!(refused(&|a| a.password = "wrong-password".into()).starts_with("28P01"));
    assert!(refused(&|a| a.user = "nobody".into()).starts_with("28P01"));
    assert!(refused(&|a| a.database = "nosuch".into()).starts_with("3D000"));

    // W03: a major version that does not exist, and a minor that is newer.
    let mut old = Wire::open(&address).unwrap();
    old.send(&wire::startup(2 << 16, &[("user", &address.user)])).unwrap();
    let answer = old.read().map(|m| wire::problem(&m.body).code);
    assert!(matches!(answer.as_deref(), Ok("0A000") | Err(_)), "{answer:?}");
    let mut newer = Wire::open(&address).unwrap();
    newer.send(&wire::startup(196_610, &[("user", &address.user), ("database", &address.database)])).unwrap();
    newer.log_in(&address.password).unwrap();
    assert_eq!(newer.query("SELECT 1").unwrap().scalar(), Some("1"));
}

#[test]
fn hostile_first_bytes_end_one_connection_and_nothing_else() {
    let subject = Subject::start();
    let address = subject.address();
    let hostile: &[&[u8]] = &[
        &[0xff; 64],
        b"GET / HTTP/1.1\r\n\r\n",
        &[0, 0, 0, 0],
        &[0, 0, 0, 7, 0, 3, 0],
        &[0x7f, 0xff, 0xff, 0xff, 0, 3, 0, 0],
        &[0x80, 0, 0, 0, 0, 3, 0, 0],
        &[0, 0, 0, 9, 0, 3, 0, 0, b'u'],
        &[0, 0, 0, 8, 0, 3, 0, 0],
        &[0, 0, 0, 8, 4, 210, 22, 255],
    ];
    for bytes in hostile {
        let mut wire = Wire::open(&address).unwrap();
        let _ = wire.send(bytes);
        let _ = wire.stream().shutdown(std::net::Shutdown::Write);
        // An error message or the end of the stream; never anything else, never silence.
        while let Ok(message) = wire.read() {
            assert!(message.tag == b'E' || message.tag == b'R', "{bytes:?} was answered with {message:?}");
        }
        assert_eq!(subject.connect().query("SELECT 1").unwrap().scalar(), Some("1"));
    }
    // After login: lengths and counts that lie.
    let bad_frames: Vec<Vec<u8>> = vec![
        vec![b'Q', 0, 0, 0, 3],
        vec![b'Q', 0x80, 0, 0, 0],
        vec![b'Q', 0, 0, 0, 8, b'a', b'b', b'c', b'd'],
        wire::frame(b'P', b"no terminator"),
        wire::frame(b'B', b"\0\0\xff\xff"),
        wire::frame(b'B', b"\0\0\0\0\xff\xff\0\0"),
        wire::frame(b'B', b"\0\0\0\0\0\x01\x7f\xff\xff\xff"),
        wire::frame(b'D', b"Xname\0"),
        wire::frame(b'C', b""),
        wire::frame(b'E', b"\0"),
        wire::frame(b'Y', b"unknown"),
    ];
    for frame in bad_frames {
        let mut wire = subject.connect();
        let _ = wire.send(&[frame.clone(), wire::sync()].concat());
        let mut codes = Vec::new();
        while let Ok(message) = wire.read() {
            match message.tag {
                b'E' => codes.push(wire::problem(&message.body).code),
                b'Z' => break,
                _ => {}
            }
        }
        assert!(
            codes.iter().all(|c| c.starts_with("08")
                || c.starts_with("22")
                || c.starts_with("26")
                || c.starts_with("42")),
            "{frame:?}: {codes:?}"
        );
        assert_eq!(subject.connect().query("SELECT 1").unwrap().scalar(), Some("1"), "after {frame:?}");
    }
    // W06: half a startup packet is held open; others are served meanwhile.
    let mut held: Vec<Wire> = (0..20).map(|_| Wire::open(&address).unwrap()).collect();
    for (n, wire) in held.iter_mut().enumerate() {
        let _ = wire.stream().write_all(&wire::request(80_877_103)[..n % 8]);
    }
    let begun = Instant::now();
    assert_eq!(subject.connect().query("SELECT 1").unwrap().scalar(), Some("1"));
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_cancel_request_stops_the_query_and_nothing_else() {
    let subject = Subject::start();
    let address = subject.address();
    let mut victim = subject.connect();
    let long = "SELECT count(*) FROM generate_series(1, 100000000) a, generate_series(1, 100) b";
    let stop = |key: (u32, u32)| Wire::open(&address).unwrap().send(&wire::cancel(key)).unwrap();

    // A wrong key and an idle session: nothing happens.
    stop((victim.key.0, victim.key.1 ^ 1));
    stop(victim.key);
    assert_eq!(victim.query("SELECT 1").unwrap().scalar(), Some("1"));

    victim.send(&wire::query(long)).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let begun = Instant::now();
    stop(victim.key);
    let messages = victim.read_until_ready().unwrap();
    let took = begun.elapsed();
    let error = messages.iter().find(|m| m.tag == b'E').expect("the query ends with an error");
    assert_eq!(wire::problem(&error.body).code, "57014");
    assert!(took < Duration::from_millis(1_000), "cancelled only after {took:?}");
    assert_eq!(victim.query("SELECT 2").unwrap().scalar(), Some("2"));

    // Waiting on a lock is cancelled as well.
    let mut holder = subject.connect();
    holder.query("CREATE TABLE cancel_lock (id int PRIMARY KEY, v int)").unwrap();
    holder.query("INSERT INTO cancel_lock VALUES (1, 1)").unwrap();
    holder.query("BEGIN").unwrap();
    assert_eq!(holder.query("UPDATE cancel_lock SET v = 2 WHERE id = 1").unwrap().code(), "");
    victim.send(&wire::query("UPDATE cancel_lock SET v = 3 WHERE id = 1")).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    stop(victim.key);
    let messages = victim.read_until_ready().unwrap();
    let error = messages.iter().find(|m| m.tag == b'E').expect("the wait ends with an error");
    assert_eq!(wire::problem(&error.body).code, "57014");
    assert_eq!(holder.query("COMMIT").unwrap().code(), "");
    assert_eq!(victim.query("SELECT v FROM cancel_lock").unwrap().scalar(), Some("2"));

    // The end of a client in a block rolls back and gives its locks to others.
    let mut gone = subject.connect();
    gone.query("BEGIN").unwrap();
    assert_eq!(gone.query("UPDATE cancel_lock SET v = 9 WHERE id = 1").unwrap().code(), "");
    drop(gone);
    victim.query("SET lock_timeout = '10s'").unwrap();
    assert_eq!(
        victim.query("UPDATE cancel_lock SET v = v + 1 WHERE id = 1 RETURNING v").unwrap().scalar(),
        Some("3")
    );
}
