"""psycopg 3: text and binary, server-side cursors, pipeline, COPY, transactions, types, errors."""

import datetime as dt
import decimal
import sys
import uuid

import psycopg
from psycopg import errors
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from checks import Checks

url = sys.argv[1]
checks = Checks("psycopg")

with psycopg.connect(url, autocommit=True) as db:
    db.execute("DROP TABLE IF EXISTS client_psycopg")
    db.execute(
        "CREATE TABLE client_psycopg (id int PRIMARY KEY, t text, n numeric(20,5), f float8, b bool, d date, "
        "ts timestamp, tz timestamptz, i interval, u uuid, j jsonb, raw bytea, a int[], ta text[], l bigint)"
    )
    row = (
        1, "héllo", decimal.Decimal("12345.67890"), 1.5, True, dt.date(2024, 2, 29),
        dt.datetime(2024, 2, 29, 10, 20, 30, 123456),
        dt.datetime(2024, 2, 29, 10, 20, 30, tzinfo=dt.timezone.utc),
        dt.timedelta(days=3, seconds=5), uuid.UUID(int=7), {"a": [1, None, "x"]}, b"\x00\xff", [1, 2, 3],
        ["a", None, "c,d"], 2**40,
    )
    for binary in (False, True):
        db.execute("TRUNCATE client_psycopg")
        values = list(row)
        values[10] = Jsonb(row[10])
        marks = ", ".join(["%b" if binary else "%s"] * len(values))
        db.execute(f"INSERT INTO client_psycopg VALUES ({marks})", values)
        with db.cursor(binary=binary) as cursor:
            cursor.execute("SELECT * FROM client_psycopg")
            got = list(cursor.fetchone())
        got[7] = got[7].astimezone(dt.timezone.utc)
        for index, (value, expected) in enumerate(zip(got, row)):
            checks.equal(value, expected, f"column {index}, binary={binary}")
        nulls = [2] + [None] * (len(row) - 1)
        db.execute(f"INSERT INTO client_psycopg VALUES ({marks})", nulls)
        with db.cursor(binary=binary) as cursor:
            cursor.execute("SELECT * FROM client_psycopg WHERE id = %s", (2,))
            checks.equal(list(cursor.fetchone()), nulls, f"all NULL, binary={binary}")

    db.execute("TRUNCATE client_psycopg")
    with db.cursor() as cursor:
        cursor.executemany("INSERT INTO client_psycopg (id, t) VALUES (%s, %s)", [(n, f"r{n}") for n in range(500)])
        checks.equal(cursor.rowcount, 500, "executemany counts its rows")
        cursor.execute("SELECT count(*), max(id) FROM client_psycopg")
        checks.equal(cursor.fetchone(), (500, 499), "executemany")
        cursor.execute("SELECT id FROM client_psycopg WHERE id = ANY(%s) ORDER BY id", ([3, 5, 999],))
        checks.equal(cursor.fetchall(), [(3,), (5,)], "= ANY(list)")
        cursor.execute("UPDATE client_psycopg SET t = t || '!' WHERE id < %s RETURNING t", (2,))
        checks.equal(sorted(cursor.fetchall()), [("r0!",), ("r1!",)], "RETURNING")
        checks.equal(cursor.statusmessage, "UPDATE 2", "command tag")
        cursor.execute("SELECT id AS key, t FROM client_psycopg WHERE id = 7")
        checks.equal([c.name for c in cursor.description], ["key", "t"], "description")
        checks.equal([c.type_code for c in cursor.description], [23, 25], "type oids")
    for _ in range(10):
        checks.equal(
            db.execute("SELECT t FROM client_psycopg WHERE id = %s", (42,), prepare=True).fetchone(), ("r42",), "prepared"
        )
    checks.equal(
        db.cursor(row_factory=dict_row).execute("SELECT 1 AS one, 'x' AS x").fetchone(), {"one": 1, "x": "x"}, "dict row"
    )

    with db.cursor() as cursor:
        with cursor.copy("COPY client_psycopg (id, t) FROM STDIN") as copy:
            for n in range(1000, 2000):
                copy.write_row((n, None if n % 10 == 0 else f"copied\t{n}\n"))
        checks.equal(cursor.rowcount, 1000, "COPY counts its rows")
        with cursor.copy("COPY client_psycopg (id, t) FROM STDIN (FORMAT binary)") as copy:
            copy.set_types(["int4", "text"])
            for n in range(2000, 2100):
                copy.write_row((n, "b"))
        with cursor.copy("COPY (SELECT id, t FROM client_psycopg WHERE id IN (1000, 1001) ORDER BY id) TO STDOUT") as copy:
            checks.equal(
                [(int(r[0]), r[1]) for r in copy.rows()], [(1000, None), (1001, "copied\t1001\n")], "COPY TO"
            )
        with cursor.copy("COPY (SELECT id, t FROM client_psycopg WHERE id = 2001) TO STDOUT (FORMAT csv, HEADER)") as copy:
            checks.equal(b"".join(bytes(c) for c in copy), b"id,t\n2001,b\n", "COPY TO csv")
        with cursor.copy("COPY (SELECT id, t FROM client_psycopg WHERE id = 2001) TO STDOUT (FORMAT binary)") as copy:
            copy.set_types(["int4", "text"])
            checks.equal(list(copy.rows()), [(2001, "b")], "COPY TO binary")
        cursor.execute("SELECT count(*) FROM client_psycopg")
        checks.equal(cursor.fetchone(), (1600,), "rows after COPY")

    def copy_bad():
        with db.cursor() as cursor, cursor.copy("COPY client_psycopg (id, t) FROM STDIN") as copy:
            copy.write(b"5000\tok\nnot a number\tx\n")

    checks.raises(errors.InvalidTextRepresentation, "22P02", copy_bad, "a bad row in COPY")
    checks.equal(db.execute("SELECT count(*) FROM client_psycopg WHERE id = 5000").fetchone(), (0,), "nothing of it stays")

    with db.pipeline():
        cursors = [db.execute("SELECT %s::int + 1", (n,)) for n in range(50)]
        for n, cursor in enumerate(cursors):
            checks.equal(cursor.fetchone(), (n + 1,), "pipeline")

    def broken_pipeline():
        with db.pipeline() as pipeline:
            db.execute("INSERT INTO client_psycopg (id) VALUES (9001)")
            db.execute("SELECT 1/0")
            db.execute("INSERT INTO client_psycopg (id) VALUES (9002)")
            pipeline.sync()

    checks.raises(errors.DivisionByZero, "22012", broken_pipeline, "an error in a pipeline")
    checks.equal(
        db.execute("SELECT count(*) FROM client_psycopg WHERE id > 9000").fetchone(), (0,), "the pipeline is one transaction"
    )

    checks.raises(errors.UniqueViolation, "23505", lambda: db.execute("INSERT INTO client_psycopg (id) VALUES (1)"), "unique")
    checks.raises(errors.UndefinedTable, "42P01", lambda: db.execute("SELECT * FROM no_such"), "no table")
    checks.raises(errors.SyntaxError, "42601", lambda: db.execute("SELEC 1"), "syntax")
    try:
        db.execute("INSERT INTO client_psycopg (id) VALUES (1)")
    except errors.UniqueViolation as error:
        checks.equal(error.diag.table_name, "client_psycopg", "the error names its table")
        checks.equal(error.diag.constraint_name, "client_psycopg_pkey", "and its constraint")
        checks.true("(id)=(1)" in error.diag.message_detail, "and the key")

with psycopg.connect(url) as db:
    with db.transaction():
        db.execute("INSERT INTO client_psycopg (id) VALUES (7001)")
        try:
            with db.transaction():
                db.execute("INSERT INTO client_psycopg (id) VALUES (7002)")
                raise psycopg.Rollback
        except psycopg.Rollback:
            pass
        with db.transaction():
            db.execute("INSERT INTO client_psycopg (id) VALUES (7003)")
    checks.equal(
        db.execute("SELECT id FROM client_psycopg WHERE id > 7000 ORDER BY id").fetchall(), [(7001,), (7003,)], "savepoints"
    )
    db.rollback()
    with db.cursor(name="served") as cursor:
        cursor.itersize = 100
        cursor.execute("SELECT id FROM client_psycopg ORDER BY id")
        checks.equal(cursor.fetchone(), (0,), "server-side cursor")
        checks.equal(cursor.fetchmany(3), [(1,), (2,), (3,)], "server-side cursor, many")
        checks.equal(sum(1 for _ in cursor), 1602 - 4, "server-side cursor, rest")
    try:
        db.execute("SELECT 1/0")
    except errors.DivisionByZero:
        pass
    checks.equal(db.info.transaction_status.name, "INERROR", "failed transaction")
    checks.raises(errors.InFailedSqlTransaction, "25P02", lambda: db.execute("SELECT 1"), "failed transaction refuses")
    db.rollback()
    db.execute("SET statement_timeout = 200")
    checks.raises(
        errors.QueryCanceled, "57014",
        lambda: db.execute("SELECT count(*) FROM generate_series(1, 100000000) a, generate_series(1, 100) b"),
        "statement timeout",
    )
    db.rollback()

with psycopg.connect(url, autocommit=True) as db:
    db.execute("DROP TABLE client_psycopg")
checks.done(100)
