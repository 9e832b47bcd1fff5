//! Sets attributes from the volume on files outside.

use std::path::Path;

use crate::error::Result;
use parext4::{FileType, InodeRef, Metadata, Timestamp};
use rustix::fs::{Timespec, Timestamps};

use super::created_entry::CreatedEntry;
use super::{Shared, xattrs};
use crate::access_list::permissions_without_list;

/// Sets owner, extended attributes, permissions and times of a file that this command has made, but
/// not of a directory. `path` is its name in messages. The file gets only the access control lists
/// of `node`, because the lists of the directory outside could let other users read it.
pub fn set(
    entry: &CreatedEntry<'_>,
    path: &Path,
    node: &InodeRef,
    metadata: &Metadata,
    shared: &Shared<'_>,
) -> Result<()> {
    entry.remove_inherited_lists(metadata.file_type)?;
    merge(entry, path, node, metadata, shared)
}

/// Sets the attributes of a directory. Its access control lists stay if `node` has none, because
/// they are not inherited: the walker has removed the inherited lists of a new directory.
pub fn merge(
    entry: &CreatedEntry<'_>,
    path: &Path,
    node: &InodeRef,
    metadata: &Metadata,
    shared: &Shared<'_>,
) -> Result<()> {
    if shared.is_root {
        entry.set_owner(metadata.uid, metadata.gid)?;
    }
    // After the owner, because chown removes capabilities; before the permissions, which may forbid
    // it.
    let has_list = xattrs::copy(entry, path, node, shared)?;
    if metadata.file_type != FileType::Symlink {
        // After the owner, because chown removes set-ID bits. Without the owner, set-ID bits would
        // give the rights of the wrong user.
        let mask = if shared.is_root { 0o7777 } else { 0o1777 };
        let permissions =
            if has_list { metadata.permissions } else { permissions_without_list(metadata.permissions) };
        entry.set_permissions(u32::from(permissions) & mask)?;
    }
    entry.set_times(&Timestamps {
        last_access: timespec(metadata.atime),
        last_modification: timespec(metadata.mtime),
    })
}

fn timespec(time: Timestamp) -> Timespec {
    Timespec { tv_sec: time.seconds, tv_nsec: time.nanoseconds.into() }
}
