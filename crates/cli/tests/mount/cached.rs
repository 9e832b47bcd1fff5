//! The attributes that the kernel caches agree with the volume.

use std::fs::{File, Permissions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::sync::PoisonError;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, IFlags, OFlags, StatxFlags, Timespec, Timestamps, UTIME_NOW, XattrFlags,
    fallocate, ioctl_getflags, ioctl_setflags, setxattr, statx, utimensat,
};

use crate::file_handles::KERNEL_CACHES;
use testkit::fuse_mount::{FuseMount, tool};

/// Returns the attributes of a path from statx(2), except for the number of sectors, which also
/// write-back and the end of a preallocation change. With `FORCE_SYNC` the kernel asks the server
/// first.
fn attributes(path: &Path, flags: AtFlags) -> String {
    let statx = statx(CWD, path, flags | AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS).unwrap();
    let time = |time: rustix::fs::StatxTimestamp| (time.tv_sec, time.tv_nsec);
    format!(
        "mode {:o} of {}:{}, {} links, {} bytes, atime {:?}, mtime {:?}, ctime {:?}",
        statx.stx_mode,
        statx.stx_uid,
        statx.stx_gid,
        statx.stx_nlink,
        statx.stx_size,
        time(statx.stx_atime),
        time(statx.stx_mtime),
        time(statx.stx_ctime)
    )
}

#[test]
fn attributes_that_the_server_changes_are_not_cached() {
    type Change = fn(&Path);
    let changes: [(&str, Change); 13] = [
        ("written", |path| {
            File::options().write(true).open(path).unwrap().write_all_at(&[1; 10_000], 0).unwrap();
        }),
        ("written directly", |path| direct(path).write_all_at(&[1; 8192], 8192).unwrap()),
        ("extended directly", |path| direct(path).write_all_at(&[1; 8192], 1 << 20).unwrap()),
        ("appended to", |path| {
            let mut file = File::options().append(true).open(path).unwrap();
            for _ in 0..50 {
                file.write_all(&[1; 1000]).unwrap();
            }
        }),
        ("truncated", |path| drop(File::options().write(true).truncate(true).open(path).unwrap())),
        ("allocated", |path| fallocate(direct(path), FallocateFlags::empty(), 0, 1 << 20).unwrap()),
        ("punched", |path| {
            let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fallocate(direct(path), mode, 0, 1 << 19).unwrap();
        }),
        ("copied to", |path| {
            let (from, to) = (File::open(path).unwrap(), direct(path));
            rustix::fs::copy_file_range(from, Some(&mut 0), to, Some(&mut (1 << 21)), 100_000).unwrap();
        }),
        ("given flags", |path| {
            let file = File::open(path).unwrap();
            ioctl_setflags(&file, ioctl_getflags(&file).unwrap() ^ IFlags::NODUMP).unwrap();
        }),
        ("given an attribute", |path| setxattr(path, "user.name", b"value", XattrFlags::empty()).unwrap()),
        ("touched", |path| {
            let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
            let times = Timestamps { last_access: now, last_modification: now };
            utimensat(CWD, path, &times, AtFlags::empty()).unwrap();
        }),
        ("linked", |path| std::fs::hard_link(path, path.with_extension("link")).unwrap()),
        ("unlinked", |path| std::fs::remove_file(path.with_extension("link")).unwrap()),
    ];
    for options in ["cache=kernel", "cache=direct"] {
        let Some(fuse) = FuseMount::mounted(&[], options) else { return };
        let (dir, path) = (fuse.path("dir"), fuse.path("dir/file"));
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(&path, "contents").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        for (what, change) in changes {
            // The kernel has cached all of them.
            for path in [&path, &dir] {
                attributes(path, AtFlags::empty());
            }
            sleep(Duration::from_millis(12));
            change(&path);
            for path in [&path, &dir] {
                let kept = attributes(path, AtFlags::empty());
                // The server closes the file after close(2) has returned.
                let seen = attributes(path, AtFlags::STATX_FORCE_SYNC);
                assert_eq!(kept, seen, "{options}, {what}: {}", path.display());
            }
        }
        fuse.finish();
    }
}

#[test]
fn the_kernel_learns_of_blocks_that_a_request_changes() {
    for options in ["cache=kernel", "cache=direct"] {
        let Some(fuse) = FuseMount::mounted(&[], options) else { return };
        // No write delays an allocation or preallocates blocks.
        let file = File::create(fuse.path("file")).unwrap();
        let blocks = || file.metadata().unwrap().blocks();
        assert_eq!(blocks(), 0);
        fallocate(&file, FallocateFlags::empty(), 0, 1 << 20).unwrap();
        assert_eq!(blocks(), 2048, "{options}: allocated");
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&file, punch, 1 << 18, 1 << 19).unwrap();
        assert_eq!(blocks(), 1024, "{options}: punched");
        file.set_len(1 << 18).unwrap();
        assert_eq!(blocks(), 512, "{options}: truncated");
        drop(file);
        fuse.finish();
    }
}

/// Write-back by the volume allocates blocks of the extent tree, of which no request tells. Of
/// blocks that the kernel's write-back allocates with `cache=writeback` it keeps no number either.
#[test]
fn the_kernel_learns_of_blocks_that_change_without_a_request() {
    for options in ["cache=kernel", "cache=direct", "cache=writeback"] {
        let Some(fuse) = FuseMount::mounted(&["--block-size", "1024"], options) else { return };
        let file = File::create(fuse.path("file")).unwrap();
        let blocks = || file.metadata().unwrap().blocks();
        for round in 0..3 {
            let before = blocks();
            for nth in 0..400 {
                file.write_all_at(&[1; 1024], (round * 400 + nth) * 2048).unwrap();
            }
            // The kernel keeps this number until it is told.
            blocks();
            // Has only the kernel write back: it sends no request for it.
            rustix::fs::syncfs(&file).unwrap();
            wait_until(&format!("{options}: the data has blocks"), || blocks() >= before + 800);
            rustix::fs::fsync(File::open(fuse.dir()).unwrap()).unwrap();
            wait_until(&format!("{options}: the extent tree has grown"), || blocks() > before + 800);
        }
        drop(file);
        fuse.finish();
    }
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_mins(1);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        sleep(Duration::from_millis(1));
    }
}

/// Blocks that were preallocated for a writer are freed after close(2), of which no request tells
/// either.
#[test]
fn the_kernel_learns_of_preallocated_blocks_that_are_freed() {
    for options in ["cache=kernel", "cache=direct", "cache=writeback"] {
        let Some(fuse) = FuseMount::mounted(&[], options) else { return };
        let path = fuse.path("file");
        let file = File::options().create(true).write(true).custom_flags(DIRECT).open(&path).unwrap();
        for nth in 0..8 {
            file.write_all_at(&PAGE.0, nth * 4096).unwrap();
        }
        let blocks = || std::fs::metadata(&path).unwrap().blocks();
        assert!(blocks() >= 64, "{options}");
        drop(file);
        wait_until(&format!("{options}: only the data has blocks"), || blocks() == 64);
        fuse.finish();
    }
}

const DIRECT: i32 = OFlags::DIRECT.bits().cast_signed();

#[repr(align(4096))]
struct Page([u8; 4096]);

static PAGE: Page = Page([1; 4096]);

fn direct(path: &Path) -> File {
    File::options().write(true).custom_flags(DIRECT).open(path).unwrap()
}

#[test]
fn pages_stay_in_memory_when_the_file_is_opened_to_bypass_them() {
    let Some(fuse) = FuseMount::mounted(&[], "rw") else { return };
    let path = fuse.path("file");
    std::fs::write(&path, vec![1; 1 << 20]).unwrap();
    let pages = || {
        std::fs::read(&path).unwrap();
        let open_to_bypass = |flags: OFlags| {
            let write = flags.contains(OFlags::WRONLY);
            File::options()
                .read(!write)
                .write(write)
                .custom_flags((flags & OFlags::DIRECT).bits().cast_signed())
                .open(&path)
                .unwrap()
        };
        [OFlags::DIRECT, OFlags::DIRECT | OFlags::WRONLY, OFlags::WRONLY].map(|flags| {
            drop(open_to_bypass(flags));
            tool(Command::new("fincore").args(["--noheadings", "--output=PAGES"]).arg(&path))
        })
    };
    let _kept = KERNEL_CACHES.read().unwrap_or_else(PoisonError::into_inner);
    for pages in pages().into_iter().flatten() {
        assert_eq!(pages.trim(), "256");
    }
    fuse.finish();
}
