//! Sets attributes from the volume on files outside.

use std::fs::{self, Permissions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{PermissionsExt, lchown};
use std::path::Path;

use anyhow::{Result, ensure};
use parext4::{FileType, Metadata, Node, Timestamp};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, Timespec, Timestamps, fstat, openat, utimensat};

use super::{Shared, xattrs};

/// Sets owner, extended attributes, permissions and times of the file at `path`, which this command made and has closed. Follows
/// no symbolic link that another process may have put in its place.
pub fn set(path: &Path, node: &Node, metadata: &Metadata, shared: &Shared) -> Result<()> {
    if shared.is_root {
        lchown(path, Some(metadata.uid), Some(metadata.gid))?;
    }
    // After the owner, because chown removes capabilities; before the permissions, which may forbid it.
    xattrs::copy(path, node, shared)?;
    if metadata.file_type != FileType::Symlink {
        // After the owner, because chown removes set-ID bits. Without the owner, set-ID bits would give the rights of the
        // wrong user.
        let mask = if shared.is_root { 0o7777 } else { 0o1777 };
        set_permissions(path, metadata.file_type, u32::from(metadata.permissions) & mask)?;
    }
    let times =
        Timestamps { last_access: timespec(metadata.atime), last_modification: timespec(metadata.mtime) };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(())
}

/// Sets the permissions of the file at `path`. Does not follow a symbolic link that another process may have put there.
fn set_permissions(path: &Path, file_type: FileType, mode: u32) -> Result<()> {
    let file = openat(CWD, path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let found = rustix::fs::FileType::from_raw_mode(fstat(&file)?.st_mode);
    let is_same = match file_type {
        FileType::Regular => found.is_file(),
        FileType::Directory => found.is_dir(),
        _ => !found.is_symlink(),
    };
    ensure!(is_same, "{} was replaced while it was copied", path.display());
    // chmod(2) accepts no descriptor of a path, but its name in /proc.
    let name = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(fs::set_permissions(name, Permissions::from_mode(mode))?)
}

fn timespec(time: Timestamp) -> Timespec {
    Timespec { tv_sec: time.seconds, tv_nsec: time.nanoseconds.into() }
}
