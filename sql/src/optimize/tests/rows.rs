//! Statements run with and without rules give the same rows.

use std::sync::Arc;

use model::{Type, Value};

use super::{bound, lowered, optimized, run};
use crate::{
    execute::fixture::{Memory, index, table},
    plan::{Node, Plan},
    stats::Statistics,
};

/// `t` with nulls, `u` with nulls in `x` and none in `z`, `e` empty, `k` with a key that others refer to.
fn filled() -> Arc<Memory> {
    const I: Type = Type::Int4;
    let mut u = table(200, "u", &[("id", I, true), ("x", I, false), ("z", I, true)]);
    u.indexes.push(index(210, "u_z", 3, false));
    let tables = vec![
        table(100, "t", &[("id", I, true), ("a", I, false), ("b", I, false)]),
        u,
        table(300, "e", &[("id", I, true), ("x", I, false)]),
        table(400, "k", &[("id", I, true), ("name", Type::Text, true)]),
    ];
    let memory = Memory::new(tables);
    for text in [
        "INSERT INTO t VALUES (1, 1, 1), (2, 2, NULL), (3, NULL, 3), (4, 4, 1), (5, 2, 2), (6, NULL, NULL), (7, 9, 7)",
        "INSERT INTO u VALUES (1, 1, 1), (2, 2, 1), (3, NULL, 2), (4, 4, 2), (5, 5, 5), (6, 2, 5)",
        "INSERT INTO k VALUES (1, 'one'), (2, 'two'), (3, 'three'), (5, 'five')",
    ] {
        let plan = lowered(bound(&memory, text), &Statistics::default());
        run(&memory, &plan).unwrap_or_else(|error| panic!("{text}: {error:?}"));
    }
    memory
}

const QUERIES: &[&str] = &[
    // NOT IN with nulls on either side, on both, on none, and an empty side.
    "SELECT id FROM t WHERE a NOT IN (SELECT x FROM u)",
    "SELECT id FROM t WHERE a NOT IN (SELECT x FROM u WHERE x IS NOT NULL)",
    "SELECT id FROM t WHERE a NOT IN (SELECT z FROM u)",
    "SELECT id FROM t WHERE id NOT IN (SELECT z FROM u)",
    "SELECT id FROM t WHERE id NOT IN (SELECT x FROM u)",
    "SELECT id FROM t WHERE a NOT IN (SELECT x FROM e)",
    "SELECT id FROM e WHERE x NOT IN (SELECT x FROM u)",
    "SELECT id FROM t WHERE a <> ALL (SELECT z FROM u)",
    "SELECT id FROM t WHERE a NOT IN (SELECT x FROM u WHERE u.z = t.b)",
    "SELECT id FROM t WHERE id NOT IN (SELECT z FROM u WHERE u.x = t.b)",
    "SELECT id FROM t WHERE (id, id) NOT IN (SELECT id, z FROM u)",
    "SELECT id FROM t WHERE (a, b) NOT IN (SELECT x, z FROM u)",
    "SELECT t.id FROM k LEFT JOIN t ON t.id = k.id WHERE t.id NOT IN (SELECT z FROM u)",
    "SELECT id FROM t WHERE NOT (a > ALL (SELECT x FROM u))",
    // IN and its relatives.
    "SELECT id FROM t WHERE a IN (SELECT x FROM u)",
    "SELECT id FROM t WHERE a IN (SELECT x FROM u WHERE u.z = t.b)",
    "SELECT id FROM t WHERE a IN (SELECT x FROM u ORDER BY id LIMIT 2)",
    "SELECT id FROM t WHERE a IN (SELECT x FROM u WHERE u.z = t.b ORDER BY u.id LIMIT 1)",
    "SELECT id FROM t WHERE a IN (SELECT max(x) FROM u WHERE u.z = t.b)",
    "SELECT id FROM t WHERE a > ANY (SELECT x FROM u)",
    "SELECT id FROM t WHERE a < ANY (SELECT x FROM u WHERE u.z <> t.b)",
    "SELECT id FROM t WHERE (a, b) IN (SELECT x, z FROM u)",
    "SELECT id FROM t WHERE 2 IN (SELECT x FROM u WHERE u.z = t.b)",
    "SELECT id FROM t WHERE a IN (SELECT DISTINCT x FROM u UNION ALL SELECT x FROM e)",
    "SELECT id, a IN (SELECT x FROM u) FROM t",
    "SELECT id FROM t WHERE a IN (SELECT x FROM u) OR b = 3",
    "SELECT id FROM t WHERE a IN (SELECT x FROM u WHERE z IN (SELECT id FROM k WHERE k.id = u.z))",
    "SELECT id FROM t WHERE a IN (SELECT x FROM u WHERE EXISTS (SELECT 1 FROM k WHERE k.id = t.b AND k.id = u.z))",
    // EXISTS.
    "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.x = t.a)",
    "SELECT id FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.x = t.a)",
    "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.x = t.a AND u.z <> t.b)",
    "SELECT id FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.x = t.a AND u.z > t.b)",
    "SELECT id FROM t WHERE NOT EXISTS (SELECT 1 FROM e WHERE e.x = t.a)",
    "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u)",
    "SELECT id FROM t WHERE NOT EXISTS (SELECT 1 FROM e)",
    "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.x = t.a LIMIT 1)",
    "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.x = t.a LIMIT 0)",
    "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.x = t.a OFFSET 1)",
    "SELECT id FROM t WHERE EXISTS (SELECT count(*) FROM u WHERE u.x = t.a)",
    "SELECT id FROM t WHERE EXISTS (SELECT z FROM u WHERE u.x = t.a GROUP BY z HAVING count(*) > 1)",
    "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u LEFT JOIN k ON k.id = u.z WHERE u.x = t.a AND k.name IS NULL)",
    "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM k LEFT JOIN u ON u.z = k.id AND u.x = t.a WHERE u.id IS NULL)",
    "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM k RIGHT JOIN u ON u.z = k.id WHERE u.x = t.a)",
    "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM (SELECT x + 1 AS y, z FROM u) v WHERE v.y = t.a AND v.z < 5)",
    "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.x = t.a) AND NOT EXISTS (SELECT 1 FROM k WHERE k.id = t.id) AND b > 0",
    "SELECT a, count(*) FROM t GROUP BY a HAVING EXISTS (SELECT 1 FROM u WHERE u.x = t.a)",
    "SELECT t.id, u.id FROM t JOIN u ON t.a = u.x AND EXISTS (SELECT 1 FROM k WHERE k.id = u.z)",
    "SELECT t.id, u.id FROM t LEFT JOIN u ON t.a = u.x AND EXISTS (SELECT 1 FROM k WHERE k.id = u.z AND k.id <> t.id)",
    // Scalars over aggregates, of groups that are empty too.
    "SELECT id, (SELECT count(*) FROM u WHERE u.x = t.a) FROM t",
    "SELECT id, (SELECT count(*) + 1 FROM u WHERE u.x = t.a) FROM t",
    "SELECT id, (SELECT count(z) FROM u WHERE u.x = t.a AND u.z = t.b) FROM t",
    "SELECT id, (SELECT sum(z) FROM u WHERE u.x = t.a) FROM t",
    "SELECT id, (SELECT coalesce(sum(z), -1) FROM u WHERE u.x = t.a) FROM t",
    "SELECT id, (SELECT sum(z) FILTER (WHERE z > 1) FROM u WHERE u.x = t.a) FROM t",
    "SELECT id, (SELECT count(*) FROM u WHERE u.x < t.a) FROM t",
    "SELECT id, (SELECT max(z) + t.b FROM u WHERE u.x = t.a) FROM t",
    "SELECT id, (SELECT sum(z + t.b) FROM u WHERE u.x = t.a) FROM t",
    "SELECT id, (SELECT count(*) FROM u WHERE u.x = t.a HAVING count(*) > 1) FROM t",
    "SELECT id, (SELECT max(z) FROM u WHERE u.x = t.a GROUP BY u.x) FROM t",
    "SELECT id FROM t WHERE (SELECT count(*) FROM u WHERE u.x = t.a) = 0",
    "SELECT id FROM t WHERE b < (SELECT max(z) FROM u WHERE u.x = t.a)",
    "SELECT id FROM t WHERE (SELECT max(z) FROM u WHERE u.x = t.a) IS NULL",
    "SELECT id FROM t WHERE b <= (SELECT max(z) FROM u WHERE u.x + 0 = t.a + 0)",
    "SELECT id FROM t WHERE b > (SELECT avg(x) FROM u)",
    "SELECT id, (SELECT name FROM k WHERE k.id = t.a) FROM t",
    "SELECT id, CASE WHEN b > 1 THEN (SELECT count(*) FROM u WHERE u.x = t.a) ELSE 7 END FROM t",
    "SELECT id, (SELECT max(z) FROM u WHERE u.x = t.a LIMIT 1), (SELECT max(z) FROM u WHERE u.x = t.a LIMIT 0) FROM t",
    // OR.
    "SELECT t.id, u.id FROM t, u WHERE (t.a = u.x AND t.b = 1) OR (t.a = u.x AND u.z = 5)",
    "SELECT t.id, u.id FROM t, u WHERE (t.a = u.x AND t.b = 1) OR t.a = u.x",
    "SELECT t.id, u.id FROM t, u WHERE (t.a = 2 AND u.z = 5) OR (t.a = 4 AND u.z = 1)",
    "SELECT id FROM t WHERE a = 1 OR a = 4 OR 9 = a",
    "SELECT id FROM t WHERE NOT (a = 1 OR a = 4)",
    "SELECT id FROM t WHERE (a = 1 OR a IN (2, NULL)) AND (b = 1 OR b = 2)",
    // Outer joins under conditions.
    "SELECT t.id, u.id FROM t LEFT JOIN u ON t.a = u.x WHERE u.z = 5",
    "SELECT t.id, u.id FROM t LEFT JOIN u ON t.a = u.x WHERE u.z IS NULL",
    "SELECT t.id, u.id FROM t LEFT JOIN u ON t.a = u.x AND t.b = 1 WHERE t.id > 1",
    "SELECT t.id, u.id FROM t RIGHT JOIN u ON t.a = u.x WHERE u.z > 1",
    "SELECT t.id, u.id FROM t FULL JOIN u ON t.a = u.x WHERE t.b = 1 OR u.z = 5",
    "SELECT t.id, u.id, k.id FROM t LEFT JOIN u ON t.a = u.x JOIN k ON k.id = u.z",
    "SELECT t.id, u.id, k.id FROM t LEFT JOIN (u JOIN k ON k.id = u.z) ON t.a = u.x AND t.b < 3",
    // Orders of joins.
    "SELECT * FROM t, u, k WHERE t.a = u.x AND u.z = k.id",
    "SELECT * FROM t, u, k WHERE t.a = u.x AND u.x = k.id AND t.id < u.id",
    "SELECT * FROM t, u, k WHERE t.a = u.x AND t.b = u.x AND u.x = k.id",
    "SELECT * FROM t, u, k WHERE t.id = u.id AND u.id = k.id AND k.id = 2",
    "SELECT * FROM t, k WHERE t.a > 3",
    "SELECT * FROM t, u, k, e WHERE t.a = u.x",
    "SELECT * FROM t, u WHERE t.a + u.x = 4",
    "SELECT * FROM t, u, k WHERE t.a + u.x = k.id",
    "SELECT * FROM t JOIN u ON t.a = u.x, LATERAL (SELECT name FROM k WHERE k.id = u.z) l",
    "SELECT * FROM t, u WHERE t.a = u.x AND EXISTS (SELECT 1 FROM k WHERE k.id = t.b + u.z)",
    "SELECT * FROM t, u, k WHERE t.a = u.x AND k.id = t.id AND t.a IN (SELECT z FROM u WHERE u.id < 4)",
    "SELECT * FROM t, u, k WHERE t.a = u.x AND k.id = t.id AND u.z NOT IN (SELECT x FROM u WHERE x > 1)",
    "SELECT x.id, y.id FROM t x, t y, t z, u u1, u u2, k k1, k k2, k k3, k k4 WHERE x.id = y.id AND y.id = z.id AND x.a = u1.x \
     AND u1.z = k1.id AND y.a = u2.x AND u2.z = k2.id AND k1.id = k3.id AND k4.id = k2.id",
    "SELECT id FROM t UNION ALL SELECT u.x FROM k, u WHERE u.z = k.id",
    "WITH w AS (SELECT t.id, u.z FROM u, t WHERE t.a = u.x) SELECT * FROM w, k WHERE k.id = w.z",
    "SELECT count(*) FROM t, u, k WHERE t.a = u.x AND u.z = k.id AND k.name <> 'two'",
    // Common table expressions that are read once, more often, by each other, inside what runs often.
    "WITH w AS (SELECT id, a + 1 AS c FROM t) SELECT c, id FROM w WHERE c = 3",
    "WITH w AS (SELECT id, a FROM t) SELECT x.id, y.id FROM w x, w y WHERE x.a = y.id",
    "WITH w AS (SELECT id, a FROM t), v AS (SELECT a, id FROM w WHERE id > 2) SELECT * FROM v, k WHERE k.id = v.a",
    "WITH w AS MATERIALIZED (SELECT id, a FROM t) SELECT * FROM w WHERE id = 2",
    "WITH w AS (SELECT z, count(*) AS n FROM u GROUP BY z) SELECT id FROM t WHERE EXISTS (SELECT 1 FROM w WHERE w.z = t.b AND n > 1)",
    "WITH w AS (SELECT id, x FROM u ORDER BY id LIMIT 3) SELECT * FROM w WHERE x = 4",
    "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 4) SELECT id FROM r, t WHERE t.id = r.n",
    "WITH w AS (SELECT id FROM t) SELECT k.id FROM k, LATERAL (SELECT count(*) FROM w WHERE w.id > k.id) l",
];

fn sorted(memory: &Arc<Memory>, plan: &Plan) -> Result<Vec<String>, String> {
    let mut rows: Vec<String> = run(memory, plan)
        .map_err(|error| error.to_string())?
        .iter()
        .map(|row: &Vec<Value>| format!("{row:?}"))
        .collect();
    rows.sort();
    Ok(rows)
}

#[test]
fn rules_change_no_rows() {
    let memory = filled();
    let tables: Vec<_> = [100, 200, 300, 400].iter().map(|id| memory.table(*id)).collect();
    let mut known = Statistics::default();
    tables.iter().for_each(|table| known.describe(table));
    for text in QUERIES {
        let plain = sorted(&memory, &lowered(bound(&memory, text), &Statistics::default()));
        for statistics in [&Statistics::default(), &known] {
            let plan = lowered(optimized(&memory, statistics, text), statistics);
            let ruled = sorted(&memory, &plan);
            assert_eq!(ruled, plain, "{text}\n{plan:#?}");
        }
    }
}

#[test]
fn not_in_finds_no_row_where_a_null_is_among_what_is_compared() {
    let memory = filled();
    let rows = |text: &str| {
        let plan = lowered(optimized(&memory, &Statistics::default(), text), &Statistics::default());
        assert_eq!(super::count(&plan, &|node| matches!(node, Node::Join(_))), 1, "{text} became a join");
        run(&memory, &plan).expect("rows").len()
    };
    assert_eq!(rows("SELECT id FROM t WHERE a NOT IN (SELECT x FROM u)"), 0);
    assert_eq!(rows("SELECT id FROM t WHERE a NOT IN (SELECT x FROM u WHERE x IS NOT NULL)"), 1);
    assert_eq!(rows("SELECT id FROM t WHERE a NOT IN (SELECT x FROM e)"), 7);
}

#[test]
fn changes_of_rows_pick_the_same_rows() {
    for text in [
        "DELETE FROM t WHERE a IN (SELECT x FROM u WHERE u.z = t.b)",
        "DELETE FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.x = t.a)",
        "DELETE FROM t WHERE false",
        "UPDATE t SET b = (SELECT count(*) FROM u WHERE u.x = t.a) WHERE id < 5",
        "UPDATE t SET b = u.z FROM u, k WHERE u.id = t.id AND k.id = u.z AND t.a IN (SELECT x FROM u)",
        "INSERT INTO e SELECT u.id, k.id FROM k, u, t WHERE k.id = u.z AND t.id = u.id",
    ] {
        let after = |ruled: bool| {
            let memory = filled();
            let bound =
                if ruled { optimized(&memory, &Statistics::default(), text) } else { bound(&memory, text) };
            let plan = lowered(bound, &Statistics::default());
            run(&memory, &plan).unwrap_or_else(|error| panic!("{text}: {error:?}"));
            (memory.rows(100), memory.rows(300))
        };
        assert_eq!(after(true), after(false), "{text}");
    }
}
