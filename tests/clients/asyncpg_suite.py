"""asyncpg: connect, fetch, prepared statements, cursors, COPY, transactions, and a pool."""

import asyncio
import datetime as dt
import decimal
import io
import sys
import uuid

import asyncpg

from checks import Checks

url = sys.argv[1]
checks = Checks("asyncpg")


async def main():
    db = await asyncpg.connect(url)
    await db.execute("DROP TABLE IF EXISTS client_asyncpg")
    await db.execute(
        "CREATE TABLE client_asyncpg (id int PRIMARY KEY, t text, n numeric, f float8, b bool, d date, tm time, "
        "ts timestamp, tz timestamptz, i interval, u uuid, j jsonb, raw bytea, a int[], s text[], l bigint, sm smallint, f4 real)"
    )
    row = (
        1, "héllo", decimal.Decimal("-12345.6789"), 1.25, False, dt.date(2024, 2, 29), dt.time(1, 2, 3, 4),
        dt.datetime(2024, 2, 29, 10, 20, 30, 5), dt.datetime(2024, 2, 29, 10, 20, 30, tzinfo=dt.timezone.utc),
        dt.timedelta(days=2, seconds=7), uuid.UUID(int=99), '{"a": 1}', b"\x00\x01", [1, None, 3], ["x", "y"], 2**50, -5, 0.5,
    )
    marks = ", ".join(f"${n + 1}" for n in range(len(row)))
    await db.execute(f"INSERT INTO client_asyncpg VALUES ({marks})", *row)
    got = tuple(await db.fetchrow("SELECT * FROM client_asyncpg"))
    for index, (value, expected) in enumerate(zip(got, row)):
        if isinstance(expected, uuid.UUID):  # asyncpg's own subclass
            value = uuid.UUID(str(value))
        checks.equal(value, expected, f"column {index}")
    await db.execute(f"INSERT INTO client_asyncpg VALUES ({marks})", 2, *[None] * (len(row) - 1))
    checks.equal(tuple(await db.fetchrow("SELECT * FROM client_asyncpg WHERE id = 2")), (2,) + (None,) * 17, "all NULL")

    checks.equal(await db.fetchval("SELECT $1::int + $2", 1, 2), 3, "parameters")
    checks.equal(await db.fetchval("SELECT count(*) FROM client_asyncpg WHERE id = ANY($1)", [1, 2, 3]), 2, "= ANY($1)")
    checks.equal(await db.execute("UPDATE client_asyncpg SET t = 'z' WHERE id = $1", 1), "UPDATE 1", "command tag")
    checks.equal(await db.fetchval("SELECT t FROM client_asyncpg ORDER BY id LIMIT $1", 1) is not None, True, "LIMIT $1")

    statement = await db.prepare("SELECT id, t FROM client_asyncpg WHERE id >= $1 ORDER BY id")
    checks.equal([p.name for p in statement.get_parameters()], ["int4"], "parameter types")
    checks.equal([a.type.name for a in statement.get_attributes()], ["int4", "text"], "column types")
    for _ in range(5):
        checks.equal([r["id"] for r in await statement.fetch(1)], [1, 2], "prepared")

    await db.executemany("INSERT INTO client_asyncpg (id, t) VALUES ($1, $2)", [(n, str(n)) for n in range(10, 510)])
    checks.equal(await db.fetchval("SELECT count(*) FROM client_asyncpg"), 502, "executemany")
    async with db.transaction():
        seen = 0
        async for record in db.cursor("SELECT id FROM client_asyncpg ORDER BY id", prefetch=50):
            seen += record["id"]
        checks.equal(seen, await db.fetchval("SELECT sum(id) FROM client_asyncpg"), "cursor")
        cursor = await db.cursor("SELECT id FROM client_asyncpg ORDER BY id")
        await cursor.forward(2)
        checks.equal([r["id"] for r in await cursor.fetch(3)], [10, 11, 12], "cursor forward and fetch")

    records = [(n, f"c{n}") for n in range(1000, 1500)]
    checks.equal(await db.copy_records_to_table("client_asyncpg", records=records, columns=["id", "t"]), "COPY 500", "COPY in")
    out = io.BytesIO()
    await db.copy_from_query("SELECT id, t FROM client_asyncpg WHERE id IN (1000, 1001) ORDER BY id", output=out, format="csv")
    checks.equal(out.getvalue(), b"1000,c1000\n1001,c1001\n", "COPY out")

    try:
        async with db.transaction():
            await db.execute("INSERT INTO client_asyncpg (id) VALUES (9000)")
            async with db.transaction():
                await db.execute("INSERT INTO client_asyncpg (id) VALUES (9001)")
            raise KeyError
    except KeyError:
        pass
    checks.equal(await db.fetchval("SELECT count(*) FROM client_asyncpg WHERE id >= 9000"), 0, "rollback")
    for sqlstate, sql in [("23505", "INSERT INTO client_asyncpg (id) VALUES (1)"), ("42P01", "SELECT * FROM no_such"),
                          ("22012", "SELECT 1/0"), ("42601", "SELEC"), ("22P02", "SELECT 'x'::int")]:
        try:
            await db.execute(sql)
            checks.equal("no error", sqlstate, sql)
        except asyncpg.PostgresError as error:
            checks.equal(error.sqlstate, sqlstate, sql)
    try:
        await db.fetch("SELECT count(*) FROM generate_series(1, 100000000) a, generate_series(1, 100) b", timeout=0.3)
        checks.equal("no timeout", "timeout", "client timeout")
    except asyncio.TimeoutError:
        checks.equal(await db.fetchval("SELECT 1"), 1, "usable after a cancelled query")
    checks.true(db.get_server_version().major >= 15, "server version")

    pool = await asyncpg.create_pool(url, min_size=2, max_size=8)

    async def work(n):
        async with pool.acquire() as connection:
            async with connection.transaction():
                await connection.execute("SET LOCAL application_name = 'worker'")
                await connection.execute("UPDATE client_asyncpg SET l = coalesce(l, 0) + 1 WHERE id = 2")
                return await connection.fetchval("SELECT $1::int", n)

    checks.equal(await asyncio.gather(*(work(n) for n in range(100))), list(range(100)), "pool")
    checks.equal(await db.fetchval("SELECT l FROM client_asyncpg WHERE id = 2"), 100, "no update was lost")
    await pool.close()
    await db.execute("DROP TABLE client_asyncpg")
    await db.close()


asyncio.run(main())
checks.done(45)
