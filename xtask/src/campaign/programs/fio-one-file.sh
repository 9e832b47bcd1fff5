# Sixteen threads write and verify their parts of one file.
job() {
    fio --name=job --thread --numjobs=16 --filename=shared --size=4m --offset_increment=4m --group_reporting \
        --verify=crc32c --verify_fatal=1 --verify_state_save=0 --output-format=terse "$@"
}
job --rw=randwrite --bs=4k --direct=1 --ioengine=libaio --iodepth=8
job --rw=randwrite --bs=4k-64k --bs_unaligned=1 --fsync=100
job --rw=write --bs=128k --direct=1
