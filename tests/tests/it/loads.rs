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
