//! Changes of a table that has rows: while others write it, and when the process is killed in the middle.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use tests::keystead::Keystead;
use tests::wire::{self, Wire};

use crate::subject::{Subject, is_oracle, run, scalar};

/// No write is lost and none is refused while a column changes its type under it.
#[test]
fn a_column_changes_its_type_while_it_is_written() {
    let subject = Subject::start();
    let mut wire = subject.connect();
    run(&mut wire, "CREATE TABLE busy (id int PRIMARY KEY, n int NOT NULL)");
    run(&mut wire, "CREATE INDEX busy_n ON busy (n)");
    run(&mut wire, "INSERT INTO busy SELECT g, 0 FROM generate_series(1, 2000) g");
    let (address, done) = (subject.address(), AtomicBool::new(false));
    let written: i64 = thread::scope(|scope| {
        let writers: Vec<_> = (1..=4)
            .map(|writer| {
                let (address, done) = (&address, &done);
                scope.spawn(move || {
                    let mut wire = Wire::connect(address).unwrap();
                    let mut count = 0;
                    while !done.load(Ordering::Relaxed) {
                        run(
                            &mut wire,
                            &format!("UPDATE busy SET n = n + 1 WHERE id = {}", writer + count % 50),
                        );
                        count += 1;
                    }
                    count
                })
            })
            .collect();
        let types = ["bigint", "numeric(20,2)", "int", "bigint"];
        let changes =
            types.map(|ty| wire.query(&format!("ALTER TABLE busy ALTER COLUMN n TYPE {ty}")).unwrap());
        done.store(true, Ordering::Relaxed);
        for change in changes {
            assert!(change.error.is_none(), "{:?}", change.error);
        }
        writers.into_iter().map(|writer| writer.join().expect("a writer")).sum()
    });
    assert_eq!(scalar(&mut wire, "SELECT sum(n) FROM busy"), written.to_string());
    let (by_index, by_scan) =
        ("SELECT count(*) FROM busy WHERE n = 0", "SELECT count(*) FROM busy WHERE n + 0 = 0");
    assert_eq!(scalar(&mut wire, by_index), scalar(&mut wire, by_scan));
}

/// What an open transaction has written is judged by a new constraint too: the definition waits for its end.
#[test]
fn a_constraint_holds_for_rows_of_transactions_that_were_open_when_it_was_added() {
    let subject = Subject::start();
    let mut wire = subject.connect();
    run(&mut wire, "CREATE TABLE parents (id int PRIMARY KEY)");
    run(&mut wire, "INSERT INTO parents VALUES (1), (2)");
    let constraints = [
        ("ADD CONSTRAINT c CHECK (v >= 0)", "v = -5", "(9, -5)", "v < 0"),
        ("ALTER COLUMN v SET NOT NULL", "v = NULL", "(9, NULL)", "v IS NULL"),
        ("ADD FOREIGN KEY (v) REFERENCES parents (id)", "v = 77", "(9, 77)", "v = 77"),
        ("ADD CONSTRAINT u UNIQUE (v)", "v = 2", "(9, 1)", "v = 2 OFFSET 1"),
    ];
    for (constraint, update, insert, broken) in constraints {
        for write in [format!("UPDATE judged SET {update}"), format!("INSERT INTO judged VALUES {insert}")] {
            run(&mut wire, "DROP TABLE IF EXISTS judged");
            run(&mut wire, "CREATE TABLE judged (id int PRIMARY KEY, v int)");
            run(&mut wire, "INSERT INTO judged VALUES (1, 1)");
            if broken.contains("OFFSET") {
                run(&mut wire, "INSERT INTO judged VALUES (2, 2)");
            }
            let mut writer = subject.connect();
            run(&mut writer, "BEGIN");
            run(&mut writer, &write);
            let mut definer = subject.connect();
            let define = format!("ALTER TABLE judged {constraint}");
            let (added, committed) = thread::scope(|scope| {
                let added = scope.spawn(|| definer.query(&define).unwrap().code().to_owned());
                // Not done before the transaction is, or done at once.
                let active = format!("SELECT count(*) FROM pg_stat_activity WHERE query = '{define}'");
                while scalar(&mut wire, &active) == "0" {}
                let committed = writer.query("COMMIT").unwrap().code().to_owned();
                (added.join().expect("a definition"), committed)
            });
            assert!(added.is_empty() != committed.is_empty(), "{write}, {constraint}: {added}, {committed}");
            if added.is_empty() {
                let found =
                    scalar(&mut wire, &format!("SELECT count(*) FROM (SELECT FROM judged WHERE {broken}) b"));
                assert_eq!(found, "0", "{write}, {constraint}");
            }
        }
    }
}

/// Neither does a key hold only for what its parents were before an open transaction took them away, nor a constraint that
/// is added in a block only for what was there before the block.
#[test]
fn a_key_waits_for_its_parents_and_a_block_keeps_its_constraint() {
    let subject = Subject::start();
    let mut wire = subject.connect();
    for write in
        ["DELETE FROM parents WHERE id = 1", "TRUNCATE parents", "UPDATE parents SET id = 50 WHERE id = 1"]
    {
        run(&mut wire, "DROP TABLE IF EXISTS children, parents");
        run(&mut wire, "CREATE TABLE parents (id int PRIMARY KEY)");
        run(&mut wire, "CREATE TABLE children (id int PRIMARY KEY, parent int)");
        run(&mut wire, "INSERT INTO parents VALUES (1), (2)");
        run(&mut wire, "INSERT INTO children VALUES (1, 1)");
        let (mut writer, mut definer) = (subject.connect(), subject.connect());
        run(&mut writer, "BEGIN");
        run(&mut writer, write);
        let define = "ALTER TABLE children ADD FOREIGN KEY (parent) REFERENCES parents (id)";
        let added = thread::scope(|scope| {
            let added = scope.spawn(|| definer.query(define).unwrap().code().to_owned());
            let active = format!("SELECT count(*) FROM pg_stat_activity WHERE query = '{define}'");
            while scalar(&mut wire, &active) == "0" {}
            run(&mut writer, "COMMIT");
            added.join().expect("a definition")
        });
        assert_eq!(added, "23503", "{write}");
    }
    run(&mut wire, "CREATE TABLE judged (id int PRIMARY KEY, v int)");
    let (mut writer, mut definer) = (subject.connect(), subject.connect());
    run(&mut definer, "BEGIN");
    run(&mut definer, "ALTER TABLE judged ADD CONSTRAINT positive CHECK (v > 0)");
    let insert = "INSERT INTO judged VALUES (1, -1)";
    let inserted = thread::scope(|scope| {
        let inserted = scope.spawn(|| writer.query(insert).unwrap().code().to_owned());
        let active = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'INSERT INTO judged%'";
        while scalar(&mut wire, active) == "0" {}
        run(&mut definer, "COMMIT");
        inserted.join().expect("a writer")
    });
    assert_eq!(inserted, "23514");
}

/// What changes nothing that rows must meet disturbs nobody who has written some.
#[test]
fn an_open_transaction_outlives_changes_that_ask_nothing_of_its_rows() {
    if is_oracle() {
        return;
    }
    let subject = Subject::start();
    let mut wire = subject.connect();
    run(&mut wire, "CREATE TABLE open (id int PRIMARY KEY, v int)");
    let changes = [
        "COMMENT ON TABLE open IS 'a table'",
        "CREATE INDEX open_v ON open (v)",
        "ALTER TABLE open ALTER COLUMN v SET DEFAULT 5",
        "ALTER TABLE open ADD COLUMN extra int DEFAULT 7",
        "DROP INDEX open_v",
    ];
    for (id, change) in changes.iter().enumerate() {
        let mut writer = subject.connect();
        run(&mut writer, "BEGIN");
        run(&mut writer, &format!("INSERT INTO open (id, v) VALUES ({id}, {id})"));
        run(&mut wire, &format!("SET lock_timeout = 500; {change}"));
        run(&mut writer, "COMMIT");
    }
    assert_eq!(scalar(&mut wire, "SELECT count(*) FROM open WHERE extra = 7"), "5");
}

/// A COMMIT that fails leaves nothing of its definitions.
#[test]
fn a_commit_that_fails_on_its_own_new_key_leaves_no_key() {
    let subject = Subject::start();
    let mut wire = subject.connect();
    for definition in ["ALTER TABLE ghost ADD PRIMARY KEY (a)", "CREATE UNIQUE INDEX ghost_a ON ghost (a)"] {
        run(&mut wire, "DROP TABLE IF EXISTS ghost");
        run(&mut wire, "CREATE TABLE ghost (a int)");
        run(&mut wire, "INSERT INTO ghost VALUES (1)");
        run(&mut wire, "BEGIN");
        run(&mut wire, definition);
        let inserted = wire.query("INSERT INTO ghost VALUES (1)").unwrap().code().to_owned();
        let committed = wire.query("COMMIT").unwrap().code().to_owned();
        assert!([inserted, committed].contains(&"23505".to_owned()), "{definition}");
        run(&mut wire, "INSERT INTO ghost VALUES (1)");
        run(&mut wire, "BEGIN");
        run(&mut wire, "TRUNCATE ghost");
        run(&mut wire, "INSERT INTO ghost VALUES (3), (3)");
        run(&mut wire, "COMMIT");
        assert_eq!(scalar(&mut wire, "SELECT count(*) FROM ghost"), "2", "{definition}");
    }
}

/// After a kill at any time the table is as it was before or as it became, rows and keys included.
#[test]
fn a_kill_in_the_middle_of_a_definition_leaves_the_old_table_or_the_new_one() {
    if is_oracle() {
        return;
    }
    let mut server = Keystead::start().unwrap();
    let mut wire = server.connect().unwrap();
    run(&mut wire, "CREATE TABLE survivor (id int, n int, t text)");
    run(&mut wire, "INSERT INTO survivor SELECT g, g * 2, 'row ' || g FROM generate_series(1, 20000) g");
    for round in 0..12_u64 {
        let now = scalar(
            &mut wire,
            "SELECT format_type(atttypid, -1) FROM pg_attribute WHERE attrelid = 'survivor'::regclass AND attname = 'n'",
        );
        let to = if now == "integer" { "text" } else { "int USING n::int" };
        let change = if round % 3 == 2 {
            "ALTER TABLE survivor ADD PRIMARY KEY (id)".to_owned()
        } else {
            format!("ALTER TABLE survivor ALTER COLUMN n TYPE {to}")
        };
        // Each round the kill comes later; what it meets is up to the machine.
        let mut other = server.connect().unwrap();
        wire.send(&wire::query(&change)).unwrap();
        for _ in 0..100 * round {
            run(&mut other, "SELECT 1");
        }
        server.kill().unwrap();
        server.restart().unwrap();
        wire = server.connect().unwrap();
        // What was being built is finished, or given up.
        while scalar(&mut wire, "SELECT count(*) FROM pg_index WHERE NOT indisvalid") != "0" {
            thread::yield_now();
        }
        assert_eq!(
            scalar(&mut wire, "SELECT count(*) FROM survivor WHERE n::int = id * 2 AND t = 'row ' || id"),
            "20000",
            "round {round}: {change}"
        );
        let keys =
            scalar(&mut wire, "SELECT count(*) FROM pg_constraint WHERE conrelid = 'survivor'::regclass");
        let twice = wire.query("INSERT INTO survivor VALUES (7, NULL, NULL)").unwrap();
        match keys.as_str() {
            "0" => {
                assert_eq!(twice.code(), "", "round {round}");
                run(&mut wire, "DELETE FROM survivor WHERE t IS NULL");
            }
            _ => {
                assert_eq!(twice.code(), "23505", "round {round}");
                run(&mut wire, "ALTER TABLE survivor DROP CONSTRAINT survivor_pkey");
            }
        }
    }
}

/// A sleeping statement holds no worker and ends at once when it is asked to.
#[test]
fn sleepers_are_many_and_end_when_they_are_told() {
    let subject = Subject::start();
    let address = subject.address();
    let mut sleepers: Vec<Wire> = (0..20).map(|_| subject.connect()).collect();
    for sleeper in &mut sleepers {
        sleeper.send(&wire::query("SELECT pg_sleep(3600)")).unwrap();
    }
    let mut wire = subject.connect();
    while scalar(
        &mut wire,
        "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'SELECT pg_sleep%' AND pid <> pg_backend_pid()",
    ) != "20"
    {
        thread::yield_now();
    }
    assert_eq!(scalar(&mut wire, "SELECT 1 FROM pg_sleep(0.01)"), "1");
    for sleeper in &mut sleepers[..10] {
        Wire::open(&address).unwrap().send(&wire::cancel(sleeper.key)).unwrap();
    }
    for sleeper in &mut sleepers[..10] {
        let messages = sleeper.read_until_ready().unwrap();
        let error = messages.iter().find(|m| m.tag == b'E').expect("a cancelled sleep is an error");
        assert_eq!(wire::problem(&error.body).code, "57014");
        assert_eq!(scalar(sleeper, "SELECT 1"), "1");
    }
    run(&mut wire, "SET statement_timeout = '50ms'");
    assert_eq!(wire.query("SELECT pg_sleep(3600)").unwrap().code(), "57014");
    run(&mut wire, "RESET statement_timeout");
    // Those whose clients go away leave nothing behind.
    drop(sleepers);
    while scalar(
        &mut wire,
        "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%' AND pid <> pg_backend_pid()",
    ) != "0"
    {
        thread::yield_now();
    }
}
