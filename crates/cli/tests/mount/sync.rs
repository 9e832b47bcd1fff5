//! The options `sync` and `dirsync`, and handles opened with `O_SYNC` or `O_DSYNC`: a crash after a
//! call does not undo it.

use std::fs::{File, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::Path;
use std::process::{Command, Stdio};

use parext4::{InodeFlags, InodeRef, Volume};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, IFlags, OFlags, Timespec, Timestamps, XattrFlags, copy_file_range,
    fallocate, ioctl_getflags, ioctl_setflags, removexattr, setxattr, utimensat,
};

use testkit::command::text;
use testkit::fuse_mount::FuseMount;
use testkit::skipped;

/// Size of a file that was allocated, in bytes.
const ALLOCATED: u64 = 1 << 20;
/// Size of a file after a copy, in bytes.
const COPIED: u64 = 3 << 20;

/// Its namesake in rustix has the value of `O_SYNC`.
const DSYNC: OFlags = OFlags::from_bits_retain(libc::O_DSYNC.cast_unsigned());

/// A change of a path, and whether a volume has it.
type Change = (fn(&Path), fn(&InodeRef) -> bool);

fn open(path: &Path, flags: OFlags) -> File {
    File::options().read(true).write(true).custom_flags(flags.bits().cast_signed()).open(path).unwrap()
}

fn allocate(file: &File) {
    fallocate(file, FallocateFlags::empty(), 0, ALLOCATED).unwrap();
}

/// Copies the first byte of a file to its end.
fn copy(file: &File) {
    assert_eq!(copy_file_range(file, Some(&mut 0), file, Some(&mut (COPIED - 1)), 1), Ok(1));
}

fn set_mtime(path: &Path) {
    let time = Timespec { tv_sec: 77, tv_nsec: 0 };
    let times = Timestamps { last_access: time, last_modification: time };
    utimensat(CWD, path, &times, AtFlags::empty()).unwrap();
}

fn toggle_nodump(path: &Path) {
    let file = File::open(path).unwrap();
    ioctl_setflags(&file, ioctl_getflags(&file).unwrap() ^ IFlags::NODUMP).unwrap();
}

/// Makes a change of the file or directory `name`, and asserts that a copy of the image, which is
/// as a crash would leave it, has it.
fn assert_durable(fuse: &FuseMount, name: &str, (change, has_it): Change, what: &str) {
    change(&fuse.path(name));
    fuse.scratch().fetch();
    let copy = fuse.scratch().path("crashed.img");
    std::fs::copy(fuse.scratch().image(), &copy).unwrap();
    let volume = Volume::open(&copy).unwrap();
    let node = volume.resolve(Path::new("/").join(name)).unwrap();
    assert!(has_it(&node), "{what}");
    volume.close().unwrap();
}

#[test]
fn every_change_of_a_synchronous_mount_is_durable() {
    let changes: [(&str, Change); 10] = [
        (
            "permissions",
            (
                |path| std::fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap(),
                |node| node.metadata().permissions == 0o600,
            ),
        ),
        ("owner", (|path| chown(path, Some(7), None).unwrap(), |node| node.metadata().uid == 7)),
        ("times", (set_mtime, |node| node.metadata().mtime.seconds == 77)),
        (
            "size",
            (|path| open(path, OFlags::empty()).set_len(100).unwrap(), |node| node.metadata().size == 100),
        ),
        (
            "allocation",
            (|path| allocate(&open(path, OFlags::empty())), |node| node.metadata().size == ALLOCATED),
        ),
        ("copy", (|path| copy(&open(path, OFlags::empty())), |node| node.metadata().size == COPIED)),
        (
            "truncation by open(2)",
            (
                |path| drop(File::options().write(true).truncate(true).open(path).unwrap()),
                |node| node.metadata().size == 0,
            ),
        ),
        (
            "attribute",
            (
                |path| setxattr(path, "user.name", b"value", XattrFlags::empty()).unwrap(),
                |node| node.get_xattr(b"user.name").unwrap().is_some(),
            ),
        ),
        (
            "removal of an attribute",
            (
                |path| removexattr(path, "user.name").unwrap(),
                |node| node.get_xattr(b"user.name").unwrap().is_none(),
            ),
        ),
        ("flags", (toggle_nodump, |node| node.flags().contains(InodeFlags::NODUMP))),
    ];
    for options in ["sync,commit=300", "sync,commit=300,threads=1", "sync,commit=300,cache=direct"] {
        let Some(fuse) = FuseMount::mounted(&[], options) else { return };
        std::fs::write(fuse.path("file"), vec![1; 10_000]).unwrap();
        for (what, change) in changes {
            assert_durable(&fuse, "file", change, &format!("{options}: {what}"));
        }
        fuse.finish();
    }
}

#[test]
fn changes_of_directories_are_durable_with_dirsync() {
    let Some(fuse) = FuseMount::mounted(&[], "dirsync,commit=300") else { return };
    std::fs::create_dir(fuse.path("dir")).unwrap();
    let change: Change = (toggle_nodump, |node| node.flags().contains(InodeFlags::NODUMP));
    assert_durable(&fuse, "dir", change, "flags");
    fuse.finish();
}

#[test]
fn allocations_and_copies_by_synchronous_handles_are_durable() {
    let Some(fuse) = FuseMount::mounted(&[], "commit=300") else { return };
    let changes: [(&str, Change); 4] = [
        ("sync", (|path| allocate(&open(path, OFlags::SYNC)), |node| node.metadata().size == ALLOCATED)),
        ("sync", (|path| copy(&open(path, OFlags::SYNC)), |node| node.metadata().size == COPIED)),
        ("dsync", (|path| allocate(&open(path, DSYNC)), |node| node.metadata().size == ALLOCATED)),
        ("dsync", (|path| copy(&open(path, DSYNC)), |node| node.metadata().size == COPIED)),
    ];
    for (name, change) in changes {
        if !fuse.path(name).exists() {
            let file = File::create_new(fuse.path(name)).unwrap();
            file.write_all_at(&[1; 100], 0).unwrap();
            file.sync_all().unwrap();
            File::open(fuse.dir()).unwrap().sync_all().unwrap();
        }
        assert_durable(&fuse, name, change, name);
    }
    fuse.finish();
}

/// Stores to 40 files by write(2) or through mappings, and syncs the root directory. Keeps the
/// files open until its input ends.
const STORES: &str = "
import mmap, os, sys
root, how = sys.argv[1:]
data, kept = b'x' * 10000, []
for nth in range(40):
    fd = os.open(f'{root}/{nth}', os.O_RDWR | os.O_CREAT)
    if how == 'write':
        os.write(fd, data)
    else:
        os.ftruncate(fd, len(data))
        pages = mmap.mmap(fd, len(data))
        pages[:] = data
        kept.append(pages)
os.fsync(os.open(root, os.O_RDONLY))
print('synced', flush=True)
sys.stdin.read()
";

#[test]
fn a_sync_of_the_root_makes_durable_what_only_the_kernel_has() {
    for (options, how) in [("cache=writeback", "write"), ("cache=kernel", "store"), ("threads=1", "store")] {
        let Some(fuse) = FuseMount::mounted(&[], &format!("{options},commit=300")) else { return };
        let mut python = Command::new("python3");
        python.args(["-c", STORES, &text(fuse.dir()), how]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let Ok(mut program) = python.spawn() else { return skipped("python3 is not installed") };
        let said = BufReader::new(program.stdout.take().unwrap()).lines().next();
        assert_eq!(said.map(Result::unwrap).as_deref(), Some("synced"), "{options}");
        fuse.scratch().fetch();
        let copy = fuse.scratch().path("crashed.img");
        std::fs::copy(fuse.scratch().image(), &copy).unwrap();
        drop(program.stdin.take());
        program.wait().unwrap();
        let volume = Volume::open(&copy).unwrap();
        for nth in 0..40 {
            let data = volume.read(format!("/{nth}")).unwrap();
            assert!(data == [b'x'; 10_000], "{options}: {} bytes of file {nth}", data.len());
        }
        volume.close().unwrap();
        fuse.finish();
    }
}
