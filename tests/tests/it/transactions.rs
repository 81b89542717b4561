//! Transactions of several sessions at once: sums that must hold, circles that must end, partitions that must not mix.

use std::thread;

use tests::Address;
use tests::keystead::Keystead;
use tests::wire::{self, Wire};

use crate::subject::{Subject, run, scalar};

/// Runs one closure per client, each with a connection of its own.
fn clients(address: &Address, count: u64, work: impl Fn(u64, &mut Wire) + Sync) {
    thread::scope(|scope| {
        for n in 0..count {
            let work = &work;
            scope.spawn(move || work(n, &mut Wire::connect(address).unwrap()));
        }
    });
}

/// S03, the autocommit form: no increment is lost and none is shown a conflict.
#[test]
fn ten_thousand_increments_of_sixteen_clients_sum_exactly() {
    let subject = Subject::start();
    let mut wire = subject.connect();
    run(&mut wire, "CREATE TABLE counters (id int PRIMARY KEY, n int)");
    run(&mut wire, "INSERT INTO counters VALUES (1, 0), (2, 0)");
    clients(&subject.address(), 16, |client, wire| {
        for _ in 0..625 {
            run(wire, &format!("UPDATE counters SET n = n + 1 WHERE id = {}", 1 + client % 2));
        }
    });
    assert_eq!(scalar(&mut wire, "SELECT sum(n) FROM counters"), "10000");
    assert_eq!(scalar(&mut wire, "SELECT n FROM counters WHERE id = 1"), "5000");
}

/// S03, the block form under REPEATABLE READ: whoever loses gets 40001 and the retried total is right.
#[test]
fn read_modify_write_in_blocks_is_retried_and_right() {
    let subject = Subject::start();
    let mut wire = subject.connect();
    run(&mut wire, "CREATE TABLE counters (id int PRIMARY KEY, n int)");
    run(&mut wire, "INSERT INTO counters VALUES (1, 0)");
    clients(&subject.address(), 6, |_, wire| {
        for _ in 0..30 {
            loop {
                run(wire, "BEGIN ISOLATION LEVEL REPEATABLE READ");
                let n: i64 = scalar(wire, "SELECT n FROM counters WHERE id = 1").parse().unwrap();
                let update = wire.query(&format!("UPDATE counters SET n = {} WHERE id = 1", n + 1)).unwrap();
                let commit = wire.query("COMMIT").unwrap();
                if update.error.is_none() && commit.error.is_none() {
                    break;
                }
                for code in [update.code(), commit.code()] {
                    assert!(["", "40001", "40P01"].contains(&code), "{code}");
                }
                wire.query("ROLLBACK").unwrap();
            }
        }
    });
    assert_eq!(scalar(&mut wire, "SELECT n FROM counters"), "180");
}

#[test]
fn transfers_keep_the_sum_and_every_reader_sees_it() {
    let subject = Subject::start();
    let mut wire = subject.connect();
    run(&mut wire, "CREATE TABLE accounts (id int PRIMARY KEY, balance int NOT NULL)");
    run(&mut wire, "INSERT INTO accounts SELECT g, 100 FROM generate_series(1, 20) g");
    clients(&subject.address(), 8, |client, wire| {
        if client < 2 {
            for _ in 0..100 {
                assert_eq!(scalar(wire, "SELECT sum(balance) FROM accounts"), "2000");
            }
            return;
        }
        for n in 0..100 {
            let (from, to) = (1 + (client * 7 + n) % 20, 1 + (client * 3 + n * 5) % 20);
            // In any order on purpose: a circle is broken by 40P01 and the transfer tried again.
            loop {
                let reply = wire
                    .query(&format!(
                        "BEGIN; UPDATE accounts SET balance = balance - 1 WHERE id = {from}; \
                         UPDATE accounts SET balance = balance + 1 WHERE id = {to}; COMMIT"
                    ))
                    .unwrap();
                match reply.code() {
                    "" => break,
                    "40P01" | "40001" => _ = wire.query("ROLLBACK").unwrap(),
                    other => panic!("{other}: {:?}", reply.error),
                }
            }
        }
    });
    assert_eq!(scalar(&mut wire, "SELECT sum(balance) FROM accounts"), "2000");
}

#[test]
fn a_circle_of_waits_ends() {
    let subject = Subject::start();
    let mut a = subject.connect();
    let mut b = subject.connect();
    run(&mut a, "CREATE TABLE t (id int PRIMARY KEY, v int)");
    run(&mut a, "INSERT INTO t VALUES (1, 0), (2, 0)");
    run(&mut a, "BEGIN");
    run(&mut b, "BEGIN");
    run(&mut a, "UPDATE t SET v = 1 WHERE id = 1");
    run(&mut b, "UPDATE t SET v = 2 WHERE id = 2");
    let waits = thread::spawn(move || {
        let reply = a.query("UPDATE t SET v = 1 WHERE id = 2").unwrap();
        let code = reply.code().to_owned();
        a.query(if code.is_empty() { "COMMIT" } else { "ROLLBACK" }).unwrap();
        code
    });
    let code = b.query("UPDATE t SET v = 2 WHERE id = 1").unwrap().code().to_owned();
    b.query(if code.is_empty() { "COMMIT" } else { "ROLLBACK" }).unwrap();
    let mut codes = [waits.join().unwrap(), code];
    codes.sort();
    assert_eq!(codes, ["", "40P01"], "one goes on, one is told");
    assert_eq!(scalar(&mut subject.connect(), "SELECT count(DISTINCT v) FROM t"), "1");
}

#[test]
fn a_table_may_be_dropped_while_it_is_read() {
    let subject = Subject::start();
    let mut wire = subject.connect();
    run(
        &mut wire,
        "CREATE TABLE t AS SELECT g AS id, repeat('x', 100) AS v FROM generate_series(1, 50000) g",
    );
    let mut reader = subject.connect();
    reader.send(&tests::wire::query("SELECT * FROM t")).unwrap();
    let first = reader.read().unwrap();
    assert_eq!(first.tag, b'T');
    let address = subject.address();
    let dropping = thread::spawn(move || {
        Wire::connect(&address).unwrap().query("DROP TABLE t").unwrap().code().to_owned()
    });
    let messages = reader.read_until_ready().unwrap();
    let rows = messages.iter().filter(|m| m.tag == b'D').count();
    let error = messages.iter().find(|m| m.tag == b'E').map(|m| tests::wire::problem(&m.body).code);
    assert!(rows == 50_000 || error.is_some(), "{rows} rows and no error: a short answer that looks whole");
    assert_eq!(dropping.join().unwrap(), "");
    assert_eq!(wire.query("SELECT * FROM t").unwrap().code(), "42P01");
}

#[test]
fn a_transaction_that_names_two_partitions_is_refused() {
    let server = Keystead::start().unwrap();
    let mut wire = server.connect().unwrap();
    run(
        &mut wire,
        "CREATE TABLE orders (tenant text, id int, v int, PRIMARY KEY (tenant, id)) PARTITION BY HASH (tenant)",
    );
    run(&mut wire, "INSERT INTO orders VALUES ('a', 1, 10), ('a', 2, 20)");
    let refused = wire
        .query("INSERT INTO orders VALUES ('a', 3, 30), ('b', 1, 10)")
        .unwrap()
        .error
        .expect("two partitions");
    assert_eq!(refused.code, "0A000");
    let said = format!("{:?}", refused.fields);
    assert!(said.contains("'a'") || said.contains("(a)") || said.contains('a'), "{said}");
    run(&mut wire, "INSERT INTO orders VALUES ('b', 1, 100)");
    run(&mut wire, "BEGIN");
    run(&mut wire, "UPDATE orders SET v = v + 1 WHERE tenant = 'a' AND id = 1");
    assert_eq!(
        wire.query("UPDATE orders SET v = v + 1 WHERE tenant = 'b' AND id = 1").unwrap().code(),
        "0A000"
    );
    run(&mut wire, "ROLLBACK");
    assert_eq!(
        scalar(&mut wire, "SELECT sum(v) FROM orders"),
        "130",
        "reads may span partitions, and nothing was changed"
    );
    assert_eq!(wire.query("UPDATE orders SET tenant = 'c' WHERE tenant = 'a'").unwrap().code(), "0A000");
    run(&mut wire, "SET keystead.multi_partition = 'each'");
    let reply = wire.query("UPDATE orders SET v = v + 1").unwrap();
    assert_eq!(reply.code(), "");
    assert_eq!(scalar(&mut wire, "SELECT sum(v) FROM orders"), "133");
}

#[test]
fn an_unknown_outcome_is_learned_by_the_name_of_its_command() {
    let mut server = Keystead::start().unwrap();
    let mut wire = server.connect().unwrap();
    run(&mut wire, "CREATE TABLE t (id int PRIMARY KEY, v int)");
    let name = "0190a5b2-7c3d-4e1f-8a9b-0123456789ab";
    let insert = "INSERT INTO t VALUES (1, 1)";
    run(&mut wire, &format!("SET keystead.command_id = '{name}'"));
    run(&mut wire, insert);
    let told = scalar(&mut wire, &format!("SELECT command_status('{name}')"));
    server.kill().unwrap();
    server.restart().unwrap();
    let mut wire = server.connect().unwrap();
    assert_eq!(scalar(&mut wire, &format!("SELECT command_status('{name}')")), told, "it is remembered");
    // The same name again is the same command, not a second one.
    run(&mut wire, &format!("SET keystead.command_id = '{name}'"));
    run(&mut wire, insert);
    assert_eq!(scalar(&mut wire, "SELECT count(*) FROM t"), "1");
    // Another body under the name is a conflict.
    run(&mut wire, &format!("SET keystead.command_id = '{name}'"));
    assert_ne!(wire.query("INSERT INTO t VALUES (2, 2)").unwrap().code(), "");
    assert_eq!(scalar(&mut wire, "SELECT count(*) FROM t"), "1");
    let other = "0190a5b2-7c3d-4e1f-8a9b-ffffffffffff";
    let reply = wire.query(&format!("SELECT command_status('{other}')")).unwrap();
    assert_ne!(reply.scalar(), Some(told.as_str()), "a name never used has no outcome");
}

/// Numbers, times, hidden row keys and values computed from rows differ when a statement runs again; its text does not.
#[test]
fn a_named_command_said_again_changes_nothing_whatever_the_session_makes_of_it() {
    let server = Keystead::start().unwrap();
    let mut wire = server.connect().unwrap();
    run(&mut wire, "CREATE TABLE t (number bigserial, v int, at timestamptz DEFAULT clock_timestamp())");
    run(&mut wire, "CREATE TABLE k (id int PRIMARY KEY)");
    run(&mut wire, "INSERT INTO t (v) VALUES (1), (2)");
    let state = |wire: &mut Wire| {
        scalar(wire, "SELECT string_agg(concat_ws('/', number, v, at), ' ' ORDER BY number) FROM t")
    };
    let scripts: [&[&str]; 5] = [
        &["INSERT INTO t (v) VALUES (5)"],
        &["UPDATE t SET v = v + 1"],
        &["BEGIN", "INSERT INTO t (v) VALUES (7)", "UPDATE t SET v = v * 2 WHERE v > 2", "COMMIT"],
        &["DELETE FROM t WHERE v = (SELECT max(v) FROM t)"],
        &["INSERT INTO t (v) SELECT v + 10 FROM t"],
    ];
    for (number, script) in scripts.iter().enumerate() {
        let name = format!("SET keystead.command_id = '0190a5b2-7c3d-4e1f-8a9b-00000000000{number}'");
        let before = state(&mut wire);
        run(&mut wire, &name);
        script.iter().for_each(|statement| run(&mut wire, statement));
        let after = state(&mut wire);
        assert_ne!(before, after, "{script:?}");
        // From another connection, as after a lost answer.
        let mut other = server.connect().unwrap();
        run(&mut other, &name);
        script.iter().for_each(|statement| run(&mut other, statement));
        assert_eq!(state(&mut wire), after, "{script:?} was done twice");
        // The name is used up: what follows has none.
        run(&mut other, "UPDATE t SET v = v + 1");
        assert_ne!(state(&mut wire), after);
    }

    // What was refused binds nothing: the name may be used for something else.
    let name = "SET keystead.command_id = '0190a5b2-7c3d-4e1f-8a9b-0000000000ff'";
    run(&mut wire, "INSERT INTO k VALUES (1)");
    run(&mut wire, name);
    assert_eq!(wire.query("INSERT INTO k VALUES (1)").unwrap().code(), "23505");
    run(&mut wire, name);
    run(&mut wire, "INSERT INTO k VALUES (2)");
    let mut other = server.connect().unwrap();
    run(&mut other, name);
    assert_ne!(other.query("INSERT INTO k VALUES (3)").unwrap().code(), "", "another body under a used name");
    assert_eq!(scalar(&mut wire, "SELECT sum(id) FROM k"), "3");
}

/// A name is bound to what was done under it: not to what failed before, nor to what came after.
#[test]
fn a_name_is_bound_to_its_own_statement_whatever_went_before() {
    let server = Keystead::start().unwrap();
    let mut wire = server.connect().unwrap();
    run(&mut wire, "CREATE TABLE t (id int PRIMARY KEY, v int)");
    run(&mut wire, "CREATE TABLE emptied (id int)");
    run(&mut wire, "INSERT INTO emptied VALUES (1)");
    let name = |n: u32| format!("SET keystead.command_id = '0190a5b2-7c3d-4e1f-8a9c-{n:012}'");
    let again = |n: u32, statement: &str| {
        let mut other = server.connect().unwrap();
        run(&mut other, &name(n));
        other.query(statement).unwrap().code().to_owned()
    };
    // What is refused leaves the name to what comes next.
    run(&mut wire, &name(1));
    assert_eq!(wire.query("INSERT INTO t VALUES (1, 'x')").unwrap().code(), "22P02");
    assert_eq!(wire.query("INSERT INTO t SELECT 1, 1 / 0").unwrap().code(), "22012");
    run(&mut wire, "INSERT INTO t VALUES (1, 1)");
    assert_eq!(again(1, "INSERT INTO t VALUES (1, 1)"), "", "a retry is the same command");
    // What changes nothing takes the name: nothing later goes by it.
    for (n, nothing) in [(6, "UPDATE t SET v = 1 WHERE id = 99"), (7, "DELETE FROM t WHERE v > 99")] {
        run(&mut wire, &name(n));
        run(&mut wire, nothing);
        assert_eq!(scalar(&mut wire, "SHOW keystead.command_id"), "");
    }
    // Whether a plan is known, or its numbers are taken out of it, makes no other body.
    run(&mut wire, "UPDATE t SET v = 5 WHERE id = 1");
    run(&mut wire, &name(2));
    run(&mut wire, "UPDATE t SET v = v + 7 WHERE id = 1");
    run(&mut wire, "UPDATE t SET v = v + 7 WHERE id = 1");
    assert_eq!(again(2, "UPDATE t SET v = v + 7 WHERE id = 1"), "");
    assert_ne!(again(2, "UPDATE t SET v = v + 8 WHERE id = 1"), "", "another body under a used name");
    assert_eq!(scalar(&mut wire, "SELECT v FROM t"), "19");
    // TRUNCATE and EXPLAIN ANALYZE write, too.
    run(&mut wire, &name(3));
    run(&mut wire, "TRUNCATE emptied");
    run(&mut wire, "INSERT INTO emptied VALUES (2)");
    assert_eq!(again(3, "TRUNCATE emptied"), "");
    assert_eq!(scalar(&mut wire, "SELECT count(*) FROM emptied"), "1", "it was done once");
    run(&mut wire, &name(4));
    run(&mut wire, "EXPLAIN ANALYZE UPDATE t SET v = v + 1 WHERE id = 1");
    assert_eq!(again(4, "EXPLAIN ANALYZE UPDATE t SET v = v + 1 WHERE id = 1"), "");
    assert_eq!(scalar(&mut wire, "SELECT v FROM t"), "20");
    // What a block took back makes it another block.
    let script =
        ["BEGIN", "SAVEPOINT s", "UPDATE t SET v = 0", "ROLLBACK TO s", "UPDATE t SET v = v + 1", "COMMIT"];
    run(&mut wire, &name(5));
    script.iter().for_each(|statement| run(&mut wire, statement));
    let mut other = server.connect().unwrap();
    run(&mut other, &name(5));
    ["BEGIN", "UPDATE t SET v = 0", "UPDATE t SET v = v + 1"].iter().for_each(|text| run(&mut other, text));
    assert_ne!(other.query("COMMIT").unwrap().code(), "", "another body under a used name");
    assert_eq!(scalar(&mut wire, "SELECT v FROM t"), "21");
}

/// Reads that are pipelined with a later write are one transaction of the session's default isolation.
#[test]
fn pipelined_reads_by_key_keep_the_default_isolation() {
    let subject = Subject::start();
    let mut wire = subject.connect();
    let mut other = subject.connect();
    run(&mut wire, "CREATE TABLE k (id int PRIMARY KEY, v int)");
    run(&mut wire, "INSERT INTO k VALUES (1, 1)");
    run(&mut wire, "SET default_transaction_isolation = 'repeatable read'");
    let get = [wire::bind("", "get", &[], &[], &[]), wire::execute("", 0)].concat();
    let value = |wire: &mut Wire, ends: &[u8], until: u8| {
        wire.send(&[&get, ends].concat()).unwrap();
        let mut values = Vec::new();
        loop {
            let message = wire.read().unwrap();
            assert_ne!(message.tag, b'E');
            if message.tag == b'D' {
                values.extend(wire::row(&message.body).unwrap());
            }
            if message.tag == until {
                return values;
            }
        }
    };
    wire.send(&[wire::parse("get", "SELECT v FROM k WHERE id = 1", &[]), wire::flush()].concat()).unwrap();
    assert_eq!(value(&mut wire, &wire::flush(), b'C'), [Some(b"1".to_vec())]);
    run(&mut other, "UPDATE k SET v = 2 WHERE id = 1");
    assert_eq!(
        value(&mut wire, &wire::sync(), b'Z'),
        [Some(b"1".to_vec())],
        "the snapshot of the first read"
    );
    assert_eq!(value(&mut wire, &wire::sync(), b'Z'), [Some(b"2".to_vec())], "the next transaction");
}
