//! The extended protocol at the session: parameter types, portals, names that are missing or taken.

mod support;

use bytes::Bytes;
use model::{Code, Type};
use sql::session::{Executed, Format, Parameters};
use support::{Connection, Server};

async fn types(c: &mut Connection, text: &str) -> Result<Vec<Type>, String> {
    c.0.close_statement("s");
    let parsed = c.0.parse("s", text, &[]).await;
    let described = match parsed {
        Ok(()) => c.0.describe_statement("s").await.map(|described| described.parameters),
        Err(error) => Err(error),
    };
    c.0.sync().await.expect("synced");
    described.map_err(|error| error.code().sqlstate().to_owned())
}

fn text(value: &str) -> Option<Bytes> {
    Some(Bytes::copy_from_slice(value.as_bytes()))
}

#[tokio::test]
async fn parameter_types_are_inferred_as_postgresql_infers_them() {
    let server = Server::new();
    let mut c = server.connect();
    c.run("create table t (pk bigint primary key, n int, name text)").await.expect("made");
    let cases: [(&str, Result<&[Type], &str>); 12] = [
        ("select * from t where pk = $1", Ok(&[Type::Int8])),
        ("select $1::int4", Ok(&[Type::Int4])),
        ("select * from t limit $1", Ok(&[Type::Int8])),
        ("insert into t values ($1, $2, $3)", Ok(&[Type::Int8, Type::Int4, Type::Text])),
        ("select $1", Ok(&[Type::Text])),
        ("select coalesce($1, n) from t", Ok(&[Type::Int4])),
        ("select * from t where pk = any($1)", Ok(&[Type::Array(model::types::Scalar::Int8)])),
        ("select * from t where n in ($1, $2)", Ok(&[Type::Int4, Type::Int4])),
        ("update t set n = n + $1 where pk = $2", Ok(&[Type::Int4, Type::Int8])),
        ("select $1 + $2", Err("42725")),
        ("select $1 is null", Err("42P18")),
        ("select $2::int", Err("42P18")),
    ];
    for (statement, expected) in cases {
        let expected = expected.map(<[Type]>::to_vec).map_err(str::to_owned);
        assert_eq!(types(&mut c, statement).await, expected, "{statement}");
    }
}

#[tokio::test]
async fn a_portal_stops_after_max_rows_and_goes_on() {
    let server = Server::new();
    let mut c = server.connect();
    c.0.parse("", "select x from generate_series(1, $1::int) x", &[]).await.expect("parsed");
    let parameters = Parameters { formats: Vec::new(), values: vec![text("5")] };
    c.0.bind("", "", parameters, vec![Format::Text]).await.expect("bound");
    let mut counts = Vec::new();
    loop {
        let mut next = c.0.execute("", 2).await.expect("executed");
        let mut rows = 0;
        let end = loop {
            match next {
                Executed::Rows(page) => rows += page.len(),
                Executed::Suspended => break false,
                Executed::Complete(_) => break true,
                _ => panic!("neither rows nor an end"),
            }
            next = c.0.resume("").await.expect("resumed");
        };
        counts.push(rows);
        if end {
            break;
        }
    }
    assert_eq!(counts, [2, 2, 1]);
    c.0.sync().await.expect("synced");
}

#[tokio::test]
async fn names_that_are_missing_or_taken_have_their_codes() {
    let server = Server::new();
    let mut c = server.connect();
    c.0.parse("s", "select 1", &[]).await.expect("parsed");
    assert_eq!(
        c.0.parse("s", "select 2", &[]).await.expect_err("taken").code(),
        Code::DuplicatePreparedStatement
    );
    let missing = c.0.bind("", "nope", Parameters::default(), Vec::new()).await;
    assert_eq!(missing.expect_err("missing").code(), Code::InvalidSqlStatementName);
    assert_eq!(c.0.execute("nope", 0).await.err().expect("missing").code(), Code::InvalidCursorName);
    let counts = Parameters { formats: vec![Format::Text, Format::Text], values: Vec::new() };
    assert_eq!(
        c.0.bind("", "s", counts, Vec::new()).await.expect_err("formats").code(),
        Code::ProtocolViolation
    );
    c.0.close_statement("nope");
    c.0.close_portal("nope");
    c.0.sync().await.expect("synced");
}

#[tokio::test]
async fn a_prepared_get_and_update_by_key_run_directly() {
    let server = Server::new();
    let mut c = server.connect();
    c.run("create table t (id int primary key, n int not null)").await.expect("made");
    c.run("insert into t select x, x * 10 from generate_series(1, 100) x").await.expect("filled");
    assert_eq!(c.rows("explain (costs off) select n from t where id = 7").await[0], "Direct");
    c.0.parse("get", "select n from t where id = $1", &[]).await.expect("parsed");
    c.0.parse("put", "update t set n = n + $1 where id = $2", &[]).await.expect("parsed");
    let run = async |c: &mut Connection, name: &str, values: Vec<Option<Bytes>>| {
        c.0.bind("", name, Parameters { formats: Vec::new(), values }, Vec::new()).await.expect("bound");
        let mut rows = Vec::new();
        let mut next = c.0.execute("", 0).await.expect("executed");
        loop {
            match next {
                Executed::Rows(page) => rows.extend(page.into_values()),
                Executed::Complete(tag) => {
                    c.0.sync().await.expect("synced");
                    return (rows, tag);
                }
                _ => panic!("neither rows nor an end"),
            }
            next = c.0.resume("").await.expect("resumed");
        }
    };
    let (rows, tag) = run(&mut c, "get", vec![text("7")]).await;
    assert_eq!((rows, tag.as_str()), (vec![vec![model::Value::Int4(70)]], "SELECT 1"));
    assert_eq!(run(&mut c, "put", vec![text("5"), text("7")]).await.1, "UPDATE 1");
    assert_eq!(run(&mut c, "get", vec![text("7")]).await.0, [[model::Value::Int4(75)]]);
    assert_eq!(run(&mut c, "get", vec![None]).await.1, "SELECT 0");
    assert_eq!(run(&mut c, "put", vec![text("5"), text("700")]).await.1, "UPDATE 0");
}
