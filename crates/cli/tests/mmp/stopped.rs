//! A server that is stopped while another machine takes its volume over, and then continued.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use testkit::command::{run, text};
use testkit::fuse_mount::{FuseMount, errors, until};

use super::machine::{OtherMachine, PROTECTED};

/// Writes and syncs records until a call fails.
fn write_until_refused(path: &Path, synced: &AtomicU64) {
    let Ok(file) = File::create(path) else { return };
    for number in 0_u64.. {
        let record = [number.to_le_bytes(); 512].concat();
        let written = file.write_all_at(&record, number % 64 * 4096).and_then(|()| file.sync_data());
        if written.is_err() {
            return;
        }
        synced.store(number + 1, Ordering::SeqCst);
    }
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
    let synced = AtomicU64::new(0);
    thread::scope(|scope| {
        for name in ["one", "two"] {
            let (path, synced) = (fuse.path(name), &synced);
            scope.spawn(move || write_until_refused(&path, synced));
        }
        assert!(until(|| synced.load(Ordering::SeqCst) > 20));
        signal(server.id(), "-STOP");
        let taken = run(&["takeover", &device]);
        assert!(taken.status.success(), "{}", errors(&taken));
        let out = run(&["mkdir", &format!("{device}:/taken")]);
        assert!(out.status.success(), "{}", errors(&out));
        let before = fs::read(&image).unwrap();

        signal(server.id(), "-CONT");
        let reported = || fs::read_to_string(&log).is_ok_and(|log| log.contains("multi-mount protection"));
        assert!(until(reported), "the server reports why it has stopped");
        // The writers end now, because their calls fail.
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
