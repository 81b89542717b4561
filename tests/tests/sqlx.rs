//! sqlx, unmodified: pool, typed rows, transactions, streams, listeners' absence, errors.
//!
//! Runs against `KEYSTEAD_URL` if it is set, else against a server of its own.

use sqlx::postgres::{PgPool, PgPoolOptions};
use sqlx::{Connection, Executor, Row};
use tests::Address;
use tests::keystead::Keystead;

async fn place() -> (Option<Keystead>, PgPool) {
    let given = std::env::var("KEYSTEAD_URL").ok().and_then(|url| Address::parse(&url));
    let server = given.is_none().then(|| Keystead::start().expect("the server starts"));
    let address = given.unwrap_or_else(|| server.as_ref().unwrap().address().unwrap());
    let pool = PgPoolOptions::new().max_connections(5).connect(&address.url()).await.unwrap();
    (server, pool)
}

#[tokio::test]
async fn rows_are_typed_and_parameters_are_bound() {
    let (_server, pool) = place().await;
    pool.execute("DROP TABLE IF EXISTS sx_rows").await.unwrap();
    pool.execute("CREATE TABLE sx_rows (id bigint PRIMARY KEY, name text NOT NULL, score float8, tags text[], ok bool)").await.unwrap();
    for n in 0..50i64 {
        let done = sqlx::query("INSERT INTO sx_rows VALUES ($1, $2, $3, $4, $5)")
            .bind(n)
            .bind(format!("n{n}"))
            .bind((n % 2 == 0).then_some(n as f64 / 4.0))
            .bind(vec!["a".to_owned(), n.to_string()])
            .bind(n % 3 == 0)
            .execute(&pool)
            .await
            .unwrap();
        assert_eq!(done.rows_affected(), 1);
    }
    let row: (i64, String, Option<f64>, Vec<String>, bool) =
        sqlx::query_as("SELECT * FROM sx_rows WHERE id = $1").bind(6i64).fetch_one(&pool).await.unwrap();
    assert_eq!(row, (6, "n6".into(), Some(1.5), vec!["a".into(), "6".into()], true));
    let none: (Option<f64>,) =
        sqlx::query_as("SELECT score FROM sx_rows WHERE id = 7").fetch_one(&pool).await.unwrap();
    assert_eq!(none, (None,));
    let missing = sqlx::query("SELECT 1 FROM sx_rows WHERE id = -1").fetch_optional(&pool).await.unwrap();
    assert!(missing.is_none());
    let ids: Vec<i64> = sqlx::query_scalar("SELECT id FROM sx_rows WHERE id = ANY($1) ORDER BY id")
        .bind(vec![3i64, 9, 900])
        .fetch_all(&pool)
        .await
        .unwrap();
    assert_eq!(ids, [3, 9]);
    let grouped =
        sqlx::query("SELECT ok, count(*) AS n, sum(id)::int8 AS s FROM sx_rows GROUP BY ok ORDER BY ok")
            .fetch_all(&pool)
            .await
            .unwrap();
    let numbers: Vec<(bool, i64, i64)> =
        grouped.iter().map(|r| (r.get("ok"), r.get("n"), r.get("s"))).collect();
    assert_eq!(numbers, [(false, 33, 817), (true, 17, 408)]);
    pool.execute("DROP TABLE sx_rows").await.unwrap();
}

#[tokio::test]
async fn transactions_roll_back_when_dropped_and_nest() {
    let (_server, pool) = place().await;
    pool.execute("DROP TABLE IF EXISTS sx_tx").await.unwrap();
    pool.execute("CREATE TABLE sx_tx (id int PRIMARY KEY)").await.unwrap();
    let mut outer = pool.begin().await.unwrap();
    sqlx::query("INSERT INTO sx_tx VALUES (1)").execute(&mut *outer).await.unwrap();
    let mut inner = outer.begin().await.unwrap();
    sqlx::query("INSERT INTO sx_tx VALUES (2)").execute(&mut *inner).await.unwrap();
    inner.rollback().await.unwrap();
    outer.commit().await.unwrap();
    let mut dropped = pool.begin().await.unwrap();
    sqlx::query("INSERT INTO sx_tx VALUES (3)").execute(&mut *dropped).await.unwrap();
    drop(dropped);
    let ids: Vec<i32> =
        sqlx::query_scalar("SELECT id FROM sx_tx ORDER BY id").fetch_all(&pool).await.unwrap();
    assert_eq!(ids, [1]);
    let error = sqlx::query("INSERT INTO sx_tx VALUES (1)").execute(&pool).await.unwrap_err();
    let database = error.as_database_error().unwrap();
    assert_eq!(database.code().as_deref(), Some("23505"));
    assert!(database.is_unique_violation());
    pool.execute("DROP TABLE sx_tx").await.unwrap();
}

#[tokio::test]
async fn increments_from_a_pool_are_not_lost() {
    let (_server, pool) = place().await;
    pool.execute("DROP TABLE IF EXISTS sx_count").await.unwrap();
    pool.execute("CREATE TABLE sx_count (id int PRIMARY KEY, n int)").await.unwrap();
    pool.execute("INSERT INTO sx_count VALUES (1, 0)").await.unwrap();
    let workers: Vec<_> = (0..10)
        .map(|_| {
            let pool = pool.clone();
            tokio::spawn(async move {
                for _ in 0..20 {
                    sqlx::query("UPDATE sx_count SET n = n + 1 WHERE id = $1")
                        .bind(1i32)
                        .execute(&pool)
                        .await
                        .unwrap();
                }
            })
        })
        .collect();
    for worker in workers {
        worker.await.unwrap();
    }
    let n: i32 = sqlx::query_scalar("SELECT n FROM sx_count").fetch_one(&pool).await.unwrap();
    assert_eq!(n, 200);
    pool.acquire().await.unwrap().ping().await.unwrap();
    pool.execute("DROP TABLE sx_count").await.unwrap();
}
