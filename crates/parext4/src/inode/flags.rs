//! What `i_flags` allow, and which of them users may change.

use parext4_format::inode::{FileType, Inode as RawInode, InodeFlags};

use super::{Inode, Node, now};
use crate::error::{Error, Result};
use crate::sync::atomic::Ordering;

/// The flags of an inode that does not lose or get names, and whose attributes stay.
pub(crate) const FIXED: InodeFlags = InodeFlags::IMMUTABLE.union(InodeFlags::APPEND);

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
fn suitable(file_type: FileType, flags: InodeFlags) -> InodeFlags {
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
    fn set_flags(&self, core: &mut RawInode, flags: InodeFlags) {
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
        self.volume.transact(1, |handle| {
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
