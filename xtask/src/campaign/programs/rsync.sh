rsync -aHS "$ROOT/crates" "$ROOT/docs" there/
diff -r --no-dereference "$ROOT/crates" there/crates
for n in $(seq 300); do seq "$n" > "there/f$n"; ln "there/f$n" "there/h$n"; done
rsync -aHS --delete there/ copy/
test -z "$(rsync -aHSnci --delete there/ copy/)"
seq 100000 > there/grows
rm -r there/docs
rsync -aHS --delete there/ copy/
seq 200000 > there/grows
rsync -aHS --inplace --no-whole-file there/ copy/
test -z "$(rsync -aHSnci --delete there/ copy/)"
rsync -aHS there/ "$OUT/back/"
test -z "$(rsync -aHSnci there/ "$OUT/back/")"
