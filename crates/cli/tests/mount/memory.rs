//! The server's memory does not grow with the inodes that the kernel knows, nor with the requests
//! that it sends. Unlinked inodes stay until the kernel forgets them.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;
use std::sync::PoisonError;

use rustix::fs::{Mode, OFlags, fstat, open, openat};
use serde_json::Value;

use crate::file_handles::KERNEL_CACHES;
use testkit::command::text;
use testkit::fuse_mount::{FuseMount, tool};

fn metadata_facts(fuse: &FuseMount) -> Value {
    let report: Value =
        serde_json::from_str(&fuse.scratch().ok(&["stat", "--json", &text(fuse.dir())])).unwrap();
    report["metadata"].clone()
}

#[test]
fn directories_that_the_kernel_knows_stay_within_the_budget() {
    const COUNT: u64 = 2000;
    const BUDGET: u64 = 1 << 20;
    // Updates of the times of last access would pin each directory until a commit.
    let options = "metadata_cache=1M,noatime";
    let Some(fuse) = FuseMount::mounted(&["--block-size", "1024"], options) else { return };
    for nth in 0..COUNT {
        fs::create_dir(fuse.path(&nth.to_string())).unwrap();
    }
    // Blocks that the journal still has to checkpoint count as in use.
    fuse.umount();
    fuse.mount(options);
    let list = || {
        let mut found = 0;
        for entry in fs::read_dir(fuse.dir()).unwrap() {
            let entry = entry.unwrap();
            found += u64::from(entry.metadata().unwrap().is_dir() && entry.file_name() != "lost+found");
            assert_eq!(fs::read_dir(entry.path()).unwrap().count(), 0);
        }
        assert_eq!(found, COUNT);
        metadata_facts(&fuse)
    };
    let number = |facts: &Value, name: &str| facts[name].as_u64().unwrap();
    let is_known = |facts: &Value| number(facts, "known_inodes") > number(facts, "inodes");
    let kept = KERNEL_CACHES.read().unwrap_or_else(PoisonError::into_inner);
    let mut facts = list();
    // The kernel forgets inodes when memory is short.
    for _ in 0..50 {
        if is_known(&facts) {
            break;
        }
        facts = list();
    }
    drop(kept);
    assert!(is_known(&facts), "{facts}");
    assert_eq!(number(&facts, "budget"), BUDGET);
    assert!(number(&facts, "bytes") < 2 * BUDGET, "{facts}");
    let said = fuse.scratch().ok(&["stat", &text(fuse.dir())]);
    assert!(said.contains("inodes known to the kernel"), "{said}");
    fuse.finish();
}

/// Threads write 1 MiB each to one file, all at once. The server is stopped until all requests are
/// sent. Only writes within the file are sent at once.
const WRITE_AT_ONCE: &str = "
import os, signal, sys, threading, time
path, server, count = sys.argv[1], int(sys.argv[2]), 2000
data, failed = bytes(1 << 20), []
file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_DSYNC)
os.write(file, data)
def write(nth):
    try:
        if os.pwrite(file, data, 0) != len(data): failed.append(nth)
    except OSError as error:
        failed.append((nth, error))
threading.stack_size(1 << 16)
threads = [threading.Thread(target=write, args=(nth,)) for nth in range(count)]
os.kill(server, signal.SIGSTOP)
try:
    [thread.start() for thread in threads]
    time.sleep(1)
finally:
    os.kill(server, signal.SIGCONT)
[thread.join() for thread in threads]
print(failed)
";

/// Returns the most memory that a process has used so far, in MiB.
fn peak_memory(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.trim().trim_end_matches(" kB").parse::<u64>().unwrap() >> 10
}

#[test]
fn writes_that_wait_in_the_server_stay_within_its_budget() {
    /// In MiB: the budgets of requests (256), pages (64) and idle buffers (128), and what threads
    /// and metadata take. 2000 are written.
    const LIMIT: u64 = 600;
    let Some(fuse) = FuseMount::new(&["--block-size", "4096"]) else { return };
    let mut server = fuse.serve("page_cache=64M");
    let arguments =
        ["-c", WRITE_AT_ONCE, &text(&fuse.path("file")), &server.id().to_string()].map(str::to_owned);
    let written = fuse.watched(|| tool(Command::new("python3").args(arguments)));
    let peak = peak_memory(server.id());
    fuse.finish();
    assert!(server.wait().unwrap().success());
    let Some(failed) = written else { return };
    assert_eq!(failed.trim(), "[]");
    assert!(peak < LIMIT, "{peak} MiB");
}

#[test]
fn an_unlinked_inode_stays_until_the_kernel_forgets_it() {
    // A budget of 0, so that only metadata in use stays in memory.
    let Some(fuse) = FuseMount::mounted(&[], "metadata_cache=0") else { return };
    let old = b"contents of the file";
    for name in ["unlinked", "replaced", "new"] {
        fs::write(fuse.path(name), old).unwrap();
    }
    fs::create_dir(fuse.path("removed")).unwrap();
    let known = |name: &str| open(fuse.path(name), OFlags::PATH, Mode::empty()).unwrap();
    // Not open on the server: only the kernel knows them.
    let (unlinked, replaced, removed) = (known("unlinked"), known("replaced"), known("removed"));
    fs::remove_file(fuse.path("unlinked")).unwrap();
    fs::rename(fuse.path("new"), fuse.path("replaced")).unwrap();
    fs::remove_dir(fuse.path("removed")).unwrap();
    // New files get these inode numbers if they are free.
    for nth in 0..50 {
        fs::write(fuse.path(&format!("other{nth}")), b"other").unwrap();
    }
    fs::File::open(fuse.dir()).unwrap().sync_all().unwrap();
    for file in [&unlinked, &replaced] {
        let number = std::os::fd::AsRawFd::as_raw_fd(file);
        assert_eq!(fs::read(format!("/proc/self/fd/{number}")).unwrap(), old);
        assert_eq!(fstat(file).unwrap().st_nlink, 0);
    }
    assert!(openat(&removed, "file", OFlags::CREATE | OFlags::WRONLY, Mode::RUSR).is_err());
    assert_eq!(fstat(&removed).unwrap().st_nlink, 0);
    drop((unlinked, replaced, removed));
    assert_eq!(fs::metadata(fuse.path("replaced")).unwrap().nlink(), 1);
    // Inodes are deleted at once, not by the next mount.
    fuse.umount();
    let header = Command::new("/usr/sbin/dumpe2fs").arg("-h").arg(fuse.scratch().image()).output();
    if let Ok(header) = header {
        let header = String::from_utf8_lossy(&header.stdout).into_owned();
        assert!(!header.contains("First orphan inode") && !header.contains("orphan_present"), "{header}");
    }
    fuse.scratch().fsck();
}
