//! The protocol, frame by frame: the same bytes go to the server and to PostgreSQL 15, and the traces must be equal.
//!
//! The numbers (W10 …) are those of the compatibility list the issue names.

mod edges;

use tests::oracle::{Durability, Oracle};
use tests::wire::{self, Message, Wire};

use crate::subject::Subject;

/// Cases whose traces differ today, and why. One that has become equal fails until it is taken off.
const KNOWN_DIFFERENCES: &[(&str, &str)] = &[("W13 LISTEN x", "LISTEN is refused with 0A000")];

/// The server and the truth, started once for all cases of this file.
struct Both {
    subject: Subject,
    oracle: Oracle,
}

impl Both {
    fn start() -> Both {
        Both {
            subject: Subject::start(),
            oracle: Oracle::start(Durability::Off).expect("PostgreSQL 15 starts"),
        }
    }

    fn connect(&self) -> (Wire, Wire) {
        (
            self.subject.connect(),
            Wire::connect(self.oracle.address()).expect("the oracle accepts a connection"),
        )
    }
}

/// Sends the same frames to both and collects the differences of their traces.
struct Cases<'a> {
    both: &'a Both,
    ran: Vec<String>,
    differing: Vec<String>,
    differences: Vec<String>,
    count: usize,
}

impl<'a> Cases<'a> {
    fn new(both: &'a Both) -> Cases<'a> {
        Cases { both, ran: Vec::new(), differing: Vec::new(), differences: Vec::new(), count: 0 }
    }

    /// `rounds`: each is sent as one packet and ends with as many ReadyForQuery as it contains Query and Sync frames.
    fn equal(&mut self, name: &str, setup: &[&str], rounds: &[Vec<u8>]) {
        self.count += 1;
        self.ran.push(name.to_owned());
        let (mut ours, mut theirs) = self.both.connect();
        let mut traces = [String::new(), String::new()];
        for (wire, trace) in [&mut ours, &mut theirs].into_iter().zip(&mut traces) {
            for sql in setup {
                let reply = wire.query(sql).expect("setup reaches the server");
                if !reply.code().is_empty() {
                    trace.push_str(&format!("setup {sql}: {:?}\n", reply.error));
                }
            }
            for round in rounds {
                match exchange(wire, round) {
                    Ok(messages) => trace.push_str(&wire::trace(&messages)),
                    Err(error) => trace.push_str(&format!("connection: {}\n", error.kind())),
                }
            }
        }
        if traces[0] != traces[1] {
            self.differing.push(name.to_owned());
            self.differences
                .push(format!("== {name}\n-- PostgreSQL\n{}-- Keystead\n{}", traces[1], traces[0]));
        }
    }

    fn done(self, at_least: usize) {
        assert!(self.count >= at_least, "only {} cases ran", self.count);
        let is_known = |name: &str| KNOWN_DIFFERENCES.iter().any(|(known, _)| *known == name);
        for (name, why) in
            KNOWN_DIFFERENCES.iter().filter(|(known, _)| self.ran.iter().any(|ran| ran == known))
        {
            let is_oracle = crate::subject::is_oracle();
            assert!(
                is_oracle || self.differing.iter().any(|differs| differs == name),
                "{name} is equal now: take it off the list"
            );
            println!("known difference: {name}: {why}");
        }
        let differences: Vec<&str> = (self.differing.iter().zip(&self.differences))
            .filter(|(name, _)| !is_known(name))
            .map(|(_, difference)| difference.as_str())
            .collect();
        assert!(
            differences.is_empty(),
            "{} of {} differ:\n{}",
            differences.len(),
            self.count,
            differences.join("\n")
        );
        println!("{} wire cases equal", self.count - self.differing.len());
    }
}

/// Sends bytes and reads until every Query and Sync in them has been answered.
fn exchange(wire: &mut Wire, bytes: &[u8]) -> std::io::Result<Vec<Message>> {
    wire.send(bytes)?;
    let mut messages = Vec::new();
    for _ in 0..ends(bytes) {
        messages.extend(wire.read_until_ready()?);
    }
    Ok(messages)
}

fn ends(mut bytes: &[u8]) -> usize {
    let mut count = 0;
    while bytes.len() >= 5 {
        let length = u32::from_be_bytes([bytes[1], bytes[2], bytes[3], bytes[4]]) as usize;
        count += usize::from(bytes[0] == b'Q' || bytes[0] == b'S');
        bytes = bytes.get(length + 1..).unwrap_or_default();
    }
    count
}

fn all(frames: &[Vec<u8>]) -> Vec<u8> {
    frames.concat()
}

#[test]
fn simple_queries_answer_as_postgresql_does() {
    let both = Both::start();
    let mut cases = Cases::new(&both);
    let table = ["DROP TABLE IF EXISTS w", "CREATE TABLE w (id int PRIMARY KEY, v text)"];
    for sql in [";", "", "  ;; ", "-- nothing", "/* nothing */"] {
        cases.equal(&format!("W10 {sql:?}"), &[], &[wire::query(sql)]);
    }
    for sql in [
        "SELECT 1; SELECT 2; INSERT INTO w VALUES (1, 'x')",
        "INSERT INTO w VALUES (2, 'y'); SELECT 1/0; INSERT INTO w VALUES (3, 'z')",
        "SELECT 1;;SELECT 2;",
        "BEGIN; INSERT INTO w VALUES (4, 'a')",
        "BEGIN; SELECT 1/0",
        "BEGIN; INSERT INTO w VALUES (5, 'a'); COMMIT; SELECT 1/0",
        "INSERT INTO w VALUES (6, 'a'); COMMIT; SELECT 1/0",
        "SELECT 1; SELEC 2",
    ] {
        let rounds = [wire::query(sql), wire::query("ROLLBACK"), wire::query("SELECT count(*) FROM w")];
        cases.equal(&format!("W11 {sql}"), &table, &rounds);
    }
    let rounds = ["BEGIN", "SELECT 1/0", "SELECT 1", "COMMIT", "SELECT 1"].map(wire::query);
    cases.equal("W12 failed block", &table, &rounds);
    let tags = [
        "INSERT INTO w VALUES (1, 'a'), (2, 'b')",
        "UPDATE w SET v = 'c'",
        "DELETE FROM w WHERE id = 1",
        "SELECT * FROM w",
        "CREATE TABLE w2 AS SELECT 1 AS a",
        "BEGIN",
        "SAVEPOINT s",
        "RELEASE s",
        "SAVEPOINT s",
        "ROLLBACK TO s",
        "COMMIT",
        "START TRANSACTION",
        "ROLLBACK",
        "SET application_name = 'x'",
        "SHOW application_name",
        "RESET application_name",
        "DROP TABLE w2",
        "PREPARE p AS SELECT 1",
        "EXECUTE p",
        "DEALLOCATE p",
        "DISCARD ALL",
        "TRUNCATE w",
        "CREATE INDEX w_v ON w (v)",
        "DROP INDEX w_v",
        "ALTER TABLE w ADD COLUMN z int",
        "CREATE VIEW w3 AS SELECT 1 AS one",
        "DROP VIEW w3",
        "CREATE SCHEMA w4",
        "DROP SCHEMA w4",
        "CREATE SEQUENCE w5",
        "DROP SEQUENCE w5",
        "COMMENT ON TABLE w IS 'x'",
        "LISTEN x",
        "UNLISTEN x",
        "VALUES (1)",
        "EXPLAIN SELECT nosuch",
    ];
    for tag in tags {
        cases.equal(&format!("W13 {tag}"), &table, &[wire::query(tag), wire::query("SELECT 1")]);
    }
    cases.equal(
        "W14 BEGIN twice",
        &[],
        &[wire::query("BEGIN"), wire::query("BEGIN"), wire::query("ROLLBACK")],
    );
    cases.equal("W14 COMMIT outside", &[], &[wire::query("COMMIT"), wire::query("ROLLBACK")]);
    for setting in [
        "application_name = 'w07'",
        "timezone = 'Asia/Tokyo'",
        "datestyle = 'ISO, DMY'",
        "client_encoding = 'UTF8'",
    ] {
        cases.equal(&format!("W07 {setting}"), &[], &[wire::query(&format!("SET {setting}"))]);
    }
    cases.done(50);
}

#[test]
fn reads_by_keys_answer_as_postgresql_does() {
    let both = Both::start();
    let mut cases = Cases::new(&both);
    let tables = [
        "SET TimeZone TO 'Asia/Tokyo'",
        "DROP TABLE IF EXISTS r",
        "DROP TABLE IF EXISTS s",
        "CREATE TABLE r (id int PRIMARY KEY, s int, t text)",
        "CREATE TABLE s (id int PRIMARY KEY, u timestamptz, v bytea)",
        "INSERT INTO r SELECT g, g / 10, 'row ' || g FROM generate_series(1, 700) g",
        "INSERT INTO s SELECT g, '2024-02-29 12:00:00+00', '\\x0102' FROM generate_series(1, 20) g",
        "INSERT INTO r VALUES (1000, NULL, NULL)",
    ];
    let mut bound: Vec<(&str, Vec<Vec<Option<&[u8]>>>)> = vec![
        (
            "SELECT t, id FROM r WHERE id = $1",
            vec![vec![Some(b"5")], vec![Some(b"5000")], vec![None], vec![Some(b"x")]],
        ),
        (
            "SELECT id + 1, upper(t) FROM r WHERE id = $1 AND s = $2",
            vec![vec![Some(b"15"), Some(b"1")], vec![Some(b"15"), Some(b"2")], vec![Some(b"1000"), None]],
        ),
    ];
    let ranges = [
        "SELECT id, t FROM r WHERE id >= $1 AND id < $2 ORDER BY id",
        "SELECT id FROM r WHERE id > $1 AND id <= $2 ORDER BY 1",
        "SELECT id FROM r WHERE id BETWEEN $1 AND $2 ORDER BY id DESC",
    ];
    for range in ranges {
        bound.push((
            range,
            vec![
                vec![Some(b"10"), Some(b"13")],
                vec![Some(b"13"), Some(b"10")],
                vec![Some(b"1"), Some(b"690")],
                vec![Some(b"10"), None],
                vec![Some(b"-5"), Some(b"3")],
                vec![Some(b"699"), Some(b"2147483647")],
            ],
        ));
    }
    for join in ["JOIN", "LEFT JOIN"] {
        let text = format!("SELECT r.t, s.u, s.v, r.id * 2 FROM r {join} s ON s.id = r.s WHERE r.id = $1");
        let values = ["25", "5", "650", "1000", "4000"];
        bound.push((text.leak(), values.iter().map(|value| vec![Some(value.as_bytes())]).collect()));
    }
    for (sql, all_values) in &bound {
        let mut rounds = Vec::new();
        for values in all_values {
            let run = |limit| {
                all(&[
                    wire::bind("", "p", &[], values, &[]),
                    wire::describe(b'P', ""),
                    wire::execute("", limit),
                ])
            };
            rounds.push(all(&[run(0), wire::execute("", 0), wire::sync()]));
            rounds.push(all(&[run(0), run(2), wire::sync()]));
        }
        let parse = all(&[wire::parse("p", sql, &[]), wire::describe(b'S', "p"), wire::sync()]);
        rounds.insert(0, parse);
        cases.equal(sql, &tables, &rounds);
        // Inside a block that has written, and after it has failed.
        let mut block = vec![rounds[0].clone(), wire::query("BEGIN")];
        block.push(wire::query("UPDATE r SET t = 'new', s = 3 WHERE id = 12"));
        block.push(wire::query("DELETE FROM r WHERE id = 11"));
        block.push(wire::query("INSERT INTO r VALUES (-1, 1, 'first')"));
        block.extend(rounds[1..].iter().step_by(2).cloned());
        block.push(wire::query("SELECT 1 / 0"));
        block.push(rounds[1].clone());
        block.push(wire::query("ROLLBACK"));
        block.push(rounds[1].clone());
        cases.equal(&format!("in a block: {sql}"), &tables, &block);
    }
    for sql in [
        "SELECT t, id FROM r WHERE id = 5",
        "SELECT t, id FROM r WHERE id = 5000",
        "SELECT t FROM r WHERE id = 5 AND s = 1",
        "SELECT id, t FROM r WHERE id > 10 AND id <= 13",
        "SELECT r.t, s.u FROM r JOIN s ON s.id = r.s WHERE r.id = 25",
        "SELECT t FROM r WHERE id = 5; SELECT t FROM r WHERE id = 6",
        "SELECT id, 1 / s FROM r WHERE id = 15",
    ] {
        // The second time its plan is known.
        let three = [wire::query(sql), wire::query(sql), wire::query(sql)];
        cases.equal(sql, &tables, &three);
    }
    cases.done(19);
}

#[test]
fn many_reads_before_one_sync_are_answered_as_they_come() {
    let subject = Subject::start();
    let mut wire = subject.connect();
    for sql in [
        "CREATE TABLE many (id int PRIMARY KEY, t text)",
        "INSERT INTO many SELECT g, repeat('x', 1000) FROM generate_series(1, 50) g",
    ] {
        assert_eq!(wire.query(sql).expect("it is answered").code(), "");
    }
    let read = all(&[wire::bind("", "p", &[], &[Some(b"0".as_slice())], &[]), wire::execute("", 0)]);
    let mut frames = vec![wire::parse("p", "SELECT t FROM many WHERE id > $1 AND id < 100", &[])];
    frames.extend(std::iter::repeat_n(read, 200));
    frames.push(wire::sync());
    let messages = exchange(&mut wire, &all(&frames)).expect("they are answered");
    assert_eq!(messages.iter().filter(|message| message.tag == b'D').count(), 200 * 50);
}

#[test]
fn the_extended_protocol_answers_as_postgresql_does() {
    let both = Both::start();
    let mut cases = Cases::new(&both);
    let table =
        ["DROP TABLE IF EXISTS w", "CREATE TABLE w (id int PRIMARY KEY, v text, n numeric, l bigint)"];
    let bind = |values: &[Option<&[u8]>]| wire::bind("", "", &[], values, &[]);
    let run = |sql: &str, values: &[Option<&[u8]>]| {
        all(&[
            wire::parse("", sql, &[]),
            bind(values),
            wire::describe(b'P', ""),
            wire::execute("", 0),
            wire::sync(),
        ])
    };
    cases.equal("W20 everything in one packet", &[], &[run("SELECT $1::int + 1, 'x'", &[Some(b"41")])]);
    cases.equal("W10 empty", &[], &[run("", &[]), run(";", &[])]);
    cases.equal("W20 two batches in one packet", &[], &[all(&[run("SELECT 1", &[]), run("SELECT 2", &[])])]);
    let failing = all(&[
        wire::parse("", "INSERT INTO w (id) VALUES (1)", &[]),
        bind(&[]),
        wire::execute("", 0),
        wire::parse("", "SELECT 1/0", &[]),
        bind(&[]),
        wire::execute("", 0),
        wire::parse("", "INSERT INTO w (id) VALUES (2)", &[]),
        bind(&[]),
        wire::execute("", 0),
        wire::sync(),
    ]);
    cases.equal(
        "SQ19 after an error everything up to Sync is skipped",
        &table,
        &[failing, wire::query("SELECT count(*) FROM w")],
    );
    for sql in [
        "SELECT * FROM w WHERE id = $1",
        "SELECT $1::int4",
        "SELECT id FROM w LIMIT $1",
        "SELECT id FROM w LIMIT $1 OFFSET $2",
        "INSERT INTO w VALUES ($1, $2, $3, $4)",
        "INSERT INTO w VALUES ($1, $2, $3, $4) RETURNING *",
        "UPDATE w SET v = $1 WHERE id = $2",
        "DELETE FROM w WHERE l < $1",
        "SELECT $1 + $2",
        "SELECT $1",
        "SELECT coalesce($1, id) FROM w",
        "SELECT id FROM w WHERE id = ANY($1)",
        "SELECT $1 IS NULL",
        "SELECT $2::int",
        "SELECT $1 || 'x'",
        "SELECT 'x' || $1",
        "SELECT $1 = 'x'",
        "SELECT $1 > 5",
        "SELECT 5 + $1",
        "SELECT id FROM w WHERE id IN ($1, $2)",
        "SELECT id FROM w WHERE v LIKE $1",
        "SELECT CASE WHEN $1 THEN 1 ELSE 2 END",
        "SELECT id FROM w WHERE l BETWEEN $1 AND $2",
        "SELECT lower($1)",
        "SELECT $1::text, $1::text",
        "SELECT $1::int, $2::text, $1",
        "SELECT sum($1::numeric)",
        "SELECT now() - $1",
        "SELECT now() + $1",
        "SELECT current_date + $1",
        "SELECT ARRAY[$1, 2]",
        "SELECT id FROM w ORDER BY $1",
        "SELECT abs($1)",
        "SELECT n * $1 FROM w",
        "SELECT l / $1 FROM w",
        "VALUES ($1, 1)",
        "SELECT id FROM w WHERE $1",
        "SELECT NOT $1",
        "SELECT generate_series(1, $1)",
        "SELECT '{}'::jsonb -> $1",
        "SELECT nosuch",
        "BEGIN",
        "SET application_name = 'x'",
        "CREATE TABLE w9 (a int)",
        "SELECT 1; SELECT 2",
        "SELEC",
        "SELECT greatest($1, 1.5)",
        "WITH x AS (SELECT $1::int AS a) SELECT a FROM x",
        "SELECT id FROM w WHERE (id, v) = ($1, $2)",
        "SELECT $1::varchar(3), $2::numeric(5,2)",
        "SELECT substring($1 from $2)",
        "SELECT extract(year from $1::date)",
        "INSERT INTO w (id) SELECT $1",
        "SELECT $1 UNION SELECT 1",
    ] {
        let describe = all(&[wire::parse("s", sql, &[]), wire::describe(b'S', "s"), wire::sync()]);
        cases.equal(&format!("W23 W24 {sql}"), &table, &[describe, wire::query("ROLLBACK")]);
    }
    let given =
        all(&[wire::parse("s", "SELECT $1, $2", &[23, 1700]), wire::describe(b'S', "s"), wire::sync()]);
    cases.equal("W24 types the client gives win", &[], &[given]);
    let zero =
        all(&[wire::parse("s", "SELECT $1, $2::int", &[0, 0]), wire::describe(b'S', "s"), wire::sync()]);
    cases.equal("W24 a zero oid means: infer", &[], &[zero]);
    let more =
        all(&[wire::parse("s", "SELECT $1::int", &[23, 25, 25]), wire::describe(b'S', "s"), wire::sync()]);
    cases.equal("W24 more types than places", &[], &[more]);
    let formats = |parameters: &[i16], results: &[i16]| {
        all(&[
            wire::parse("", "SELECT $1::int, $2::int, $3::int", &[]),
            wire::bind("", "", parameters, &[Some(b"1"), Some(b"2"), Some(b"3")], results),
            wire::execute("", 0),
            wire::sync(),
        ])
    };
    cases.equal("W26 two codes for three parameters", &[], &[formats(&[0, 0], &[])]);
    cases.equal("W26 two codes for three columns", &[], &[formats(&[], &[0, 0])]);
    cases.equal("W26 one code for all", &[], &[formats(&[0], &[1])]);
    cases.equal("W26 a code of its own for each", &[], &[formats(&[0, 0, 0], &[1, 0, 1])]);
    cases.equal("W26 an unknown code", &[], &[formats(&[], &[7])]);
    for rows_max in [0, 1, 2, 5, i32::MAX, -1] {
        let portal = all(&[
            wire::parse("", "SELECT g FROM generate_series(1, 4) g", &[]),
            bind(&[]),
            wire::execute("", rows_max),
            wire::execute("", rows_max),
            wire::sync(),
        ]);
        cases.equal(&format!("W28 rows_max {rows_max}"), &[], &[portal]);
    }
    let across = [
        all(&[
            wire::parse("", "SELECT g FROM generate_series(1, 5) g", &[]),
            wire::bind("p", "", &[], &[], &[]),
            wire::execute("p", 2),
            wire::sync(),
        ]),
        all(&[wire::execute("p", 2), wire::sync()]),
        all(&[wire::execute("p", 2), wire::sync()]),
        all(&[wire::execute("p", 2), wire::sync()]),
        wire::query("COMMIT"),
        all(&[wire::execute("p", 2), wire::sync()]),
    ];
    cases.equal("W28 a portal across Syncs of a block", &["BEGIN"], &across);
    cases.equal("W28 a portal ends with its transaction", &[], &across[..2]);
    let twice = all(&[wire::parse("n", "SELECT 1", &[]), wire::parse("n", "SELECT 2", &[]), wire::sync()]);
    cases.equal("W30 a named statement twice", &[], &[twice]);
    cases.equal("W30 bind to nothing", &[], &[all(&[wire::bind("", "none", &[], &[], &[]), wire::sync()])]);
    cases.equal("W30 execute nothing", &[], &[all(&[wire::execute("none", 0), wire::sync()])]);
    cases.equal(
        "W30 describe nothing",
        &[],
        &[
            all(&[wire::describe(b'S', "none"), wire::sync()]),
            all(&[wire::describe(b'P', "none"), wire::sync()]),
        ],
    );
    cases.equal(
        "W30 close nothing",
        &[],
        &[all(&[wire::close(b'S', "none"), wire::close(b'P', "none"), wire::sync()])],
    );
    let rebind = all(&[
        wire::parse("", "SELECT $1::int", &[]),
        bind(&[Some(b"1")]),
        bind(&[Some(b"2")]),
        wire::execute("", 0),
        wire::sync(),
    ]);
    cases.equal("W30 the unnamed portal is replaced", &[], &[rebind]);
    let closed = [
        all(&[wire::parse("c", "SELECT 1", &[]), wire::close(b'S', "c"), wire::sync()]),
        all(&[wire::bind("", "c", &[], &[], &[]), wire::sync()]),
    ];
    cases.equal("W30 a closed statement is gone", &[], &closed);
    for (count, values) in [("too few", &[][..]), ("too many", &[Some(&b"1"[..]), Some(&b"2"[..])][..])] {
        cases.equal(&format!("parameters: {count}"), &[], &[run("SELECT $1::int", values)]);
    }
    cases.equal("a bad text parameter", &[], &[run("SELECT $1::int", &[Some(b"x")])]);
    cases.equal("invalid UTF-8", &[], &[run("SELECT $1::text", &[Some(b"\xff")])]);
    cases.equal("SQ22 NUL in a text parameter", &[], &[run("SELECT $1::text", &[Some(b"a\0b")])]);
    cases.equal("NULL parameters", &[], &[run("SELECT $1::int IS NULL, $2::text", &[None, None])]);
    let wrong_binary = all(&[
        wire::parse("", "SELECT $1::int", &[]),
        wire::bind("", "", &[1], &[Some(b"123")], &[]),
        wire::execute("", 0),
        wire::sync(),
    ]);
    cases.equal("a binary int of three bytes", &[], &[wrong_binary]);
    cases.equal("Sync alone", &[], &[wire::sync(), all(&[wire::sync(), wire::sync()])]);
    let mixed = all(&[wire::query("SELECT 1"), run("SELECT 2", &[]), wire::query("SELECT 3")]);
    cases.equal("simple and extended in one packet", &[], &[mixed]);
    let block = [run("BEGIN", &[]), run("SELECT 1/0", &[]), run("SELECT 1", &[]), run("COMMIT", &[])];
    cases.equal("W12 extended", &[], &block);
    let insert = |id: &[u8]| run("INSERT INTO w (id) VALUES ($1)", &[Some(id)]);
    cases.equal(
        "W13 extended tags",
        &table,
        &[insert(b"1"), insert(b"1"), run("SELECT id FROM w", &[]), run("DELETE FROM w", &[])],
    );
    cases.done(80);
}

/// Each type, NULL included, in and out in binary: bytes equal to PostgreSQL's.
#[test]
fn binary_values_are_byte_for_byte_those_of_postgresql() {
    let both = Both::start();
    let mut cases = Cases::new(&both);
    let values: &[(&str, &[&str])] = &[
        ("bool", &["true", "false"]),
        ("int2", &["-32768", "0", "32767"]),
        ("int4", &["-2147483648", "0", "2147483647"]),
        ("int8", &["-9223372036854775808", "9223372036854775807"]),
        ("float4", &["1.5", "-0", "NaN", "Infinity", "1e-38"]),
        ("float8", &["1.5", "-0", "NaN", "-Infinity", "1e-300"]),
        (
            "numeric",
            &[
                "0",
                "0.00",
                "1",
                "-1.50",
                "12345678901234567890.123456789",
                "1e20",
                "1e-20",
                "NaN",
                "Infinity",
                "10000",
                "0.0001",
            ],
        ),
        ("text", &["", "abc", "héllo €"]),
        ("varchar", &["abc"]),
        ("char(5)", &["ab"]),
        ("bytea", &["\\x", "\\x00ff"]),
        ("date", &["2000-01-01", "1999-12-31", "2024-02-29", "infinity", "0044-03-15 BC"]),
        ("time", &["00:00", "23:59:59.999999", "24:00"]),
        ("timestamp", &["2000-01-01", "2024-02-29 10:20:30.123456", "infinity", "-infinity", "1900-01-01"]),
        ("timestamptz", &["2000-01-01 00:00+00", "2024-02-29 10:20:30.5+02"]),
        ("interval", &["0", "1 year 2 months 3 days 04:05:06.789", "-1 mon +1 day"]),
        ("uuid", &["a1eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"]),
        ("json", &["{\"a\": 1}"]),
        ("jsonb", &["{\"b\": 1, \"a\": [1, null]}", "1.50", "\"x\""]),
        ("int8[]", &["{}", "{1,2,NULL}"]),
        ("int4[]", &["{5}"]),
        ("text[]", &["{}", "{a,NULL,\"b c\",\"\"}"]),
        ("numeric[]", &["{1.5,NaN}"]),
        ("bool[]", &["{t,f}"]),
        ("oid", &["0", "4294967295"]),
        ("name", &["abc"]),
    ];
    for (kind, texts) in values {
        for text in *texts {
            let out = all(&[
                wire::parse("", &format!("SELECT $1::{kind}, $1::{kind} IS NULL"), &[]),
                wire::bind("", "", &[0], &[Some(text.as_bytes())], &[1]),
                wire::describe(b'P', ""),
                wire::execute("", 0),
                wire::sync(),
            ]);
            cases.equal(&format!("W25 {kind} {text} out"), &[], &[out]);
            // What PostgreSQL sends in binary must be understood when it comes back in binary.
            let mut truth = Wire::connect(both.oracle.address()).unwrap();
            let ask = all(&[
                wire::parse("", &format!("SELECT $1::{kind}"), &[]),
                wire::bind("", "", &[0], &[Some(text.as_bytes())], &[1]),
                wire::execute("", 0),
                wire::sync(),
            ]);
            let messages = exchange(&mut truth, &ask).unwrap();
            let row = messages.iter().find(|m| m.tag == b'D').expect("the oracle knows its own types");
            let bytes = wire::row(&row.body).unwrap().remove(0);
            let back = all(&[
                wire::parse("", &format!("SELECT $1::{kind}, $1::{kind}"), &[]),
                wire::bind("", "", &[1], &[bytes.as_deref()], &[0, 1]),
                wire::execute("", 0),
                wire::sync(),
            ]);
            cases.equal(&format!("W25 {kind} {text} in"), &[], &[back]);
        }
        let null = all(&[
            wire::parse("", &format!("SELECT $1::{kind}"), &[]),
            wire::bind("", "", &[1], &[None], &[1]),
            wire::execute("", 0),
            wire::sync(),
        ]);
        cases.equal(&format!("W25 {kind} NULL"), &[], &[null]);
    }
    cases.done(140);
}

#[test]
fn copy_frames_answer_as_postgresql_does() {
    let both = Both::start();
    let mut cases = Cases::new(&both);
    let table = ["DROP TABLE IF EXISTS w", "CREATE TABLE w (id int PRIMARY KEY, v text, n numeric)"];
    let data = |text: &str| wire::frame(b'd', text.as_bytes());
    let done = || wire::frame(b'c', &[]);
    let fail = || wire::frame(b'f', b"enough\0");
    let select = || wire::query("SELECT * FROM w ORDER BY id");
    // The Query and its data travel together; the trace ends at the Query's ReadyForQuery.
    let copies: &[(&str, Vec<Vec<u8>>)] = &[
        ("COPY w FROM STDIN", vec![data("1\ta\t1.5\n2\t\\N\t\\N\n"), data("3\tx\\ty\\\\\t2\n"), done()]),
        ("COPY w FROM STDIN", vec![data("1\ta\t1.5\n"), data("\\.\n"), done()]),
        ("COPY w FROM STDIN", vec![data("1\ta\t1."), data("5\n2\tb\t1\n"), done()]),
        ("COPY w FROM STDIN", vec![done()]),
        ("COPY w FROM STDIN", vec![data("1\ta\t1\n"), fail()]),
        ("COPY w FROM STDIN", vec![data("1\ta\t1\nx\tb\t1\n"), done()]),
        ("COPY w FROM STDIN", vec![data("1\ta\t1\n1\tb\t1\n"), done()]),
        ("COPY w FROM STDIN", vec![data("1\ta\n"), done()]),
        ("COPY w FROM STDIN", vec![data("1\ta\t1\t2\n"), done()]),
        ("COPY w (id, v) FROM STDIN", vec![data("1\ta\n"), done()]),
        (
            "COPY w (v, id) FROM STDIN CSV",
            vec![data("\"a,b\",1\n\"c\"\"d\",2\n,3\n\"\",4\n\"two\nlines\",5\n"), done()],
        ),
        (
            "COPY w FROM STDIN WITH (FORMAT csv, HEADER, DELIMITER ';', NULL 'nil')",
            vec![data("id;v;n\n1;nil;2\n2;x;nil\n"), done()],
        ),
        ("COPY w FROM STDIN WITH (DELIMITER '|')", vec![data("1|a|2\n"), done()]),
        ("COPY w (nosuch) FROM STDIN", vec![]),
        ("COPY nosuch FROM STDIN", vec![]),
        ("COPY w FROM STDIN WITH (FORMAT nosuch)", vec![]),
    ];
    for (sql, frames) in copies {
        let round = [wire::query(sql), frames.concat()].concat();
        cases.equal(&format!("W40 {sql} {}", frames.len()), &table, &[round, select()]);
    }
    let rows = [
        "DROP TABLE IF EXISTS w",
        "CREATE TABLE w (id int PRIMARY KEY, v text, n numeric)",
        "INSERT INTO w VALUES (1, 'a', 1.50), (2, NULL, NULL), (3, E'tab\\tnl\\nbs\\\\ q\" c,', 0), (4, '', 2)",
    ];
    for sql in [
        "COPY w TO STDOUT",
        "COPY w (v, id) TO STDOUT",
        "COPY w TO STDOUT CSV",
        "COPY w TO STDOUT WITH (FORMAT csv, HEADER)",
        "COPY (SELECT id, v FROM w WHERE id < 3 ORDER BY id DESC) TO STDOUT",
        "COPY w TO STDOUT WITH (FORMAT csv, QUOTE '''', NULL 'nil', DELIMITER ';')",
        "COPY w TO STDOUT (FORMAT binary)",
        "COPY (SELECT 1/0) TO STDOUT",
        "COPY (SELECT 1 WHERE false) TO STDOUT CSV HEADER",
        "COPY w TO STDOUT WITH (FORMAT csv, FORCE_QUOTE *)",
        "COPY w TO STDOUT; SELECT 1",
    ] {
        cases.equal(&format!("W40 {sql}"), &rows, &[wire::query(sql)]);
    }
    cases.done(27);
}

/// W50: errors carry what drivers branch on.
#[test]
fn errors_name_what_went_wrong() {
    let both = Both::start();
    let (mut ours, mut theirs) = both.connect();
    for wire in [&mut ours, &mut theirs] {
        let made = wire.query("CREATE TABLE fields (id int PRIMARY KEY, n int NOT NULL CONSTRAINT positive CHECK (n > 0), u text UNIQUE)");
        assert_eq!(made.unwrap().code(), "");
        assert_eq!(wire.query("INSERT INTO fields VALUES (1, 1, 'a')").unwrap().code(), "");
    }
    let mut wrong = Vec::new();
    for (sql, letters) in [
        ("INSERT INTO fields VALUES (1, 1, 'b')", &b"SVCMDstn"[..]),
        ("INSERT INTO fields VALUES (2, 1, 'a')", b"SVCMDstn"),
        ("INSERT INTO fields VALUES (2, NULL, 'c')", b"SVCMstc"),
        ("INSERT INTO fields VALUES (2, 0, 'c')", b"SVCMstn"),
        ("SELECT nosuch FROM fields", b"SVCMP"),
        ("SELECT * FROM nosuch", b"SVCMP"),
        ("SELECT nosuch(1)", b"SVCP"),
        ("SELECT 1 + + FROM", b"SVC"),
        ("SELECT 1/0", b"SVCM"),
        ("SELECT 'x'::int", b"SVCMP"),
        ("SELECT 2147483647 + 1", b"SVCM"),
        ("CREATE TABLE fields (a int)", b"SVCM"),
    ] {
        let (got, right) =
            (ours.query(sql).unwrap().error.unwrap_or_default(), theirs.query(sql).unwrap().error.unwrap());
        for letter in letters {
            if got.field(*letter) != right.field(*letter) {
                wrong.push(format!(
                    "{sql}: {}: expected {:?}, got {:?}",
                    char::from(*letter),
                    right.field(*letter),
                    got.field(*letter)
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{} fields differ:\n{}", wrong.len(), wrong.join("\n"));
}
