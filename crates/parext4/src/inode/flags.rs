//! What `i_flags` allow, and which of them users may change.

use parext4_format::inode::{FileType, Inode as RawInode, InodeFlags};

use super::Inode;
use crate::error::{Error, Result};
use crate::sync::atomic::Ordering;

/// The flags of an inode that does not lose or get names, and whose attributes stay.
pub(crate) const FIXED: InodeFlags = InodeFlags::IMMUTABLE.union(InodeFlags::APPEND);

/// What new inodes take over from their directory (`EXT4_FL_INHERITED`).
const INHERITED: InodeFlags = InodeFlags::SECRM
    .union(InodeFlags::UNRM)
    .union(InodeFlags::COMPR)
    .union(InodeFlags::SYNC)
    .union(InodeFlags::NODUMP)
    .union(InodeFlags::NOATIME)
    .union(InodeFlags::NOCOMPR)
    .union(InodeFlags::JOURNAL_DATA)
    .union(InodeFlags::NOTAIL)
    .union(InodeFlags::DIRSYNC)
    .union(InodeFlags::PROJINHERIT)
    .union(InodeFlags::CASEFOLD)
    .union(InodeFlags::DAX);
/// What only directories have (the complement of `EXT4_REG_FLMASK`).
const OF_DIRECTORIES: InodeFlags =
    InodeFlags::DIRSYNC.union(InodeFlags::TOPDIR).union(InodeFlags::CASEFOLD).union(InodeFlags::PROJINHERIT);

/// The flags among `flags` that an inode of this type may have (`ext4_mask_flags`).
pub(crate) fn suitable(file_type: FileType, flags: InodeFlags) -> InodeFlags {
    match file_type {
        FileType::Directory => flags,
        FileType::Regular => flags.difference(OF_DIRECTORIES),
        _ => flags & (InodeFlags::NODUMP | InodeFlags::NOATIME),
    }
}

/// The flags that a new inode takes over from its directory (`ext4_inherit_flags`).
pub(crate) fn inherited(file_type: FileType, parent: InodeFlags) -> InodeFlags {
    suitable(file_type, parent & INHERITED)
}

impl Inode {
    /// `i_flags` but for what directories change of them.
    pub(crate) fn flags(&self) -> InodeFlags {
        // Relaxed: an operation that begins while they change may see either.
        InodeFlags::from_bits_retain(self.flags.load(Ordering::Relaxed))
    }

    /// Sets `i_flags`, within a handle that the inode has joined; `core` is its own.
    pub(crate) fn set_flags(&self, core: &mut RawInode, flags: InodeFlags) {
        core.flags = flags;
        self.flags.store(flags.bits(), Ordering::Relaxed);
    }

    /// An error if the inode has any of these flags.
    pub(crate) fn check_flags(&self, forbidden: InodeFlags) -> Result<()> {
        if self.flags().intersects(forbidden) {
            return Err(Error::NotPermitted(format!("inode {} is immutable or append-only", self.ino)));
        }
        Ok(())
    }

    /// An error if the inode may not lose or get a name, or other attributes.
    pub(crate) fn check_fixed(&self) -> Result<()> {
        self.check_flags(FIXED)
    }
}
