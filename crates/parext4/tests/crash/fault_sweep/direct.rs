//! Direct reads and writes.

use parext4::FileSize;
use testkit::volume::{DirectFiles as _, untimed};

use super::{LARGE, SMALL, bytes, volume, with_file, workload};

const KIB: u64 = 1024;

workload!(direct_overwrites, with_file(LARGE, 64 << 10), untimed(), |run| {
    let file = run.look("open", |volume| volume.direct_file("/file"))?;
    run.step("write", |_| file.write_all_at(&bytes(2, 8192), 4096))?;
    run.step("write a part of a block", |_| file.write_all_at(&bytes(3, 1024), 20 * KIB + 512))?;
    run.file_step("sync the data", "/file", |_| file.sync_data())?;
    run.step("write across blocks", |_| file.write_all_at(&bytes(4, 5 << 10), 31 * KIB))?;
    run.file_step("sync", "/file", |_| file.sync_all())
});

workload!(direct_writes_past_the_end, with_file(SMALL, 3000 / 512 * 512), untimed(), |run| {
    let file = run.look("open", |volume| volume.direct_file("/file"))?;
    run.step("extend", |_| file.write_all_at(&bytes(2, 8192), 4096))?;
    run.step("leave a hole", |_| file.write_all_at(&bytes(3, 512), 100 * KIB))?;
    run.step("extend a part of a block", |_| file.write_all_at(&bytes(4, 512), 100 * KIB + 512))?;
    run.file_step("sync", "/file", |_| file.sync_all())?;
    run.step("end within a sector", |_| file.write_all_at(&bytes(5, 700), 101 * KIB))?;
    run.step("grow", |_| file.write_all_at(&bytes(6, 40 << 10), 102 * KIB))?;
    run.sync()
});

workload!(
    direct_writes_in_holes,
    volume(LARGE, |volume| {
        let file = volume.create_direct("/file")?;
        file.write_all_at(&bytes(1, 512), 200 * KIB)
    }),
    untimed(),
    |run| {
        let file = run.look("open", |volume| volume.direct_file("/file"))?;
        run.step("fill a part of a block", |_| file.write_all_at(&bytes(2, 512), 512))?;
        run.step("fill the rest", |_| file.write_all_at(&bytes(3, 3072), 1024))?;
        run.step("fill several blocks", |_| file.write_all_at(&bytes(4, 20 << 10), 40 * KIB))?;
        run.file_step("sync", "/file", |_| file.sync_all())?;
        run.step("fill between", |_| file.write_all_at(&bytes(5, 30 << 10), 10 * KIB))?;
        run.file_step("sync the data", "/file", |_| file.sync_data())
    }
);

workload!(direct_writes_in_unwritten_blocks, with_file(LARGE, 4096), untimed(), |run| {
    let file = run.look("open", |volume| volume.direct_file("/file"))?;
    run.step("allocate", |_| file.allocate(0..128 * KIB, FileSize::Extend))?;
    run.step("convert the middle", |_| file.write_all_at(&bytes(2, 4096), 64 * KIB))?;
    run.step("convert a part of a block", |_| file.write_all_at(&bytes(3, 1024), 32 * KIB + 1024))?;
    run.sync()?;
    run.step("convert both sides", |_| file.write_all_at(&bytes(4, 24 << 10), 56 * KIB))?;
    run.step("convert the end", |_| file.write_all_at(&bytes(5, 4096), 124 * KIB))?;
    run.file_step("sync", "/file", |_| file.sync_all())
});

workload!(direct_appends, with_file(SMALL, 2048), untimed(), |run| {
    let file = run.look("open", |volume| volume.direct_file("/file"))?;
    for tag in 2..6 {
        run.step("append", |_| file.append(&bytes(tag, 3 << 10)))?;
    }
    run.file_step("sync", "/file", |_| file.sync_all())?;
    let new = run.step("create", |volume| volume.create_direct("/new"))?;
    run.step("append to the new file", |_| new.append(&bytes(6, 10 << 10)))?;
    run.step("append more", |_| new.append(&bytes(7, 512)))?;
    run.file_step("sync the new file", "/new", |_| new.sync_all())
});

workload!(
    direct_reads,
    volume(SMALL, |volume| {
        let file = volume.create_direct("/file")?;
        (0..40).try_for_each(|nth| file.write_all_at(&bytes(nth, 1024), u64::from(nth) * 3 * KIB))?;
        file.allocate(200 * KIB..220 * KIB, FileSize::Extend)
    }),
    untimed(),
    |run| {
        let file = run.look("open", |volume| volume.direct_file("/file"))?;
        let mut seen = vec![9; 1024];
        for nth in 0..40 {
            run.look("read", |_| file.read_at(&mut seen, u64::from(nth) * 3 * KIB))?;
            assert!(seen == bytes(nth, 1024), "block {nth}");
        }
        let mut all = vec![9; 256 << 10];
        let count = run.look("read all", |_| file.read_at(&mut all, 0))?;
        assert_eq!(count, 220 << 10);
        assert!(all[..1024] == bytes(0, 1024) && all[1024..3072].iter().all(|&byte| byte == 0));
        let map = run.look("map", |_| file.fiemap(0..u64::MAX))?;
        assert!(map.len() >= 41, "{map:?}");
        let hole = run.look("seek", |_| file.seek_hole(0))?;
        assert_eq!(hole, KIB);
        Ok(())
    }
);

// The tree of extents gets several leaves, which split and are written.
workload!(many_extents, with_file(SMALL, 1024), untimed(), |run| {
    let file = run.look("open", |volume| volume.direct_file("/file"))?;
    run.step("write every other block", |_| {
        (1..120).try_for_each(|nth| file.write_all_at(&bytes(2, 1024), nth * 2 * KIB))
    })?;
    run.file_step("sync", "/file", |_| file.sync_all())?;
    run.step("write more", |_| {
        (120..200).try_for_each(|nth| file.write_all_at(&bytes(3, 1024), nth * 2 * KIB))
    })?;
    run.step("write between", |_| {
        (50..90).try_for_each(|nth| file.write_all_at(&bytes(4, 1024), (nth * 2 + 1) * KIB))
    })?;
    run.sync()
});

workload!(
    many_extents_of_a_cold_file,
    volume(SMALL, |volume| {
        let file = volume.create_direct("/file")?;
        (0..150).try_for_each(|nth| file.write_all_at(&bytes(2, 1024), nth * 2 * KIB))
    }),
    untimed(),
    |run| {
        let file = run.look("open", |volume| volume.direct_file("/file"))?;
        run.step("overwrite", |_| file.write_all_at(&bytes(3, 1024), 100 * KIB))?;
        run.step("fill a hole", |_| file.write_all_at(&bytes(4, 1024), 101 * KIB))?;
        run.step("punch", |_| file.punch_hole(150 * KIB..210 * KIB))?;
        run.file_step("sync", "/file", |_| file.sync_all())?;
        run.step("truncate", |_| file.set_len(20 * KIB + 100))?;
        run.sync()
    }
);

// Threads write parts of one file at once, so that requests of several operations are in flight
// when one of them fails.
workload!(direct_writes_of_threads, with_file(LARGE, 64 << 10), untimed(), |run| {
    let file = run.look("open", |volume| volume.direct_file("/file"))?;
    run.step("write", |_| {
        std::thread::scope(|scope| {
            let write = |thread: u64| {
                let file = &file;
                scope.spawn(move || {
                    (0..4).try_for_each(|nth| {
                        let tag = 2 + u8::try_from(thread).expect("a small number");
                        file.write_all_at(&bytes(tag, 12 << 10), (thread * 4 + nth) * 12 * KIB)
                    })
                })
            };
            let threads = [write(0), write(1), write(2)];
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect::<Vec<_>>()
        })
        .into_iter()
        .collect::<parext4::Result<()>>()
    })?;
    run.file_step("sync", "/file", |_| file.sync_all())
});
