//! Times and generations of inodes.

use std::fs::{File, FileTimes};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{
    AtFlags, CWD, IFlags, OFlags, Timespec, Timestamps, copy_file_range, ioctl_getflags, ioctl_setflags,
    utimensat,
};
use rustix::io::Errno;

use testkit::fuse_mount::{FuseMount, tool};
use testkit::kernel_mount::KernelMount;

/// Sets the time of last access, reads the file, and returns true if the read has changed the time.
fn read_is_noted(path: &Path, atime: SystemTime) -> bool {
    File::open(path).unwrap().set_times(FileTimes::new().set_accessed(atime)).unwrap();
    assert_eq!(std::fs::read(path).unwrap(), b"contents");
    // The kernel asks the server for the time of last access.
    std::fs::metadata(path).unwrap().accessed().unwrap() != atime
}

#[test]
fn reads_update_the_time_of_last_access_as_the_options_say() {
    let long_ago = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let future = SystemTime::now() + Duration::from_hours(1);
    for (options, noted) in
        [("noatime", [false, false]), ("relatime", [true, false]), ("strictatime", [true, true])]
    {
        let options = format!("cache=direct,{options}");
        let Some(fuse) = FuseMount::mounted(&[], &options) else { return };
        std::fs::write(fuse.path("file"), "contents").unwrap();
        for (atime, noted) in [long_ago, future].into_iter().zip(noted) {
            assert_eq!(read_is_noted(&fuse.path("file"), atime), noted, "{options}");
        }
        fuse.finish();
    }
}

/// The kernel has pages of the file.
#[test]
fn with_strictatime_each_read_updates_the_time_of_last_access() {
    let future = SystemTime::now() + Duration::from_hours(1);
    for options in ["strictatime", "strictatime,cache=kernel", "strictatime,cache=writeback"] {
        let Some(fuse) = FuseMount::mounted(&[], options) else { return };
        let path = fuse.path("file");
        std::fs::write(&path, "contents").unwrap();
        for _ in 0..3 {
            assert!(read_is_noted(&path, future), "{options}");
        }
        fuse.finish();
    }
}

#[test]
fn times_survive_to_the_nanosecond_beyond_2038() {
    for options in ["cache=kernel", "cache=writeback", "cache=direct"] {
        let Some(fuse) = FuseMount::mounted(&[], options) else { return };
        let path = fuse.path("file");
        let file = File::create(&path).unwrap();
        (&file).write_all(b"contents").unwrap();
        let mtime = UNIX_EPOCH + Duration::new(5_000_000_000, 123_456_789);
        file.set_times(FileTimes::new().set_modified(mtime).set_accessed(mtime)).unwrap();
        drop(file);
        for _ in 0..2 {
            let metadata = std::fs::metadata(&path).unwrap();
            assert_eq!((metadata.mtime(), metadata.mtime_nsec()), (5_000_000_000, 123_456_789), "{options}");
            assert_eq!((metadata.atime(), metadata.atime_nsec()), (5_000_000_000, 123_456_789), "{options}");
            fuse.umount();
            fuse.mount(options);
        }
        fuse.finish();
    }
}

#[test]
fn a_write_sets_the_time_of_the_write() {
    for options in ["cache=kernel", "cache=writeback", "cache=direct"] {
        let Some(fuse) = FuseMount::mounted(&[], options) else { return };
        let before = SystemTime::now() - Duration::from_millis(20);
        std::fs::write(fuse.path("file"), "contents").unwrap();
        let seen = std::fs::metadata(fuse.path("file")).unwrap().modified().unwrap();
        assert!(before <= seen && seen <= SystemTime::now() + Duration::from_millis(20), "{options}");
        fuse.umount();
        fuse.mount(options);
        let again = std::fs::metadata(fuse.path("file")).unwrap().modified().unwrap();
        assert_eq!(again, seen, "{options}");
        fuse.finish();
    }
}

/// The kernel's write-back may arrive after the time of modification that the kernel has sent, also
/// through a direct handle.
#[test]
fn late_write_back_does_not_change_the_time() {
    let Some(fuse) = FuseMount::mounted(&[], "cache=writeback") else { return };
    let files: Vec<_> = (0..200).map(|number| fuse.path(&format!("file{number}"))).collect();
    let times = || -> Vec<_> {
        files.iter().map(|path| std::fs::metadata(path).unwrap().modified().unwrap()).collect()
    };
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let root = File::open(fuse.dir()).unwrap();
            while !over.load(Ordering::Relaxed) {
                // Starts write-back of all pages before it waits for any.
                rustix::fs::syncfs(&root).unwrap();
            }
        });
        for path in &files {
            let mut file = File::create(path).unwrap();
            let direct = File::options()
                .write(true)
                .custom_flags(OFlags::DIRECT.bits().cast_signed())
                .open(path)
                .unwrap();
            file.write_all(&[1; 40_000]).unwrap();
            drop((file, direct));
        }
        over.store(true, Ordering::Relaxed);
    });
    let seen = times();
    fuse.umount();
    fuse.mount("cache=writeback");
    let again = times();
    let other = (0..files.len()).filter(|&file| again[file] != seen[file]).count();
    assert_eq!(other, 0, "files have another date than before");
    fuse.finish();
}

/// The kernel sends the time of modification after the file has become immutable.
#[test]
fn a_file_that_becomes_immutable_during_a_write_gets_the_time() {
    for flag in [IFlags::APPEND, IFlags::IMMUTABLE] {
        let Some(fuse) = FuseMount::mounted(&[], "cache=writeback") else { return };
        let path = fuse.path("file");
        let mut file = File::create(&path).unwrap();
        file.set_modified(UNIX_EPOCH).unwrap();
        file.sync_all().unwrap();
        let before = SystemTime::now() - Duration::from_millis(20);
        file.write_all(b"contents").unwrap();
        ioctl_setflags(&file, ioctl_getflags(&file).unwrap() | flag).unwrap();
        drop(file);
        fuse.umount();
        fuse.mount("cache=writeback");
        assert!(std::fs::metadata(&path).unwrap().modified().unwrap() >= before);
        let file = File::open(&path).unwrap();
        ioctl_setflags(&file, ioctl_getflags(&file).unwrap() - flag).unwrap();
        drop(file);
        fuse.finish();
    }
}

/// Copies to an immutable file by a handle from before, and returns the error and the times of the
/// file before and after.
fn copy_to_immutable(dir: &Path, mount_again: impl FnOnce()) -> (Errno, [[i64; 4]; 2]) {
    let (source, path) = (dir.join("source"), dir.join("target"));
    let times = || {
        let metadata = std::fs::metadata(&path).unwrap();
        [metadata.mtime(), metadata.mtime_nsec(), metadata.ctime(), metadata.ctime_nsec()]
    };
    std::fs::write(&source, "contents").unwrap();
    let (from, to) = (File::open(&source).unwrap(), File::create(&path).unwrap());
    let set = |file: &File, flag| ioctl_setflags(file, ioctl_getflags(file).unwrap() ^ flag).unwrap();
    set(&to, IFlags::IMMUTABLE);
    let before = times();
    std::thread::sleep(Duration::from_millis(20));
    let error = copy_file_range(&from, Some(&mut 0), &to, Some(&mut 0), 8).unwrap_err();
    drop((from, to));
    mount_again();
    let after = times();
    set(&File::open(&path).unwrap(), IFlags::IMMUTABLE);
    (error, [before, after])
}

#[test]
fn a_copy_to_an_immutable_file_changes_no_times() {
    for options in ["cache=kernel", "cache=direct"] {
        let Some(fuse) = FuseMount::mounted(&[], options) else { return };
        let mount_again = || {
            fuse.umount();
            fuse.mount(options);
        };
        let (error, [before, after]) = copy_to_immutable(fuse.dir(), mount_again);
        assert_eq!((error, after), (Errno::PERM, before), "{options}");
        fuse.finish();
    }
    let Some(kernel) = KernelMount::mounted(&[], "") else { return };
    let (error, [before, after]) = copy_to_immutable(&kernel.path(), || kernel.mount_again());
    assert_eq!((error, after), (Errno::PERM, before), "ext4");
}

#[test]
fn a_reused_inode_number_has_another_generation() {
    let Some(fuse) = FuseMount::mounted(&[], "rw") else { return };
    let path = fuse.path("file");
    let inode = || {
        std::fs::write(&path, "contents").unwrap();
        let generation = tool(Command::new("lsattr").arg("-v").arg(&path))?;
        Some((
            std::fs::metadata(&path).unwrap().ino(),
            generation.split_whitespace().next().unwrap().to_owned(),
        ))
    };
    let Some((number, generation)) = inode() else { return };
    // The number is free once the kernel has forgotten the inode.
    let again = (0..1000).find_map(|_| {
        std::fs::remove_file(&path).unwrap();
        inode().filter(|(again, _)| *again == number)
    });
    assert_ne!(again.expect("the number is used again").1, generation);
    fuse.finish();
}

/// The kernel rounds times that it sets and that it gets from the server, so a time does not change
/// when the kernel asks again.
#[test]
fn times_of_small_inodes_have_no_nanoseconds() {
    for options in ["cache=kernel", "cache=direct"] {
        let Some(fuse) = FuseMount::new(&[]) else { return };
        let mut mke2fs = Command::new("mke2fs");
        mke2fs.args(["-q", "-F", "-t", "ext4", "-I", "128"]).arg(fuse.scratch().image());
        let Some(_) = tool(&mut mke2fs) else { return };
        fuse.mount(options);
        let path = fuse.path("file");
        std::fs::write(&path, "contents").unwrap();
        let set = UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
        File::open(&path).unwrap().set_times(FileTimes::new().set_accessed(set)).unwrap();
        let times = || {
            let metadata = std::fs::metadata(&path).unwrap();
            let of = |time: std::io::Result<SystemTime>| time.unwrap().duration_since(UNIX_EPOCH).unwrap();
            (of(metadata.accessed()), of(metadata.modified()), metadata.ctime(), metadata.ctime_nsec())
        };
        let seen = times();
        assert_eq!(
            (seen.0, seen.1.subsec_nanos(), seen.3),
            (Duration::from_secs(1_000_000_000), 0, 0),
            "{options}"
        );
        fuse.umount();
        fuse.mount(options);
        assert_eq!(times(), seen, "{options}");
        fuse.finish();
    }
}

#[test]
fn the_least_and_the_largest_time_are_stored_as_the_nearest_that_ext4_has() {
    let Some(fuse) = FuseMount::mounted(&[], "") else { return };
    let path = fuse.path("file");
    std::fs::write(&path, "").unwrap();
    for (seconds, stored) in [(i64::MIN, i64::from(i32::MIN)), (i64::MAX, (1 << 34) - (1 << 31) - 1)] {
        let time = Timespec { tv_sec: seconds, tv_nsec: 0 };
        let times = Timestamps { last_access: time, last_modification: time };
        utimensat(CWD, &path, &times, AtFlags::empty()).unwrap();
        let metadata = std::fs::metadata(&path).unwrap();
        assert_eq!([metadata.atime(), metadata.mtime()], [stored; 2], "{seconds}");
    }
    fuse.finish();
}
