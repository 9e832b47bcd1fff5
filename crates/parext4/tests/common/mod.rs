//! Volumes for tests: made by mke2fs, checked by e2fsck, looked into by debugfs and the kernel.
#![allow(dead_code, reason = "each test binary uses a part")]

pub mod chopped;
pub mod durable;
pub mod explain;
pub mod full;
pub mod gated;
pub mod history;
pub mod lost;
pub mod memory;
pub mod watchdog;
pub mod workload;

pub use testkit::{rng, sector, settings, slowest};

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parext4::{FileDevice, FileOptions, OpenOptions, Volume};

/// Says that something was not tested.
pub fn skipped(why: &str) {
    eprintln!("SKIPPED: {why}");
}

/// A volume in a sparse file, which goes with this.
pub struct Image {
    dir: tempfile::TempDir,
}

impl Image {
    /// A volume of `mib` MiB that `mke2fs -t ext4` made with further options. `None`, with a loud word, if
    /// there is no mke2fs.
    pub fn mke2fs(mib: u64, options: &[&str]) -> Option<Self> {
        let image = Self { dir: tempfile::tempdir().unwrap() };
        std::fs::File::create(image.path()).unwrap().set_len(mib << 20).unwrap();
        let mut command = Command::new("mke2fs");
        command.args(["-q", "-F", "-t", "ext4"]).args(options).arg(image.path());
        let made = tool(&mut command)?;
        assert!(made.status.success(), "{command:?}: {}", text(&made));
        Some(image)
    }

    /// What a device holds.
    pub fn of(device: &parext4::MemDevice) -> Self {
        let image = Self { dir: tempfile::tempdir().unwrap() };
        device.save(image.path()).unwrap();
        image
    }

    /// Changes settings; says whether there was a tune2fs to do it.
    pub fn tune2fs(&self, options: &[&str]) -> bool {
        let Some(output) = tool(Command::new("tune2fs").args(options).arg(self.path())) else { return false };
        assert!(output.status.success(), "tune2fs {options:?}: {}", text(&output));
        true
    }

    /// Where the volume lies.
    pub fn path(&self) -> PathBuf {
        self.dir.path().join("image")
    }

    /// Opens the volume; only syncs, closing and full transactions commit.
    pub fn open(&self) -> Volume {
        let options = OpenOptions { commit_interval: None, ..OpenOptions::default() };
        Volume::open(Arc::new(self.device()), &options).unwrap()
    }

    /// Opens the image. Another test may just be starting a tool: until that has replaced the forked process,
    /// it holds this process's files, with the locks that were given up here meanwhile.
    fn device(&self) -> FileDevice {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            match FileDevice::open(self.path(), &FileOptions::new()) {
                Err(error) if error.kind() == ErrorKind::ResourceBusy && Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                opened => return opened.unwrap(),
            }
        }
    }

    /// Asserts that e2fsck finds nothing wrong.
    pub fn fsck(&self) {
        let Some(output) = tool(Command::new("e2fsck").arg("-fn").arg(self.path())) else { return };
        assert!(output.status.code() == Some(0), "e2fsck: {}", text(&output));
    }

    /// What a debugfs request prints; empty, with a loud word, if there is no debugfs.
    pub fn debugfs(&self, request: &str) -> String {
        let output = tool(Command::new("debugfs").args(["-R", request]).arg(self.path()));
        output.map_or_else(String::new, |output| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Changes the volume with a debugfs request.
    pub fn debugfs_write(&self, request: &str) {
        tool(Command::new("debugfs").args(["-w", "-R", request]).arg(self.path()));
    }

    /// Runs `look` over the volume as the kernel mounts it. Does nothing, with a loud word, if it cannot.
    pub fn with_kernel(&self, look: impl FnOnce(&Path)) {
        let Some(mount) = Mount::new(&self.path(), &self.dir.path().join("mount")) else {
            return skipped("the kernel does not mount images here");
        };
        look(&mount.0);
    }
}

/// A mounted image, unmounted in the end.
struct Mount(PathBuf);

impl Mount {
    fn new(image: &Path, at: &Path) -> Option<Self> {
        std::fs::create_dir_all(at).ok()?;
        let mounted = tool(Command::new("mount").args(["-t", "ext4", "-o", "loop"]).arg(image).arg(at))?;
        mounted.status.success().then(|| Self(at.to_owned()))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(&self.0).status();
        assert!(unmounted.is_ok_and(|status| status.success()), "cannot unmount {}", self.0.display());
    }
}

/// Runs a tool; `None`, with a loud word, if it is not there.
pub fn tool(command: &mut Command) -> Option<Output> {
    let output = command.env("LC_ALL", "C").output();
    if output.is_err() {
        skipped(&format!("{} is not installed", command.get_program().to_string_lossy()));
    }
    output.ok()
}

fn text(output: &Output) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    format!("{out}{err}")
}
