head -c 50000000 /dev/urandom > "$OUT/raw"
truncate -s 128M "$OUT/raw"
printf end | dd of="$OUT/raw" bs=1 seek=100000000 conv=notrunc status=none
qemu-img convert -f raw -O qcow2 "$OUT/raw" a.qcow2
qemu-img check a.qcow2
qemu-img convert -f qcow2 -O raw -t none -T none a.qcow2 b.raw
cmp "$OUT/raw" b.raw
qemu-img convert -f raw -O qcow2 -t none -o preallocation=metadata b.raw c.qcow2
qemu-img convert -f qcow2 -O raw c.qcow2 "$OUT/back"
cmp "$OUT/raw" "$OUT/back"
qemu-img compare a.qcow2 c.qcow2
test "$(stat -c %b b.raw)" -lt 150000
