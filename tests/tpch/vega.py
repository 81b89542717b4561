"""Real data nobody here made: the CSV and JSON files of vega-datasets, loaded by COPY, asked 80 questions on both servers."""

import json
import os
import pathlib
import subprocess
import tempfile

import vega_datasets

from both import Both

place = pathlib.Path(vega_datasets.__file__).parent / "_data"

CSV = {
    "airports": "iata text PRIMARY KEY, name text, city text, state text, country text, latitude float8, longitude float8",
    "iowa": "year date, source text, net_generation int, PRIMARY KEY (source, year)",
    "riots": "first_name text, last_name text, age int, gender text, race text, death_date date, address text, "
    "neighborhood text, type text, longitude float8, latitude float8",
    "seattle_temps": "at timestamp PRIMARY KEY, temp numeric(5,1)",
    "weather": "day date PRIMARY KEY, precipitation numeric, temp_max numeric, temp_min numeric, wind numeric, weather varchar(10)",
    "sf_temps": "temp float4, at timestamp",
    "stocks": "symbol char(4), day date, price numeric(10,2), PRIMARY KEY (symbol, day)",
    "employment": "month date PRIMARY KEY, nonfarm int, private int, goods_producing int, service_providing int, "
    "private_service_providing int, mining_and_logging int, construction int, manufacturing int, durable_goods int, "
    "nondurable_goods int, trade numeric, wholesale_trade numeric, retail_trade numeric, transportation numeric, utilities numeric, "
    "information int, financial int, professional int, education int, leisure int, other_services int, government int, change int",
}
FILES = {
    "airports": "airports", "iowa": "iowa-electricity", "riots": "la-riots", "seattle_temps": "seattle-temps",
    "weather": "seattle-weather", "sf_temps": "sf-temps", "stocks": "stocks", "employment": "us-employment",
}
JSON = ["anscombe", "barley", "burtin", "cars", "crimea", "driving", "iris", "ohlc", "wheat"]

QUERIES = """
SELECT count(*), count(DISTINCT state), min(latitude), max(longitude) FROM airports
SELECT state, count(*) AS n FROM airports GROUP BY state ORDER BY n DESC, state LIMIT 10
SELECT * FROM airports WHERE iata = 'SEA'
SELECT iata, city FROM airports WHERE iata IN ('SFO', 'SEA', 'LAX', 'ZZZ') ORDER BY iata
SELECT iata, name FROM airports WHERE name ILIKE '%international%' AND state = 'CA' ORDER BY iata
SELECT iata FROM airports WHERE iata BETWEEN 'SE' AND 'SF' ORDER BY iata DESC
SELECT country, count(*) FROM airports WHERE country <> 'USA' GROUP BY country ORDER BY country
SELECT a.iata, b.iata FROM airports a JOIN airports b ON a.city = b.city AND a.state = b.state AND a.iata < b.iata WHERE a.state = 'WA' ORDER BY 1, 2
SELECT state, round(avg(latitude)::numeric, 6) FROM airports GROUP BY state HAVING count(*) > 100 ORDER BY 2 DESC
SELECT iata FROM airports ORDER BY abs(latitude - 47.6) + abs(longitude + 122.3), iata LIMIT 5
SELECT left(iata, 1) AS letter, count(*) FROM airports GROUP BY 1 ORDER BY 1
SELECT count(*) FROM airports a WHERE NOT EXISTS (SELECT 1 FROM airports b WHERE b.state = a.state AND b.iata <> a.iata)
SELECT city, state FROM airports GROUP BY city, state HAVING count(*) >= 4 ORDER BY city, state
SELECT length(name) AS l, count(*) FROM airports GROUP BY l ORDER BY l DESC LIMIT 8
SELECT upper(substring(name from 1 for 3)), count(*) FROM airports GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 7
SELECT DISTINCT state FROM airports WHERE state LIKE 'N%' ORDER BY state
SELECT source, sum(net_generation), min(net_generation), max(net_generation), avg(net_generation) FROM iowa GROUP BY source ORDER BY source
SELECT year, sum(net_generation) FILTER (WHERE source = 'Renewables') * 100.0 / sum(net_generation) FROM iowa GROUP BY year ORDER BY year
SELECT extract(year FROM year) AS y, source, net_generation FROM iowa WHERE net_generation > 30000 ORDER BY y, source
SELECT a.year, a.net_generation - b.net_generation AS change FROM iowa a JOIN iowa b ON b.source = a.source AND b.year = a.year - interval '1 year' WHERE a.source = 'Renewables' ORDER BY 1
SELECT source FROM iowa GROUP BY source ORDER BY max(net_generation) DESC
SELECT * FROM iowa WHERE (source, year) > ('Nuclear Energy', '2010-01-01') ORDER BY source, year LIMIT 5
SELECT year, string_agg(source || ':' || net_generation, ', ' ORDER BY source) FROM iowa WHERE year < '2004-01-01' GROUP BY year ORDER BY year
SELECT race, gender, count(*), avg(age), min(age), max(age) FROM riots GROUP BY race, gender ORDER BY race, gender
SELECT neighborhood, count(*) FROM riots GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 5
SELECT death_date, count(*) FROM riots GROUP BY death_date ORDER BY death_date
SELECT first_name || ' ' || last_name AS who, age FROM riots WHERE age = (SELECT max(age) FROM riots)
SELECT type, count(*) FILTER (WHERE age < 30) AS young, count(*) FROM riots GROUP BY type ORDER BY type
SELECT CASE WHEN age < 20 THEN 'teen' WHEN age < 40 THEN 'adult' ELSE 'older' END AS g, count(*) FROM riots GROUP BY g ORDER BY g
SELECT count(*) - count(age), count(*) - count(last_name), count(*) - count(address) FROM riots
SELECT split_part(address, ' ', 1), count(*) FROM riots GROUP BY 1 HAVING count(*) > 1 ORDER BY 2 DESC, 1
SELECT count(*), sum(temp), avg(temp), min(temp), max(temp) FROM seattle_temps
SELECT extract(month FROM at) AS m, avg(temp), max(temp) - min(temp) FROM seattle_temps GROUP BY m ORDER BY m
SELECT extract(hour FROM at) AS h, round(avg(temp), 3) FROM seattle_temps GROUP BY h ORDER BY h
SELECT date_trunc('week', at) AS w, max(temp) FROM seattle_temps GROUP BY w ORDER BY max(temp) DESC, w LIMIT 5
SELECT at FROM seattle_temps WHERE temp = (SELECT max(temp) FROM seattle_temps) ORDER BY at
SELECT at::date AS d, max(temp) FROM seattle_temps WHERE at >= '2010-07-01' AND at < '2010-07-08' GROUP BY d ORDER BY d
SELECT count(*) FROM seattle_temps s JOIN sf_temps f USING (at) WHERE s.temp > f.temp
SELECT extract(month FROM s.at) AS m, avg(s.temp - f.temp::numeric) FROM seattle_temps s JOIN sf_temps f ON f.at = s.at GROUP BY m ORDER BY m
SELECT count(*) FROM sf_temps f LEFT JOIN seattle_temps s ON s.at = f.at WHERE s.at IS NULL
SELECT f.at FROM sf_temps f WHERE NOT EXISTS (SELECT 1 FROM seattle_temps s WHERE s.at = f.at) ORDER BY 1
SELECT min(temp), max(temp), count(DISTINCT temp) FROM sf_temps
SELECT temp, count(*) FROM sf_temps GROUP BY temp ORDER BY count(*) DESC, temp LIMIT 5
SELECT weather, count(*), avg(temp_max), sum(precipitation), max(wind) FROM weather GROUP BY weather ORDER BY weather
SELECT extract(year FROM day) AS y, weather, count(*) FROM weather GROUP BY 1, 2 ORDER BY 1, 2
SELECT day, temp_max - temp_min AS span FROM weather ORDER BY span DESC, day LIMIT 5
SELECT count(*) FROM weather w WHERE precipitation > (SELECT avg(precipitation) FROM weather)
SELECT to_char(day, 'YYYY-MM') AS m, sum(precipitation) FROM weather GROUP BY m HAVING sum(precipitation) > 150 ORDER BY m
SELECT w.day, w.weather, n.weather FROM weather w JOIN weather n ON n.day = w.day + 1 WHERE w.weather = 'snow' ORDER BY 1
SELECT weather, array_agg(DISTINCT extract(year FROM day)::int ORDER BY extract(year FROM day)::int) FROM weather GROUP BY weather ORDER BY weather
SELECT day FROM weather WHERE day BETWEEN '2014-02-27' AND '2014-03-02' ORDER BY day DESC
SELECT day, wind FROM weather WHERE wind >= ALL (SELECT wind FROM weather)
SELECT stddev(temp_max), variance(wind) FROM weather
SELECT count(*) FROM weather WHERE weather IN ('rain', 'snow') AND temp_min < 0
SELECT w.day, max(t.temp), w.temp_max FROM weather w JOIN seattle_temps t ON t.at::date = w.day - interval '2 years' WHERE w.day < '2012-01-05' GROUP BY w.day, w.temp_max ORDER BY 1
SELECT symbol, count(*), min(price), max(price), avg(price) FROM stocks GROUP BY symbol ORDER BY symbol
SELECT symbol, price FROM stocks s WHERE day = (SELECT max(day) FROM stocks t WHERE t.symbol = s.symbol) ORDER BY symbol
SELECT s.symbol, s.day, s.price FROM stocks s WHERE price = (SELECT max(price) FROM stocks t WHERE t.symbol = s.symbol) ORDER BY symbol
SELECT a.day, a.price AS msft, b.price AS goog FROM stocks a JOIN stocks b ON a.day = b.day WHERE a.symbol = 'MSFT' AND b.symbol = 'GOOG' ORDER BY a.day LIMIT 5
SELECT day, sum(price) FROM stocks GROUP BY day HAVING count(*) < 5 ORDER BY day LIMIT 10
SELECT symbol, extract(year FROM day) AS y, max(price) - min(price) FROM stocks GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2 LIMIT 10
SELECT DISTINCT ON (symbol) symbol, day, price FROM stocks ORDER BY symbol, price DESC, day
SELECT symbol FROM stocks WHERE day = '2008-10-01' AND price < 100 EXCEPT SELECT symbol FROM stocks WHERE day = '2000-01-01' AND price < 50 ORDER BY 1
SELECT symbol || '!', length(symbol), symbol = 'MSFT' FROM stocks WHERE day = '2005-01-01' ORDER BY 1
SELECT extract(year FROM month) AS y, sum(change), min(nonfarm), max(nonfarm) FROM employment GROUP BY y ORDER BY y
SELECT month FROM employment WHERE change = (SELECT min(change) FROM employment)
SELECT count(*) FROM employment WHERE goods_producing + service_providing = nonfarm
SELECT month, round(100.0 * government / nonfarm, 2) FROM employment ORDER BY 2 DESC, 1 LIMIT 5
SELECT a.month, b.nonfarm - a.nonfarm FROM employment a JOIN employment b ON b.month = a.month + interval '12 months' ORDER BY 2, 1 LIMIT 5
SELECT avg(wholesale_trade), avg(utilities), sum(trade) FROM employment
WITH y AS (SELECT date_trunc('year', month) AS y, avg(manufacturing) AS m FROM employment GROUP BY 1) SELECT y.y, round(y.m, 1) FROM y WHERE m < (SELECT avg(m) FROM y) ORDER BY 1
SELECT doc->>'Origin' AS o, count(*), avg((doc->>'Horsepower')::numeric) FROM cars GROUP BY o ORDER BY o
SELECT doc->>'Name' FROM cars WHERE (doc->>'Cylinders')::int = 8 AND (doc->>'Miles_per_Gallon')::float8 > 20 ORDER BY 1
SELECT count(*) FROM cars WHERE doc->'Horsepower' = 'null'
SELECT count(*) FROM cars WHERE doc @> '{"Origin": "Japan", "Cylinders": 4}'
SELECT extract(year FROM (doc->>'Year')::date) AS y, max((doc->>'Weight_in_lbs')::int) FROM cars GROUP BY y ORDER BY y
SELECT split_part(doc->>'Name', ' ', 1) AS maker, count(*) FROM cars GROUP BY maker ORDER BY 2 DESC, 1 LIMIT 10
SELECT doc->>'species', round(avg((doc->>'petalLength')::numeric), 3), jsonb_agg(DISTINCT doc->'petalWidth') FROM iris GROUP BY 1 ORDER BY 1
SELECT b.doc->>'site', sum((b.doc->>'yield')::numeric) FROM barley b GROUP BY 1 ORDER BY 2 DESC
SELECT a.doc->>'variety', a.doc->>'site' FROM barley a JOIN barley b ON a.doc->>'variety' = b.doc->>'variety' AND a.doc->>'site' = b.doc->>'site' WHERE a.doc->>'year' = '1931' AND b.doc->>'year' = '1932' AND (b.doc->>'yield')::numeric > (a.doc->>'yield')::numeric ORDER BY 1, 2
SELECT doc->>'Bacteria' FROM burtin WHERE (doc->>'Penicillin')::float8 < 0.01 ORDER BY 1
SELECT doc->>'Gram_Staining' AS g, count(*), jsonb_object_agg(doc->>'Bacteria', doc->'Neomycin') FROM burtin GROUP BY g ORDER BY g
SELECT sum((doc->>'disease')::int), sum((doc->>'wounds')::int), max(doc->>'date') FROM crimea
SELECT doc->>'date' FROM crimea WHERE (doc->>'disease')::int > 2000 ORDER BY 1
SELECT (doc->>'year')::int / 10 * 10 AS decade, avg((doc->>'gas')::numeric) FROM driving GROUP BY decade ORDER BY decade
SELECT doc->>'signal', count(*), sum((doc->>'ret')::float8) > 0 FROM ohlc GROUP BY 1 ORDER BY 1
SELECT doc->>'date' FROM ohlc WHERE (doc->>'close')::numeric > (doc->>'open')::numeric ORDER BY doc->>'date'
SELECT doc->>'Series', count(*), avg((doc->>'X')::numeric), sum((doc->>'Y')::numeric) FROM anscombe GROUP BY 1 ORDER BY 1
SELECT (doc->>'year')::int, (doc->>'wheat')::numeric / (doc->>'wages')::numeric FROM wheat WHERE doc ? 'wages' ORDER BY 1 LIMIT 5
SELECT k, count(*) FROM cars, jsonb_object_keys(doc) k GROUP BY k ORDER BY k
SELECT n, doc FROM iris WHERE n <= 3 ORDER BY n
SELECT jsonb_typeof(value), count(*) FROM cars, jsonb_each(doc) GROUP BY 1 ORDER BY 1
"""


def chunks(path):
    with open(path, "rb") as file:
        while chunk := file.read(1 << 16):
            yield chunk


def imports(both):
    """The same files through `keystead import`; without a server of ours there is nothing to import into."""
    binary = os.environ.get("KEYSTEAD_BIN")
    if not binary or "KEYSTEAD_DATA" not in os.environ:
        return
    both.execute('CREATE TABLE imported_iris ("sepalLength" float8, "sepalWidth" float8, "petalLength" float8, "petalWidth" float8, species text)')
    jobs = [("imported_iris", "iris.jsonl")]
    both.theirs.execute(
        "INSERT INTO imported_iris SELECT (doc->>'sepalLength')::float8, (doc->>'sepalWidth')::float8, "
        "(doc->>'petalLength')::float8, (doc->>'petalWidth')::float8, doc->>'species' FROM iris"
    )
    for table, columns in CSV.items():
        both.execute(f"CREATE TABLE imported_{table} ({columns})")
        both.theirs.execute(f"INSERT INTO imported_{table} SELECT * FROM {table}")
        jobs.append((f"imported_{table}", f"{FILES[table]}.csv"))
    with tempfile.TemporaryDirectory(prefix="keystead-vega-") as work:
        for table, name in jobs:
            path = pathlib.Path(work) / name
            if name.endswith(".jsonl"):
                rows = json.loads((place / "iris.json").read_text())
                path.write_text("".join(json.dumps(row) + "\n" for row in rows))
            else:
                # The header's names are the file's; ours are in the same order.
                text = (place / name).read_text()
                path.write_text(text.split("\n", 1)[1])
            options = [] if name.endswith(".jsonl") else ["--no-header"]
            command = [binary, "import", "--data", os.environ["KEYSTEAD_DATA"], *options, table, str(path)]
            environment = {k: v for k, v in os.environ.items() if not k.startswith("KEYSTEAD_")}
            answer = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
            if answer.returncode != 0:
                print(f"import {table}: exit {answer.returncode}: {answer.stderr[-500:]}")
                both.different += 1
                continue
            both.compare(f"import of {name}", f"SELECT * FROM {table}")


def main():
    both = Both()
    for table, columns in CSV.items():
        path = place / f"{FILES[table]}.csv"
        both.execute(f"CREATE TABLE {table} ({columns})")
        both.copy(f"COPY {table} FROM STDIN WITH (FORMAT csv, HEADER)", lambda: chunks(path))
    for table in JSON:
        both.execute(f"CREATE TABLE {table} (n int PRIMARY KEY, doc jsonb)")
        rows = json.loads((place / f"{table}.json").read_text())
        escape = str.maketrans({"\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"})
        lines = [f"{n}\t{json.dumps(row, ensure_ascii=False).translate(escape)}\n".encode() for n, row in enumerate(rows, 1)]
        both.copy(f"COPY {table} FROM STDIN", lambda: lines)
    both.analyze()
    for table in [*CSV, *JSON]:
        both.compare(f"all of {table}", f"SELECT * FROM {table}")
    queries = [line for line in QUERIES.splitlines() if line.strip()]
    for sql in queries:
        both.compare(sql, sql)
    imports(both)
    # The same questions with indexes on what they ask for.
    both.execute("CREATE INDEX ON airports (state, city)")
    both.execute("CREATE INDEX ON airports (lower(name))")
    both.execute("CREATE INDEX ON sf_temps (at)")
    both.execute("CREATE INDEX ON cars ((doc->>'Origin'))")
    both.execute("CREATE INDEX ON weather (weather, day)")
    for sql in queries:
        both.compare(f"with indexes: {sql}", sql)
    both.done(170)


main()
