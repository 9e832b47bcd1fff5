//! The call of umount2(2), or of fusermount3 for a user that is not root.

use std::io;
use std::path::Path;
use std::process::Command;

use rustix::io::Errno;

use super::target::Target;

/// Why a directory was not unmounted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UnmountError {
    /// No volume is mounted on the directory by parext4.
    #[error("{0} is not a mount of parext4")]
    NotMounted(String),
    /// A process has a file of the mount open, or works in one of its directories.
    #[error("{0} is in use")]
    InUse(String),
    /// The directory is unmounted, but earlier changes may be lost.
    #[error("{dir} is unmounted, but data that was not synced may be lost: {why}")]
    NotDurable {
        /// The directory.
        dir: String,
        /// Why the changes are not durable.
        why: String,
    },
    /// The process that unmounts a mount of another user has failed.
    #[error("{0}")]
    Refused(String),
    /// A system call failed.
    #[error("{dir}: {cause}")]
    Failed {
        /// The directory.
        dir: String,
        /// The error.
        cause: io::Error,
    },
}

/// Unmounts `dir`. This is for the process that calls umount2(2) on a mount whose server is not
/// trusted.
///
/// # Errors
/// See [`UnmountError`].
pub fn call_umount(dir: &Path, detach: bool) -> Result<(), UnmountError> {
    let failed = |cause: io::Error| UnmountError::Failed { dir: dir.display().to_string(), cause };
    match Target::find(dir).map_err(failed)? {
        Ok(target) => detach_or_unmount(&target, detach),
        Err(dir) => Err(UnmountError::NotMounted(dir.display().to_string())),
    }
}

/// Calls umount2(2), or fusermount3 for a user that is not root.
pub(super) fn detach_or_unmount(target: &Target, detach: bool) -> Result<(), UnmountError> {
    let dir = || target.path.display().to_string();
    match target.unmount(detach) {
        Ok(()) => Ok(()),
        Err(Errno::BUSY) => Err(UnmountError::InUse(dir())),
        Err(Errno::PERM) => unmount_with_helper(&target.path, detach),
        Err(error) => Err(UnmountError::Failed { dir: dir(), cause: error.into() }),
    }
}

/// Unmounts with fusermount3, which a user that is not root may run.
fn unmount_with_helper(dir: &Path, detach: bool) -> Result<(), UnmountError> {
    let failed = |cause: io::Error| UnmountError::Failed { dir: dir.display().to_string(), cause };
    let mut command = Command::new("fusermount3");
    command.arg("-u").args(detach.then_some("-z")).arg("--").arg(dir);
    let output = command.output().map_err(failed)?;
    if output.status.success() {
        return Ok(());
    }
    Err(failed(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned())))
}
