//! The attributes of copies, from files outside or from an archive.

use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use crate::error::Result;
use parext4::{InodeRef, NewInode, SetAttributes, Special, Timestamp};

use super::xattrs::{self, Source};
use crate::access_list::permissions_without_list;
use crate::report::Report;

/// The attributes of a copy.
#[derive(Clone, Copy, Debug)]
pub struct Attributes {
    pub permissions: u16,
    pub uid: u32,
    pub gid: u32,
    pub atime: Timestamp,
    pub mtime: Timestamp,
}

impl Attributes {
    /// Returns the attributes of a file outside.
    pub fn of(metadata: &Metadata) -> Self {
        let time = |seconds, nanoseconds: i64| Timestamp {
            seconds,
            nanoseconds: nanoseconds.try_into().unwrap_or(0),
        };
        Self {
            // 12 bits.
            permissions: (metadata.mode() & 0o7777).try_into().unwrap_or(0),
            uid: metadata.uid(),
            gid: metadata.gid(),
            atime: time(metadata.atime(), metadata.atime_nsec()),
            mtime: time(metadata.mtime(), metadata.mtime_nsec()),
        }
    }

    /// Returns the attributes of a file in the volume.
    pub fn of_copy(metadata: &parext4::Metadata) -> Self {
        let &parext4::Metadata { permissions, uid, gid, atime, mtime, .. } = metadata;
        Self { permissions, uid, gid, atime, mtime }
    }

    /// Copies the extended attributes of `source` to `node`. Returns the attributes to set
    /// afterwards.
    pub fn copy_xattrs(mut self, source: &Source<'_>, node: &InodeRef, report: &Report<'_>) -> Result<Self> {
        if !xattrs::copy(source, node, report)? {
            self.permissions = permissions_without_list(self.permissions);
        }
        Ok(self)
    }

    /// Returns the attributes to make the inode with.
    pub fn new_inode(&self) -> NewInode {
        NewInode::new().permissions(self.permissions).uid(self.uid).gid(self.gid)
    }

    /// Returns the attributes to set after the last change of the inode. Sets mode and owner again,
    /// because a set-group-ID parent changes them in a new inode, and existing directories have
    /// their own.
    pub fn all(&self) -> SetAttributes {
        SetAttributes::new()
            .permissions(self.permissions)
            .uid(self.uid)
            .gid(self.gid)
            .atime(self.atime)
            .mtime(self.mtime)
    }

    /// Returns the attributes of a symbolic link to set; its permissions have no effect and stay as
    /// they are.
    pub fn of_symlink(&self) -> SetAttributes {
        self.all().permissions(None)
    }
}

/// Returns the kind of a special file, `None` for other files.
pub fn special(metadata: &Metadata) -> Option<Special> {
    let kind = metadata.file_type();
    let (major, minor) = (rustix::fs::major(metadata.rdev()), rustix::fs::minor(metadata.rdev()));
    if kind.is_char_device() {
        Some(Special::CharDevice { major, minor })
    } else if kind.is_block_device() {
        Some(Special::BlockDevice { major, minor })
    } else if kind.is_fifo() {
        Some(Special::Fifo)
    } else {
        kind.is_socket().then_some(Special::Socket)
    }
}
