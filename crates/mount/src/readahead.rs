//! How far the kernel reads ahead of programs that read in sequence.
//!
//! FUSE begins with 128 KiB, and its protocol can only ask for less: a device that takes longer to answer than the kernel
//! to hand that on stands idle in between. Root may say more.

use std::path::Path;
use std::{fs, io};

use crate::mounts::mount_on;

/// Several requests, of 1 MiB at most: the device reads one while another is handed on. As much as btrfs reads ahead.
const KIB: u32 = 4096;

/// Has the kernel read further ahead in what was just mounted on `dir`, a path without links, if it may be told.
pub(crate) fn extend(dir: &Path) {
    if let Err(error) = try_extend(dir) {
        tracing::debug!("the kernel reads ahead as it does by default: {error}");
    }
}

fn try_extend(dir: &Path) -> io::Result<()> {
    let mounts = fs::read("/proc/self/mountinfo")?;
    let mount = mount_on(&mounts, dir).ok_or(io::ErrorKind::NotFound)?;
    fs::write(format!("/sys/class/bdi/{}/read_ahead_kb", mount.device), KIB.to_string())
}
