//! Kills the server under load. The image recovers, and has everything that was synced.
//!
//! `PAREXT4_KILL_ROUNDS` sets the number of rounds. `cargo xtask mount-kill` runs more of them.

use std::fs::File;
use std::io::{Result, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parext4::device::AlignedBuf;
use rustix::fs::OFlags;
use testkit::rng::Rng;
use testkit::settings;

use testkit::command::text;
use testkit::fuse_mount::{FuseMount, tool};

/// Number of writers of each kind.
const WRITERS: usize = 2;
const RECORD: usize = 4096;
/// Number of records that each writer overwrites repeatedly.
const SLOTS: usize = 16;

/// The data that is certainly durable, by writer.
#[derive(Default)]
struct Synced {
    /// Number of appended records.
    appended: [AtomicU64; WRITERS],
    /// Number of the record in each slot.
    slots: [[AtomicU64; SLOTS]; WRITERS],
    /// Number of the last file that was renamed over its predecessor.
    replaced: [AtomicU64; WRITERS],
}

/// Returns the record with a number.
fn record(writer: usize, number: u64) -> AlignedBuf {
    let mut bytes = AlignedBuf::zeroed(RECORD);
    bytes.fill(u8::try_from(writer + 1).unwrap());
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes[RECORD - 8..].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// Returns the number of a record. Panics if the record is torn.
fn number(writer: usize, bytes: &[u8]) -> u64 {
    let number = u64::from_le_bytes(*bytes.first_chunk().unwrap());
    assert!(bytes == &*record(writer, number), "record {number} of writer {writer} is torn");
    number
}

fn open(path: &Path, flags: OFlags) -> Result<File> {
    let flags = i32::try_from(flags.bits()).unwrap();
    File::options().read(true).write(true).create(true).custom_flags(flags).open(path)
}

/// Appends records and syncs each.
fn append(dir: &Path, writer: usize, synced: &Synced) -> Result<()> {
    let file = open(&dir.join(format!("log{writer}")), OFlags::empty())?;
    File::open(dir)?.sync_all()?;
    for number in 0.. {
        file.write_all_at(&record(writer, number), number * RECORD as u64)?;
        file.sync_data()?;
        synced.appended[writer].store(number + 1, Ordering::SeqCst);
    }
    Ok(())
}

/// Overwrites records directly, and syncs several at a time.
fn overwrite(dir: &Path, writer: usize, synced: &Synced) -> Result<()> {
    let file = open(&dir.join(format!("slots{writer}")), OFlags::DIRECT)?;
    file.set_len((SLOTS * RECORD) as u64)?;
    File::open(dir)?.sync_all()?;
    let mut rng = Rng::new(7, writer as u64);
    for number in 1.. {
        let slots = [(); 3].map(|()| usize::try_from(rng.below(SLOTS as u64)).unwrap());
        for slot in slots {
            file.write_all_at(&record(writer, number), (slot * RECORD) as u64)?;
        }
        file.sync_data()?;
        slots.iter().for_each(|&slot| synced.slots[writer][slot].store(number, Ordering::SeqCst));
    }
    Ok(())
}

/// Writes a new file and renames it over the old one, as editors do.
fn replace(dir: &Path, writer: usize, synced: &Synced) -> Result<()> {
    let (new, name) = (dir.join(format!("new{writer}")), dir.join(format!("name{writer}")));
    for number in 1.. {
        let file = File::create(&new)?;
        for part in 0..4 {
            file.write_all_at(&record(writer, number), part * RECORD as u64)?;
        }
        file.sync_all()?;
        std::fs::rename(&new, &name)?;
        File::open(dir)?.sync_all()?;
        synced.replaced[writer].store(number, Ordering::SeqCst);
    }
    Ok(())
}

/// Creates, grows, shrinks and removes files without syncing them.
fn churn(dir: &Path, writer: usize) -> Result<()> {
    let mut rng = Rng::new(8, writer as u64);
    loop {
        let mut path = || dir.join(format!("churn{writer}.{}", rng.below(9)));
        let (one, other) = (path(), path());
        std::fs::write(&one, vec![1; usize::try_from(rng.log_uniform(200_000)).unwrap()])?;
        let file = open(&one, OFlags::empty())?;
        file.set_len(rng.below(50_000))?;
        std::fs::rename(&one, &other)?;
        let sub = other.with_extension("dir");
        let _ = std::fs::create_dir(&sub);
        let _ = std::fs::hard_link(&other, sub.join("link"));
        if rng.chance(30) {
            std::fs::remove_file(&other)?;
            std::fs::remove_dir_all(&sub)?;
        }
    }
}

/// Checks that everything that was synced is there and not torn.
fn check(dir: &Path, synced: &Synced) {
    let mut bytes = vec![0; RECORD];
    for writer in 0..WRITERS {
        let appended = synced.appended[writer].load(Ordering::SeqCst);
        for nth in 0..appended {
            let file = File::open(dir.join(format!("log{writer}"))).unwrap();
            file.read_exact_at(&mut bytes, nth * RECORD as u64).unwrap();
            assert_eq!(
                number(writer, &bytes),
                nth,
                "record of writer {writer}, which has written {appended}"
            );
        }
        for (slot, synced) in synced.slots[writer].iter().enumerate() {
            let synced = synced.load(Ordering::SeqCst);
            if synced > 0 {
                let file = File::open(dir.join(format!("slots{writer}"))).unwrap();
                file.read_exact_at(&mut bytes, (slot * RECORD) as u64).unwrap();
                // A later record may have reached the device, too.
                let there = number(writer, &bytes);
                assert!(there >= synced, "slot {slot} of writer {writer}: {there}, not {synced}");
            }
        }
        let replaced = synced.replaced[writer].load(Ordering::SeqCst);
        if replaced > 0 {
            let bytes = std::fs::read(dir.join(format!("name{writer}"))).unwrap();
            let numbers: Vec<_> = bytes.chunks(RECORD).map(|bytes| number(writer, bytes)).collect();
            let is_whole = numbers.len() == 4 && numbers.iter().all(|&number| number == numbers[0]);
            assert!(
                is_whole && numbers[0] >= replaced,
                "file {numbers:?} of writer {writer}, not {replaced}"
            );
        }
    }
}

/// Recovers the journal with one of parext4, e2fsck and the kernel.
fn recover(fuse: &FuseMount, round: u64) {
    let image = text(&fuse.scratch().image());
    match round % 3 {
        0 => {
            fuse.scratch().release();
            fuse.scratch().ok(&["recover", &fuse.scratch().name()]);
        }
        // The next mount replays the journal.
        1 => return fuse.scratch().release(),
        _ => {
            fuse.scratch().fetch();
            fuse.scratch().release();
            let mut mount = Command::new("mount");
            let mounted =
                mount.args(["-t", "ext4", "-o", "loop", &image, &text(fuse.dir())]).output().unwrap();
            if !mounted.status.success() {
                return testkit::kernel::not_mounted(
                    image.as_ref(),
                    &String::from_utf8_lossy(&mounted.stderr),
                );
            }
            testkit::kernel_umount(fuse.dir());
        }
    }
    fuse.scratch().fsck();
}

#[test]
fn synced_data_survives_the_death_of_the_server() {
    for round in 0..settings::kill_rounds() {
        let Some(fuse) = FuseMount::new(&["--block-size", "4096"]) else { return };
        let options = ["cache=kernel", "cache=writeback", "cache=direct"]
            [usize::try_from((round + round / 3) % 3).unwrap()];
        let mut server = fuse.serve(options);
        let synced = Synced::default();
        std::thread::scope(|scope| {
            let (dir, synced) = (fuse.dir(), &synced);
            for writer in 0..WRITERS {
                scope.spawn(move || append(dir, writer, synced).unwrap_err());
                scope.spawn(move || overwrite(dir, writer, synced).unwrap_err());
                scope.spawn(move || replace(dir, writer, synced).unwrap_err());
                scope.spawn(move || churn(dir, writer).unwrap_err());
            }
            std::thread::sleep(Duration::from_millis(150 + 70 * (round % 20)));
            server.kill().unwrap();
            server.wait().unwrap();
        });
        fuse.umount();
        recover(&fuse, round);
        fuse.mount(options);
        check(fuse.dir(), &synced);
        let sum = |of: &[AtomicU64]| of.iter().map(|number| number.load(Ordering::SeqCst)).sum::<u64>();
        println!(
            "round {round}: {} records appended, {} rounds of slots, {} files replaced",
            sum(&synced.appended),
            synced.slots.iter().flatten().map(|slot| slot.load(Ordering::SeqCst)).max().unwrap_or(0),
            sum(&synced.replaced)
        );
        fuse.finish();
    }
}

/// syncfs(2) sends all data to the server, and syncing the root makes it durable, including files
/// that were never synced.
#[test]
fn syncing_the_root_makes_everything_durable() {
    let Some(fuse) = FuseMount::new(&["--block-size", "4096"]) else { return };
    let mut server = fuse.serve("cache=writeback");
    let contents = |nth: u8| vec![nth + 1; 3000 * usize::from(nth)];
    let path = |nth: u8| fuse.path(&format!("dir-{}/{nth}", nth % 3));
    for nth in 0..20 {
        std::fs::create_dir_all(path(nth).parent().unwrap()).unwrap();
        std::fs::write(path(nth), contents(nth)).unwrap();
    }
    let root = File::open(fuse.dir()).unwrap();
    rustix::fs::syncfs(&root).unwrap();
    root.sync_all().unwrap();
    drop(root);
    server.kill().unwrap();
    server.wait().unwrap();
    fuse.umount();
    fuse.scratch().release();
    fuse.mount("cache=writeback");
    assert!((0..20).all(|nth| std::fs::read(path(nth)).unwrap() == contents(nth)));
    fuse.finish();
}

/// Opens the file named in the second argument, and replaces the other one by it before it is
/// closed.
const REPLACE: &str = "
import mmap, os, sys
old, new, sync, how = sys.argv[1:]
file = os.open(new, os.O_RDWR | os.O_CREAT)
if how == 'mapped':
    os.ftruncate(file, 300_000)
    memory = mmap.mmap(file, 300_000)
    memory[:] = b'2' * 300_000
else:
    os.write(file, b'2' * 300_000)
os.rename(new, old)
other = os.open(sync, os.O_WRONLY | os.O_CREAT)
os.fsync(other)
os.kill(int(sys.stdin.read()), 9)
";

/// The kernel has the data of the new file, and does not write it back before the rename by itself.
#[test]
fn a_file_that_is_open_has_its_data_when_it_replaces_another_one() {
    for (options, how) in
        [("cache=writeback", "written"), ("cache=writeback", "mapped"), ("cache=kernel", "mapped")]
    {
        let Some(fuse) = FuseMount::new(&["--block-size", "4096"]) else { return };
        let mut server = fuse.serve(options);
        let old = fuse.path("old");
        std::fs::write(&old, "1").unwrap();
        File::open(&old).unwrap().sync_all().unwrap();
        let mut replace = Command::new("python3");
        replace.args(["-c", REPLACE]).args([&old, &fuse.path("new"), &fuse.path("sync")]).arg(how);
        let mut replace = replace.stdin(Stdio::piped()).spawn().unwrap();
        replace.stdin.take().unwrap().write_all(server.id().to_string().as_bytes()).unwrap();
        let replaced = replace.wait().unwrap();
        server.wait().unwrap();
        fuse.umount();
        fuse.scratch().release();
        assert!(replaced.success());
        fuse.mount(options);
        assert!(std::fs::read(&old).unwrap() == [b'2'; 300_000], "{options}, {how}");
        fuse.finish();
    }
}

/// chattr(1) `+S` and `+D` make each change durable.
#[test]
fn changes_of_synchronous_files_and_directories_are_durable() {
    for options in ["cache=kernel", "cache=direct"] {
        let Some(fuse) = FuseMount::mounted(&["--block-size", "4096"], options) else { return };
        let (dir, file) = (fuse.path("dir"), fuse.path("file"));
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(&file, "").unwrap();
        for (flag, path) in [("+D", &dir), ("+S", &file)] {
            if tool(Command::new("chattr").arg(flag).arg(path)).is_none() {
                return;
            }
        }
        fuse.umount();
        let mut server = fuse.serve(options);
        std::fs::write(dir.join("name"), "").unwrap();
        File::options().write(true).open(&file).unwrap().write_all_at(b"contents", 0).unwrap();
        server.kill().unwrap();
        server.wait().unwrap();
        fuse.umount();
        fuse.scratch().release();
        fuse.mount(options);
        assert!(dir.join("name").exists(), "{options}");
        assert_eq!(std::fs::read(&file).unwrap(), b"contents", "{options}");
        fuse.finish();
    }
}
