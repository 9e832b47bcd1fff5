# Each engine that this fio has writes and verifies, through the page cache and past it.
job() {
    fio --name=job --size=8m --numjobs=2 --fsync=100 --group_reporting \
        --verify=crc32c --verify_fatal=1 --verify_state_save=0 --output-format=terse "$@"
    rm -f job.*
}
engines=$(fio --enghelp)
for engine in sync psync vsync pvsync pvsync2 libaio posixaio io_uring mmap splice; do
    echo "$engines" | grep -qw "$engine" || continue
    for direct in 0 1; do
        # Mappings and pipes have the page cache between them and the file.
        case "$engine$direct" in mmap1 | splice1) continue ;; esac
        job --ioengine="$engine" --direct="$direct" --rw=write --bs=64k --iodepth=8
        job --ioengine="$engine" --direct="$direct" --rw=randwrite --bs=4k-64k --iodepth=16
    done
done
