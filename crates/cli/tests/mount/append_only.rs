//! Operations on append-only files.

use std::fs::{File, FileTimes, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt, chown};
use std::process::Command;
use std::time::SystemTime;

use rustix::fs::{
    AtFlags, CWD, OFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, copy_file_range, fcntl_getfl,
    fcntl_setfl, utimensat,
};
use rustix::io::Errno;

use crate::user::as_unprivileged;
use testkit::fuse_mount::{FuseMount, tool};

/// Appends records of numbered sectors until the volume is full. The page cache is so small that
/// parts of a record are written back while the rest is copied.
#[test]
fn appends_to_a_full_volume_are_stored_as_write_reports() {
    let Some(fuse) = FuseMount::mounted(&[], "page_cache=256K") else { return };
    let path = fuse.path("log");
    File::create(&path).unwrap();
    tool(Command::new("chattr").arg("+a").arg(&path));
    let mut file = File::options().append(true).open(&path).unwrap();
    let mut stored: Vec<u8> = Vec::new();
    for record in 0_u32.. {
        let data: Vec<u8> = (0..512).flat_map(|nth| (record * 512 + nth).to_le_bytes().repeat(128)).collect();
        match file.write(&data) {
            Ok(written) => stored.extend(&data[..written]),
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(Errno::NOSPC.raw_os_error()));
                break;
            }
        }
    }
    let seen = std::fs::read(&path).unwrap();
    assert_eq!(seen.len(), stored.len(), "the size of the file and the sum of what write(2) returned");
    drop(file);
    let differs = seen.iter().zip(&stored).position(|(seen, stored)| seen != stored);
    assert_eq!(differs, None, "the first byte that differs");
    tool(Command::new("chattr").arg("-a").arg(&path));
    fuse.finish();
}

#[test]
fn an_append_only_file_is_read_at_any_length_and_touched() {
    for options in ["cache=kernel", "cache=writeback", "cache=direct"] {
        let Some(fuse) = FuseMount::mounted(&[], &format!("allow_other,{options}")) else { return };
        std::fs::set_permissions(fuse.scratch().path("."), Permissions::from_mode(0o755)).unwrap();
        let path = fuse.path("log");
        let contents: Vec<u8> = (0..70_000_u32).map(|byte| byte.to_le_bytes()[0]).collect();
        std::fs::write(&path, &contents).unwrap();
        chown(&path, Some(65534), Some(65534)).unwrap();
        tool(Command::new("chattr").arg("+a").arg(&path));
        as_unprivileged(|| {
            let mut file = File::options().read(true).append(true).open(&path).unwrap();
            for (offset, len) in [(0, 1), (0, 100), (512, 511), (4096, 5000), (3, 513), (65_536, 4464)] {
                let mut read = vec![0; len];
                file.read_exact_at(&mut read, offset as u64).unwrap();
                assert_eq!(read, contents[offset..offset + len], "{options}, {len} bytes at {offset}");
            }
            file.write_all(b"more").unwrap();
            let mut all = Vec::new();
            File::open(&path).unwrap().read_to_end(&mut all).unwrap();
            assert_eq!(all, [&contents[..], b"more"].concat(), "{options}");

            let set = |atime, mtime| {
                let time = |tv_nsec| Timespec { tv_sec: 0, tv_nsec };
                let times = Timestamps { last_access: time(atime), last_modification: time(mtime) };
                utimensat(CWD, &path, &times, AtFlags::empty())
            };
            let before = std::fs::metadata(&path).unwrap().modified().unwrap();
            std::thread::sleep(std::time::Duration::from_millis(12));
            assert_eq!(set(UTIME_NOW, UTIME_NOW), Ok(()), "{options}");
            assert!(std::fs::metadata(&path).unwrap().modified().unwrap() > before, "{options}");
            // As on the kernel's ext4, the only permitted change is both times to the current time.
            for (atime, mtime) in [(0, 0), (UTIME_NOW, UTIME_OMIT), (UTIME_OMIT, 0), (UTIME_NOW, 0)] {
                assert_eq!(set(atime, mtime), Err(Errno::PERM), "{options}, {atime} {mtime}");
            }
            let times = FileTimes::new().set_accessed(SystemTime::now());
            assert!(File::open(&path).unwrap().set_times(times).is_err());
        });
        tool(Command::new("chattr").arg("-a").arg(&path));
        fuse.finish();
    }
}

/// A program has the file open and mapped before it becomes append-only, and opens it again
/// afterwards. Writes by both handles append. Data stored to a mapping goes to its own offset, also
/// through the later handle, which is mapped once the file is no longer append-only, and when it is
/// append-only again.
const HELD_FROM_BEFORE: &str = "
import mmap, os, subprocess, sys
path = sys.argv[1]
mapped = os.open(path, os.O_RDWR)
memory = mmap.mmap(mapped, 8192)
before = os.open(path, os.O_WRONLY | os.O_APPEND)
subprocess.run(['chattr', '+a', path], check=True)
after = os.open(path, os.O_RDWR | os.O_APPEND)
memory[4096:4100] = b'page'
for handle in before, after, before:
    os.write(handle, b'line')
memory.flush()
os.fsync(after)
memory.close()
os.close(mapped)
subprocess.run(['chattr', '-a', path], check=True)
memory = mmap.mmap(after, 8192)
memory[:5] = b'later'
memory.flush()
subprocess.run(['chattr', '+a', path], check=True)
memory[5:10] = b'again'
memory.flush()
assert os.stat(path).st_size == 8192 + 12, os.stat(path).st_size
";

#[test]
fn older_handles_append_to_a_file_that_becomes_append_only() {
    // With `cache=writeback` fsync(2) fails here: the kernel sets the time of modification, which
    // is refused. With `uid` the file has set-ID bits that it does not show, and that go when the
    // kernel writes its pages back.
    for options in ["cache=kernel", "cache=direct", "cache=kernel,uid=1000"] {
        let Some(fuse) = FuseMount::mounted(&[], "rw") else { return };
        let path = fuse.path("log");
        std::fs::write(&path, [b'x'; 8192]).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o4755)).unwrap();
        fuse.umount();
        fuse.mount(options);
        let run = || tool(Command::new("python3").args(["-c", HELD_FROM_BEFORE]).arg(&path));
        if fuse.watched(run).is_none() {
            return;
        }
        let mut expected = vec![b'x'; 8192];
        expected[4096..4100].copy_from_slice(b"page");
        expected[..10].copy_from_slice(b"lateragain");
        expected.extend_from_slice(b"linelineline");
        assert_eq!(std::fs::read(&path).unwrap(), expected, "{options}");
        fuse.finish();
    }
}

/// Over FUSE a program can clear `O_APPEND` of a handle of an append-only file, which ext4 refuses
/// (`EPERM`).
#[test]
fn a_handle_without_o_append_does_not_write_to_an_append_only_file() {
    for options in ["cache=kernel", "cache=writeback", "cache=direct"] {
        let Some(fuse) = FuseMount::mounted(&[], options) else { return };
        let path = fuse.path("log");
        std::fs::write(&path, "contents").unwrap();
        if tool(Command::new("chattr").arg("+a").arg(&path)).is_none() {
            return;
        }
        for flags in [OFlags::empty(), OFlags::DIRECT] {
            let flags = flags.bits().cast_signed();
            let mut log = File::options().append(true).custom_flags(flags).open(&path).unwrap();
            let others = fcntl_getfl(&log).unwrap() - OFlags::APPEND;
            fcntl_setfl(&log, others).unwrap();
            let data = vec![b'x'; 8192];
            let sector = &data[data.as_ptr().align_offset(4096)..][..4096];
            let error = log.write(sector).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(Errno::PERM.raw_os_error()), "{options}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), "contents", "{options}");
            // Once the file may be overwritten, the handle writes at its own offset.
            tool(Command::new("chattr").arg("-a").arg(&path));
            log.write_all(sector).unwrap();
            assert_eq!(std::fs::metadata(&path).unwrap().len(), 4096, "{options}");
            std::fs::write(&path, "contents").unwrap();
            tool(Command::new("chattr").arg("+a").arg(&path));
        }
        tool(Command::new("chattr").arg("-a").arg(&path));
        fuse.finish();
    }
}

/// The kernel then sends a copy to the file, too.
#[test]
fn a_copy_does_not_overwrite_an_append_only_file() {
    for options in ["cache=kernel", "cache=writeback", "cache=direct"] {
        let Some(fuse) = FuseMount::mounted(&[], options) else { return };
        let path = fuse.path("log");
        std::fs::write(&path, "contents").unwrap();
        std::fs::write(fuse.path("source"), "other").unwrap();
        if tool(Command::new("chattr").arg("+a").arg(&path)).is_none() {
            return;
        }
        let log = File::options().append(true).open(&path).unwrap();
        fcntl_setfl(&log, OFlags::empty()).unwrap();
        let source = File::open(fuse.path("source")).unwrap();
        let copied = copy_file_range(&source, Some(&mut 0), &log, Some(&mut 0), 5);
        assert_eq!(copied, Err(Errno::PERM), "{options}");
        drop((log, source));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "contents", "{options}");
        tool(Command::new("chattr").arg("-a").arg(&path));
        fuse.finish();
    }
}
