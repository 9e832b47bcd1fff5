//! Sets how far the kernel reads ahead of programs that read in sequence.
//!
//! FUSE starts with 128 KiB, and its protocol can only reduce that. So the device would be idle
//! while the kernel passes the data on. Root can set a larger value in sysfs.

use std::path::Path;
use std::{fs, io};

use super::mount_on;

/// Read-ahead, in KiB: several requests of at most 1 MiB, so that the device reads one while the
/// kernel passes another on. Btrfs uses the same value.
const KIB: u32 = 4096;

/// Extends the read-ahead of the mount on `dir`, a path without symbolic links. Without permission,
/// changes nothing.
pub(crate) fn extend_read_ahead(dir: &Path) {
    if let Err(error) = try_extend(dir) {
        log::debug!("read-ahead stays at the kernel's default: {error}");
    }
}

fn try_extend(dir: &Path) -> io::Result<()> {
    let mounts = fs::read("/proc/self/mountinfo")?;
    let mount = mount_on(&mounts, dir).ok_or(io::ErrorKind::NotFound)?;
    fs::write(format!("/sys/class/bdi/{}/read_ahead_kb", mount.device), KIB.to_string())
}
