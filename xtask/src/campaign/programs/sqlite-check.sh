test "$(sqlite3 db 'pragma integrity_check')" = ok
last=$(sqlite3 db 'select max(n) from t')
test "$last" -ge "$(sed 's/^0*//' "$OUT/committed")"
test $((last % 5)) = 0
