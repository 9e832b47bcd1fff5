//! Operations on the space of files.

use parext4::FileSize;
use testkit::volume::{DirectFiles as _, untimed};

use super::{LARGE, SMALL, bytes, volume, with_file, workload};

const KIB: u64 = 1024;

workload!(allocations, with_file(SMALL, 2048), untimed(), |run| {
    let file = run.look("open", |volume| volume.direct_file("/file"))?;
    run.step("allocate past the end", |_| file.allocate(10 * KIB..60 * KIB, FileSize::Keep))?;
    run.step("allocate and grow", |_| file.allocate(0..30 * KIB, FileSize::Extend))?;
    run.sync()?;
    run.step("write there", |_| file.write_all_at(&bytes(2, 5 << 10), 20 * KIB))?;
    run.step("allocate far away", |_| file.allocate(1000 * KIB..1020 * KIB, FileSize::Extend))?;
    run.file_step("sync", "/file", |_| file.sync_all())
});

workload!(truncations, with_file(SMALL, 200 << 10), untimed(), |run| {
    let file = run.look("open", |volume| volume.direct_file("/file"))?;
    run.step("cut within a block", |_| file.set_len(100 * KIB + 300))?;
    run.step("grow", |_| file.set_len(150 * KIB + 7))?;
    run.sync()?;
    run.step("write past the end", |_| file.write_all_at(&bytes(2, 1024), 160 * KIB))?;
    run.step("cut at a block", |_| file.set_len(50 * KIB))?;
    run.file_step("sync", "/file", |_| file.sync_all())?;
    run.step("empty", |_| file.set_len(0))?;
    run.step("write again", |_| file.write_all_at(&bytes(3, 3 << 10), 0))?;
    run.sync()
});

workload!(punched_holes, with_file(LARGE, 200 << 10), untimed(), |run| {
    let file = run.look("open", |volume| volume.direct_file("/file"))?;
    run.step("punch whole blocks", |_| file.punch_hole(40 * KIB..80 * KIB))?;
    run.step("punch parts of blocks", |_| file.punch_hole(100 * KIB + 100..100 * KIB + 100 + 10 * KIB))?;
    run.step("punch within a block", |_| file.punch_hole(10..710))?;
    run.file_step("sync", "/file", |_| file.sync_all())?;
    run.step("fill", |_| file.write_all_at(&bytes(2, 16 << 10), 50 * KIB))?;
    run.step("punch the end", |_| file.punch_hole(180 * KIB..280 * KIB))?;
    run.sync()
});

workload!(zeroed_ranges, with_file(SMALL, 100 << 10), untimed(), |run| {
    let file = run.look("open", |volume| volume.direct_file("/file"))?;
    run.step("zero whole blocks", |_| file.zero_range(20 * KIB..40 * KIB, FileSize::Extend))?;
    run.step("zero parts of blocks", |_| {
        file.zero_range(60 * KIB + 100..60 * KIB + 100 + 5000, FileSize::Keep)
    })?;
    run.sync()?;
    run.step("zero past the end", |_| file.zero_range(95 * KIB..125 * KIB, FileSize::Extend))?;
    run.step("write into zeros", |_| file.write_all_at(&bytes(2, 2048), 25 * KIB))?;
    run.file_step("sync", "/file", |_| file.sync_all())
});

workload!(collapsed_ranges, with_file(SMALL, 100 << 10), untimed(), |run| {
    let file = run.look("open", |volume| volume.direct_file("/file"))?;
    run.durable_step("collapse", |volume| {
        file.collapse_range(20 * KIB..30 * KIB).and_then(|()| volume.sync())
    })?;
    run.step("collapse the start", |_| file.collapse_range(0..5 * KIB))?;
    run.sync()?;
    run.step("write", |_| file.write_all_at(&bytes(2, 2048), 10 * KIB))?;
    run.step("collapse more", |_| file.collapse_range(9 * KIB..39 * KIB))?;
    run.file_step("sync", "/file", |_| file.sync_all())
});

workload!(inserted_ranges, with_file(SMALL, 60 << 10), untimed(), |run| {
    let file = run.look("open", |volume| volume.direct_file("/file"))?;
    run.step("insert", |_| file.insert_range(20 * KIB..30 * KIB))?;
    run.sync()?;
    run.step("insert at the start", |_| file.insert_range(0..5 * KIB))?;
    // A crash could leave the old place of the blocks with the new data.
    run.sync()?;
    run.step("write", |_| file.write_all_at(&bytes(2, 2048), 24 * KIB))?;
    run.file_step("sync", "/file", |_| file.sync_all())?;
    run.step("insert within an extent", |_| file.insert_range(50 * KIB..51 * KIB))?;
    run.sync()
});

// A collapse and an insertion in a file with several leaves of extents.
workload!(
    shifts_of_many_extents,
    volume(SMALL, |volume| {
        let file = volume.create_direct("/file")?;
        (0..200).try_for_each(|nth| file.write_all_at(&bytes(nth, 1024), u64::from(nth) * 2 * KIB))
    }),
    untimed(),
    |run| {
        let file = run.look("open", |volume| volume.direct_file("/file"))?;
        run.step("collapse", |_| file.collapse_range(30 * KIB..81 * KIB))?;
        run.sync()?;
        run.step("insert", |_| file.insert_range(100 * KIB..107 * KIB))?;
        run.file_step("sync", "/file", |_| file.sync_all())
    }
);

// Several files grow in turn, with blocks preallocated past their ends.
workload!(preallocation, with_file(LARGE, 4096), untimed(), |run| {
    let files = run.step("create one", |volume| volume.create_direct("/a"))?;
    let second = run.step("create another", |volume| volume.create_direct("/b"))?;
    for nth in 0..5 {
        run.step("grow one", |_| files.append(&bytes(2, 8192 * (nth + 1))).map(drop))?;
        run.step("grow the other", |_| second.append(&bytes(3, 4096)).map(drop))?;
    }
    run.sync()?;
    drop((files, second));
    run.step("create a third", |volume| volume.create_direct("/c").map(drop))?;
    run.sync()
});
