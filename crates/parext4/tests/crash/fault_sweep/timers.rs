//! Volumes whose threads commit, write back and release memory by themselves, while steps are made
//! and between them.

use std::time::Duration;

use parext4::{OpenOptions, Result, VolumeOptions};
use testkit::volume::DirectFiles as _;

use super::{LARGE, SMALL, bytes, create, volume, with_file, workload};

/// Time between two commits, and two rounds of write-back.
const INTERVAL: Duration = Duration::from_millis(3);

fn timed() -> VolumeOptions {
    VolumeOptions::new().commit_interval(INTERVAL).write_back_interval(INTERVAL).cache_idle(INTERVAL)
}

/// Gives the threads time for all that is dirty.
fn pause() -> Result<()> {
    std::thread::sleep(INTERVAL * 4);
    Ok(())
}

workload!(timed_commits, with_file(SMALL, 20 << 10), timed(), |run| {
    let file = run.look("open", |volume| volume.direct_file("/file"))?;
    for nth in 0..3 {
        run.step("write", |_| file.write_all_at(&bytes(nth, 3072), u64::from(nth) * 9216))?;
        let name = format!("/dir-{nth}");
        run.step("make", |volume| volume.create_dir(&name, 0o755).map(drop))?;
        run.look("pause", |_| pause())?;
    }
    run.step("truncate", |_| file.set_len(5000))?;
    run.look("pause", |_| pause())?;
    run.sync()?;
    drop(file);
    run.step("remove", |volume| volume.remove_file("/file"))?;
    run.look("pause", |_| pause())
});

workload!(timed_write_back, with_file(LARGE, 30_000 / 512 * 512), timed(), |run| {
    let file = run.look("open", |volume| volume.open_file("/file", &OpenOptions::read_write()))?;
    run.step("write", |_| file.write_all_at(&bytes(2, 10_000), 5000))?;
    run.step("extend", |_| file.write_all_at(&bytes(3, 50_000), 40_000))?;
    run.look("pause", |_| pause())?;
    run.step("overwrite", |_| file.write_all_at(&bytes(4, 300), 20_000))?;
    run.look("pause", |_| pause())?;
    run.file_step("sync", "/file", |_| file.sync_all())?;
    run.step("append", |_| file.append(&bytes(6, 5000)))?;
    run.step("cut", |_| file.set_len(30_001))?;
    run.look("pause", |_| pause())?;
    let mut seen = vec![0; 8192];
    run.look("read", |_| file.read_at(&mut seen, 0))?;
    run.sync()
});

// Files that are removed and replaced while write-back is at work.
workload!(
    timed_write_back_of_small_files,
    volume(SMALL, |volume| volume.create_dir("/dir", 0o755).map(drop)),
    timed(),
    |run| {
        for number in 0..6 {
            let path = format!("/dir/{number}");
            run.step("create", |volume| create(volume, &path))?;
            let file = run.look("open", |volume| volume.open_file(&path, &OpenOptions::read_write()))?;
            run.step("write", |_| file.write_all_at(&bytes(number, 3000), 0))?;
        }
        run.look("pause", |_| pause())?;
        run.step("remove one", |volume| volume.remove_file("/dir/3"))?;
        run.step("rename one", |volume| volume.rename("/dir/4", "/dir/5"))?;
        run.look("pause", |_| pause())?;
        run.sync()
    }
);
