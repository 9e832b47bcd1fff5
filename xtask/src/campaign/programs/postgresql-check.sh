# A killed process that its parent has not waited for yet still counts as alive.
rm -f data/postmaster.pid "$OUT"/.s.PGSQL.*
start
test "$(psql -c 'select count(*) > 0 from pgbench_history')" = t
consistent
as pgbench -h "$OUT" -U pg -n -c 8 -j 2 -T 5 bench
consistent
stop
