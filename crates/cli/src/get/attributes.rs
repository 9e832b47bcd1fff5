//! Sets attributes from the volume on files outside.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, lchown};
use std::path::Path;

use anyhow::Result;
use parext4::{FileType, Metadata, Node, Timestamp};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};

use super::{Shared, xattrs};

/// Sets owner, extended attributes, permissions and times of the file at `path`. This command made the file and has closed
/// it, so no symbolic link that another process made is followed.
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
        fs::set_permissions(path, Permissions::from_mode(u32::from(metadata.permissions) & mask))?;
    }
    let times =
        Timestamps { last_access: timespec(metadata.atime), last_modification: timespec(metadata.mtime) };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(())
}

fn timespec(time: Timestamp) -> Timespec {
    Timespec { tv_sec: time.seconds, tv_nsec: time.nanoseconds.into() }
}
