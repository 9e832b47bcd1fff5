//! Unmounting from outside, and waiting until the server has let go of the image.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount as sys_unmount};

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
    let image = image_on(&mounts, &dir).ok_or_else(|| UnmountError::NotMounted(dir.display().to_string()))?;
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

/// The image of the volume that is mounted on `dir`, by the lines of /proc/self/mountinfo; the last mount is on top.
pub(crate) fn image_on(mounts: &[u8], dir: &Path) -> Option<PathBuf> {
    mounts.split(|&byte| byte == b'\n').rev().find_map(|line| {
        let mut fields = line.split(|&byte| byte == b' ');
        let mounted_on = fields.nth(4).map(unescape)?;
        let mut behind = fields.skip_while(|field| field != b"-").skip(1);
        let ours = behind.next()? == b"fuse.parext4" && mounted_on == dir.as_os_str();
        ours.then(|| behind.next().map(|image| PathBuf::from(unescape(image))))?
    })
}

/// Undoes the kernel's escapes, `\040` for a space.
fn unescape(field: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, behind)) = rest.split_first() {
        let octal = (byte == b'\\').then(|| behind.first_chunk::<3>()).flatten();
        let code = octal.and_then(|digits| u8::from_str_radix(str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(code.unwrap_or(byte));
        rest = if code.is_some() { &behind[3..] } else { behind };
    }
    OsString::from_vec(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn the_topmost_mount_is_found() {
        let mounts = b"22 1 8:1 / / rw - ext4 /dev/root rw\n\
            40 22 0:33 / /mnt/a\\040b rw,nosuid shared:1 - fuse.parext4 /images/old.img rw\n\
            41 40 0:34 / /mnt/a\\040b rw,nosuid - fuse.parext4 /images/new\\134.img rw\n\
            42 22 0:35 / /mnt/other rw - fuse.sshfs host: rw\n";
        let image = |dir: &str| image_on(mounts, Path::new(dir));
        assert_eq!(image("/mnt/a b"), Some(PathBuf::from(OsStr::from_bytes(b"/images/new\\.img"))));
        assert_eq!(image("/mnt/other"), None);
        assert_eq!(image("/mnt/a"), None);
    }
}
