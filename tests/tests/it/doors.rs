//! The other doors: agents over MCP and programs over gRPC see what SQL wrote, and no more than they may.

use tests::keystead::Keystead;

fn start() -> Keystead {
    let server = Keystead::start().unwrap();
    let mut wire = server.connect().unwrap();
    for sql in [
        "CREATE TABLE people (id int PRIMARY KEY, name text, score numeric(6,2))",
        "INSERT INTO people VALUES (1, 'Ada', 1.50), (2, 'Grace', NULL)",
    ] {
        assert_eq!(wire.query(sql).unwrap().code(), "", "{sql}");
    }
    server
}

fn call(
    server: &Keystead,
    token: &str,
    method: &str,
    params: &serde_json::Value,
) -> (u16, serde_json::Value) {
    let body =
        serde_json::json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
    let bearer = format!("Bearer {token}");
    let headers = [
        ("Authorization", bearer.as_str()),
        ("Content-Type", "application/json"),
        ("Accept", "application/json, text/event-stream"),
        ("MCP-Protocol-Version", "2025-11-25"),
    ];
    let (status, text) = server.http_post("/mcp", &headers, &body).unwrap();
    // A chunked answer has its sizes on lines of their own; the message is the line that is JSON.
    let json = text
        .lines()
        .find_map(|line| serde_json::from_str::<serde_json::Value>(line).ok().filter(|v| v.is_object()));
    (status, json.unwrap_or(serde_json::Value::Null))
}

fn ask(server: &Keystead, sql: &str) -> serde_json::Value {
    let params = serde_json::json!({ "name": "db_query", "arguments": { "sql": sql } });
    let (status, answer) = call(server, &server.token().unwrap(), "tools/call", &params);
    assert_eq!(status, 200, "{sql}: {answer}");
    answer["result"].clone()
}

#[test]
fn an_agent_reads_over_mcp_and_cannot_write() {
    let server = start();
    let (status, listed) = call(&server, &server.token().unwrap(), "tools/list", &serde_json::json!({}));
    assert_eq!(status, 200, "{listed}");
    let tools = listed["result"]["tools"].as_array().cloned().unwrap_or_default();
    assert!(tools.iter().any(|tool| tool["name"] == "db_query"), "{listed}");

    let rows = ask(&server, "SELECT id, name FROM people ORDER BY id");
    assert_ne!(rows["isError"], true, "{rows}");
    let text = rows.to_string();
    assert!(text.contains("Ada") && text.contains("Grace"), "{text}");

    for sql in [
        "DELETE FROM people",
        "INSERT INTO people VALUES (3, 'x', 1)",
        "WITH d AS (DELETE FROM people RETURNING 1) SELECT * FROM d",
        "SELECT 1; DELETE FROM people",
        "COMMIT; DROP TABLE people",
        "/* SELECT */ DROP TABLE people",
        "EXPLAIN ANALYZE DELETE FROM people",
        "CREATE TABLE x (a int)",
        "SELECT nextval('nosuch')",
        "SELECT nosuch FROM people",
    ] {
        let answer = ask(&server, sql);
        assert_eq!(answer["isError"], true, "{sql}: {answer}");
    }
    let mut wire = server.connect().unwrap();
    assert_eq!(wire.query("SELECT count(*) FROM people").unwrap().scalar(), Some("2"));
}

#[test]
fn without_the_token_or_from_a_foreign_page_nothing_is_answered() {
    let server = start();
    let params = serde_json::json!({ "name": "db_query", "arguments": { "sql": "SELECT 1" } });
    for token in ["", "wrong", "ks_x_y"] {
        assert_eq!(call(&server, token, "tools/call", &params).0, 401, "{token:?}");
    }
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}"#;
    let bearer = format!("Bearer {}", server.token().unwrap());
    let common = [
        ("Authorization", bearer.as_str()),
        ("Content-Type", "application/json"),
        ("Accept", "application/json, text/event-stream"),
    ];
    for (name, value) in [("Origin", "https://example.org"), ("Origin", "null")] {
        let (status, _) = server.http_post("/mcp", &[&common[..], &[(name, value)]].concat(), body).unwrap();
        assert_eq!(status, 403, "{name}: {value}");
    }
    let rebound = format!(
        "POST /mcp HTTP/1.1\r\nHost: attacker.example\r\nConnection: close\r\nAuthorization: {bearer}\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    assert_eq!(server.http(&rebound).unwrap().0, 403);
}

#[tokio::test]
async fn a_program_queries_and_batches_over_grpc() {
    let server = start();
    let address = format!("http://{}", server.ready().grpc);
    let client = sdk::Client::connect(&address, &server.token().unwrap()).await.unwrap();
    let rows = client.query("SELECT id, name, score FROM people WHERE id = $1").bind(1).rows().await.unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].get::<String>("name").unwrap(), "Ada");

    client
        .batch()
        .statement("INSERT INTO people (id, name) VALUES ($1, $2)", [3.into(), "Alan".into()])
        .statement("UPDATE people SET name = $1 WHERE id = $2", ["Grace H.".into(), 2.into()])
        .commit()
        .await
        .unwrap();
    // All or nothing: the second statement fails, the first leaves no trace.
    let broken = client
        .batch()
        .statement("INSERT INTO people (id, name) VALUES ($1, $2)", [4.into(), "lost".into()])
        .statement("INSERT INTO people (id, name) VALUES ($1, $2)", [1.into(), "taken".into()])
        .commit()
        .await;
    assert!(broken.is_err());
    let mut wire = server.connect().unwrap();
    let names = wire.query("SELECT string_agg(name, ',' ORDER BY id) FROM people").unwrap();
    assert_eq!(names.scalar(), Some("Ada,Grace H.,Alan"));
    let refused = sdk::Client::connect(&address, "wrong").await;
    let refused = match refused {
        Err(_) => true,
        Ok(client) => client.query("SELECT 1").rows().await.is_err(),
    };
    assert!(refused, "a wrong token is refused");
}
