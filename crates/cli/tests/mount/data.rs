//! Contents of files: all ways to write and read them.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom as StdSeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use rustix::fs::{FallocateFlags, OFlags, SeekFrom, copy_file_range, fallocate, seek};
use rustix::io::Errno;

use testkit::command::text;
use testkit::fuse_mount::{FuseMount, tool};

/// Options for each page cache, and for a server with a single thread.
const OPTIONS: [&str; 3] = ["cache=kernel", "cache=direct", "cache=writeback,threads=1"];

fn direct() -> i32 {
    i32::try_from(OFlags::DIRECT.bits()).unwrap()
}

fn both_ways(options: OpenOptions, path: &Path) -> File {
    options.clone().read(true).write(true).create(true).open(path).unwrap()
}

/// Runs fio, which writes blocks with their offsets in them and verifies them.
fn fio(dir: &Path, name: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new("fio");
    command.args([
        "--name",
        name,
        "--verify=crc32c",
        "--verify_fatal=1",
        "--verify_state_save=0",
        "--size=4m",
        "--output-format=terse",
    ]);
    command.arg("--directory").arg(dir).args(arguments);
    tool(&mut command).is_some()
}

#[test]
fn fio_verifies_its_data() {
    let jobs: [&[&str]; 6] = [
        &["--rw=randwrite", "--bs=4k", "--numjobs=4", "--direct=1", "--ioengine=libaio", "--iodepth=16"],
        &["--rw=randwrite", "--bs=4k", "--numjobs=4", "--fsync=100"],
        &["--rw=write", "--bs=1m", "--direct=1", "--numjobs=2"],
        &["--rw=randrw", "--bsrange=512-64k", "--bs_unaligned=1", "--numjobs=2"],
        &["--rw=randwrite", "--bs=4k", "--ioengine=mmap", "--numjobs=2"],
        &[
            "--rw=randwrite",
            "--bs=8k",
            "--filename=shared",
            "--numjobs=4",
            "--offset_increment=4m",
            "--direct=1",
        ],
    ];
    for options in OPTIONS {
        let Some(fuse) = FuseMount::mounted(&["--block-size", "4096"], options) else { return };
        for (nth, job) in jobs.iter().enumerate() {
            if !fio(fuse.dir(), &format!("job{nth}"), job) {
                return;
            }
            for entry in std::fs::read_dir(fuse.dir()).unwrap().map(Result::unwrap) {
                if entry.path().is_file() {
                    std::fs::remove_file(entry.path()).unwrap();
                }
            }
        }
        fuse.finish();
    }
}

#[test]
fn buffered_direct_and_mapped_use_see_each_other() {
    for options in OPTIONS {
        let Some(fuse) = FuseMount::mounted(&["--block-size", "4096"], options) else { return };
        let path = fuse.path("file");
        let cached = both_ways(OpenOptions::new(), &path);
        let past = both_ways(OpenOptions::new().custom_flags(direct()).clone(), &path);
        let mut buf = aligned(8192);
        for round in 1..20_u8 {
            cached.write_all_at(&[round; 8192], 0).unwrap();
            past.read_exact_at(&mut buf, 0).unwrap();
            assert!(buf.iter().all(|&byte| byte == round), "{options}: written through the cache");
            buf.fill(round + 100);
            past.write_all_at(&buf, 0).unwrap();
            let mut seen = [0; 8192];
            cached.read_exact_at(&mut seen, 0).unwrap();
            assert!(seen == [round + 100; 8192], "{options}: written past the cache");
        }
        drop((cached, past));
        fuse.finish();
    }
}

/// Returns memory at a multiple of 4096, as `O_DIRECT` requires.
fn aligned(len: usize) -> parext4::device::AlignedBuf {
    parext4::device::AlignedBuf::zeroed(len)
}

#[test]
fn direct_requests_are_of_whole_sectors() {
    let Some(fuse) = FuseMount::mounted(&[], "rw") else { return };
    let file = both_ways(OpenOptions::new().custom_flags(direct()).clone(), &fuse.path("file"));
    let buf = aligned(4096);
    file.write_all_at(&buf, 0).unwrap();
    for (len, offset) in [(100, 0), (4096, 100)] {
        let error = file.write_at(&buf[..len], offset).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::INVAL.raw_os_error()), "{len} bytes at {offset}");
    }
    drop(file);
    fuse.finish();
}

#[test]
fn space_is_allocated_punched_and_zeroed() {
    for options in OPTIONS {
        let Some(fuse) = FuseMount::mounted(&["--block-size", "1024"], options) else { return };
        let file = both_ways(OpenOptions::new(), &fuse.path("file"));
        file.write_all_at(&[7; 65536], 0).unwrap();
        fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 4000, 8000).unwrap();
        fallocate(&file, FallocateFlags::ZERO_RANGE, 20000, 1000).unwrap();
        fallocate(&file, FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE, 60000, 10000).unwrap();
        fallocate(&file, FallocateFlags::empty(), 65536, 4464).unwrap();
        fallocate(&file, FallocateFlags::KEEP_SIZE, 70000, 10000).unwrap();
        // FUSE has no requests for these.
        for mode in [FallocateFlags::COLLAPSE_RANGE, FallocateFlags::INSERT_RANGE] {
            assert_eq!(fallocate(&file, mode, 0, 4096), Err(Errno::OPNOTSUPP));
        }
        let mut expected = vec![7; 65536];
        expected[4000..12000].fill(0);
        expected[20000..21000].fill(0);
        expected[60000..].fill(0);
        expected.resize(70000, 0);
        let mut seen = Vec::new();
        (&file).read_to_end(&mut seen).unwrap();
        assert!(seen == expected, "{options}");
        file.sync_all().unwrap();
        let hole = seek(&file, SeekFrom::Hole(0)).unwrap();
        assert_eq!((hole, seek(&file, SeekFrom::Data(hole)).unwrap()), (4096, 11264), "{options}");
        assert!(file.metadata().unwrap().blocks() * 512 > 70000, "{options}");
        drop(file);
        fuse.finish();
    }
}

#[test]
fn data_is_found_before_it_is_written_back() {
    for options in OPTIONS {
        let Some(fuse) = FuseMount::mounted(&["--block-size", "4096"], options) else { return };
        let file = both_ways(OpenOptions::new(), &fuse.path("file"));
        file.set_len(1 << 20).unwrap();
        file.write_all_at(&[1; 4096], 65536).unwrap();
        assert_eq!(seek(&file, SeekFrom::Data(0)), Ok(65536), "{options}");
        assert_eq!(seek(&file, SeekFrom::Hole(65536)), Ok(69632), "{options}");
        assert_eq!(seek(&file, SeekFrom::Data(69632)), Err(Errno::NXIO), "{options}");
        drop(file);
        fuse.finish();
    }
}

/// Before a direct read or a copy, the kernel writes back only the range, and no page after it.
#[test]
fn an_end_of_file_that_is_not_written_back_is_found() {
    for options in OPTIONS {
        let Some(fuse) = FuseMount::mounted(&["--block-size", "4096"], options) else { return };
        let path = fuse.path("file");
        let cached = both_ways(OpenOptions::new(), &path);
        let past = both_ways(OpenOptions::new().custom_flags(direct()).clone(), &path);
        cached.write_all_at(&[1; 4096], 1 << 20).unwrap();
        let mut buf = aligned(8192);
        buf.fill(7);
        assert_eq!(past.read_at(&mut buf, 65536).unwrap(), 8192, "{options}");
        assert!(buf.iter().all(|&byte| byte == 0), "{options}");
        cached.write_all_at(&[2; 4096], 2 << 20).unwrap();
        let copy = both_ways(OpenOptions::new(), &fuse.path("copy"));
        let mut from = (1 << 20) + 4096;
        assert_eq!(copy_file_range(&cached, Some(&mut from), &copy, None, 8192), Ok(8192), "{options}");
        drop((cached, past, copy));
        fuse.finish();
    }
}

#[test]
fn ranges_are_copied_by_the_server() {
    let Some(fuse) = FuseMount::mounted(&[], "rw") else { return };
    let (from, to) =
        (both_ways(OpenOptions::new(), &fuse.path("from")), both_ways(OpenOptions::new(), &fuse.path("to")));
    let bytes: Vec<u8> = (0..3 << 20).map(|n: u32| u8::try_from(n % 251).unwrap()).collect();
    from.write_all_at(&bytes, 0).unwrap();
    let (mut at, mut put) = (1000, 77);
    while copy_file_range(&from, Some(&mut at), &to, Some(&mut put), 4 << 20).unwrap() > 0 {}
    let mut seen = Vec::new();
    (&to).read_to_end(&mut seen).unwrap();
    assert!(seen[..77] == [0; 77] && seen[77..] == bytes[1000..]);
    drop((from, to));
    fuse.finish();
}

#[test]
fn an_unlinked_file_lives_until_it_is_closed() {
    for options in OPTIONS {
        let Some(fuse) = FuseMount::mounted(&[], options) else { return };
        let free = |fuse: &FuseMount| rustix::fs::statvfs(fuse.dir()).unwrap().f_bfree;
        let before = free(&fuse);
        let mut file = both_ways(OpenOptions::new(), &fuse.path("file"));
        file.write_all(&[5; 1 << 20]).unwrap();
        std::fs::remove_file(fuse.path("file")).unwrap();
        file.write_all(&[6; 1 << 20]).unwrap();
        file.sync_all().unwrap();
        assert!(free(&fuse) < before);
        file.seek(StdSeekFrom::Start(0)).unwrap();
        let mut seen = Vec::new();
        file.read_to_end(&mut seen).unwrap();
        assert!(seen[..1 << 20] == [5; 1 << 20] && seen[1 << 20..] == [6; 1 << 20]);
        drop(file);
        fuse.umount();
        fuse.scratch().fsck();
        fuse.mount(options);
        assert_eq!(free(&fuse), before, "{options}");
        fuse.finish();
    }
}

/// Closes 3000 unlinked files at once, and waits until they are deleted.
const CLOSES: &str = "
import os, resource, sys, time
path, files = sys.argv[1], []
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
free = lambda: os.statvfs(os.path.dirname(path)).f_ffree
before = free()
for _ in range(3000):
    files.append(os.open(path, os.O_RDWR | os.O_CREAT))
    os.write(files[-1], b'x')
    os.unlink(path)
for fd in files:
    os.close(fd)
while free() < before:
    time.sleep(0.01)
";

#[test]
fn closing_many_unlinked_files_occupies_no_worker_threads() {
    let Some(fuse) = FuseMount::new(&[]) else { return };
    let mut server = fuse.serve("cache=kernel");
    let arguments = ["-c", CLOSES, &text(&fuse.path("file"))].map(str::to_owned);
    let closed = fuse.watched(|| tool(Command::new("python3").args(arguments)));
    let is_worker = |thread: std::io::Result<std::fs::DirEntry>| {
        let name = std::fs::read_to_string(thread.unwrap().path().join("comm"));
        name.is_ok_and(|name| name.starts_with("parext4-worker"))
    };
    let threads = std::fs::read_dir(format!("/proc/{}/task", server.id())).unwrap();
    let workers = threads.map(is_worker).filter(|&is_worker| is_worker).count();
    fuse.umount();
    server.wait().unwrap();
    fuse.scratch().fsck();
    assert!(closed.is_none() || workers < 100, "{workers} workers");
}

#[test]
fn appends_of_many_processes_are_all_there() {
    for options in OPTIONS {
        let Some(fuse) = FuseMount::mounted(&[], options) else { return };
        let path = text(&fuse.path("log"));
        let script = format!("for n in $(seq 200); do echo $0 >> {path}; done");
        let writers: Vec<_> = (0..6)
            .map(|n| Command::new("sh").args(["-c", &script, &n.to_string()]).spawn().unwrap())
            .collect();
        for mut writer in writers {
            assert!(writer.wait().unwrap().success());
        }
        let log = std::fs::read_to_string(&path).unwrap();
        for n in 0..6 {
            assert_eq!(log.lines().filter(|line| *line == n.to_string()).count(), 200, "{options}");
        }
        fuse.finish();
    }
}

#[test]
fn flags_take_effect() {
    for options in OPTIONS {
        let Some(fuse) = FuseMount::mounted(&[], options) else { return };
        let path = text(&fuse.path("file"));
        std::fs::write(&path, "first").unwrap();
        let chattr = |flag: &str| tool(Command::new("chattr").args([flag, &path])).is_some();
        let denied = |result: std::io::Result<()>| result.unwrap_err().raw_os_error() == Some(1);
        if !chattr("+a") {
            return;
        }
        assert!(denied(std::fs::write(&path, "other")) && denied(std::fs::remove_file(&path)));
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b" second").unwrap();
        assert!(chattr("-a") && chattr("+i"));
        assert!(denied(OpenOptions::new().append(true).open(&path).map(drop)));
        assert!(denied(std::fs::remove_file(&path)));
        let listed = tool(Command::new("lsattr").arg(&path)).unwrap();
        assert!(listed.starts_with("----i"), "{listed}");
        assert!(chattr("-i"));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "first second");
        fuse.finish();
    }
}

#[test]
fn a_write_clears_set_id_bits() {
    for options in OPTIONS {
        let Some(fuse) = FuseMount::mounted(&[], &format!("allow_other,{options}")) else { return };
        std::fs::set_permissions(fuse.scratch().path("."), PermissionsExt::from_mode(0o755)).unwrap();
        let path = text(&fuse.path("file"));
        for script in ["echo x >> $0", "echo x > $0", "truncate -s 3 $0", "echo x | dd of=$0 conv=notrunc"] {
            std::fs::write(&path, "contents").unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o6777)).unwrap();
            let mut command = Command::new("setpriv");
            command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", script, &path]);
            if tool(&mut command).is_none() {
                return;
            }
            assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o7777, 0o777, "{options}: {script}");
        }
        fuse.finish();
    }
}
