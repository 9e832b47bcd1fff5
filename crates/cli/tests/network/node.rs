//! A machine: a mount of a volume on the network, with a directory and a log of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use testkit::command::{run, text};
use testkit::fuse_mount::{errors, umount};
use testkit::poll::until;
use testkit::skipped;

/// A directory on which a server mounts, or stands by to mount. Ends the server when dropped.
pub struct Node {
    url: String,
    dir: PathBuf,
    scratch: tempfile::TempDir,
}

impl Node {
    /// Makes the directory. `None`, after a call of [`skipped`], if FUSE cannot be used.
    pub fn new(url: &str, name: &str) -> Option<Self> {
        if fs::File::options().read(true).write(true).open("/dev/fuse").is_err() {
            skipped("/dev/fuse cannot be used");
            return None;
        }
        let scratch = tempfile::tempdir().unwrap();
        let dir = scratch.path().join(name);
        fs::create_dir(&dir).unwrap();
        Some(Self { url: url.to_owned(), dir: dir.canonicalize().unwrap(), scratch })
    }

    /// Returns the directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Mounts in the background, or stands by. The command must succeed.
    pub fn mount(&self, words: &[&str]) {
        let output = self.try_mount(words);
        assert!(output.status.success(), "{}", errors(&output));
    }

    pub fn try_mount(&self, words: &[&str]) -> Output {
        let log = format!("log={}", text(&self.scratch.path().join("log")));
        let dir = text(&self.dir);
        run(&[&["mount", "-o", &log], words, &[&self.url, &dir]].concat())
    }

    /// Returns what the server has logged.
    pub fn log(&self) -> String {
        fs::read_to_string(self.scratch.path().join("log")).unwrap_or_default()
    }

    /// Waits until the log contains a text.
    pub fn logs(&self, text: &str) {
        assert!(until(|| self.log().contains(text)), "no {text:?} in the log:\n{}", self.log());
    }

    pub fn is_mounted(&self) -> bool {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        mounts.lines().any(|line| line.split(' ').nth(1) == self.dir.to_str())
    }

    /// Returns the number of the server's process, from its log.
    pub fn server(&self) -> rustix::process::Pid {
        let log = self.log();
        let (_, rest) = log.split_once("parext4[").expect("the server has logged");
        let (number, _) = rest.split_once(']').unwrap();
        rustix::process::Pid::from_raw(number.parse().unwrap()).unwrap()
    }

    /// Unmounts, or ends the wait of a standby.
    pub fn umount(&self) {
        let output = umount(&self.dir);
        assert!(output.status.success(), "{}", errors(&output));
        assert!(!self.is_mounted());
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // The node may have nothing to unmount.
        let _ = run(&["umount", "--lazy", &text(&self.dir)]);
    }
}
