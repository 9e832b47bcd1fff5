//! Attributes from the volume, as the system outside takes them.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, lchown};
use std::path::Path;

use anyhow::Result;
use parext4::{FileType, Metadata, Node, Timestamp};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};

use super::{Shared, xattrs};

/// Gives what was made at `path` its owner, extended attributes, permissions and times. It is not open for writing any more, and was
/// made by this command: nobody else's link is followed.
pub fn set(path: &Path, node: &Node, metadata: &Metadata, shared: &Shared) -> Result<()> {
    if shared.is_root {
        lchown(path, Some(metadata.uid), Some(metadata.gid))?;
    }
    // After the owner, which takes capabilities away; before the permissions, which may forbid it.
    xattrs::copy(path, node, shared)?;
    if metadata.file_type != FileType::Symlink {
        // After the owner: chown takes set-ID bits away. Without the owner they would let strangers in.
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
