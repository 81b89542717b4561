//! tokio-postgres, unmodified: types in binary both ways, statements, portals, COPY, pipelining, cancel, errors.
//!
//! Runs against `KEYSTEAD_URL` if it is set, else against a server of its own.

use std::collections::HashMap;
use std::pin::pin;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use tests::Address;
use tests::keystead::Keystead;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

/// The server this test started, if it had to.
fn place() -> (Option<Keystead>, Address) {
    if let Some(address) = std::env::var("KEYSTEAD_URL").ok().and_then(|url| Address::parse(&url)) {
        return (None, address);
    }
    let server = Keystead::start().expect("the server starts");
    let address = server.address().unwrap();
    (Some(server), address)
}

async fn connect(address: &Address) -> Client {
    let (client, connection) = tokio_postgres::connect(&address.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

#[tokio::test]
async fn values_go_in_and_come_out_in_binary() {
    let (_server, address) = place();
    let client = connect(&address).await;
    client
        .batch_execute(
            "DROP TABLE IF EXISTS tp_types; CREATE TABLE tp_types (b bool, i2 int2, i4 int4 PRIMARY KEY, i8 int8, \
             f4 float4, f8 float8, t text, v varchar, y bytea, ts timestamp, tz timestamptz, a int[], s text[])",
        )
        .await
        .unwrap();
    let now = SystemTime::UNIX_EPOCH + Duration::from_micros(1_700_000_000_123_456);
    let statement = client
        .prepare("INSERT INTO tp_types VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)")
        .await
        .unwrap();
    let expected = [
        Type::BOOL,
        Type::INT2,
        Type::INT4,
        Type::INT8,
        Type::FLOAT4,
        Type::FLOAT8,
        Type::TEXT,
        Type::VARCHAR,
        Type::BYTEA,
        Type::TIMESTAMP,
        Type::TIMESTAMPTZ,
        Type::INT4_ARRAY,
        Type::TEXT_ARRAY,
    ];
    assert_eq!(statement.params(), expected);
    let (ints, texts) = (vec![Some(1), None, Some(3)], vec!["a".to_owned(), String::new()]);
    let count = client
        .execute(
            &statement,
            &[
                &true,
                &-2i16,
                &3i32,
                &(1i64 << 40),
                &1.5f32,
                &-2.5f64,
                &"héllo",
                &"v",
                &&b"\x00\xff"[..],
                &now,
                &now,
                &ints,
                &texts,
            ],
        )
        .await
        .unwrap();
    assert_eq!(count, 1);
    let none: Option<i64> = None;
    client.execute("INSERT INTO tp_types (i4, i8) VALUES ($1, $2)", &[&4i32, &none]).await.unwrap();
    let row = client.query_one("SELECT * FROM tp_types WHERE i4 = $1", &[&3i32]).await.unwrap();
    assert!(row.get::<_, bool>(0));
    assert_eq!((row.get::<_, i16>(1), row.get::<_, i32>(2), row.get::<_, i64>(3)), (-2, 3, 1 << 40));
    assert_eq!((row.get::<_, f32>(4), row.get::<_, f64>(5)), (1.5, -2.5));
    assert_eq!(
        (row.get::<_, &str>(6), row.get::<_, &str>(7), row.get::<_, &[u8]>(8)),
        ("héllo", "v", &b"\x00\xff"[..])
    );
    assert_eq!((row.get::<_, SystemTime>(9), row.get::<_, SystemTime>(10)), (now, now));
    assert_eq!((row.get::<_, Vec<Option<i32>>>(11), row.get::<_, Vec<String>>(12)), (ints, texts));
    let nulls = client.query_one("SELECT * FROM tp_types WHERE i4 = 4", &[]).await.unwrap();
    assert!(
        (0..13)
            .filter(|n| *n != 2)
            .all(|n| nulls.try_get::<_, Option<bool>>(n).is_ok_and(|v| v.is_none()) || n > 0)
    );
    assert_eq!(nulls.get::<_, Option<i64>>(3), None);
    client.batch_execute("DROP TABLE tp_types").await.unwrap();
}

#[tokio::test]
async fn transactions_portals_and_savepoints() {
    let (_server, address) = place();
    let mut client = connect(&address).await;
    client
        .batch_execute("DROP TABLE IF EXISTS tp_rows; CREATE TABLE tp_rows (id int PRIMARY KEY, v int)")
        .await
        .unwrap();
    let mut transaction = client.transaction().await.unwrap();
    let insert = transaction.prepare("INSERT INTO tp_rows VALUES ($1, $2)").await.unwrap();
    for n in 0..100i32 {
        transaction.execute(&insert, &[&n, &(n * n)]).await.unwrap();
    }
    let portal = transaction.bind("SELECT id FROM tp_rows ORDER BY id", &[]).await.unwrap();
    let mut seen = Vec::new();
    loop {
        let page = transaction.query_portal(&portal, 30).await.unwrap();
        if page.is_empty() {
            break;
        }
        assert!(page.len() <= 30);
        seen.extend(page.iter().map(|row| row.get::<_, i32>(0)));
    }
    assert_eq!(seen, (0..100).collect::<Vec<_>>());
    let inner = transaction.transaction().await.unwrap();
    inner.execute("DELETE FROM tp_rows", &[]).await.unwrap();
    inner.rollback().await.unwrap();
    transaction.commit().await.unwrap();
    let count: i64 = client.query_one("SELECT count(*) FROM tp_rows", &[]).await.unwrap().get(0);
    assert_eq!(count, 100);
    let transaction = client.transaction().await.unwrap();
    transaction.execute("DELETE FROM tp_rows", &[]).await.unwrap();
    drop(transaction);
    let count: i64 = client.query_one("SELECT count(*) FROM tp_rows", &[]).await.unwrap().get(0);
    assert_eq!(count, 100, "a dropped transaction is rolled back");
    let found = client
        .query("SELECT id FROM tp_rows WHERE id = ANY($1) ORDER BY id", &[&vec![5i32, 7, 700]])
        .await
        .unwrap();
    assert_eq!(found.iter().map(|r| r.get(0)).collect::<Vec<i32>>(), [5, 7]);
    client.batch_execute("DROP TABLE tp_rows").await.unwrap();
}

#[tokio::test]
async fn requests_in_flight_together_answer_in_order() {
    let (_server, address) = place();
    let client = connect(&address).await;
    let statement = client.prepare("SELECT $1::int8 * 2").await.unwrap();
    let asked: Vec<i64> = (0..200).collect();
    let answers = asked.iter().map(|n| {
        let (client, statement) = (&client, &statement);
        async move { client.query_one(statement, &[n]).await.unwrap().get::<_, i64>(0) }
    });
    let got = futures::future::join_all(answers).await;
    assert_eq!(got, asked.iter().map(|n| n * 2).collect::<Vec<_>>());
}

#[tokio::test]
async fn copy_in_and_out() {
    use futures::{SinkExt, StreamExt};
    let (_server, address) = place();
    let client = connect(&address).await;
    client
        .batch_execute("DROP TABLE IF EXISTS tp_copy; CREATE TABLE tp_copy (id int PRIMARY KEY, t text)")
        .await
        .unwrap();
    let mut sink = pin!(client.copy_in::<_, Bytes>("COPY tp_copy FROM STDIN").await.unwrap());
    for n in 0..1_000 {
        sink.send(Bytes::from(format!("{n}\tr{n}\n"))).await.unwrap();
    }
    assert_eq!(sink.finish().await.unwrap(), 1_000);
    let mut out = pin!(
        client.copy_out("COPY (SELECT * FROM tp_copy WHERE id < 2 ORDER BY id) TO STDOUT").await.unwrap()
    );
    let mut text = Vec::new();
    while let Some(part) = out.next().await {
        text.extend_from_slice(&part.unwrap());
    }
    assert_eq!(text, b"0\tr0\n1\tr1\n");
    // A COPY that is dropped half way leaves nothing.
    {
        let mut sink = pin!(client.copy_in::<_, Bytes>("COPY tp_copy FROM STDIN").await.unwrap());
        sink.send(Bytes::from_static(b"5000\tx\n")).await.unwrap();
    }
    let count: i64 =
        client.query_one("SELECT count(*) FROM tp_copy WHERE id >= 5000", &[]).await.unwrap().get(0);
    assert_eq!(count, 0);
    client.batch_execute("DROP TABLE tp_copy").await.unwrap();
}

#[tokio::test]
async fn errors_cancel_and_simple_queries() {
    let (_server, address) = place();
    let client = connect(&address).await;
    client
        .batch_execute("DROP TABLE IF EXISTS tp_errors; CREATE TABLE tp_errors (id int PRIMARY KEY)")
        .await
        .unwrap();
    client.execute("INSERT INTO tp_errors VALUES (1)", &[]).await.unwrap();
    let codes = HashMap::from([
        ("INSERT INTO tp_errors VALUES (1)", SqlState::UNIQUE_VIOLATION),
        ("INSERT INTO tp_errors VALUES (NULL)", SqlState::NOT_NULL_VIOLATION),
        ("SELECT * FROM nosuch", SqlState::UNDEFINED_TABLE),
        ("SELECT nosuch FROM tp_errors", SqlState::UNDEFINED_COLUMN),
        ("SELEC", SqlState::SYNTAX_ERROR),
        ("SELECT 1/0", SqlState::DIVISION_BY_ZERO),
    ]);
    for (sql, code) in codes {
        let error = client.query(sql, &[]).await.unwrap_err();
        assert_eq!(error.code(), Some(&code), "{sql}");
    }
    let error = client.execute("INSERT INTO tp_errors VALUES (1)", &[]).await.unwrap_err();
    let fields = error.as_db_error().unwrap();
    assert_eq!((fields.table(), fields.constraint()), (Some("tp_errors"), Some("tp_errors_pkey")));

    let cancel = client.cancel_token();
    let long = client
        .query_one("SELECT count(*) FROM generate_series(1, 100000000) a, generate_series(1, 100) b", &[]);
    let stop = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        cancel.cancel_query(NoTls).await.unwrap();
    };
    let (answer, ()) = tokio::join!(long, stop);
    assert_eq!(answer.unwrap_err().code(), Some(&SqlState::QUERY_CANCELED));

    let messages = client.simple_query("SELECT 1 AS a; SELECT NULL AS b, 'x' AS c").await.unwrap();
    let rows: Vec<_> = messages
        .iter()
        .filter_map(|m| match m {
            SimpleQueryMessage::Row(row) => {
                Some((0..row.len()).map(|n| row.get(n).map(str::to_owned)).collect::<Vec<_>>())
            }
            _ => None,
        })
        .collect();
    assert_eq!(rows, [vec![Some("1".to_owned())], vec![None, Some("x".to_owned())]]);
    client.batch_execute("DROP TABLE tp_errors").await.unwrap();
}
