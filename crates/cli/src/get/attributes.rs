//! Sets attributes from the volume on files outside.

use std::path::Path;

use anyhow::Result;
use parext4::{FileType, Metadata, Node, Timestamp};
use rustix::fs::{Timespec, Timestamps};

use super::made::Made;
use super::{Shared, xattrs};

/// Sets owner, extended attributes, permissions and times of a file that this command has made. `path` is its name in messages.
pub fn set(made: &Made<'_>, path: &Path, node: &Node, metadata: &Metadata, shared: &Shared) -> Result<()> {
    if shared.is_root {
        made.set_owner(metadata.uid, metadata.gid)?;
    }
    // After the owner, because chown removes capabilities; before the permissions, which may forbid it.
    xattrs::copy(made, path, node, shared)?;
    if metadata.file_type != FileType::Symlink {
        // After the owner, because chown removes set-ID bits. Without the owner, set-ID bits would give the rights of the
        // wrong user.
        let mask = if shared.is_root { 0o7777 } else { 0o1777 };
        made.set_permissions(u32::from(metadata.permissions) & mask)?;
    }
    made.set_times(&Timestamps {
        last_access: timespec(metadata.atime),
        last_modification: timespec(metadata.mtime),
    })
}

fn timespec(time: Timestamp) -> Timespec {
    Timespec { tv_sec: time.seconds, tv_nsec: time.nanoseconds.into() }
}
