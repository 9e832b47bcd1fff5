//! Operations on whole volumes: open and recovery, commits and checkpoints, trim, labels, close.

use std::sync::Arc;

use parext4::server::ServerVolume as _;
use parext4::{EmptiedLog, MemDevice, OpenOptions, Volume, VolumeOptions, replay_journal};
use testkit::volume::{DirectFiles as _, untimed};

use super::{LARGE, SMALL, bytes, commit_often, create, volume, with_file, workload};

/// Returns a volume as a crash left it: with a log to replay, a removed file that was open, and a
/// truncation under way.
fn crashed() -> MemDevice {
    let device = Arc::new(with_file(SMALL, 60 << 10));
    let volume = Volume::open_device(Arc::clone(&device) as Arc<_>, &untimed()).expect("the volume opens");
    let make = || {
        let removed = volume.create_direct("/removed")?;
        (0..60).try_for_each(|nth| removed.write_all_at(&bytes(2, 1024), nth * 2048))?;
        volume.direct_file("/file")?.write_all_at(&bytes(3, 8192), 80 << 10)?;
        volume.create_dir("/dir", 0o755)?;
        volume.write("/dir/new", bytes(4, 3000))?;
        volume.sync()?;
        volume.remove_file("/removed")?;
        volume.symlink("/dir/link", "target")?;
        volume.sync()?;
        Ok::<_, parext4::Error>(removed)
    };
    let _removed = make().expect("a volume in use");
    device.fork()
}

workload!(recovery_at_open, crashed(), untimed(), |run| {
    run.step("create", |volume| create(volume, "/created").map(drop))?;
    run.sync()
});

workload!(recovery_at_a_read_only_open, crashed(), untimed(), |run| {
    let view =
        run.beside("open", |device| VolumeOptions::new().read_only(true).open_device(Arc::clone(device)))?;
    let mut seen = run.beside("read", |_| view.read("/dir/new"))?;
    assert!(seen == bytes(4, 3000));
    seen.clear();
    run.beside("close", |_| view.close())
});

workload!(recovery_alone, crashed(), untimed(), |run| {
    run.beside("replay", |device| replay_journal(Arc::clone(device)).map(drop))?;
    run.step("create", |volume| create(volume, "/created").map(drop))?;
    run.sync()
});

workload!(many_commits, with_file(SMALL, 4096), untimed(), |run| { commit_often(run, 10) });

workload!(emptied_journals, with_file(LARGE, 8192), untimed(), |run| {
    for (nth, emptied) in
        [EmptiedLog::Kept, EmptiedLog::Discarded, EmptiedLog::Zeroed].into_iter().enumerate()
    {
        let name = format!("/dir-{nth}");
        run.step("make", |volume| volume.create_dir(&name, 0o755).map(drop))?;
        run.durable_step("empty the journal", |volume| volume.empty_journal(emptied))?;
    }
    run.step("write", |volume| volume.direct_file("/file")?.write_all_at(&bytes(2, 4096), 0))?;
    run.sync()
});

workload!(
    discarded_blocks,
    volume(SMALL, |volume| {
        for nth in 0..6 {
            volume.write(format!("/{nth}"), bytes(nth, 20_000))?;
        }
        Ok(())
    }),
    untimed(),
    |run| {
        run.step("remove", |volume| volume.remove_file("/1"))?;
        run.step("remove another", |volume| volume.remove_file("/4"))?;
        run.sync()?;
        run.look("trim", |volume| volume.trim(0..u64::MAX, 4096).map(drop))?;
        run.step("write", |volume| volume.direct_file("/2")?.write_all_at(&bytes(9, 20 << 10), 20 << 10))?;
        run.look("trim a part", |volume| volume.trim(1 << 20..6 << 20, 1024).map(drop))?;
        run.sync()
    }
);

workload!(labels, with_file(LARGE, 512), untimed(), |run| {
    run.step("label", |volume| volume.set_label(b"label"))?;
    run.step("directory", |volume| volume.set_last_mounted("/mnt/somewhere".as_ref()))?;
    run.sync()?;
    run.step("label again", |volume| volume.set_label(b""))
});

// The volume stops as in a crash, and is opened again.
workload!(shutdowns, with_file(SMALL, 8192), untimed(), |run| {
    run.step("make", |volume| volume.create_dir("/dir", 0o755).map(drop))?;
    run.durable_step("shut down", Volume::abort)?;
    run.abandon();
    run.step("make more", |volume| volume.create_dir("/dir/more", 0o755).map(drop))?;
    run.sync()
});

// The close writes everything back.
workload!(close_with_dirty_pages, with_file(LARGE, 20 << 10), untimed(), |run| {
    let file = run.look("open", |volume| volume.open_file("/file", &OpenOptions::read_write()))?;
    run.step("write", |_| file.write_all_at(&bytes(2, 100_000), 5000))?;
    let new = run.step("create", |volume| create(volume, "/new"))?;
    run.step("write the new file", |_| new.write_all_at(&bytes(3, 50_000), 0))?;
    drop((file, new));
    run.close()?;
    run.step("make", |volume| volume.create_dir("/dir", 0o755).map(drop))?;
    run.close()
});
