ls
integrity=$(sqlite3 db 'pragma integrity_check')
last=$(sqlite3 db 'select max(n) from t')
committed=$(sed 's/^0*//' "$OUT/committed")
echo "integrity $integrity, last $last, committed $committed"
test "$integrity" = ok
test "$last" -ge "$committed"
test $((last % 5)) = 0
