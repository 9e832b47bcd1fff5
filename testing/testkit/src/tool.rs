//! Runs other programs, such as e2fsck and debugfs.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::poll::until;
use crate::skip::skipped;

/// Runs a program with English messages. `None`, after a call of [`skipped`], if it is not
/// installed.
pub fn tool(command: &mut Command) -> Option<Output> {
    let output = command.env("LC_ALL", "C").output();
    if output.is_err() {
        skipped(&format!("{} is not installed", command.get_program().to_string_lossy()));
    }
    output.ok()
}

/// Unmounts a volume of the kernel. Retries while it is busy: between fork and exec, a program that
/// another test is starting holds copies of this process's files, and with them the mount. If the
/// volume is an image, blocks until the kernel has written all of it: a mount namespace that
/// another test has just made holds a copy of the mount, and umount(8) does not wait for that.
pub fn kernel_umount(dir: &Path) {
    let image = MountedImage::at(dir);
    let mut message = String::new();
    let is_over = until(|| {
        let output = tool(Command::new("umount").arg(dir)).expect("umount is installed, as mount is");
        message = text(&output);
        output.status.success() || !message.contains("busy")
    });
    let is_over = is_over && message.is_empty() && image.is_none_or(|image| until(|| !image.is_attached()));
    assert!(is_over || std::thread::panicking(), "{message}");
}

/// An image that `mount -o loop` has attached to a loop device, which is detached after the last
/// write of the mounted volume.
struct MountedImage {
    /// The file of sysfs that names the image.
    of_device: PathBuf,
    name: String,
}

impl MountedImage {
    /// Returns the image mounted at `dir`. `None` if something else is mounted there.
    fn at(dir: &Path) -> Option<Self> {
        let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
        let mut mounts = mounts.lines().rev().filter_map(|line| line.split_once(' '));
        let (device, _) = mounts.find(|(_, rest)| rest.split(' ').next() == dir.to_str())?;
        let of_loop = Path::new("/sys/block").join(device.strip_prefix("/dev/")?).join("loop");
        // A device that was attached before the mount stays attached.
        let is_detached = std::fs::read_to_string(of_loop.join("autoclear")).ok()?.starts_with('1');
        let of_device = of_loop.join("backing_file");
        let name = std::fs::read_to_string(&of_device).ok()?;
        is_detached.then_some(Self { of_device, name })
    }

    fn is_attached(&self) -> bool {
        std::fs::read_to_string(&self.of_device).is_ok_and(|name| name == self.name)
    }
}

/// Returns what a program printed: its output, then its errors.
pub fn text(output: &Output) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    format!("{out}{err}")
}
