"""TPC-H on both servers: data from tpchgen-cli, queries from DuckDB's extension, answers equal, times compared.

Prints each query's seconds on both, and checks that the sum on Keystead is at most 1.5 times PostgreSQL's.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

import duckdb
import duckdb_extension_tpch

from both import Both

SUM_RATIO_MAX = 1.5
TABLES = {
    "region": "r_regionkey integer PRIMARY KEY, r_name char(25) NOT NULL, r_comment varchar(152)",
    "nation": "n_nationkey integer PRIMARY KEY, n_name char(25) NOT NULL, n_regionkey integer NOT NULL, n_comment varchar(152)",
    "supplier": "s_suppkey integer PRIMARY KEY, s_name char(25) NOT NULL, s_address varchar(40) NOT NULL, s_nationkey integer NOT NULL, "
    "s_phone char(15) NOT NULL, s_acctbal decimal(15,2) NOT NULL, s_comment varchar(101) NOT NULL",
    "customer": "c_custkey integer PRIMARY KEY, c_name varchar(25) NOT NULL, c_address varchar(40) NOT NULL, c_nationkey integer NOT NULL, "
    "c_phone char(15) NOT NULL, c_acctbal decimal(15,2) NOT NULL, c_mktsegment char(10) NOT NULL, c_comment varchar(117) NOT NULL",
    "part": "p_partkey integer PRIMARY KEY, p_name varchar(55) NOT NULL, p_mfgr char(25) NOT NULL, p_brand char(10) NOT NULL, "
    "p_type varchar(25) NOT NULL, p_size integer NOT NULL, p_container char(10) NOT NULL, p_retailprice decimal(15,2) NOT NULL, "
    "p_comment varchar(23) NOT NULL",
    "partsupp": "ps_partkey integer NOT NULL, ps_suppkey integer NOT NULL, ps_availqty integer NOT NULL, "
    "ps_supplycost decimal(15,2) NOT NULL, ps_comment varchar(199) NOT NULL, PRIMARY KEY (ps_partkey, ps_suppkey)",
    "orders": "o_orderkey bigint PRIMARY KEY, o_custkey integer NOT NULL, o_orderstatus char(1) NOT NULL, o_totalprice decimal(15,2) NOT NULL, "
    "o_orderdate date NOT NULL, o_orderpriority char(15) NOT NULL, o_clerk char(15) NOT NULL, o_shippriority integer NOT NULL, "
    "o_comment varchar(79) NOT NULL",
    "lineitem": "l_orderkey bigint NOT NULL, l_partkey integer NOT NULL, l_suppkey integer NOT NULL, l_linenumber integer NOT NULL, "
    "l_quantity decimal(15,2) NOT NULL, l_extendedprice decimal(15,2) NOT NULL, l_discount decimal(15,2) NOT NULL, "
    "l_tax decimal(15,2) NOT NULL, l_returnflag char(1) NOT NULL, l_linestatus char(1) NOT NULL, l_shipdate date NOT NULL, "
    "l_commitdate date NOT NULL, l_receiptdate date NOT NULL, l_shipinstruct char(25) NOT NULL, l_shipmode char(10) NOT NULL, "
    "l_comment varchar(44) NOT NULL, PRIMARY KEY (l_orderkey, l_linenumber)",
}


def queries():
    place = pathlib.Path(duckdb_extension_tpch.__file__).parent
    extension = next(place.rglob("tpch.duckdb_extension"))
    db = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    db.execute(f"LOAD '{extension}'")
    return db.execute("SELECT query_nr, query FROM tpch_queries() ORDER BY 1").fetchall()


def chunks(path):
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            yield chunk


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--scale", default="0.1")
    arguments.add_argument("--rounds", type=int, default=3)
    arguments = arguments.parse_args()
    both = Both()
    with tempfile.TemporaryDirectory(prefix="keystead-tpch-") as place:
        generator = pathlib.Path(sys.executable).parent / "tpchgen-cli"
        subprocess.run([generator, "csv", "-s", arguments.scale, f"--output-dir={place}"], check=True, capture_output=True)
        for table, columns in TABLES.items():
            both.execute(f"CREATE TABLE {table} ({columns})")
            path = pathlib.Path(place) / f"{table}.csv"
            times = both.copy(f"COPY {table} FROM STDIN WITH (FORMAT csv, HEADER)", lambda: chunks(path))
            both.compare(f"rows of {table}", f"SELECT count(*) FROM {table}")
            print(f"{table}: {path.stat().st_size / 1e6:.1f} MB, loaded in {times[0]:.2f} s (PostgreSQL {times[1]:.2f} s)")
    both.analyze()
    sums = [0.0, 0.0]
    all_queries = queries()
    for number, sql in all_queries:
        times = both.compare(f"q{number:02}", sql.strip().rstrip(";"), arguments.rounds)
        if times:
            sums = [a + b for a, b in zip(sums, times)]
            print(f"q{number:02}: {times[0]:.3f} s (PostgreSQL {times[1]:.3f} s), ratio {times[0] / times[1]:.2f}")
    ratio = sums[0] / sums[1] if sums[1] else 0
    print(f"sum of {len(all_queries)} queries: {sums[0]:.2f} s (PostgreSQL {sums[1]:.2f} s), ratio {ratio:.2f}, at most {SUM_RATIO_MAX}")
    if ratio > SUM_RATIO_MAX:
        both.different += 1
    else:
        both.equal += 1
    both.done(31)


main()
