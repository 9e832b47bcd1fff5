//! The effects of `i_flags`, and which flags an inode may have.

use parext4_format::inode::{FileType, Inode as RawInode, InodeFlags};

use super::Inode;
use crate::error::{Error, Result};
use crate::sync::atomic::Ordering;

/// The flags of an inode that cannot lose or gain names and whose attributes are fixed.
pub(crate) const FIXED: InodeFlags = InodeFlags::IMMUTABLE.union(InodeFlags::APPEND);

/// The flags that a new inode inherits from its directory (`EXT4_FL_INHERITED`).
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
/// The flags that only directories have (the complement of `EXT4_REG_FLMASK`).
const OF_DIRECTORIES: InodeFlags =
    InodeFlags::DIRSYNC.union(InodeFlags::TOPDIR).union(InodeFlags::CASEFOLD).union(InodeFlags::PROJINHERIT);

/// Returns the flags among `flags` that an inode of this type may have (`ext4_mask_flags`).
pub(crate) fn suitable(file_type: FileType, flags: InodeFlags) -> InodeFlags {
    match file_type {
        FileType::Directory => flags,
        FileType::Regular => flags.difference(OF_DIRECTORIES),
        _ => flags & (InodeFlags::NODUMP | InodeFlags::NOATIME),
    }
}

/// Returns the flags that a new inode inherits from its directory (`ext4_inherit_flags`).
pub(crate) fn inherited(file_type: FileType, parent: InodeFlags) -> InodeFlags {
    suitable(file_type, parent & INHERITED)
}

impl Inode {
    /// Returns `i_flags`, without the flags that only directory operations change.
    pub(crate) fn flags(&self) -> InodeFlags {
        // Relaxed suffices: an operation that begins while the flags change may see either.
        InodeFlags::from_bits_retain(self.flags.load(Ordering::Relaxed))
    }

    /// Sets `i_flags`, under a handle that the inode has joined. `core` is the inode's own.
    pub(crate) fn set_flags(&self, core: &mut RawInode, flags: InodeFlags) {
        core.flags = flags;
        self.flags.store(flags.bits(), Ordering::Relaxed);
    }

    /// Returns [`Error::NotPermitted`] if the inode has any of these flags.
    pub(crate) fn check_flags(&self, forbidden: InodeFlags) -> Result<()> {
        let found = self.flags() & forbidden;
        let why = match () {
            () if found.is_empty() => return Ok(()),
            () if found.contains(InodeFlags::VERITY) => "protected by fs-verity",
            () => "immutable or append-only",
        };
        Err(Error::NotPermitted(format!("inode {} is {why}", self.ino)))
    }

    /// Returns true if the contents, or the names of a directory, are encrypted.
    pub(crate) fn is_encrypted(&self) -> bool {
        self.flags().contains(InodeFlags::ENCRYPT)
    }

    /// Returns [`Error::NoKey`] if the inode is encrypted.
    pub(crate) fn check_key(&self) -> Result<()> {
        if self.is_encrypted() { Err(Error::NoKey(format!("inode {}", self.ino))) } else { Ok(()) }
    }

    /// Returns [`Error::NotPermitted`] if the inode may not lose or gain a name, or change its
    /// attributes.
    pub(crate) fn check_fixed(&self) -> Result<()> {
        self.check_flags(FIXED)
    }
}
