//! COPY of many rows: they are there whole or not at all, whoever dies in the middle.

use std::fmt::Write as _;
use std::io;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tests::keystead::Keystead;
use tests::wire::{Wire, frame, query};

/// Enough for several buffers on their way to the log.
const ROWS: usize = 120_000;
const CHUNK_BYTES: usize = 64 << 10;

const MADE: &str = "CREATE TABLE many (id int PRIMARY KEY, v int, pad text); CREATE INDEX many_v ON many (v)";
const COUNTED: &str = "SELECT count(*), sum(id::bigint), count(DISTINCT v) FROM many";

/// Lines of rows, in an order that is not the key's.
fn lines(rows: usize) -> Vec<u8> {
    let mut text = String::new();
    for at in 0..rows {
        let id = at * 7_919 % rows;
        writeln!(text, "{id}\t{}\t{id:0>40}", id % 1_000).unwrap();
    }
    text.into_bytes()
}

/// Begins a COPY and sends data, as far as the server takes it.
fn send(wire: &mut Wire, data: &[u8]) -> io::Result<()> {
    wire.send(&query("COPY many FROM STDIN"))?;
    while wire.read()?.tag != b'G' {}
    for chunk in data.chunks(CHUNK_BYTES) {
        wire.send(&frame(b'd', chunk))?;
    }
    Ok(())
}

fn done(wire: &mut Wire) -> io::Result<Vec<u8>> {
    wire.send(&frame(b'c', b""))?;
    Ok(wire.read_until_ready()?.iter().map(|message| message.tag).collect())
}

fn ask(wire: &mut Wire, sql: &str) -> Vec<Option<String>> {
    let reply = wire.query(sql).unwrap();
    assert_eq!(reply.code(), "", "{sql}");
    reply.answers.last().and_then(|answer| answer.rows.first()).cloned().unwrap_or_default()
}

fn whole() -> Vec<Option<String>> {
    let sum = (ROWS as u64 - 1) * ROWS as u64 / 2;
    [ROWS as u64, sum, 1_000].iter().map(|number| Some(number.to_string())).collect()
}

fn nothing() -> Vec<Option<String>> {
    vec![Some("0".to_owned()), None, Some("0".to_owned())]
}

#[test]
fn a_copy_that_a_kill_meets_is_there_whole_or_not_at_all() {
    let seed = crate::subject::seed();
    let mut rng = StdRng::seed_from_u64(seed);
    let data = lines(ROWS);
    let mut server = Keystead::start().unwrap();
    server.connect().unwrap().query(MADE).unwrap();
    for round in 0..8 {
        let mut wire = server.connect().unwrap();
        let with_end = round % 2 == 1;
        let sent = if with_end { data.len() } else { rng.random_range(0..data.len()) };
        send(&mut wire, &data[..sent]).unwrap();
        let acknowledged = match round {
            7 => done(&mut wire).unwrap().contains(&b'C'),
            _ if with_end => {
                wire.send(&frame(b'c', b"")).unwrap();
                false
            }
            _ => false,
        };
        server.kill().unwrap();
        server.restart().unwrap();
        let mut wire = server.connect().unwrap();
        let found = ask(&mut wire, COUNTED);
        let known = found == whole() || (found == nothing() && !acknowledged);
        assert!(known && (with_end || found == nothing()), "seed {seed}, round {round}: {found:?}");
        let by_index = ask(&mut wire, "SELECT count(*) FROM many WHERE v = 7");
        assert!(by_index == [Some("120".to_owned())] || found == nothing(), "round {round}: {by_index:?}");
        ask(&mut wire, "TRUNCATE many");
    }
}

#[test]
fn a_copy_whose_client_goes_or_whose_rows_clash_leaves_nothing() {
    let mut server = Keystead::start().unwrap();
    let mut wire = server.connect().unwrap();
    wire.query(MADE).unwrap();
    let mut data = lines(ROWS);

    let mut leaving = server.connect().unwrap();
    send(&mut leaving, &data).unwrap();
    drop(leaving);

    let mut failing = server.connect().unwrap();
    send(&mut failing, &data).unwrap();
    failing.send(&frame(b'f', b"no more\0")).unwrap();
    assert!(failing.read_until_ready().unwrap().iter().any(|message| message.tag == b'E'));

    data.extend_from_slice(b"77\t1\tagain\n");
    let mut clashing = server.connect().unwrap();
    send(&mut clashing, &data).unwrap();
    clashing.send(&frame(b'c', b"")).unwrap();
    let answers = clashing.read_until_ready().unwrap();
    let problem = answers.iter().find(|message| message.tag == b'E').expect("a key is there twice");
    assert_eq!(tests::wire::problem(&problem.body).code, "23505");

    assert_eq!(ask(&mut wire, COUNTED), nothing());
    // What they brought stands in nobody's way.
    data.truncate(data.len() - b"77\t1\tagain\n".len());
    send(&mut wire, &data).unwrap();
    assert!(done(&mut wire).unwrap().contains(&b'C'));
    assert_eq!(ask(&mut wire, COUNTED), whole());
    // Onto rows: every key is taken.
    send(&mut wire, &data).unwrap();
    assert!(!done(&mut wire).unwrap().contains(&b'C'));
    assert_eq!(ask(&mut wire, COUNTED), whole());
    server.kill().unwrap();
    server.restart().unwrap();
    assert_eq!(ask(&mut server.connect().unwrap(), COUNTED), whole());
}

#[test]
fn a_copy_in_a_block_is_seen_there_and_goes_with_it() {
    let server = Keystead::start().unwrap();
    let mut wire = server.connect().unwrap();
    wire.query(MADE).unwrap();
    let data = lines(ROWS);
    for (end, after) in [("ROLLBACK", nothing()), ("COMMIT", whole())] {
        ask(&mut wire, "BEGIN");
        send(&mut wire, &data).unwrap();
        assert!(done(&mut wire).unwrap().contains(&b'C'));
        assert_eq!(ask(&mut wire, COUNTED), whole());
        ask(&mut wire, end);
        assert_eq!(ask(&mut wire, COUNTED), after, "{end}");
    }
    ask(&mut wire, "CREATE TABLE copy_of_many AS SELECT * FROM many");
    assert_eq!(ask(&mut wire, "SELECT count(*), sum(id) FROM copy_of_many")[..], whole()[..2]);
}

/// Rows of any width up to the largest go through COPY, INSERT and a definition, whatever the log's records hold; what is too
/// large is refused. None of it ends the server.
#[test]
fn wide_rows_and_wide_definitions_fit_the_log_or_are_refused() {
    for segment in ["log.segment_bytes=8MiB", "log.segment_bytes=64MiB"] {
        let mut server = Keystead::start_with(&["--set", segment], &[]).unwrap();
        let mut wire = server.connect().unwrap();
        ask(&mut wire, "CREATE TABLE many (id int PRIMARY KEY, v int, pad text)");
        let mut data = String::new();
        for (id, width) in (0..2_000).map(|id| (id, 20_000)).chain([(2_000, 5_000_000), (2_001, 1)]) {
            writeln!(data, "{id}\t{width}\t{}", "w".repeat(width)).unwrap();
        }
        send(&mut wire, data.as_bytes()).unwrap();
        assert!(done(&mut wire).unwrap().contains(&b'C'), "{segment}");
        ask(&mut wire, "INSERT INTO many SELECT 3000, 5000000, repeat('i', 5000000)");
        let comment = format!("COMMENT ON TABLE many IS '{}'", "c".repeat(40_000_000));
        assert_eq!(wire.query(&comment).unwrap().code(), "54000", "{segment}");
        server.kill().unwrap();
        server.restart().unwrap();
        let mut wire = server.connect().unwrap();
        let told = ask(&mut wire, "SELECT count(*), count(*) FILTER (WHERE length(pad) = v) FROM many");
        assert_eq!(told, [Some("2003".to_owned()), Some("2003".to_owned())], "{segment}");
    }
}

/// What ends a transaction says nothing about how much may be in it.
#[test]
fn a_large_transaction_may_end_with_a_row_of_another_table() {
    let server = Keystead::start().unwrap();
    let mut wire = server.connect().unwrap();
    ask(&mut wire, "CREATE TABLE a (id int PRIMARY KEY, pad text); CREATE TABLE b (id int PRIMARY KEY)");
    ask(&mut wire, "BEGIN");
    ask(&mut wire, "INSERT INTO a SELECT g, repeat(md5(g::text), 1000) FROM generate_series(1, 700) g");
    ask(&mut wire, "INSERT INTO b VALUES (1)");
    ask(&mut wire, "COMMIT");
    assert_eq!(ask(&mut wire, "SELECT count(*) FROM a, b"), [Some("700".to_owned())]);
}

/// A load that is refused at its end gives back what it had staged.
#[test]
fn loads_whose_table_is_dropped_before_their_end_leave_room_for_others() {
    let server = Keystead::start().unwrap();
    let mut other = server.connect().unwrap();
    let row = format!("{}\n", "w".repeat(1_000_000));
    for _ in 0..6 {
        ask(&mut other, "CREATE TABLE gone (pad text)");
        let mut wire = server.connect().unwrap();
        wire.send(&query("COPY gone FROM STDIN")).unwrap();
        while wire.read().unwrap().tag != b'G' {}
        for _ in 0..200 {
            wire.send(&frame(b'd', row.as_bytes())).unwrap();
        }
        ask(&mut other, "DROP TABLE gone");
        assert!(done(&mut wire).unwrap().contains(&b'E'), "its table is gone");
    }
    ask(&mut other, MADE);
    let mut wire = server.connect().unwrap();
    send(&mut wire, &lines(ROWS)).unwrap();
    assert!(done(&mut wire).unwrap().contains(&b'C'));
    assert_eq!(ask(&mut other, COUNTED), whole());
}
