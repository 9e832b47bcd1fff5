//! The flags of an inode that users see and change.

use parext4_format::inode::InodeFlags;

use super::Node;
use crate::clock::now;
use crate::error::{Error, Result};
use crate::inode::{FIXED, suitable};

/// What [`Node::flags`] shows (`EXT4_FL_USER_VISIBLE`).
const VISIBLE: InodeFlags = InodeFlags::from_bits_retain(0x725b_dfff);
/// What [`Node::set_flags`] changes. The kernel also has users change what makes it move or journal the data
/// (`EXT4_FL_USER_MODIFIABLE`).
const SETTABLE: InodeFlags = FIXED
    .union(InodeFlags::SECRM)
    .union(InodeFlags::UNRM)
    .union(InodeFlags::COMPR)
    .union(InodeFlags::SYNC)
    .union(InodeFlags::NODUMP)
    .union(InodeFlags::NOATIME)
    .union(InodeFlags::NOTAIL)
    .union(InodeFlags::DIRSYNC)
    .union(InodeFlags::TOPDIR);
/// What changing is for the kernel alone.
const KERNEL_SETTABLE: InodeFlags = InodeFlags::JOURNAL_DATA
    .union(InodeFlags::EXTENTS)
    .union(InodeFlags::DAX)
    .union(InodeFlags::PROJINHERIT)
    .union(InodeFlags::CASEFOLD);

impl Node {
    /// The flags, as `lsattr` shows them.
    #[must_use]
    pub fn flags(&self) -> InodeFlags {
        self.inode.core().flags & VISIBLE
    }

    /// Tells apart the inodes that have had this number.
    #[must_use]
    pub fn generation(&self) -> u32 {
        self.inode.core().generation
    }

    /// Sets the flags that users may change, as `chattr` does; what else `flags` says does not matter. Immutable and
    /// append-only are heeded by whatever begins afterwards; the others are kept for those who heed them. Who may set
    /// which is for the caller to decide.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for flags that the inode's type does not have, or that only the kernel changes;
    /// [`Error::NotPermitted`] if the inode is immutable and stays so, and another flag changes.
    pub fn set_flags(&self, flags: InodeFlags) -> Result<()> {
        let unsupported = |flags| Err(Error::Unsupported(format!("setting the flags {flags:?}")));
        let settable = flags & SETTABLE;
        let strange = settable.difference(suitable(self.file_type(), settable)) | flags.difference(VISIBLE);
        if !strange.is_empty() {
            return unsupported(strange);
        }
        // The inode's block.
        self.engine.transact(1, |handle| {
            self.inode.join(handle);
            let mut core = self.inode.core_with_times();
            let changed = core.flags ^ flags;
            if changed.intersects(KERNEL_SETTABLE) {
                return unsupported(changed & KERNEL_SETTABLE);
            }
            let stays_immutable = (core.flags & flags).contains(InodeFlags::IMMUTABLE);
            if stays_immutable && changed.intersects(SETTABLE) {
                return Err(Error::NotPermitted(format!("inode {} is immutable", self.ino())));
            }
            let flags = core.flags.difference(SETTABLE) | settable;
            self.inode.set_flags(&mut core, flags);
            core.ctime = now();
            Ok(())
        })
    }
}
