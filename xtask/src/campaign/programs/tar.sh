tar -cf sources.tar -C "$ROOT" crates docs xtask
mkdir a b
tar -xf sources.tar -C a
for part in crates docs xtask; do diff -r --no-dereference "$ROOT/$part" "a/$part"; done
for n in $(seq 500); do seq "$n" > "a/f$n"; ln "a/f$n" "a/h$n"; ln -s "f$n" "a/s$n"; done
mkfifo a/fifo
truncate -s 20M a/sparse
echo end >> a/sparse
tar -cSf a.tar a
tar -xpSf a.tar -C b
tar -df a.tar -C b
test "$(stat -c %h b/a/f7)" = 2
test "$(stat -c %b b/a/sparse)" -lt 100
rm -r a b
