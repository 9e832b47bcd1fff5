//! A server that is stopped while another machine takes its volume over, and then continued.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use testkit::command::{run, text};
use testkit::fuse_mount::{FuseMount, errors, until};

use super::machine::{OtherMachine, PROTECTED};

/// How far the writers are, and when they pause.
#[derive(Default)]
struct Progress {
    /// The records that a writer has synced.
    synced: AtomicU64,
    /// The writers pause before the next sync.
    pause: AtomicBool,
    paused: AtomicU64,
}

/// Writes and syncs records until it has to pause. Then waits until `resumed` is disconnected, with
/// a last record that is not synced. The sync of that record must fail.
fn write_until_paused(path: &Path, progress: &Progress, resumed: &Receiver<()>) {
    let file = File::create(path).unwrap();
    for number in 0_u64.. {
        let record = [number.to_le_bytes(); 512].concat();
        file.write_all_at(&record, number % 64 * 4096).unwrap();
        if progress.pause.load(Ordering::SeqCst) {
            break;
        }
        file.sync_data().unwrap();
        progress.synced.store(number + 1, Ordering::SeqCst);
    }
    progress.paused.fetch_add(1, Ordering::SeqCst);
    resumed.recv().unwrap_err();
    file.sync_data().expect_err("the volume has another owner");
}

/// Returns the contents of a file that `/proc` has for each thread of a process.
fn of_each_thread(process: u32, file: &str) -> Vec<String> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    threads.map(|thread| fs::read_to_string(thread.unwrap().path().join(file)).unwrap_or_default()).collect()
}

/// Returns true if all threads of a process are stopped.
fn is_stopped(process: u32) -> bool {
    // The state follows the name, which is in parentheses.
    of_each_thread(process, "stat").iter().all(|stat| stat.rsplit(") ").next().unwrap().starts_with('T'))
}

/// Returns true if all threads of a stopped process wait for an event: no thread has begun to
/// write.
fn all_wait(process: u32) -> bool {
    const WAITS: [i64; 9] = [
        libc::SYS_futex,
        libc::SYS_read,
        libc::SYS_ppoll,
        libc::SYS_epoll_pwait,
        libc::SYS_io_uring_enter,
        libc::SYS_clock_nanosleep,
        libc::SYS_nanosleep,
        libc::SYS_rt_sigtimedwait,
        // A wait that a stop has interrupted.
        libc::SYS_restart_syscall,
    ];
    // The first field is the number of the system call, or says that the thread is in none.
    let number = |call: &String| call.split(' ').next().and_then(|number| number.parse().ok());
    let calls: Vec<_> = of_each_thread(process, "syscall").iter().map(number).collect();
    calls.into_iter().all(|call| call.is_some_and(|call| WAITS.contains(&call)))
}

/// Stops a process while all of its threads wait. A thread that is stopped between the lease's
/// permission and its system call would write when it continues: the device cannot refuse that.
fn stop_while_idle(process: u32) -> bool {
    until(|| {
        signal(process, "-STOP");
        assert!(until(|| is_stopped(process)));
        let is_idle = all_wait(process);
        if !is_idle {
            signal(process, "-CONT");
        }
        is_idle
    })
}

fn signal(process: u32, name: &str) {
    let status = Command::new("kill").args([name, &process.to_string()]).status().unwrap();
    assert!(status.success());
}

pub fn an_owner_that_was_stopped_writes_nothing() {
    let fuse = FuseMount::new(PROTECTED).unwrap();
    let (image, log) = (fuse.scratch().image(), fuse.scratch().path("log"));
    let mut server = fuse.serve(&format!("log={}", text(&log)));
    let other = OtherMachine::with(&image);
    let device = text(other.device());
    let progress = Progress::default();
    thread::scope(|scope| {
        let writers = ["one", "two"].map(|name| {
            let (path, progress) = (fuse.path(name), &progress);
            let (resume, resumed) = channel();
            scope.spawn(move || write_until_paused(&path, progress, &resumed));
            resume
        });
        assert!(until(|| progress.synced.load(Ordering::SeqCst) > 20));
        progress.pause.store(true, Ordering::SeqCst);
        assert!(until(|| progress.paused.load(Ordering::SeqCst) == 2));
        assert!(stop_while_idle(server.id()), "a thread of the server is always busy");
        let taken = run(&["takeover", &device]);
        assert!(taken.status.success(), "{}", errors(&taken));
        let out = run(&["mkdir", &format!("{device}:/taken")]);
        assert!(out.status.success(), "{}", errors(&out));
        let before = fs::read(&image).unwrap();

        signal(server.id(), "-CONT");
        drop(writers);
        let reported = || fs::read_to_string(&log).is_ok_and(|log| log.contains("multi-mount protection"));
        assert!(until(reported), "the server reports why it has stopped");
        thread::sleep(super::SETTLED);
        assert!(before == fs::read(&image).unwrap(), "the server has written");
    });
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(fs::read_to_string(&log).unwrap().contains("writes nothing more"));
    fuse.scratch().fsck();
    let list = fuse.scratch().ok(&["ls", &text(&image)]);
    assert!(list.contains("taken") && list.contains("one"), "{list}");
}
