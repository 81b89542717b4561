#!/usr/bin/env bash
# pgbench: tpcb-like, simple-update and select-only in the three protocols; nothing may fail and the sums must agree.
set -euo pipefail
url=$1
seconds=${PGBENCH_SECONDS:-2}
checks=0
export PGOPTIONS= PGCONNECT_TIMEOUT=10
pgbench -q -i -s 1 "$url" >/dev/null 2>&1 || pgbench -i -s 1 "$url"
keys=$(psql -XAtq "$url" -c "SELECT string_agg(c.relname || ' ' || pg_get_constraintdef(k.oid), ', ' ORDER BY c.relname) FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid WHERE k.contype = 'p' AND c.relname LIKE 'pgbench%'")
expected="pgbench_accounts PRIMARY KEY (aid), pgbench_branches PRIMARY KEY (bid), pgbench_tellers PRIMARY KEY (tid)"
[[ $keys == "$expected" ]] || { echo "pgbench: the keys are $keys"; exit 1; }
plan=$(psql -XAtq "$url" -c "EXPLAIN SELECT abalance FROM pgbench_accounts WHERE aid = 7")
[[ $plan == *pgbench_accounts_pkey* ]] || { echo "pgbench: a read by key does not use it: $plan"; exit 1; }
for script in tpcb-like simple-update select-only; do
  for protocol in simple extended prepared; do
    for clients in 1 8; do
      out=$(pgbench -n -b "$script" -M "$protocol" -c "$clients" -j 2 -T "$seconds" "$url" 2>&1) || {
        echo "$out"
        exit 1
      }
      done=$(sed -n 's/.*number of transactions actually processed: \([0-9]*\).*/\1/p' <<<"$out")
      failed=$(sed -n 's/.*number of failed transactions: \([0-9]*\).*/\1/p' <<<"$out")
      if [[ -z $done || $done -eq 0 || ${failed:-0} -ne 0 ]]; then
        echo "$out"
        echo "pgbench: $script $protocol $clients clients: ${done:-0} done, ${failed:-0} failed"
        exit 1
      fi
      echo "$script $protocol $clients clients: $done transactions, $(sed -n 's/^tps = \([0-9.]*\).*/\1/p' <<<"$out") per second"
      checks=$((checks + 1))
    done
  done
done
sums=$(psql -XAtq "$url" -c "SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(delta) FROM pgbench_history), (SELECT sum(tbalance) FROM pgbench_tellers) = (SELECT sum(bbalance) FROM pgbench_branches)")
# simple-update leaves tellers and branches alone; between those two the sums must still agree.
[[ $sums == "t|t" ]] || { echo "pgbench: the sums disagree: $sums"; exit 1; }
psql -XAtq "$url" -c "DROP TABLE pgbench_accounts, pgbench_branches, pgbench_tellers, pgbench_history"
echo "$((checks + 4)) checks passed"
