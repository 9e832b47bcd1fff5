//! Images that e2fsprogs makes, and the output of `debugfs` for them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use parext4_format::{ChecksumSeed, InodeNo};
use tempfile::TempDir;

/// Every image has blocks of 1 KiB.
pub const BLOCK: usize = 1024;

pub struct Image {
    dir: TempDir,
}

impl Image {
    /// Makes an image. Prints a line and returns `None` if e2fsprogs is missing.
    pub fn new(options: &[&str]) -> Option<Self> {
        if !have_e2fsprogs() {
            return None;
        }
        let image = Self { dir: tempfile::tempdir().unwrap() };
        let mut command = Command::new("mke2fs");
        command.args(["-q", "-t", "ext4", "-b", "1024", "-I", "256", "-J", "size=1"]).args(options);
        run(command.arg(image.path()).arg("8M"));
        Some(image)
    }

    pub fn path(&self) -> PathBuf {
        self.dir.path().join("image")
    }

    pub fn scratch(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Runs `debugfs` with one command a line and returns what it prints.
    pub fn debugfs(&self, commands: &str) -> String {
        debugfs(&self.dir, &["-w"], commands, Some(&self.path()))
    }

    /// Returns the contents of a file or directory.
    pub fn contents(&self, name: &str) -> Vec<u8> {
        let out = self.scratch("dump");
        self.debugfs(&format!("dump {name} {}\n", out.display()));
        fs::read(out).unwrap()
    }

    /// Returns the blocks of a file of at most four blocks, in order.
    pub fn blocks(&self, name: &str) -> Vec<u64> {
        let text = self.debugfs(&format!("blocks {name}\n"));
        text.lines().last().unwrap().split_whitespace().map(|number| number.parse().unwrap()).collect()
    }

    /// Returns the number that `stat` prints after `label`.
    pub fn stat(&self, name: &str, label: &str) -> u64 {
        let text = self.debugfs(&format!("stat {name}\n"));
        let (_, after) = text.split_once(label).unwrap_or_else(|| panic!("no {label} in {text}"));
        after.split_whitespace().next().unwrap().parse().unwrap()
    }

    pub fn read_block(&self, block: u64) -> Vec<u8> {
        let at = usize::try_from(block).unwrap() * BLOCK;
        fs::read(self.path()).unwrap()[at..at + BLOCK].to_vec()
    }

    pub fn write_block(&self, block: u64, bytes: &[u8]) {
        use std::os::unix::fs::FileExt;
        let file = fs::File::options().write(true).open(self.path()).unwrap();
        file.write_all_at(bytes, block * 1024).unwrap();
    }

    /// Returns the bytes of the superblock.
    pub fn superblock<const N: usize>(&self, at: usize) -> [u8; N] {
        *self.read_block(1)[at..].first_chunk().unwrap()
    }

    pub fn seed(&self) -> ChecksumSeed {
        ChecksumSeed::from_uuid(&self.superblock(0x68))
    }

    pub fn inode_seed(&self, name: &str) -> ChecksumSeed {
        let number = |label| u32::try_from(self.stat(name, label)).unwrap();
        self.seed().inode(InodeNo(number("Inode: ")), number("Generation: "))
    }

    /// Rebuilds directories as hash trees.
    pub fn optimize_directories(&self) {
        let status = Command::new("e2fsck").args(["-fyD"]).arg(self.path()).output().unwrap().status;
        assert!(matches!(status.code(), Some(0 | 1)), "e2fsck -D: {status}");
    }

    pub fn assert_clean(&self) {
        run(Command::new("e2fsck").arg("-fn").arg(self.path()));
    }
}

pub fn have_e2fsprogs() -> bool {
    let found =
        ["mke2fs", "debugfs", "e2fsck"].iter().all(|tool| Command::new(tool).arg("-V").output().is_ok());
    if !found {
        eprintln!("SKIPPED: e2fsprogs is not installed");
    }
    found
}

pub fn debugfs(scratch: &TempDir, options: &[&str], commands: &str, image: Option<&Path>) -> String {
    debugfs_bytes(scratch, options, commands.as_bytes(), image)
}

/// Like [`debugfs`], with commands of arbitrary bytes. Replaces invalid UTF-8 in the output.
pub fn debugfs_bytes(scratch: &TempDir, options: &[&str], commands: &[u8], image: Option<&Path>) -> String {
    let script = scratch.path().join("commands");
    fs::write(&script, commands).unwrap();
    run(Command::new("debugfs").args(options).arg("-f").arg(script).args(image))
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{text}\n{errors}", output.status);
    text
}
