//! Faults that users of other systems met, each under the number of its row in the list of public faults.

use std::io::{Read, Write};
use std::time::Duration;

use tests::keystead::resident_bytes;
use tests::wire::{self, Wire};

use crate::subject::{Subject, run};

fn pid(subject: &Subject) -> u32 {
    match subject {
        Subject::Keystead(server) => server.pid(),
        Subject::Oracle(oracle) => oracle.pid(),
    }
}

fn rows(wire: &mut Wire, sql: &str) -> Vec<String> {
    let reply = wire.query(sql).unwrap();
    assert!(reply.error.is_none(), "{sql}: {:?}", reply.error);
    let show = |row: &Vec<Option<String>>| {
        row.iter().map(|v| v.clone().unwrap_or_else(|| "NULL".into())).collect::<Vec<_>>().join("|")
    };
    reply.answers.last().unwrap().rows.iter().map(show).collect()
}

#[test]
fn sq01_a_filter_above_an_outer_join_is_not_a_filter_below_it() {
    let subject = Subject::start();
    let mut wire = subject.connect();
    run(&mut wire, "CREATE TABLE a (id int PRIMARY KEY, x int)");
    run(&mut wire, "CREATE TABLE b (id int PRIMARY KEY, y int)");
    run(&mut wire, "INSERT INTO a VALUES (1, 1), (2, 2), (3, 3)");
    run(&mut wire, "INSERT INTO b VALUES (1, 10), (2, 0)");
    let cases = [
        ("SELECT a.id FROM a LEFT JOIN b ON a.id = b.id WHERE b.y > 5 ORDER BY 1", vec!["1"]),
        ("SELECT a.id FROM a LEFT JOIN b ON a.id = b.id AND b.y > 5 ORDER BY 1", vec!["1", "2", "3"]),
        (
            "SELECT a.id FROM a LEFT JOIN b ON a.id = b.id WHERE coalesce(b.y, 99) > 5 ORDER BY 1",
            vec!["1", "3"],
        ),
        ("SELECT a.id FROM a LEFT JOIN b ON a.id = b.id WHERE b.y IS NULL ORDER BY 1", vec!["3"]),
        (
            "SELECT a.id FROM a LEFT JOIN b ON a.id = b.id AND a.x > 1 WHERE b.id IS NULL ORDER BY 1",
            vec!["1", "3"],
        ),
        ("SELECT a.id FROM a LEFT JOIN b ON a.id = b.id AND false WHERE a.x < 3 ORDER BY 1", vec!["1", "2"]),
        ("SELECT a.id FROM b RIGHT JOIN a ON a.id = b.id WHERE NOT (b.y > 5) ORDER BY 1", vec!["2"]),
        (
            "SELECT a.id FROM a FULL JOIN b ON a.id = b.id + 1 WHERE a.x = 3 OR b.y = 10 ORDER BY 1",
            vec!["2", "3"],
        ),
    ];
    for (sql, right) in cases {
        assert_eq!(rows(&mut wire, sql), right, "{sql}");
    }
}

#[test]
fn sq02_a_limit_over_a_join_keeps_true_rows_only() {
    let subject = Subject::start();
    let mut wire = subject.connect();
    run(&mut wire, "CREATE TABLE a AS SELECT g AS id FROM generate_series(1, 50) g");
    run(&mut wire, "CREATE TABLE b AS SELECT g AS id FROM generate_series(30, 80) g");
    for join in ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"] {
        let sql = format!("SELECT a.id, b.id FROM a {join} b ON a.id = b.id");
        let all = rows(&mut wire, &sql);
        for (limit, offset) in [(2, 0), (10, 5), (100, 0), (3, 45), (5, 1_000)] {
            let some = rows(&mut wire, &format!("{sql} LIMIT {limit} OFFSET {offset}"));
            assert_eq!(some.len(), all.len().saturating_sub(offset).min(limit), "{join} {limit} {offset}");
            let mut rest = all.clone();
            for row in some {
                let at =
                    rest.iter().position(|r| *r == row).unwrap_or_else(|| panic!("{join}: {row} is made up"));
                rest.swap_remove(at);
            }
        }
    }
}

#[test]
fn sq04_not_in_with_a_null_is_unknown_whatever_the_access_path() {
    let subject = Subject::start();
    let mut wire = subject.connect();
    run(&mut wire, "CREATE TABLE a AS SELECT g AS id FROM generate_series(1, 100) g");
    run(&mut wire, "CREATE TABLE b (x int)");
    run(&mut wire, "INSERT INTO b VALUES (1), (2), (NULL)");
    for round in 0..2 {
        assert!(rows(&mut wire, "SELECT id FROM a WHERE id NOT IN (SELECT x FROM b)").is_empty());
        assert_eq!(rows(&mut wire, "SELECT count(*) FROM a WHERE id IN (SELECT x FROM b)"), ["2"]);
        assert_eq!(
            rows(&mut wire, "SELECT count(*) FROM a WHERE (id NOT IN (SELECT x FROM b)) IS NULL"),
            ["98"]
        );
        assert_eq!(
            rows(&mut wire, "SELECT count(*) FROM a WHERE id NOT IN (SELECT x FROM b WHERE x < 0)"),
            ["100"]
        );
        assert_eq!(
            rows(&mut wire, "SELECT count(*) FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE x = id)"),
            ["98"]
        );
        if round == 0 {
            run(&mut wire, "CREATE INDEX ON a (id)");
            run(&mut wire, "CREATE INDEX ON b (x)");
        }
    }
}

#[test]
fn sq07_a_series_without_end_takes_time_and_not_memory() {
    let subject = Subject::start();
    let mut wire = subject.connect();
    run(&mut wire, "SET statement_timeout = '1500ms'");
    // PostgreSQL materializes the function first; three rows are no reason to.
    if !crate::subject::is_oracle() {
        assert_eq!(
            rows(&mut wire, "SELECT g FROM generate_series(1, 9876543210) g LIMIT 3"),
            ["1", "2", "3"]
        );
    }
    let before = resident_bytes(pid(&subject)).unwrap();
    let code = wire.query("SELECT count(*) FROM generate_series(1, 9876543210) g").unwrap().code().to_owned();
    assert!(["57014", "53200", "53400"].contains(&code.as_str()), "{code}");
    let after = resident_bytes(pid(&subject)).unwrap();
    assert!(after < before + (96 << 20), "{} MiB more", (after - before) >> 20);
}

#[test]
fn sq13_a_length_that_lies_is_refused_at_the_header() {
    let subject = Subject::start();
    let before = resident_bytes(pid(&subject)).unwrap();
    for length in [0u32, 3, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff] {
        for tag in [b'Q', b'P', b'B', b'd'] {
            let mut wire = subject.connect();
            wire.send(&[&[tag][..], &length.to_be_bytes()].concat()).unwrap();
            wire.stream().set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            loop {
                match wire.read() {
                    Ok(message) => assert_eq!(message.tag, b'E', "{tag} {length}"),
                    Err(error) => {
                        let waits = matches!(
                            error.kind(),
                            std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
                        );
                        assert!(!waits, "{} with length {length:#x} is waited for", char::from(tag));
                        break;
                    }
                }
            }
        }
    }
    let after = resident_bytes(pid(&subject)).unwrap();
    assert!(after < before + (32 << 20), "{} MiB more", (after - before) >> 20);
    assert_eq!(subject.connect().query("SELECT 1").unwrap().scalar(), Some("1"));
}

#[test]
fn sq16_half_an_ssl_request_costs_nothing() {
    let subject = Subject::start();
    let address = subject.address();
    let mut held: Vec<Wire> = Vec::new();
    for length in 1..8 {
        let mut wire = Wire::open(&address).unwrap();
        wire.send(&wire::request(80_877_103)[..length]).unwrap();
        held.push(wire);
    }
    let ticks = |pid: u32| -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let rest = stat.rsplit_once(')').unwrap().1;
        rest.split_whitespace().skip(11).take(2).map(|n| n.parse::<u64>().unwrap()).sum()
    };
    let before = ticks(pid(&subject));
    // Nothing is to happen, so there is no event to wait for: what is measured is the CPU time of two idle seconds.
    std::thread::sleep(Duration::from_secs(2));
    let spent = ticks(pid(&subject)) - before;
    assert!(spent < 100, "{spent} ticks of CPU in two seconds of waiting");
    // The rest of the request arrives late and is answered.
    let mut wire = held.remove(2);
    wire.send(&wire::request(80_877_103)[3..]).unwrap();
    assert!(matches!(wire.read_byte().unwrap(), b'N' | b'S'));
}

#[test]
fn sq20_each_sync_has_one_ready_and_each_query_its_own() {
    let subject = Subject::start();
    let mut wire = subject.connect();
    let good = |n: i32| {
        [
            wire::parse("", &format!("SELECT {n}"), &[]),
            wire::bind("", "", &[], &[], &[]),
            wire::execute("", 0),
        ]
        .concat()
    };
    let bad = wire::parse("", "SELEC", &[]);
    let bytes = [
        good(1),
        good(2),
        wire::sync(),
        bad.clone(),
        good(3),
        wire::sync(),
        wire::query("SELECT 4; SELECT 5"),
        wire::sync(),
        good(6),
        bad,
        good(7),
        wire::flush(),
        good(8),
        wire::sync(),
        wire::query(""),
        good(9),
        wire::sync(),
    ]
    .concat();
    wire.send(&bytes).unwrap();
    let (mut rows, mut errors, mut ready) = (Vec::new(), 0, 0);
    while ready < 7 {
        let message = wire.read().unwrap();
        match message.tag {
            b'Z' => ready += 1,
            b'E' => errors += 1,
            b'D' => {
                rows.push(String::from_utf8(wire::row(&message.body).unwrap().remove(0).unwrap()).unwrap())
            }
            _ => {}
        }
    }
    assert_eq!((rows.join(""), errors), ("124569".to_owned(), 2));
    // Nothing is left over: the next answer belongs to the next question.
    assert_eq!(wire.query("SELECT 'last'").unwrap().scalar(), Some("last"));
}

#[test]
fn sq22_a_nul_in_any_value_is_an_error_of_the_statement() {
    let subject = Subject::start();
    let mut wire = subject.connect();
    for kind in [
        "text",
        "varchar",
        "char(3)",
        "int",
        "numeric",
        "bool",
        "date",
        "timestamptz",
        "interval",
        "uuid",
        "json",
        "jsonb",
        "text[]",
        "bytea",
        "name",
    ] {
        for format in [0, 1] {
            let frames = [
                wire::parse("", &format!("SELECT $1::{kind}"), &[]),
                wire::bind("", "", &[format], &[Some(b"a\0b")], &[]),
                wire::execute("", 0),
                wire::sync(),
            ];
            wire.send(&frames.concat()).unwrap();
            let messages = wire.read_until_ready().unwrap();
            let error = messages.iter().find(|m| m.tag == b'E').map(|m| wire::problem(&m.body));
            let is_plain_bytes = kind == "bytea";
            match error {
                None => assert!(is_plain_bytes, "{kind} in format {format} was taken"),
                Some(problem) => assert!(
                    ["22", "08"].contains(&&problem.code[..2]) || kind == "jsonb",
                    "{kind}: {problem:?}"
                ),
            }
        }
    }
    for sql in [
        "SELECT E'a\\000b'",
        "SELECT chr(0)",
        "SELECT '\"\\u0000\"'::jsonb",
        "SELECT convert_from('\\x00', 'UTF8')",
    ] {
        assert_ne!(wire.query(sql).unwrap().code(), "", "{sql}");
    }
    assert_eq!(wire.query("SELECT 1").unwrap().scalar(), Some("1"));
}

#[test]
fn sq26_rubbish_after_a_good_beginning_ends_the_connection() {
    let subject = Subject::start();
    for rubbish in [
        &[0u8; 64][..],
        &[0xff; 64],
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"Z\0\0\0\x05I",
        b"R\0\0\0\x08\0\0\0\0",
    ] {
        let mut wire = subject.connect();
        let mut bytes = wire::query("SELECT 'good'");
        bytes.extend_from_slice(rubbish);
        wire.send(&bytes).unwrap();
        let first = wire.read_until_ready().unwrap();
        assert!(first.iter().any(|m| m.tag == b'D'), "the good statement is answered");
        // Then an error or the end; the connection is not read on as if nothing had been.
        let mut stream = wire.stream();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let _ = stream.write_all(&wire::query("SELECT 'after'"));
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        assert!(!rest.windows(5).any(|w| w == b"after"), "{rubbish:?} was skipped over");
    }
    assert_eq!(subject.connect().query("SELECT 1").unwrap().scalar(), Some("1"));
}
