//! Whole statements through the session, on a store in memory.

#![expect(
    clippy::disallowed_methods,
    reason = "tests race tasks of their own and measure how long a cancel takes"
)]

mod support;

use support::Server;

#[tokio::test]
async fn a_table_is_made_filled_and_read() {
    let server = Server::new();
    let mut c = server.connect();
    assert_eq!(
        c.run("create table t (id int primary key, name text not null, n numeric(10,2) default 1.5)")
            .await
            .expect("made")
            .tag,
        "CREATE TABLE"
    );
    assert_eq!(
        c.run("insert into t values (1, 'one', 10), (2, 'two', default)").await.expect("filled").tag,
        "INSERT 0 2"
    );
    assert_eq!(c.rows("select id, name, n from t where id = 2").await, ["2|two|1.50"]);
    assert_eq!(c.rows("select name from t where n > 2 order by id desc").await, ["one"]);
    assert_eq!(c.rows("select count(*), sum(n) from t").await, ["2|11.50"]);
    assert_eq!(c.run("update t set n = n + 1 where id = 1").await.expect("changed").tag, "UPDATE 1");
    assert_eq!(c.run("delete from t where id = 2").await.expect("removed").tag, "DELETE 1");
    assert_eq!(c.rows("select * from t").await, ["1|one|11.00"]);
    assert_eq!(c.fault("insert into t values (1, 'again')").await.0, "23505");
    assert_eq!(
        c.fault("select nope from t").await,
        ("42703".to_owned(), "column \"nope\" does not exist".to_owned())
    );
}

#[tokio::test]
async fn a_block_sees_its_own_writes_and_rollback_leaves_nothing() {
    let server = Server::new();
    let mut c = server.connect();
    let mut other = server.connect();
    c.run("create table t (id int primary key, n int)").await.expect("made");
    c.run("begin").await.expect("begun");
    c.run("insert into t values (1, 1), (2, 2)").await.expect("filled");
    assert_eq!(c.rows("select id, n from t order by id").await, ["1|1", "2|2"]);
    assert_eq!(c.rows("select count(*) from t").await, ["2"]);
    assert_eq!(other.rows("select count(*) from t").await, ["0"]);
    c.run("savepoint a").await.expect("marked");
    c.run("update t set n = 10 where id = 1").await.expect("changed");
    assert_eq!(c.rows("select n from t where id = 1").await, ["10"]);
    c.run("rollback to a").await.expect("rolled back");
    assert_eq!(c.rows("select n from t where id = 1").await, ["1"]);
    c.run("commit").await.expect("committed");
    assert_eq!(other.rows("select count(*) from t").await, ["2"]);
    c.run("begin").await.expect("begun");
    c.run("delete from t").await.expect("removed");
    assert_eq!(c.rows("select count(*) from t").await, ["0"]);
    c.run("rollback").await.expect("rolled back");
    assert_eq!(c.rows("select count(*) from t").await, ["2"]);
}

#[tokio::test]
async fn statements_of_one_text_succeed_or_fail_together() {
    let server = Server::new();
    let mut c = server.connect();
    c.run("create table t (id int primary key)").await.expect("made");
    assert!(c.simple("insert into t values (1); select 1/0; insert into t values (2)").await.is_err());
    assert_eq!(c.rows("select count(*) from t").await, ["0"]);
    let answers =
        c.simple("select 1; insert into t values (1); select count(*) from t").await.expect("all three");
    assert_eq!(answers.len(), 3);
    assert_eq!(c.rows("select count(*) from t").await, ["1"]);
}

#[tokio::test]
async fn many_statements_of_one_text_cost_what_as_many_texts_cost() {
    let server = Server::new();
    let mut c = server.connect();
    let mut time = async |count: usize| {
        let began = std::time::Instant::now();
        let text = "select 'é';\nexplain select 1; ".repeat(count);
        assert_eq!(c.simple(&text).await.expect("all of them").len(), 2 * count);
        began.elapsed()
    };
    time(100).await;
    let (few, many) = (time(500).await, time(4_000).await);
    assert!(many < few * 24, "{few:?} became {many:?} with eight times the statements");
}

#[tokio::test]
async fn counters_that_many_sessions_raise_lose_nothing() {
    let server = Server::new();
    let mut c = server.connect();
    c.run("create table t (id int primary key, n int not null, note text)").await.expect("made");
    c.run("insert into t values (1, 0, 'x')").await.expect("filled");
    let mut tasks = Vec::new();
    for _ in 0..8 {
        let mut other = server.connect();
        tasks.push(tokio::spawn(async move {
            for _ in 0..25 {
                other.run("update t set n = n + 1 where id = 1").await.expect("raised");
                other
                    .run("update t set n = n + 1, note = note || '.' where n >= 0 returning n")
                    .await
                    .expect("raised");
            }
        }));
    }
    for task in tasks {
        task.await.expect("no panic");
    }
    assert_eq!(c.rows("select n, length(note) from t").await, ["400|201"]);
    assert_eq!(c.fault("update t set n = n + 2147483647 where id = 1").await.0, "22003");
    assert_eq!(c.fault("update t set n = null where id = 1").await.0, "23502");
    assert_eq!(c.run("update t set n = 5 where id = 2").await.expect("none").tag, "UPDATE 0");
}

#[tokio::test]
async fn a_named_command_is_remembered() {
    let server = Server::new();
    let mut c = server.connect();
    c.run("create table t (id int primary key)").await.expect("made");
    let id = "0190163d-8694-739b-aea5-966c26f8ad91";
    assert_eq!(c.fault("set keystead.command_id = 1").await.0, "22P02");
    assert!(c.run(&format!("set keystead.command_id = '{}'", id.to_uppercase())).await.is_err());
}

#[tokio::test]
async fn deep_statements_are_run_or_refused_and_never_overflow_the_stack() {
    let server = Server::new();
    let mut c = server.connect();
    let nested = |depth: usize| format!("select {}1{}", "(".repeat(depth), ")".repeat(depth));
    assert_eq!(c.rows(&nested(200)).await, ["1"]);
    assert_eq!(c.fault(&nested(1_000_000)).await.0, "54001");
    assert_eq!(c.rows(&format!("select 1{}", " + 1".repeat(900))).await, ["901"]);
    assert_eq!(c.fault(&format!("select 1{}", " + 1".repeat(1_000_000))).await.0, "54001");
    let many: Vec<String> = (0..4_000).map(|number| format!("x = {number}")).collect();
    let text = format!(
        "select x from generate_series(3990, 4010) x where {} order by x desc limit 1",
        many.join(" or ")
    );
    assert_eq!(c.rows(&text).await, ["3999"]);
}

#[tokio::test]
async fn a_running_statement_is_stopped_within_200_milliseconds() {
    let server = Server::new();
    let mut c = server.connect();
    let handle = c.0.cancel_handle();
    let text = "select count(*) from generate_series(1, 100000000) a, generate_series(1, 1000) b";
    let running = tokio::spawn(async move {
        let fault = c.fault(text).await;
        (fault, std::time::Instant::now(), c)
    });
    let begun = std::time::Instant::now();
    while server.engine.activity().iter().all(|activity| activity.state != "active") {
        assert!(begun.elapsed().as_secs() < 20, "the statement never began");
        tokio::task::yield_now().await;
    }
    let asked = std::time::Instant::now();
    handle.cancel();
    let (fault, ended, mut c) = running.await.expect("no panic");
    assert_eq!(fault.0, "57014");
    assert!(ended.duration_since(asked).as_millis() < 1_000, "{:?}", ended.duration_since(asked));
    assert_eq!(c.rows("select 1").await, ["1"]);
    c.run("set statement_timeout = 50").await.expect("set");
    assert_eq!(c.fault(text).await.0, "57014");
}

#[tokio::test]
async fn a_json_path_of_any_length_is_run_or_refused_and_stops_in_time() {
    let server = Server::new();
    let mut c = server.connect();
    for path in [
        "'$' || repeat('.a', 100000)",
        "repeat('$[', 20000) || '0' || repeat(']', 20000)",
        "'1' || repeat('+1', 100000)",
        "repeat('-', 100000) || '1'",
    ] {
        assert_eq!(c.fault(&format!("select jsonb_path_query('1', {path})")).await.0, "54001", "{path}");
    }
    c.run("create table t (id int primary key, doc jsonb)").await.expect("made");
    c.run("insert into t values (1, '1')").await.expect("filled");
    c.run("set statement_timeout = 50").await.expect("set");
    let endless = format!("'${} ? (@ == 2)'", "[0,0]".repeat(40));
    for text in [
        format!("select jsonb_path_query('1', {endless})"),
        format!("select jsonb_path_query_array('1', {endless})"),
        format!("select jsonb_path_query_array(doc, {endless}) from t"),
        format!("select doc @? {endless} from t where id = 1"),
    ] {
        assert_eq!(c.fault(&text).await.0, "57014", "{text}");
    }
}

#[tokio::test]
async fn a_copy_names_the_line_whose_key_is_taken() {
    let server = Server::new();
    let mut c = server.connect();
    c.run("create table t (id int primary key, n int unique, m int not null check (m > 0))")
        .await
        .expect("made");
    let mut context = async |lines: &str| {
        let fault = c.copy_in("copy t from stdin", lines).await.expect_err("a fault");
        (fault.code().sqlstate().to_owned(), fault.context().map(str::to_owned))
    };
    let line = |text: &str| Some(text.to_owned());
    assert_eq!(context("1\t1\t1\n2\t2\t1\n3\t1\t1\n").await, ("23505".to_owned(), line("COPY t, line 3")));
    assert_eq!(context("1\t1\t1\n1\t2\t1\n3\t3\t1\n").await, ("23505".to_owned(), line("COPY t, line 2")));
    assert_eq!(
        context("1\t1\t1\n1\t2\t1\n3\t3\t0\n").await,
        ("23514".to_owned(), line("COPY t, line 3: \"3\t3\t0\""))
    );
}

#[tokio::test]
async fn merge_changes_what_matches_and_adds_what_does_not() {
    let server = Server::new();
    let mut c = server.connect();
    c.run("create table t (id int primary key, n int default 7)").await.expect("made");
    c.run("insert into t values (1, 1), (2, 2), (3, 3)").await.expect("filled");
    let merged = c
        .run(
            "merge into t using (values (1, 10), (2, 0), (4, 40), (5, 0)) s (id, n) on t.id = s.id \
             when matched and s.n = 0 then delete \
             when matched then update set n = t.n + s.n \
             when not matched and s.n = 0 then insert (id) values (s.id) \
             when not matched then insert values (s.id, s.n)",
        )
        .await
        .expect("merged");
    assert_eq!(merged.tag, "MERGE 4");
    assert_eq!(c.rows("select * from t order by id").await, ["1|11", "3|3", "4|40", "5|7"]);
}

#[tokio::test]
async fn a_failing_row_is_shown_by_the_places_of_its_columns() {
    let server = Server::new();
    let mut c = server.connect();
    c.run("create table t (a int, b int, c int check (c > 0))").await.expect("made");
    c.run("insert into t values (1, 2, 3)").await.expect("filled");
    c.run("alter table t alter a type text").await.expect("changed");
    let error = c.run("insert into t values ('x', 5, -1)").await.expect_err("refused");
    assert_eq!(error.detail(), Some("Failing row contains (x, 5, -1)."));
}

#[tokio::test]
async fn a_client_is_told_what_its_least_level_lets_through() {
    let server = Server::new();
    let mut c = server.connect();
    for (level, told) in [("notice", 2), ("warning", 1), ("error", 0)] {
        c.run(&format!("set client_min_messages = {level}")).await.expect("set");
        c.run("drop table if exists nothing").await.expect("a notice");
        c.run("commit").await.expect("a warning");
        assert_eq!(c.0.drain_notices().len(), told, "{level}");
    }
}

#[tokio::test]
async fn a_detail_shows_a_role_only_what_it_may_read() {
    let server = Server::new();
    let mut c = server.connect();
    for text in [
        "create role clerk",
        "create table t (id int primary key, pub text not null check (pub <> 'q'), hid text unique, n int)",
        "insert into t values (1, 'a', 'SECRET', 3)",
        "grant update (pub), insert on t to clerk",
    ] {
        c.run(text).await.expect(text);
    }
    let mut detail = async |rights: &str, text: &str| {
        c.run("reset role").await.expect("reset");
        c.run(rights).await.expect(rights);
        c.run("set role clerk").await.expect("set");
        c.run(text).await.expect_err(text).detail().map(str::to_owned)
    };
    let (check, null) = ("update t set pub = 'q'", "update t set pub = null");
    let twice = "insert into t values (2, 'z', 'SECRET', 3)";
    for text in [check, null, twice] {
        assert_eq!(detail("select 1", text).await, None, "{text}");
    }
    let some = "grant select (id, n) on t to clerk";
    assert_eq!(detail(some, check).await.as_deref(), Some("Failing row contains (id, n) = (1, 3)."));
    let key = "grant select (hid) on t to clerk";
    assert_eq!(detail(key, twice).await.as_deref(), Some("Key (hid)=(SECRET) already exists."));
    let all = "grant select on t to clerk";
    assert_eq!(detail(all, null).await.as_deref(), Some("Failing row contains (1, null, SECRET, 3)."));
}
