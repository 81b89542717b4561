DROP TABLE IF EXISTS psql_child, psql_main;
DROP VIEW IF EXISTS psql_view;
DROP SEQUENCE IF EXISTS psql_seq;

CREATE TABLE psql_main (id int PRIMARY KEY CHECK (id > 0), name varchar(20) NOT NULL DEFAULT 'none', price numeric(10,2), tags text[], doc jsonb, at timestamptz);
CREATE TABLE psql_child (a bigint, b text, c int UNIQUE);
CREATE INDEX psql_main_name ON psql_main (name, price DESC);
CREATE VIEW psql_view AS SELECT id, name FROM psql_main WHERE id > 0;
CREATE SEQUENCE psql_seq START 10;

\d

\dt

\dt psql_c*

\di

\dv

\ds

\d psql_main

\d psql_child

\d psql_view

\d no_such_table

COMMENT ON TABLE psql_main IS 'a table with a comment';
COMMENT ON COLUMN psql_main.name IS 'its name';

\d+ psql_child

\dt+ no_such*

INSERT INTO psql_main (id, price, tags, doc, at) VALUES (1, 1.50, '{a,b}', '{"k": [1, 2]}', '2024-01-15 10:00+00'), (2, NULL, NULL, NULL, NULL);
SELECT * FROM psql_main ORDER BY id;

\x on
SELECT * FROM psql_main ORDER BY id;
\x off

\pset null '(null)'
SELECT * FROM psql_main WHERE id = 2;
\pset null ''

\a
SELECT id, name FROM psql_view ORDER BY id;
\a

\t on
SELECT count(*) FROM psql_main;
\t off

SELECT 1 AS one, 'two' AS two \gdesc

SELECT id FROM psql_main ORDER BY id \gset row_
SELECT 'SELECT ' || g FROM generate_series(1, 3) g \gexec

\set limit 1
SELECT :limit + 1 AS two, :'limit' AS text, :"limit" FROM (SELECT 5 AS "1") x;

\copy psql_child from stdin csv
1,one,10
2,"two, quoted",20
3,,30
\.

\copy psql_child to stdout csv header

COPY psql_child (a, b) TO STDOUT;

COPY psql_child FROM STDIN;
4	four	40
5	\N	\N
\.

SELECT * FROM psql_child ORDER BY a;

COPY psql_child FROM STDIN;
6	six	10
\.

INSERT INTO psql_child VALUES (9, 'x', 10);

SELECT nosuch FROM psql_main;

SELECT 1 + * FROM psql_main;

SELECT 1/0;

BEGIN;
INSERT INTO psql_child VALUES (100, 'gone', 100);
SELECT * FROM nosuch;
SELECT 1;
ROLLBACK;
SELECT count(*) FROM psql_child;

PREPARE p (int) AS SELECT b FROM psql_child WHERE a = $1;
EXECUTE p (2);
DEALLOCATE p;

SHOW search_path;

\encoding

SELECT 'wide é €' AS "Größe", E'two\nlines' AS t;

SELECT NULL AS n, true AS b, 1.50 AS d, '{1,2}'::int[] AS a;

DROP VIEW psql_view;
DROP TABLE psql_child, psql_main;
DROP SEQUENCE psql_seq;
