//! Buffered reads and writes, write-back, and files that are used in both ways.

use parext4::{OpenOptions, SyncMode};
use testkit::volume::{DirectFiles as _, untimed};

use super::{LARGE, SMALL, bytes, create, volume, with_file, workload};

const KIB: u64 = 1024;

workload!(buffered_writes, with_file(LARGE, 30_000 / 512 * 512), untimed(), |run| {
    let file = run.look("open", |volume| volume.open_file("/file", &OpenOptions::read_write()))?;
    run.step("write", |_| file.write_all_at(&bytes(2, 10_000), 5000))?;
    run.step("extend", |_| file.write_all_at(&bytes(3, 50_000), 40_000))?;
    run.file_step("sync the data", "/file", |_| file.sync_data())?;
    run.step("overwrite", |_| file.write_all_at(&bytes(4, 100), 20_000))?;
    run.step("leave a hole", |_| file.write_all_at(&bytes(5, 100), 200_000))?;
    run.file_step("sync", "/file", |_| file.sync_all())?;
    run.step("append", |_| file.append(&bytes(6, 5000)))?;
    run.sync()
});

// Pages that a write covers only in part are read first.
workload!(buffered_writes_of_parts_of_pages, with_file(SMALL, 100 << 10), untimed(), |run| {
    let file = run.look("open", |volume| volume.open_file("/file", &OpenOptions::read_write()))?;
    for nth in 0..6 {
        run.step("write", |_| file.write_all_at(&bytes(2, 300), nth * 16 * KIB + 1000))?;
    }
    run.step("write the end", |_| file.write_all_at(&bytes(3, 3000), 99 * KIB))?;
    run.file_step("sync a range", "/file", |_| {
        file.sync_range(0..40 * KIB)?;
        file.sync_all()
    })
});

workload!(buffered_reads, with_file(LARGE, 512 << 10), untimed(), |run| {
    let file = run.look("open", |volume| volume.open_file("/file", &OpenOptions::read_only()))?;
    let (all, mut seen) = (bytes(1, 512 << 10), vec![0; 32 << 10]);
    for nth in 0..16 {
        let from = nth * seen.len();
        run.look("read", |_| file.read_exact_at(&mut seen, from as u64))?;
        assert!(seen == all[from..from + seen.len()], "at {from}");
    }
    run.look("read the start", |_| file.read_exact_at(&mut seen[..100], 5))?;
    assert!(seen[..100] == all[5..105]);
    Ok(())
});

workload!(synchronous_writes, with_file(SMALL, 4096), untimed(), |run| {
    let options = OpenOptions::read_write();
    let data = run.look("open", |volume| volume.open_file("/file", &options.sync(SyncMode::Data)))?;
    let all = run.look("open again", |volume| volume.open_file("/file", &options.sync(SyncMode::All)))?;
    run.file_step("write", "/file", |_| data.write_all_at(&bytes(2, 3000), 100))?;
    run.file_step("append", "/file", |_| data.append(&bytes(3, 9000)))?;
    run.file_step("write and sync all", "/file", |_| all.write_all_at(&bytes(4, 10), 12_000))?;
    run.file_step("truncate", "/file", |_| {
        all.set_len(5000)?;
        all.sync_all()
    })
});

// More is dirty than the limit allows, so writers write back themselves.
workload!(
    buffered_writes_with_little_memory,
    with_file(LARGE, 4096),
    untimed().cache_bytes(1 << 20).dirty_limit_bytes(64 << 10),
    |run| {
        let file = run.look("open", |volume| volume.open_file("/file", &OpenOptions::read_write()))?;
        for nth in 0..6 {
            run.step("write", |_| file.write_all_at(&bytes(2, 40_000), nth * 50_000))?;
        }
        run.file_step("sync", "/file", |_| file.sync_all())?;
        run.step("write far away", |_| file.write_all_at(&bytes(3, 100_000), 1 << 20))?;
        run.sync()
    }
);

workload!(truncations_of_dirty_files, with_file(SMALL, 20_000 / 512 * 512), untimed(), |run| {
    let file = run.look("open", |volume| volume.open_file("/file", &OpenOptions::read_write()))?;
    run.step("write", |_| file.write_all_at(&bytes(2, 50_000), 10_000))?;
    run.step("cut", |_| file.set_len(30_001))?;
    run.step("write again", |_| file.write_all_at(&bytes(3, 5000), 40_000))?;
    run.file_step("sync", "/file", |_| file.sync_all())?;
    run.step("write more", |_| file.write_all_at(&bytes(4, 9000), 1000))?;
    run.step("empty", |_| file.set_len(0))?;
    run.step("replace", |_| file.write_all_at(&bytes(5, 3000), 0))?;
    run.sync()
});

// As many programs save a file: a new file, a sync, and a rename over the old one.
workload!(replaced_files, with_file(LARGE, 9000 / 512 * 512), untimed(), |run| {
    let file = run.step("create", |volume| create(volume, "/file.new"))?;
    run.step("write", |_| file.write_all_at(&bytes(2, 20_000), 0))?;
    run.file_step("sync", "/file.new", |_| file.sync_all())?;
    drop(file);
    run.step("rename", |volume| volume.rename("/file.new", "/file"))?;
    run.sync()?;
    let file = run.step("create without a sync", |volume| create(volume, "/file.new"))?;
    run.step("write without a sync", |_| file.write_all_at(&bytes(3, 10_000), 0))?;
    drop(file);
    run.step("rename without a sync", |volume| volume.rename("/file.new", "/file"))
});

workload!(files_used_in_both_ways, with_file(LARGE, 64 << 10), untimed(), |run| {
    let direct = run.look("open", |volume| volume.direct_file("/file"))?;
    let file = run.look("open buffered", |_| direct.buffered())?;
    run.step("write buffered", |_| file.write_all_at(&bytes(2, 5000), 3000))?;
    run.step("write directly", |_| direct.write_all_at(&bytes(3, 4096), 4096))?;
    let mut seen = vec![0; 8192];
    run.look("read directly", |_| direct.read_at(&mut seen, 4096))?;
    assert!(seen[..4096] == bytes(3, 4096));
    run.step("extend buffered", |_| file.write_all_at(&bytes(4, 9000), 65_000))?;
    run.step("punch", |_| direct.punch_hole(60_000..70000))?;
    run.look("read buffered", |_| file.read_at(&mut seen, 0))?;
    run.step("append directly", |_| {
        direct.set_len(80 << 10).and_then(|()| direct.append(&bytes(5, 4096)).map(drop))
    })?;
    run.file_step("sync", "/file", |_| file.sync_all())
});

// Many small files, which write-back joins into large requests.
workload!(
    many_small_files,
    volume(LARGE, |volume| volume.create_dir("/dir", 0o755).map(drop)),
    untimed(),
    |run| {
        for number in 0..12 {
            let path = format!("/dir/{number}");
            run.step("create", |volume| create(volume, &path))?;
            let file = run.look("open", |volume| volume.open_file(&path, &OpenOptions::read_write()))?;
            run.step("write", |_| file.write_all_at(&bytes(number, 3000), 0))?;
        }
        run.sync()?;
        run.step("remove one", |volume| volume.remove_file("/dir/3"))?;
        run.step("rename one", |volume| volume.rename("/dir/4", "/dir/5"))?;
        run.sync()
    }
);
