//! Reserved blocks, discarding free blocks, and whiteouts.

use std::fs::{File, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use parext4::device::AlignedBuf;
use rustix::fs::{
    CWD, FallocateFlags, RenameFlags, copy_file_range, fallocate, renameat_with, statvfs, syncfs,
};
use rustix::io::Errno;

use testkit::command::text;
use testkit::fuse_mount::{FuseMount, as_user, errors, tool};
use testkit::kernel_mount::KernelMount;

const UNPRIVILEGED: u32 = 65534;

/// Fills a file until a write or the final sync fails with `ENOSPC`: the kernel's cache accepts any
/// amount of data.
fn fill(fuse: &FuseMount, name: &str) -> Option<String> {
    let to = format!("of={}", text(&fuse.path(name)));
    let dd = ["dd", "if=/dev/zero", "bs=64k", "count=1200", "conv=fsync", &to];
    let output = as_user(UNPRIVILEGED, &dd).env("LC_ALL", "C").output();
    let Ok(output) = output else {
        testkit::skipped("no setpriv");
        return None;
    };
    assert!(!output.status.success());
    Some(errors(&output))
}

/// Returns the free blocks, and the free blocks that all users may use.
fn space(fuse: &FuseMount) -> (u64, u64) {
    let space = statvfs(fuse.dir()).unwrap();
    (space.f_bfree, space.f_bavail)
}

#[test]
fn reserved_blocks_are_for_root() {
    for options in ["cache=direct", "cache=kernel,threads=1", "cache=writeback"] {
        let Some(fuse) = FuseMount::mounted(&["--block-size", "4096"], &format!("allow_other,{options}"))
        else {
            return;
        };
        std::fs::set_permissions(fuse.scratch().path("."), Permissions::from_mode(0o755)).unwrap();
        std::fs::set_permissions(fuse.dir(), Permissions::from_mode(0o777)).unwrap();
        let (free, available) = space(&fuse);
        let kept = free - available;
        // 5 % of 64 MiB, and the blocks kept for metadata.
        assert!(kept > 800, "{kept}");
        let Some(said) = fill(&fuse, "his") else { return };
        assert!(said.contains("No space left"), "{options}: {said}");
        let (free, available) = space(&fuse);
        // A write request of the kernel, of up to 1 MiB, is stored as a whole or not at all.
        assert!(free + 64 >= kept && available < 256, "{options}: {free}, {available}");
        // Only root can still write.
        fill(&fuse, "his too").unwrap();
        std::fs::write(fuse.path("roots"), vec![7; 1 << 20]).unwrap();
        std::fs::File::open(fuse.path("roots")).unwrap().sync_all().unwrap();
        assert!(space(&fuse).0 + 200 < free, "{options}");
        // With write-back caching, the first sync of the mount reports the lost data once more.
        let _ = rustix::fs::syncfs(std::fs::File::open(fuse.dir()).unwrap());
        umount_after_fill(&fuse, options, "/his");

        // The user named by the options can, too.
        fuse.mount(&format!("allow_other,resuid={UNPRIVILEGED},{options}"));
        fill(&fuse, "his third").unwrap();
        assert!(space(&fuse).0 + 400 < free, "{options}");
        let _ = rustix::fs::syncfs(std::fs::File::open(fuse.dir()).unwrap());
        umount_after_fill(&fuse, options, "/his third");
    }
}

/// The kernel sends what removes the file from the server's memory after it has answered unlink(2),
/// and the server may execute it after the write.
#[test]
fn a_write_finds_the_space_of_a_file_that_was_removed_before() {
    const MIB: usize = 1 << 20;
    for cache in ["kernel", "writeback", "direct"] {
        let Some(fuse) = FuseMount::mounted(&["--block-size", "4096"], &format!("cache={cache}")) else {
            return;
        };
        let (ballast, left) =
            (File::create(fuse.path("ballast")).unwrap(), space(&fuse).0 * 4096 - (4 << 20));
        fallocate(&ballast, FallocateFlags::empty(), 0, left).unwrap();
        for round in 0..5 {
            // With cache=writeback, close(2) or a sync reports that the data did not fit.
            let file = File::create(fuse.path("fill")).unwrap();
            let all = std::io::Write::write_all(&mut &file, &vec![1; 5 * MIB]).and_then(|()| file.sync_all());
            assert!(all.is_err(), "{cache}: the volume is not full");
            drop(file);
            std::fs::remove_file(fuse.path("fill")).unwrap();
            let small = File::create(fuse.path("small")).unwrap();
            small.write_all_at(&[2; 8192], 0).unwrap_or_else(|error| panic!("{cache}, {round}: {error}"));
            small.sync_all().unwrap_or_else(|error| panic!("{cache}, {round}: {error}"));
            std::fs::remove_file(fuse.path("small")).unwrap();
        }
        drop(ballast);
        let _ = syncfs(File::open(fuse.dir()).unwrap());
        fuse.finish();
    }
}

/// Unmounts after a file was filled. With write-back caching, the server has refused data that
/// write(2) had accepted.
fn umount_after_fill(fuse: &FuseMount, options: &str, file: &str) {
    if options == "cache=writeback" {
        let error = fuse.umount_loses_changes();
        assert!(error.contains(file) && error.contains("no space left on device"), "{error}");
    } else {
        fuse.umount();
    }
    fuse.scratch().fsck();
}

#[test]
fn reserved_blocks_are_for_root_in_queue_threads() {
    let Some(fuse) = FuseMount::mounted(&["--block-size", "4096"], "allow_other,cache=direct,threads=1")
    else {
        return;
    };
    std::fs::set_permissions(fuse.scratch().path("."), Permissions::from_mode(0o755)).unwrap();
    std::fs::set_permissions(fuse.dir(), Permissions::from_mode(0o777)).unwrap();
    let (free, available) = space(&fuse);
    let kept = free - available;
    // With one request thread, queue threads execute direct writes, if the writer may keep set-ID
    // bits.
    let mut command = Command::new("setpriv");
    command.args(["--inh-caps=+fsetid", "--ambient-caps=+fsetid", "--clear-groups"]);
    command.args([format!("--reuid={UNPRIVILEGED}"), format!("--regid={UNPRIVILEGED}")]);
    let to = format!("of={}", text(&fuse.path("his")));
    command.args(["dd", "if=/dev/zero", "bs=64k", "count=1200", "oflag=direct", &to]);
    let Ok(output) = command.env("LC_ALL", "C").output() else {
        return testkit::skipped("no setpriv");
    };
    assert!(errors(&output).contains("No space left"), "{}", errors(&output));
    let (free, available) = space(&fuse);
    assert!(free + 64 >= kept && available < 256, "{free}, {available}");
    fuse.finish();
}

/// Size of a block of the volumes that are filled, in bytes.
const BLOCK: u64 = 4096;

/// Allocates all free blocks but `left` to a file, which it returns.
fn fill_all_but(fuse: &FuseMount, left: u64) -> File {
    let filler = File::create(fuse.path("filler")).unwrap();
    let (mut len, mut step) = (0, 1 << 20);
    while step >= BLOCK {
        match fallocate(&filler, FallocateFlags::empty(), len, step) {
            Ok(()) => len += step,
            Err(Errno::NOSPC) => step /= 2,
            Err(error) => panic!("{error}"),
        }
    }
    filler.set_len(len - left * BLOCK).unwrap();
    syncfs(&filler).unwrap();
    filler
}

/// The kernel ignores the count of a write-back request that the volume has space for in part.
#[test]
fn a_sync_reports_write_back_that_fits_in_part() {
    let Some(fuse) = FuseMount::mounted(&["--block-size", "4096"], "cache=writeback") else { return };
    let file = File::create(fuse.path("file")).unwrap();
    let filler = fill_all_but(&fuse, 5);
    file.write_all_at(&[7; 10 * BLOCK as usize], 0).unwrap();
    assert_eq!(file.sync_all().unwrap_err().raw_os_error(), Some(libc::ENOSPC));
    filler.set_len(0).unwrap();
    // The first sync of the mount reports the lost data once more.
    let _ = syncfs(&filler);
    file.write_all_at(&[8; 10 * BLOCK as usize], 0).unwrap();
    file.sync_all().unwrap();
    drop((file, filler));
    fuse.finish();
}

/// The kernel marks pages clean that it could not write back.
#[test]
fn a_file_that_has_lost_data_does_not_replace_another_one() {
    let Some(fuse) = FuseMount::mounted(&["--block-size", "4096"], "cache=writeback") else { return };
    let (old, new) = (fuse.path("old"), fuse.path("new"));
    std::fs::write(&old, "old").unwrap();
    let file = File::create(&new).unwrap();
    let rename = |flags| renameat_with(CWD, &new, CWD, &old, flags);
    // The kernel writes back at the rename, or before it.
    for flags in [RenameFlags::empty(), RenameFlags::EXCHANGE] {
        for syncs in [false, true] {
            let filler = fill_all_but(&fuse, 5);
            file.write_all_at(&[7; 10 * BLOCK as usize], 0).unwrap();
            if syncs {
                let _ = syncfs(&filler);
            }
            for _ in 0..2 {
                assert_eq!(rename(flags), Err(Errno::NOSPC), "{flags:?}, {syncs}");
                assert_eq!(std::fs::read_to_string(&old).unwrap(), "old", "{flags:?}, {syncs}");
            }
            file.set_len(0).unwrap();
            filler.set_len(0).unwrap();
            // The first sync of the file reports the lost data, and the first one of the mount.
            assert_eq!(file.sync_all().unwrap_err().raw_os_error(), Some(libc::ENOSPC));
            let _ = syncfs(&file);
            file.sync_all().unwrap();
        }
    }
    let filler = fill_all_but(&fuse, 5);
    file.write_all_at(&[7; 10 * BLOCK as usize], 0).unwrap();
    assert_eq!(rename(RenameFlags::empty()), Err(Errno::NOSPC));
    // Nothing that was lost belongs to the file after this.
    file.set_len(0).unwrap();
    filler.set_len(0).unwrap();
    file.write_all_at(&[8; 10 * BLOCK as usize], 0).unwrap();
    rename(RenameFlags::empty()).unwrap();
    drop(filler);
    assert!(std::fs::read(&old).unwrap() == [8; 10 * BLOCK as usize]);
    let _ = syncfs(&file);
    drop(file);
    fuse.finish();
}

/// Replaces a file by one of which a mapping has data for which the volume has no space.
const REPLACE_FROM_MAPPING: &str = "
import errno, mmap, os, sys
old, new, size = *sys.argv[1:], 256 << 10
file = os.open(new, os.O_RDWR | os.O_CREAT)
os.ftruncate(file, size)
pages = mmap.mmap(file, size)
pages[:] = b'b' * size
for _ in range(2):
    try:
        os.rename(new, old)
        sys.exit('the file was replaced')
    except OSError as error:
        assert error.errno == errno.ENOSPC, error
";

#[test]
fn a_file_whose_mapping_has_lost_data_does_not_replace_another_one() {
    let Some(fuse) = FuseMount::mounted(&["--block-size", "4096"], "cache=kernel") else { return };
    std::fs::write(fuse.path("old"), "old").unwrap();
    let filler = fill_all_but(&fuse, 5);
    let mut replace = Command::new("python3");
    replace.args(["-c", REPLACE_FROM_MAPPING]).args([fuse.path("old"), fuse.path("new")]);
    if tool(&mut replace).is_none() {
        return;
    }
    assert_eq!(std::fs::read_to_string(fuse.path("old")).unwrap(), "old");
    filler.set_len(0).unwrap();
    // The first sync of the mount reports the lost data once more.
    let _ = syncfs(&filler);
    drop(filler);
    assert!(fuse.umount_loses_changes().contains("/new: no space left on device"));
    fuse.scratch().fsck();
}

/// Stores to a mapping of a file whose second half is a hole. The kernel sends all of its pages in
/// one request.
const STORE_TO_HOLE: &str = "
import errno, mmap, os, sys
path, size = sys.argv[1], 256 << 10
file = os.open(path, os.O_RDWR)
os.pwrite(file, b'a' * 4096, 0)
pages = mmap.mmap(file, size)
pages[:] = b'b' * size
try:
    pages.flush()
    sys.exit('the pages over the hole found space')
except OSError as error:
    assert error.errno == errno.ENOSPC, error
";

#[test]
fn write_back_that_needs_no_space_is_stored_on_a_full_volume() {
    for options in ["cache=kernel", "cache=kernel,threads=1", "cache=writeback"] {
        let Some(fuse) = FuseMount::mounted(&["--block-size", "4096"], options) else { return };
        let path = fuse.path("file");
        std::fs::write(&path, [b'a'; 128 << 10]).unwrap();
        File::options().write(true).open(&path).unwrap().set_len(256 << 10).unwrap();
        let filler = fill_all_but(&fuse, 0);
        if tool(Command::new("python3").args(["-c", STORE_TO_HOLE]).arg(&path)).is_none() {
            return;
        }
        filler.set_len(0).unwrap();
        // The first sync of the mount reports the lost data once more.
        let _ = syncfs(&filler);
        drop(filler);
        assert!(fuse.umount_loses_changes().contains("/file: no space left on device"), "{options}");
        fuse.mount(options);
        let stored = std::fs::read(&path).unwrap();
        assert!(stored[..128 << 10].iter().all(|&byte| byte == b'b'), "{options}");
        fuse.finish();
    }
}

#[test]
fn a_copy_that_fits_in_part_returns_how_much_it_has_copied() {
    const LEN: usize = 8 << 20;
    for options in ["cache=kernel", "cache=writeback", "cache=direct"] {
        let Some(fuse) = FuseMount::mounted(&["--block-size", "4096"], options) else { return };
        std::fs::write(fuse.path("source"), vec![7; LEN]).unwrap();
        let source = File::open(fuse.path("source")).unwrap();
        let target = File::create_new(fuse.path("target")).unwrap();
        let filler = fill_all_but(&fuse, (LEN as u64 / 2 + 100_000) / BLOCK);
        let copied = copy_file_range(&source, Some(&mut 0), &target, Some(&mut 0), LEN).unwrap();
        assert!((1..LEN).contains(&copied), "{options}: {copied} bytes");
        assert_eq!(target.metadata().unwrap().len(), copied as u64, "{options}");
        assert!(std::fs::read(fuse.path("target")).unwrap() == vec![7; copied], "{options}");
        filler.set_len(0).unwrap();
        drop((source, target, filler));
        fuse.finish();
    }
}

/// Returns the contents of a file as the server has them.
fn read_directly(path: &Path, len: usize) -> Vec<u8> {
    let file = File::options().read(true).custom_flags(libc::O_DIRECT).open(path).unwrap();
    let mut contents = AlignedBuf::zeroed(len);
    file.read_exact_at(&mut contents, 0).unwrap();
    contents.to_vec()
}

#[test]
fn after_a_copy_that_fits_in_part_the_target_reads_as_it_is_stored() {
    const LEN: usize = 1 << 20;
    for options in ["cache=kernel", "cache=writeback"] {
        let Some(fuse) = FuseMount::mounted(&["--block-size", "4096"], options) else { return };
        std::fs::write(fuse.path("source"), vec![7; LEN]).unwrap();
        let source = File::open(fuse.path("source")).unwrap();
        let target = File::create_new(fuse.path("target")).unwrap();
        target.set_len(LEN as u64).unwrap();
        // The kernel has pages with zeros.
        assert!(std::fs::read(fuse.path("target")).unwrap() == vec![0; LEN]);
        let filler = fill_all_but(&fuse, 100_000 / BLOCK);
        let copied = copy_file_range(&source, Some(&mut 0), &target, Some(&mut 0), LEN);
        let read = std::fs::read(fuse.path("target")).unwrap();
        assert!(read == read_directly(&fuse.path("target"), LEN), "{options}: {copied:?}");
        let copied = copied.unwrap();
        assert!((1..LEN).contains(&copied), "{options}: {copied} bytes");
        assert!(read[..copied].iter().all(|&byte| byte == 7) && read[copied..].iter().all(|&byte| byte == 0));
        filler.set_len(0).unwrap();
        drop((source, target, filler));
        fuse.finish();
    }
}

#[test]
fn fstrim_punches_holes_in_the_image() {
    for options in ["cache=kernel", "cache=direct,threads=1"] {
        let options = format!("allow_other,commit=3600,{options}");
        let Some(fuse) = FuseMount::mounted(&[], &options) else { return };
        std::fs::set_permissions(fuse.scratch().path("."), Permissions::from_mode(0o755)).unwrap();
        let occupied = || std::fs::metadata(fuse.scratch().image()).unwrap().blocks() * 512;
        std::fs::write(fuse.path("kept"), vec![7; 1 << 20]).unwrap();
        std::fs::write(fuse.path("gone"), vec![8; 16 << 20]).unwrap();
        // Everything is at home then, and until the next commit nothing adds blocks to the image.
        fuse.umount();
        fuse.mount(&options);
        let before = occupied();
        let (free, _) = space(&fuse);
        std::fs::remove_file(fuse.path("gone")).unwrap();
        // The kernel tells the server of the last close, which deletes the file, later than it
        // returns from close(2).
        assert!(
            testkit::poll::until(|| space(&fuse).0 >= free + (15 << 20 >> 12)),
            "the file is not deleted"
        );
        let refused = as_user(UNPRIVILEGED, &["fstrim", &text(fuse.dir())]).output();
        assert!(refused.is_err() || !refused.unwrap().status.success());
        assert_eq!(occupied(), before);
        let Some(said) = tool(Command::new("fstrim").arg("-v").arg(fuse.dir())) else { return };
        assert!(said.contains("trimmed"), "{said}");
        assert!(occupied() + (14 << 20) < before, "{options}: {} of {before}", occupied());
        assert_eq!(std::fs::read(fuse.path("kept")).unwrap(), vec![7; 1 << 20]);
        fuse.finish();
    }
}

#[test]
fn a_rename_leaves_a_whiteout() {
    let Some(fuse) = FuseMount::mounted(&[], "rw") else { return };
    std::fs::write(fuse.path("old"), "contents").unwrap();
    let rename = |flags| renameat_with(CWD, fuse.path("old"), CWD, fuse.path("new"), flags);
    rename(RenameFlags::WHITEOUT).unwrap();
    assert_eq!(std::fs::read_to_string(fuse.path("new")).unwrap(), "contents");
    for _ in 0..2 {
        let whiteout = std::fs::symlink_metadata(fuse.path("old")).unwrap();
        assert_eq!((whiteout.mode(), whiteout.rdev(), whiteout.nlink()), (0o20000, 0, 1));
        fuse.umount();
        fuse.scratch().fsck();
        fuse.mount("rw");
    }
    std::fs::remove_file(fuse.path("old")).unwrap();
    fuse.finish();
}

/// statvfs(3) and stat(2) report the block size of the volume, also if it is above the size of a
/// page.
#[test]
fn large_blocks_are_reported() {
    let Some(fuse) = FuseMount::mounted(&["--block-size", "65536"], "cache=kernel") else { return };
    std::fs::write(fuse.path("file"), [7; 100]).unwrap();
    let metadata = std::fs::metadata(fuse.path("file")).unwrap();
    std::fs::File::open(fuse.path("file")).unwrap().sync_all().unwrap();
    let space = statvfs(fuse.dir()).unwrap();
    assert_eq!((metadata.blksize(), space.f_bsize, space.f_frsize), (65536, 65536, 65536));
    assert_eq!(std::fs::metadata(fuse.path("file")).unwrap().blocks(), 128);
}

/// Writes every second block of a file, so that its extents need blocks of their own, and returns
/// the blocks that stat(2) shows then, after fsync(2), and after another mount.
fn blocks_seen(path: &Path, mount_again: impl FnOnce()) -> [u64; 3] {
    let file = File::options().read(true).write(true).create(true).truncate(true).open(path).unwrap();
    for block in (0..400).step_by(2) {
        file.write_all_at(&[b'x'; 1024], block * 1024).unwrap();
    }
    let written = file.metadata().unwrap().blocks();
    file.sync_all().unwrap();
    let synced = file.metadata().unwrap().blocks();
    fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, 1024).unwrap();
    assert!(file.metadata().unwrap().blocks() < synced);
    file.write_all_at(&[b'x'; 1024], 0).unwrap();
    file.sync_all().unwrap();
    assert_eq!(file.metadata().unwrap().blocks(), synced, "as many as before the hole was punched");
    drop(file);
    mount_again();
    [written, synced, std::fs::metadata(path).unwrap().blocks()]
}

#[test]
fn the_blocks_of_a_file_include_those_of_its_extent_tree_after_a_sync() {
    let Some(kernel) = KernelMount::mounted(&["-b", "1024"], "") else { return };
    let expected = blocks_seen(&kernel.path().join("file"), || kernel.mount_again());
    assert_eq!(expected[1], expected[2]);
    for options in ["cache=kernel", "cache=writeback", "cache=direct"] {
        let Some(fuse) = FuseMount::mounted(&["-b", "1024"], options) else { return };
        let mount_again = || {
            fuse.umount();
            fuse.mount(options);
        };
        let seen = blocks_seen(&fuse.path("file"), mount_again);
        assert_eq!(seen[1], seen[2], "{options}: {seen:?}, and on the kernel's ext4 {expected:?}");
        // With `cache=writeback` the kernel sends the data later.
        if options != "cache=writeback" {
            assert_eq!(seen[0], expected[0], "{options}");
        }
        fuse.finish();
    }
}
