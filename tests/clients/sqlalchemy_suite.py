"""SQLAlchemy core over psycopg: DDL, inserts, selects, joins, upserts, transactions, reflection."""

import datetime as dt
import decimal
import sys

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, insert

from checks import Checks

url = sys.argv[1].replace("postgresql://", "postgresql+psycopg://", 1)
checks = Checks("sqlalchemy")
engine = sa.create_engine(url, pool_size=2)
meta = sa.MetaData()
authors = sa.Table(
    "client_sa_authors", meta,
    sa.Column("id", sa.Integer, sa.Identity(), primary_key=True),
    sa.Column("name", sa.String(50), nullable=False, unique=True),
    sa.Column("born", sa.Date),
)
books = sa.Table(
    "client_sa_books", meta,
    sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("author", sa.Integer, nullable=False, index=True),
    sa.Column("title", sa.Text, nullable=False),
    sa.Column("price", sa.Numeric(10, 2), server_default="0"),
    sa.Column("tags", ARRAY(sa.Text)),
    sa.Column("extra", JSONB),
    sa.Column("added", sa.DateTime(timezone=True), server_default=sa.func.now()),
)

meta.drop_all(engine)
meta.create_all(engine)
checks.true(sa.inspect(engine).has_table("client_sa_books"), "has_table")
meta.create_all(engine)
checks.true(True, "create_all again changes nothing")

with engine.begin() as db:
    ids = [
        db.execute(sa.insert(authors).values(name=name, born=dt.date(1900 + n, 1, 1))).inserted_primary_key[0]
        for n, name in enumerate(["Ann", "Bob", "Cy"])
    ]
    checks.equal(len(set(ids)), 3, "identity keys")
    rows = [
        {"id": n, "author": ids[n % 3], "title": f"t{n}", "price": decimal.Decimal(n) / 4, "tags": ["a", str(n)],
         "extra": {"n": n}}
        for n in range(30)
    ]
    db.execute(sa.insert(books), rows)

with engine.connect() as db:
    checks.equal(db.execute(sa.select(sa.func.count()).select_from(books)).scalar_one(), 30, "count")
    joined = (
        sa.select(authors.c.name, sa.func.count(), sa.func.sum(books.c.price))
        .join_from(authors, books, books.c.author == authors.c.id)
        .group_by(authors.c.name).order_by(authors.c.name)
    )
    checks.equal(
        [tuple(r) for r in db.execute(joined)],
        [("Ann", 10, decimal.Decimal("33.75")), ("Bob", 10, decimal.Decimal("36.25")), ("Cy", 10, decimal.Decimal("38.75"))],
        "join and group",
    )
    checks.equal(
        db.execute(sa.select(books.c.title).where(books.c.id.in_([1, 2])).order_by(books.c.id)).scalars().all(),
        ["t1", "t2"], "IN",
    )
    checks.equal(
        db.execute(sa.select(books.c.title).where(books.c.tags.contains(["7"]))).scalars().all(), ["t7"], "array contains"
    )
    checks.equal(
        db.execute(sa.select(books.c.id).where(books.c.extra["n"].as_integer() == 9)).scalar_one(), 9, "json path"
    )
    checks.equal(
        db.execute(sa.select(books.c.title).order_by(books.c.id).limit(2).offset(5)).scalars().all(), ["t5", "t6"], "page"
    )
    checks.equal(db.execute(sa.select(sa.exists().where(books.c.id == 5))).scalar_one(), True, "exists")
    sub = sa.select(sa.func.max(books.c.price)).scalar_subquery()
    checks.equal(db.execute(sa.select(books.c.id).where(books.c.price == sub)).scalar_one(), 29, "scalar sub-query")
    cte = sa.select(books.c.author, sa.func.max(books.c.id).label("last")).group_by(books.c.author).cte("lasts")
    checks.equal(sorted(db.execute(sa.select(cte.c.last)).scalars()), [27, 28, 29], "cte")
    union = sa.union(sa.select(books.c.id).where(books.c.id < 2), sa.select(books.c.id).where(books.c.id < 3))
    checks.equal(sorted(db.execute(union).scalars()), [0, 1, 2], "union")
    case = sa.case((books.c.price > 5, "dear"), else_="cheap")
    checks.equal(
        [tuple(r) for r in db.execute(sa.select(case, sa.func.count()).group_by(case).order_by(case))],
        [("cheap", 21), ("dear", 9)], "case",
    )
    added = db.execute(sa.select(books.c.added).where(books.c.id == 0)).scalar_one()
    checks.true(abs((dt.datetime.now(dt.timezone.utc) - added).total_seconds()) < 3600, "server default")

with engine.begin() as db:
    statement = insert(authors).values(name="Ann", born=dt.date(1950, 1, 1))
    statement = statement.on_conflict_do_update(index_elements=["name"], set_={"born": statement.excluded.born})
    db.execute(statement)
    checks.equal(
        db.execute(sa.select(authors.c.born).where(authors.c.name == "Ann")).scalar_one(), dt.date(1950, 1, 1), "upsert"
    )
    result = db.execute(sa.update(books).where(books.c.id < 5).values(price=books.c.price + 1).returning(books.c.id))
    checks.equal(sorted(result.scalars()), [0, 1, 2, 3, 4], "update returning")
    checks.equal(db.execute(sa.delete(books).where(books.c.id >= 28)).rowcount, 2, "delete rowcount")

try:
    with engine.begin() as db:
        db.execute(sa.insert(books), [{"id": 100, "author": 1, "title": "x"}])
        with db.begin_nested() as nested:
            db.execute(sa.insert(books), [{"id": 101, "author": 1, "title": "x"}])
            nested.rollback()
        checks.equal(db.execute(sa.select(sa.func.count()).where(books.c.id >= 100)).scalar_one(), 1, "savepoint")
        raise KeyError
except KeyError:
    pass
with engine.connect() as db:
    checks.equal(db.execute(sa.select(sa.func.count()).where(books.c.id >= 100)).scalar_one(), 0, "rollback")


def duplicate():
    with engine.begin() as db:
        db.execute(sa.insert(books), [{"id": 1, "author": 1, "title": "x"}])


checks.raises(sa.exc.IntegrityError, "23505", duplicate, "unique violation")

inspector = sa.inspect(engine)
columns = {c["name"]: c for c in inspector.get_columns("client_sa_books")}
checks.equal(list(columns), ["id", "author", "title", "price", "tags", "extra", "added"], "reflected columns")
checks.equal(str(columns["id"]["type"]), "BIGINT", "reflected type")
checks.equal(str(columns["price"]["type"]), "NUMERIC(10, 2)", "reflected precision")
checks.equal(columns["title"]["nullable"], False, "reflected nullability")
checks.equal(inspector.get_pk_constraint("client_sa_books")["constrained_columns"], ["id"], "reflected key")
checks.equal(
    [i["column_names"] for i in inspector.get_indexes("client_sa_books")], [["author"]], "reflected indexes"
)
checks.equal(
    [u["column_names"] for u in inspector.get_unique_constraints("client_sa_authors")], [["name"]], "reflected unique"
)
reflected = sa.Table("client_sa_authors", sa.MetaData(), autoload_with=engine)
checks.equal([c.name for c in reflected.columns], ["id", "name", "born"], "autoload")
meta.drop_all(engine)
checks.true(not sa.inspect(engine).has_table("client_sa_books"), "dropped")
checks.done(25)
