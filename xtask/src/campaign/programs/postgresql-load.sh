make
psql -c checkpoint
(sleep 2; touch "$OUT/ready") &
as pgbench -h "$OUT" -U pg -n -c 8 -j 2 -T 600 bench
