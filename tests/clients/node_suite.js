// node-postgres: queries, parameters, types, prepared statements, transactions, errors, pool, pipelined work.
"use strict";

const assert = require("node:assert/strict");
const { Client, Pool } = require("pg");

const connectionString = process.argv[2].replace("?sslmode=disable", "");
let count = 0;
const equal = (got, expected, what) => {
  assert.deepStrictEqual(got, expected, what);
  count += 1;
};
const fails = async (code, call, what) => {
  const error = await call().then(() => null, (e) => e);
  equal(error && error.code, code, what);
};

async function main() {
  const db = new Client({ connectionString });
  await db.connect();
  await db.query("DROP TABLE IF EXISTS client_node");
  await db.query(
    "CREATE TABLE client_node (id int PRIMARY KEY, t text, n numeric, f float8, b bool, ts timestamptz, j jsonb, raw bytea, a int[], l bigint)",
  );
  const when = new Date(Date.UTC(2024, 1, 29, 10, 20, 30, 123));
  await db.query("INSERT INTO client_node VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)", [
    1, "héllo", "12.50", 1.5, true, when, { a: [1, null] }, Buffer.from([0, 255]), [1, 2], "9007199254740993",
  ]);
  const { rows, fields } = await db.query("SELECT * FROM client_node");
  equal(rows[0].id, 1, "int");
  equal(rows[0].t, "héllo", "text");
  equal(rows[0].n, "12.50", "numeric");
  equal(rows[0].f, 1.5, "float8");
  equal(rows[0].b, true, "bool");
  equal(rows[0].ts.toISOString(), when.toISOString(), "timestamptz");
  equal(rows[0].j, { a: [1, null] }, "jsonb");
  equal([...rows[0].raw], [0, 255], "bytea");
  equal(rows[0].a, [1, 2], "int[]");
  equal(rows[0].l, "9007199254740993", "bigint");
  equal(fields.map((f) => f.dataTypeID), [23, 25, 1700, 701, 16, 1184, 3802, 17, 1007, 20], "type oids");
  await db.query("INSERT INTO client_node (id) VALUES (2)");
  equal((await db.query("SELECT t, n, j, a FROM client_node WHERE id = 2")).rows[0], { t: null, n: null, j: null, a: null }, "NULL");

  for (let i = 0; i < 5; i += 1) {
    const answer = await db.query({ name: "by-id", text: "SELECT t FROM client_node WHERE id = $1", values: [1] });
    equal(answer.rows, [{ t: "héllo" }], "named statement");
  }
  const many = await db.query("SELECT 1 AS a; SELECT 2 AS b; UPDATE client_node SET t = t WHERE id = 1");
  equal(many.map((r) => r.command), ["SELECT", "SELECT", "UPDATE"], "several statements in one query");
  const updated = await db.query("UPDATE client_node SET t = 'x' WHERE id = ANY($1) RETURNING id", [[1, 2, 3]]);
  equal(updated.rowCount, 2, "row count");
  equal(updated.rows.map((r) => r.id).sort(), [1, 2], "RETURNING");
  equal((await db.query({ text: "SELECT 1, 2", rowMode: "array" })).rows, [[1, 2]], "array rows");

  await fails("23505", () => db.query("INSERT INTO client_node (id) VALUES (1)"), "unique");
  await fails("42P01", () => db.query("SELECT * FROM no_such"), "no table");
  await fails("22P02", () => db.query("SELECT $1::int", ["x"]), "bad parameter");
  await fails("42601", () => db.query("SELEC"), "syntax");
  await fails("08P01", () => db.query("SELECT $1::int, $2::int", [1]), "too few parameters");
  equal((await db.query("SELECT 1 AS ok")).rows[0].ok, 1, "usable after errors");

  await db.query("BEGIN");
  await db.query("INSERT INTO client_node (id) VALUES (50)");
  await fails("22012", () => db.query("SELECT 1/0"), "error in a block");
  await fails("25P02", () => db.query("SELECT 1"), "failed transaction");
  await db.query("ROLLBACK");
  equal((await db.query("SELECT count(*)::int AS n FROM client_node")).rows[0].n, 2, "rollback");

  const shared = new Pool({ connectionString, max: 1 });
  const answers = await Promise.all([...Array(50).keys()].map((n) => shared.query("SELECT $1::int AS n", [n])));
  equal(answers.map((r) => r.rows[0].n), [...Array(50).keys()], "queued queries answer in order");
  await shared.end();

  const pool = new Pool({ connectionString, max: 6 });
  await Promise.all([...Array(60).keys()].map(() => pool.query("UPDATE client_node SET l = coalesce(l, 0) + 1 WHERE id = 2")));
  equal((await pool.query("SELECT l::int AS l FROM client_node WHERE id = 2")).rows[0].l, 60, "no update was lost");
  await pool.end();
  const big = await db.query("SELECT g, repeat('x', 100) AS t FROM generate_series(1, 20000) g");
  equal(big.rows.length, 20000, "a large result");
  await db.query("DROP TABLE client_node");
  await db.end();
}

main().then(
  () => {
    assert.ok(count >= 30, `only ${count} checks ran`);
    console.log(`${count} checks passed`);
  },
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
