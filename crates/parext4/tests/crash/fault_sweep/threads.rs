//! Several threads at once, each with files and ranges of its own.

use std::thread;

use parext4::{FileSize, OpenOptions, Result, Volume};
use testkit::volume::{DirectFiles as _, untimed};

use super::{LARGE, SMALL, bytes, volume, workload};

const THREADS: u8 = 4;
const KIB: u64 = 1024;
/// Bytes of the shared file that each thread uses.
const PART: u64 = 16 * KIB;

/// Runs `work` in each thread. Returns the first error, after all threads have ended.
fn together(work: impl Fn(u8) -> Result<()> + Sync) -> Result<()> {
    let work = &work;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|nth| scope.spawn(move || work(nth))).collect();
        let results: Vec<_> = threads.into_iter().map(|thread| thread.join().expect("no panic")).collect();
        results.into_iter().collect()
    })
}

fn own(nth: u8) -> String {
    format!("/own-{nth}")
}

fn fill(volume: &Volume) -> Result<()> {
    volume.create_direct("/shared")?.write_all_at(&bytes(1, 30 << 10), 0)?;
    (0..THREADS).try_for_each(|nth| volume.create_direct(own(nth))?.write_all_at(&bytes(nth, 4096), 0))
}

workload!(threads_on_files_of_their_own, volume(SMALL, fill), untimed(), |run| {
    run.step("write directly and buffered", |volume| {
        together(|nth| {
            let file = volume.direct_file(own(nth))?;
            file.write_all_at(&bytes(nth + 8, 8192), 8192)?;
            file.buffered()?.write_all_at(&bytes(nth + 16, 5000), 30_000)
        })
    })?;
    run.step("write and sync", |volume| {
        together(|nth| {
            let file = volume.open_file(own(nth), &OpenOptions::read_write())?;
            file.write_all_at(&bytes(nth + 24, 7000), 50_000)?;
            file.sync_all()
        })
    })?;
    run.sync()?;
    // One name changes while the other threads sync, truncate and punch.
    run.step("rename, truncate and punch", |volume| {
        together(|nth| match nth {
            0 => volume.rename("/own-0", "/renamed"),
            1 => volume.direct_file(own(1))?.set_len(3000),
            2 => volume.direct_file(own(2))?.punch_hole(4096..34096),
            _ => volume.sync(),
        })
    })?;
    run.sync()
});

workload!(threads_on_one_file, volume(LARGE, fill), untimed(), |run| {
    let file = run.look("open", |volume| volume.direct_file("/shared"))?;
    let buffered = run.look("open buffered", |_| file.buffered())?;
    let part = |nth: u8| u64::from(nth) * PART;
    run.step("write directly and buffered", |_| {
        together(|nth| match nth % 2 {
            0 => file.write_all_at(&bytes(nth + 8, 8192), part(nth)),
            _ => buffered.write_all_at(&bytes(nth + 8, 9000), part(nth) + 100),
        })
    })?;
    run.step("zero, punch, allocate and write", |_| {
        together(|nth| match nth {
            0 => file.zero_range(part(0)..part(0) + 4096, FileSize::Keep),
            1 => file.punch_hole(part(1)..part(1) + 5000),
            2 => file.allocate(part(2) + 4096..part(2) + 4096 + 12_000, FileSize::Keep),
            _ => file.write_all_at(&bytes(50, 4096), part(3) + 8192),
        })
    })?;
    run.file_step("sync", "/shared", |_| file.sync_all())?;
    // The same bytes, because the order of appends is that of the threads.
    run.step("append", |_| together(|_| file.append(&[0x77; 2048]).map(drop)))?;
    run.sync()
});
