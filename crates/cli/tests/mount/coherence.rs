//! Concurrent buffered, direct and mapped use of files, and the errors of write(2). Every test runs
//! under a watchdog.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::io::Errno;

use testkit::command::text;
use testkit::fuse_mount::{FuseMount, tool, until};

const MODES: [&str; 3] = ["cache=kernel", "cache=writeback", "cache=direct"];

/// Runs a Python program with a path as its argument, and returns its output.
fn python(program: &str, path: &Path) -> Option<String> {
    tool(Command::new("python3").args(["-c", program, &text(path)]))
}

/// The kernel's ext4 returns a short count, then `ENOSPC`. So does a mount, except with
/// `cache=writeback`, where the kernel's cache accepts the data.
#[test]
fn write_reports_a_full_volume() {
    for options in ["rw", "cache=direct", "threads=1"] {
        let Some(fuse) = FuseMount::mounted(&["--block-size", "4096"], options) else { return };
        fuse.watched(|| {
            let file = File::create_new(fuse.path("file")).unwrap();
            let chunk = vec![7; 1 << 20];
            let mut len = 0;
            let error = loop {
                match file.write_at(&chunk, len) {
                    Ok(written) => len += written as u64,
                    Err(error) => break error,
                }
                assert!(len < 64 << 20, "{options}: more than the volume holds");
            };
            assert_eq!(error.raw_os_error(), Some(Errno::NOSPC.raw_os_error()), "{options}");
            assert_eq!(file.metadata().unwrap().len(), len, "{options}");
            let space = rustix::fs::statvfs(fuse.dir()).unwrap();
            assert!(space.f_bavail < 16, "{options}: {} blocks are left", space.f_bavail);
            file.sync_all().unwrap();
            assert!(std::fs::read(fuse.path("file")).unwrap().iter().all(|&byte| byte == 7), "{options}");
        });
        fuse.finish();
    }
}

/// The read request of the page fault may find the end of the file too early. Its handler must not
/// wait for the faulting page.
#[test]
fn a_page_of_a_file_opened_for_direct_access_can_be_touched() {
    for options in MODES {
        let Some(fuse) = FuseMount::mounted(&[], options) else { return };
        let path = text(&fuse.path("file"));
        let touched = fuse.watched(|| {
            let writer = File::create(&path).unwrap();
            writer.write_all_at(&[b'x'; 100], 0).unwrap();
            let commands = ["-d", "-c", "mmap -rw 0 100", "-c", "mwrite -S 0x79 0 5", "-c", "mread -v 0 10"];
            tool(Command::new("xfs_io").args(commands).args(["-c", "msync -s", &path]))
        });
        let Some(said) = touched else { return };
        assert!(said.contains("79 79 79 79 79 78 78"), "{options}: {said}");
        assert_eq!(std::fs::read(&path).unwrap(), [&[b'y'; 5][..], &[b'x'; 95]].concat(), "{options}");
        fuse.finish();
    }
}

/// More threads call lseek(2) with `SEEK_DATA` than the server has threads. Each file has a dirty
/// page that the kernel must write back first. The server is stopped until all requests are sent.
#[test]
fn more_threads_than_the_server_has_seek_data_in_dirty_files() {
    let program = "
import mmap, os, signal, sys, threading, time
COUNT, server = 700, int(sys.argv[2])
dirty, go, failed = threading.Barrier(COUNT + 1), threading.Event(), []
def ask(n):
    try:
        fd = os.open(f'{sys.argv[1]}/{n}', os.O_RDWR | os.O_CREAT)
        os.ftruncate(fd, 1 << 16)
        pages = mmap.mmap(fd, 1 << 16)
        pages[32768] = 1
        dirty.wait()
        go.wait()
        if os.lseek(fd, 0, os.SEEK_DATA) != 32768: failed.append(n)
    except OSError as error:
        failed.append((n, error))
threading.stack_size(1 << 16)
threads = [threading.Thread(target=ask, args=(n,)) for n in range(COUNT)]
[thread.start() for thread in threads]
dirty.wait()
os.kill(server, signal.SIGSTOP)
go.set()
time.sleep(0.5)
os.kill(server, signal.SIGCONT)
[thread.join() for thread in threads]
print(failed)";
    for options in ["cache=kernel,threads=2", "cache=writeback"] {
        let Some(fuse) = FuseMount::new(&["--block-size", "4096"]) else { return };
        let mut server = fuse.serve(options);
        let asked = fuse.watched(|| {
            let arguments = ["-c", program, &text(fuse.dir()), &server.id().to_string()];
            tool(Command::new("python3").args(arguments))
        });
        fuse.finish();
        assert!(server.wait().unwrap().success(), "{options}");
        let Some(failed) = asked else { return };
        assert_eq!(failed.trim(), "[]", "{options}");
    }
}

/// Asynchronous reads, as many as the kernel's limit of background requests, find the end of the
/// file too early. They wait for the kernel to write back a page after their range, and the kernel
/// must be able to send that page. The server is stopped until all reads are submitted.
#[test]
fn asynchronous_direct_reads_do_not_block_the_kernels_write_back() {
    let program = r#"
import ctypes, mmap, os, platform, signal, struct, sys
path, server, count = sys.argv[1], int(sys.argv[2]), 1024
setup, getevents, submit = {"x86_64": (206, 208, 209), "aarch64": (0, 4, 2)}[platform.machine()]
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    result = libc.syscall(number, *arguments)
    if result < 0: raise OSError(ctypes.get_errno(), f"system call {number}")
    return result
direct = os.open(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT)
cached = os.open(path, os.O_RDWR)
context = ctypes.c_ulong(0)
call(setup, count, ctypes.byref(context))
pages = mmap.mmap(-1, count * 4096)
address = ctypes.addressof(ctypes.c_char.from_buffer(pages))
def block(n):
    fields = (n, 0, 0, 0, 0, direct, address + n * 4096, 4096, n * 4096, 0, 0, 0)
    return ctypes.create_string_buffer(struct.pack("<QIIHhIQQqQII", *fields), 64)
blocks = [block(n) for n in range(count)]
table = (ctypes.c_void_p * count)(*[ctypes.addressof(block) for block in blocks])
os.pwrite(cached, b"x" * 4096, 64 << 20)
os.kill(server, signal.SIGSTOP)
try:
    assert call(submit, context, ctypes.c_long(count), table) == count
finally:
    os.kill(server, signal.SIGCONT)
events = ctypes.create_string_buffer(32 * count)
assert call(getevents, context, ctypes.c_long(count), ctypes.c_long(count), events, None) == count
results = [struct.unpack_from("<QQqq", events, 32 * n)[2] for n in range(count)]
assert set(results) <= {4096, -11} and results.count(4096) > 0, set(results)"#;
    let Some(fuse) = FuseMount::new(&["--block-size", "4096"]) else { return };
    let mut server = fuse.serve("cache=writeback");
    let arguments = ["-c", program, &text(&fuse.path("file")), &server.id().to_string()].map(str::to_owned);
    fuse.watched(|| tool(Command::new("python3").args(arguments)));
    fuse.umount();
    server.wait().unwrap();
}

/// Writes to a file that is mapped and has become immutable, and waits until the mapping shows the
/// old data again.
const REFUSED: &str = "
import mmap, os, subprocess, sys, time
path = sys.argv[1]
fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
os.write(fd, b'a' * 16384)
pages = mmap.mmap(fd, 16384, mmap.MAP_SHARED, mmap.PROT_READ)
assert pages[:] == b'a' * 16384
subprocess.run(['chattr', '+i', path], check=True)
# A change of flags has the kernel drop the pages.
time.sleep(0.2)
assert pages[:] == b'a' * 16384
try:
    os.pwrite(fd, b'b' * 6000, 3000)
    sys.exit('the write succeeded')
except PermissionError:
    pass
for _ in range(6000):
    if pages[:] == b'a' * 16384:
        break
    time.sleep(0.01)
assert pages[:] == b'a' * 16384
subprocess.run(['chattr', '-i', path], check=True)
";

#[test]
fn a_mapping_does_not_keep_the_data_of_a_refused_write() {
    for options in ["cache=kernel", "cache=kernel,threads=1"] {
        let Some(fuse) = FuseMount::mounted(&[], options) else { return };
        let path = fuse.path("file");
        if fuse.watched(|| python(REFUSED, &path)).is_none() {
            return;
        }
        fuse.finish();
    }
}

/// When the server is killed, its threads that wait for the kernel to write back keep `/dev/fuse`
/// open.
#[test]
fn a_killed_server_leaves_no_hung_mount() {
    let program = "
import os, sys, threading
def ask(n):
    try:
        fd = os.open(f'{sys.argv[1]}/{n}', os.O_RDWR | os.O_CREAT)
        while True:
            os.pwrite(fd, b'x' * 65536, 65536)
            os.lseek(fd, 0, os.SEEK_DATA)
    except OSError as error:
        pass
threading.stack_size(1 << 16)
threads = [threading.Thread(target=ask, args=(n,)) for n in range(100)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]";
    let Some(fuse) = FuseMount::new(&["--block-size", "4096"]) else { return };
    let mut server = fuse.serve("cache=writeback");
    fuse.watched(|| {
        std::thread::scope(|scope| {
            let asking = scope.spawn(|| python(program, fuse.dir()));
            let begun = until(|| fuse.path("99").exists() || asking.is_finished());
            std::thread::sleep(Duration::from_millis(300));
            server.kill().unwrap();
            server.wait().unwrap();
            let asked = asking.join().unwrap();
            assert!(begun || asked.is_none());
        });
        assert!(File::open(fuse.path("1")).is_err());
    });
    fuse.umount();
}

/// A page that is filled during a direct write must not keep the old data.
#[test]
fn a_buffered_reader_sees_asynchronous_direct_writes() {
    for options in ["cache=kernel,threads=1", "cache=writeback"] {
        let Some(fuse) = FuseMount::mounted(&["--block-size", "4096"], options) else { return };
        let path = fuse.path("file");
        let written = fuse.watched(|| {
            std::fs::write(&path, vec![7; 16 << 20]).unwrap();
            let mut fio = Command::new("fio");
            fio.args([
                "--size=16m",
                "--bs=4k",
                "--invalidate=0",
                "--output-format=terse",
                "--thread",
                "--exitall",
            ]);
            fio.arg(format!("--filename={}", text(&path)));
            // Writes each page once, so that no later write hides a stale page. The readers
            // overtake the writer early.
            fio.args(["--name=write", "--rw=write", "--direct=1", "--ioengine=libaio", "--iodepth=64"]);
            fio.args(["--name=read", "--rw=read", "--direct=0", "--ioengine=psync"]);
            fio.args(["--numjobs=3", "--loops=10000"]);
            tool(&mut fio)
        });
        if written.is_none() {
            return;
        }
        // Before the file is opened for direct access, because that drops the kernel's pages.
        let seen = std::fs::read(&path).unwrap();
        let direct = fuse.scratch().path("direct");
        let copy = [format!("if={}", text(&path)), format!("of={}", text(&direct))];
        if tool(Command::new("dd").args(copy).args(["iflag=direct", "bs=1M"])).is_none() {
            return;
        }
        let stored = std::fs::read(&direct).unwrap();
        let stale =
            seen.chunks(4096).zip(stored.chunks(4096)).filter(|(seen, stored)| seen != stored).count();
        assert_eq!((seen.len(), stale), (stored.len(), 0), "{options}: stale pages");
        fuse.finish();
    }
}
