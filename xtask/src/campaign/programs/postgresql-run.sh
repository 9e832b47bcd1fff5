make
as pgbench -h "$OUT" -U pg -n -c 8 -j 2 -T 60 bench
psql -c 'vacuum full'
consistent
stop
start
consistent
stop
