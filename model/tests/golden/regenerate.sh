#!/bin/sh
# Asks a PostgreSQL 15 for the expected columns of the golden files beside this script. Usage: regenerate.sh [psql
# options]. The first columns of each file are the questions; the answers are written behind them.
set -eu
here=$(dirname "$0")
forms=$(mktemp) && answers=$(mktemp)
trap 'rm -f "$forms" "$answers"' EXIT

grep -v '^#' "$here/forms.tsv" | cut -f1,2 > "$forms"
psql "$@" -qAtX -v ON_ERROR_STOP=1 > "$answers" <<SQL
set client_min_messages = error;
set timezone = 'Europe/Berlin';
create temp table question (n serial, of text, input text);
\copy question (of, input) from '$forms'
create function pg_temp.ask(of text, input text, out shown text, out sent text) language plpgsql as \$\$
declare sender text;
begin
    sent := '';
    execute format('create temp table one (v %s)', of);
    select t.typsend::oid::regprocedure::oid::regproc::text into sender
      from pg_attribute a join pg_type t on t.oid = a.atttypid where a.attrelid = 'one'::regclass and a.attnum = 1;
    execute format('insert into one values (%L)', input);
    execute format('select format(''%%s'', v), encode(%s(v), ''hex'') from one', sender) into shown, sent;
    drop table one;
exception when others then
    shown := '!' || sqlstate || ' ' || sqlerrm;
end \$\$;
copy (select of, input, a.shown, a.sent from question, lateral pg_temp.ask(of, input) a order by n) to stdout;
SQL
{ grep '^#' "$here/forms.tsv"; cat "$answers"; } > "$forms" && cp "$forms" "$here/forms.tsv"

grep -v '^#' "$here/operations.tsv" | cut -f1-4 > "$forms"
psql "$@" -qAtX -v ON_ERROR_STOP=1 > "$answers" <<SQL
set client_min_messages = error;
set timezone = 'Europe/Berlin';
create temp table question (n serial, template text, a text, b text, c text);
\copy question (template, a, b, c) from '$forms'
create function pg_temp.ask(template text, a text, b text, c text) returns text language plpgsql as \$\$
declare shown text; expression text;
begin
    expression := replace(replace(replace(template, '\$1', quote_literal(a)), '\$2', quote_literal(b)), '\$3', quote_literal(c));
    execute 'select case when v is null then null else format(''%s'', v) end from (select ' || expression || ' as v) x' into shown;
    return shown;
exception when others then
    return '!' || sqlstate || ' ' || sqlerrm;
end \$\$;
copy (select template, a, b, c, pg_temp.ask(template, a, b, c) from question order by n) to stdout;
SQL
{ grep '^#' "$here/operations.tsv"; cat "$answers"; } > "$forms" && cp "$forms" "$here/operations.tsv"
