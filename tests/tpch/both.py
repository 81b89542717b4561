"""Two servers, one question: loads the same rows into both and compares their answers exactly."""

import os
import sys
import time

import psycopg


SLOW_SECONDS = 5  # what takes longer is asked once


class Both:
    """Connections to the server under test and to PostgreSQL; counts what was equal and what was not."""

    def __init__(self):
        self.ours = psycopg.connect(os.environ["KEYSTEAD_URL"], autocommit=True)
        self.theirs = psycopg.connect(os.environ["ORACLE_URL"], autocommit=True)
        # With `servers --oracle-only` both are the same server: each side then has a schema of its own.
        if os.environ["KEYSTEAD_URL"] == os.environ["ORACLE_URL"]:
            for name, db in (("side_a", self.ours), ("side_b", self.theirs)):
                db.execute(f"CREATE SCHEMA {name}")
                db.execute(f"SET search_path = {name}")
        for db in (self.ours, self.theirs):
            db.execute("SET statement_timeout = '180s'")
            db.execute("SET timezone = 'UTC'")
        self.equal = 0
        self.different = 0

    def execute(self, sql):
        for db in (self.ours, self.theirs):
            db.execute(sql)

    def copy(self, sql, data):
        """COPY … FROM STDIN into both; `data()` gives the chunks anew for each."""
        times = []
        for db in (self.ours, self.theirs):
            begun = time.perf_counter()
            with db.cursor() as cursor, cursor.copy(sql) as copy:
                for chunk in data():
                    copy.write(chunk)
            times.append(time.perf_counter() - begun)
        return times

    def analyze(self):
        self.theirs.execute("ANALYZE")
        try:
            self.ours.execute("ANALYZE")
        except psycopg.errors.FeatureNotSupported:
            pass  # statistics may be the server's own business

    def ask(self, db, sql):
        """Columns, rows as text, and seconds; or the error."""
        begun = time.perf_counter()
        try:
            with db.cursor() as cursor:
                cursor.execute(sql)
                result = cursor.pgresult
                names = [result.fname(n).decode() for n in range(result.nfields)]
                types = [result.ftype(n) for n in range(result.nfields)]
                rows = [
                    tuple(None if (v := result.get_value(r, c)) is None else v.decode() for c in range(result.nfields))
                    for r in range(result.ntuples)
                ]
            return (names, types, rows), time.perf_counter() - begun
        except psycopg.Error as error:
            return f"{error.sqlstate} {error}".strip(), time.perf_counter() - begun

    def compare(self, name, sql, rounds=1):
        """Runs on both, interleaved; returns the best time of each, or None where they differ."""
        best = [None, None]
        for _ in range(rounds):
            ours, took_ours = self.ask(self.ours, sql)
            theirs, took_theirs = self.ask(self.theirs, sql)
            best = [min(b, t) if b else t for b, t in zip(best, (took_ours, took_theirs))]
            if isinstance(theirs, str):
                print(f"{name}: PostgreSQL refuses it: {theirs}")
                self.different += 1
                return None
            difference = self.difference(ours, theirs, "order by" in sql.lower())
            if difference:
                print(f"{name}: {difference}")
                self.different += 1
                return None
            if max(best) > SLOW_SECONDS:
                break
        self.equal += 1
        return best

    @staticmethod
    def difference(ours, theirs, ordered):
        if isinstance(ours, str):
            return ours
        if ours[:2] != theirs[:2]:
            return f"columns {list(zip(*ours[:2]))} instead of {list(zip(*theirs[:2]))}"
        if ours[2] == theirs[2]:
            return None
        key = lambda row: tuple((v is None, v or "") for v in row)
        got, right = sorted(ours[2], key=key), sorted(theirs[2], key=key)
        if got == right:
            return None  # equal as multisets: ties of an ORDER BY may come in any order
        for n, (a, b) in enumerate(zip(got, right)):
            if a != b:
                return f"row {n} of {len(got)} (sorted): {a} instead of {b}"
        return f"{len(got)} rows instead of {len(right)}"

    def done(self, minimum):
        total = self.equal + self.different
        if total < minimum:
            print(f"only {total} of at least {minimum} questions were asked")
            self.different += 1
        print(f"{self.equal} passed, {self.different} failed")
        sys.exit(0 if self.different == 0 else 1)


def plant():
    """Shows that a wrong answer is seen."""
    right = (["a"], [23], [("1",), ("2",), (None,)])
    assert Both.difference(right, right, True) is None
    assert Both.difference((["a"], [23], [("2",), ("1",), (None,)]), right, True) is None
    for wrong in [(["a"], [23], [("1",), ("2",)]), (["a"], [23], [("1",), ("3",), (None,)]), (["b"], [23], right[2]),
                  (["a"], [20], right[2]), (["a"], [23], [("1",), ("2",), ("",)]), "42601 syntax"]:
        assert Both.difference(wrong, right, True), wrong


plant()
