# As the user nobody: the server refuses to be root's.
as() { setpriv --reuid=nobody --regid=nogroup --clear-groups env HOME=/ "$@"; }
psql() { as psql -X -q -t -A -v ON_ERROR_STOP=1 -h "$OUT" -U pg bench "$@"; }
start() {
    chmod 777 "$OUT"
    setpriv --reuid=nobody --regid=nogroup --clear-groups \
        postgres -D "$PWD/data" -k "$OUT" -c listen_addresses= > "$OUT/server" 2>&1 &
    server=$!
    # It would stay when something fails.
    trap 'kill -QUIT $server 2> /dev/null || true' EXIT
    until as pg_isready -q -h "$OUT" -U pg -d postgres; do
        kill -0 $server 2> /dev/null || { cat "$OUT/server"; false; }
        sleep 0.2
    done
}
stop() {
    as pg_ctl -D "$PWD/data" -m fast -w stop
    wait $server
}
make() {
    mkdir -m 700 data
    chown nobody:nogroup data
    as initdb -D "$PWD/data" -A trust -U pg
    start
    as createdb -h "$OUT" -U pg bench
    as pgbench -h "$OUT" -U pg -q -i -s 10 bench
}
# The balances of pgbench are those of one sequence of transactions, and the indices fit the tables.
consistent() {
    test "$(psql -c "select count(distinct s) from (select sum(abalance) s from pgbench_accounts union all
        select sum(tbalance) from pgbench_tellers union all select sum(bbalance) from pgbench_branches union all
        select coalesce(sum(delta), 0) from pgbench_history) balances")" = 1
    psql -c 'create extension if not exists amcheck'
    as pg_amcheck -h "$OUT" -U pg --heapallindexed bench
}
