"""psql: a transcript run on both servers must come out the same; what must differ is checked for its shape."""

import difflib
import os
import pathlib
import re
import subprocess
import sys

from checks import Checks

url, oracle = sys.argv[1], sys.argv[2]
checks = Checks("psql")
here = pathlib.Path(__file__).parent
environment = {**os.environ, "PAGER": "", "PGCONNECT_TIMEOUT": "10", "LC_ALL": "C.UTF-8"}


def psql(to, script):
    command = ["psql", "-X", "-q", "-a", to]
    answer = subprocess.run(command, input=script, capture_output=True, text=True, env=environment, timeout=120)
    # Keys are checked when the command is applied, so that a COPY does not name the line of a key that is taken.
    # A syntax error here also says what was expected.
    ours = r"^(CONTEXT:  COPY|DETAIL:  Expected:) .*\n"
    return re.sub(ours, "", answer.stdout + answer.stderr, flags=re.M)


# A piece ends at an empty line; each is compared by itself, so that one difference does not hide the next.
pieces = [p for p in (here / "psql_transcript.sql").read_text().split("\n\n") if p.strip()]
names = re.compile(r"\bkeystead_a\b|\bkeystead_b\b")
outputs = []
for to in (url, oracle):
    marked = "\n".join(f"\\echo == {n}\n{p}" for n, p in enumerate(pieces))
    outputs.append(re.split(r"^.*== \d+\n(?:== \d+\n)?", psql(to, marked), flags=re.M)[1:])
wrong = 0
for piece, got, expected in zip(pieces, *outputs):
    if got == expected:
        checks.count += 1
        continue
    wrong += 1
    print("\n".join(difflib.unified_diff(expected.splitlines(), got.splitlines(), "PostgreSQL", "Keystead", lineterm="")))
if wrong or not len(pieces) == len(outputs[0]) == len(outputs[1]):
    print(f"psql: {wrong} of {len(pieces)} pieces differ ({len(outputs[0])}, {len(outputs[1])} answered)")
    sys.exit(1)

checks.true("keystead" in psql(url, "\\l\n"), "\\l lists the database")
checks.true("admin" in psql(url, "\\du\n"), "\\du lists the role")
checks.true("public" in psql(url, "\\dn\n"), "\\dn lists the schema")
checks.true("You are connected to database" in psql(url, "\\conninfo\n"), "\\conninfo")
one = subprocess.run(["psql", "-X", "-At", url, "-c", "SELECT 1; SELECT 2"], capture_output=True, text=True, env=environment)
checks.equal(one.stdout, "1\n2\n", "-c with two statements")
bad = subprocess.run(
    ["psql", "-X", "-v", "ON_ERROR_STOP=1", url], input="SELECT 1/0;\nSELECT 5;\n", capture_output=True, text=True, env=environment
)
checks.equal((bad.returncode, "5" in bad.stdout), (3, False), "ON_ERROR_STOP")
single = subprocess.run(
    ["psql", "-X", "-q", "-1", "-v", "ON_ERROR_STOP=1", url], input="CREATE TABLE gone (a int);\nSELECT 1/0;\n",
    capture_output=True, text=True, env=environment,
)
checks.equal(single.returncode, 3, "--single-transaction fails")
checks.true("does not exist" in psql(url, "SELECT * FROM gone;\n"), "and leaves nothing")
checks.done(25)
