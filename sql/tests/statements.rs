//! Whole statements through the session, on a store in memory.

mod support;

use support::Server;

#[tokio::test]
async fn a_table_is_made_filled_and_read() {
    let server = Server::new();
    let mut c = server.connect();
    assert_eq!(c.run("create table t (id int primary key, name text not null, n numeric(10,2) default 1.5)").await.expect("made").tag, "CREATE TABLE");
    assert_eq!(c.run("insert into t values (1, 'one', 10), (2, 'two', default)").await.expect("filled").tag, "INSERT 0 2");
    assert_eq!(c.rows("select id, name, n from t where id = 2").await, ["2|two|1.50"]);
    assert_eq!(c.rows("select name from t where n > 2 order by id desc").await, ["one"]);
    assert_eq!(c.rows("select count(*), sum(n) from t").await, ["2|11.50"]);
    assert_eq!(c.run("update t set n = n + 1 where id = 1").await.expect("changed").tag, "UPDATE 1");
    assert_eq!(c.run("delete from t where id = 2").await.expect("removed").tag, "DELETE 1");
    assert_eq!(c.rows("select * from t").await, ["1|one|11.00"]);
    assert_eq!(c.fault("insert into t values (1, 'again')").await.0, "23505");
    assert_eq!(c.fault("select nope from t").await, ("42703".to_owned(), "column \"nope\" does not exist".to_owned()));
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
    let answers = c.simple("select 1; insert into t values (1); select count(*) from t").await.expect("all three");
    assert_eq!(answers.len(), 3);
    assert_eq!(c.rows("select count(*) from t").await, ["1"]);
}
