//! Unmounting from outside, and waiting until the server has let go of the image.

use std::fs::File;
use std::io;
use std::path::Path;
use std::process::Command;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount as sys_unmount};

use crate::mounts::mount_on;

/// Why a directory was not unmounted.
#[derive(Debug, thiserror::Error)]
pub enum UnmountError {
    /// Nothing of ours is mounted there.
    #[error("{0} is not a mount of parext4")]
    NotMounted(String),
    /// Files are open, or it is somebody's working directory.
    #[error("{0} is in use")]
    InUse(String),
    /// Anything else.
    #[error("{dir}: {cause}")]
    Failed {
        /// The directory.
        dir: String,
        /// Why.
        cause: io::Error,
    },
}

/// Unmounts a directory that a volume is mounted on, and waits until the server has closed the image. With `detach`,
/// takes it out of sight at once and waits for nothing: it ends when nobody uses it any more.
///
/// # Errors
/// See [`UnmountError`]; without `detach`, a directory that is in use stays mounted.
pub fn unmount(dir: &Path, detach: bool) -> Result<(), UnmountError> {
    let failed = |cause: io::Error| UnmountError::Failed { dir: dir.display().to_string(), cause };
    let dir = dir.canonicalize().map_err(failed)?;
    let mounts = std::fs::read("/proc/self/mountinfo").map_err(failed)?;
    let mounted = mount_on(&mounts, &dir);
    let image = mounted.ok_or_else(|| UnmountError::NotMounted(dir.display().to_string()))?.image;
    let flags = if detach { UnmountFlags::DETACH } else { UnmountFlags::NOFOLLOW };
    match sys_unmount(&dir, flags) {
        Ok(()) => {}
        Err(Errno::BUSY) => return Err(UnmountError::InUse(dir.display().to_string())),
        Err(Errno::PERM) => with_helper(&dir, detach)?,
        Err(error) => return Err(failed(error.into())),
    }
    if !detach {
        wait_for(&image);
    }
    Ok(())
}

/// As a user who is not root.
fn with_helper(dir: &Path, detach: bool) -> Result<(), UnmountError> {
    let failed = |cause: io::Error| UnmountError::Failed { dir: dir.display().to_string(), cause };
    let mut command = Command::new("fusermount3");
    command.arg("-u").args(detach.then_some("-z")).arg("--").arg(dir);
    let output = command.output().map_err(failed)?;
    if output.status.success() {
        return Ok(());
    }
    Err(failed(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned())))
}

/// The server holds a lock on the image as long as it uses it. An image that we cannot open, or that is only read,
/// is not waited for.
fn wait_for(image: &Path) {
    if let Ok(image) = File::open(image) {
        let _ = rustix::io::retry_on_intr(|| flock(&image, FlockOperation::LockShared));
    }
}
