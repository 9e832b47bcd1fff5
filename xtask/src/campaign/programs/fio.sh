job() {
    fio --name=job --verify=crc32c --verify_fatal=1 --verify_state_save=0 --group_reporting --output-format=terse "$@"
    rm -f job.* shared
}
job --rw=randwrite --bs=4k --size=16m --numjobs=8 --direct=1 --ioengine=libaio --iodepth=32
job --rw=randwrite --bs=4k --size=16m --numjobs=8 --fsync=200
job --rw=randwrite --bs=512-128k --bs_unaligned=1 --size=16m --numjobs=4
job --rw=write --bs=1m --size=64m --numjobs=4 --direct=1
job --rw=randwrite --bs=4k --size=16m --numjobs=4 --ioengine=mmap
job --rw=randwrite --bs=8k --size=16m --numjobs=8 --filename=shared --offset_increment=16m --direct=1 --ioengine=libaio --iodepth=8
job --rw=randwrite --bs=8k --size=16m --numjobs=8 --filename=shared --offset_increment=16m
job --rw=randtrimwrite --bs=4k --size=16m --numjobs=2 --fallocate=none || test $? = 1
