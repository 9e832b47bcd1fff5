//! The inode flags that users read and change.

use parext4_format::inode::InodeFlags;

use super::InodeRef;
use crate::error::{Error, Result};
use crate::inode::{FIXED, suitable};

/// The flags that [`InodeRef::flags`] returns (`EXT4_FL_USER_VISIBLE`).
const VISIBLE: InodeFlags = InodeFlags::from_bits_retain(0x725b_dfff);
/// The flags that [`InodeRef::set_flags`] changes. With the kernel's ext4, users may also change
/// flags that make it move or journal the data (`EXT4_FL_USER_MODIFIABLE`).
const SETTABLE: InodeFlags = FIXED
    .union(InodeFlags::SECRM)
    .union(InodeFlags::UNRM)
    .union(InodeFlags::COMPR)
    .union(InodeFlags::SYNC)
    .union(InodeFlags::NODUMP)
    .union(InodeFlags::NOATIME)
    .union(InodeFlags::NOTAIL)
    .union(InodeFlags::DIRSYNC)
    .union(InodeFlags::TOPDIR)
    .union(InodeFlags::CASEFOLD)
    .union(InodeFlags::PROJINHERIT);
/// The flags that only the kernel's ext4 can change.
const KERNEL_SETTABLE: InodeFlags =
    InodeFlags::JOURNAL_DATA.union(InodeFlags::EXTENTS).union(InodeFlags::DAX);

impl InodeRef {
    /// Returns the flags, as `lsattr` prints them.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// use parext4::InodeFlags;
    ///
    /// assert!(!volume.root()?.flags().contains(InodeFlags::IMMUTABLE));
    /// # Ok::<(), parext4::Error>(())
    /// ```
    #[must_use]
    pub fn flags(&self) -> InodeFlags {
        self.inode.core().flags & VISIBLE
    }

    /// Returns the generation number, which distinguishes the inodes that have had this inode
    /// number.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// let dir = volume.create_dir("/dir", 0o755)?;
    /// assert_eq!(dir.generation(), dir.id().generation);
    /// # Ok::<(), parext4::Error>(())
    /// ```
    #[must_use]
    pub fn generation(&self) -> u32 {
        self.inode.core().generation
    }

    /// Sets the flags that users may change. Ignores the remaining visible flags in `flags`. The
    /// caller has checked that the change suits the entries of a directory.
    ///
    /// # Errors
    /// As [`set_flags`](Self::set_flags).
    pub(crate) fn store_flags(&self, flags: InodeFlags) -> Result<()> {
        let unsupported = |flags| Err(Error::Unsupported(format!("setting the flags {flags:?}")));
        let settable = flags & SETTABLE;
        let strange = settable.difference(suitable(self.file_type(), settable)) | flags.difference(VISIBLE);
        if !strange.is_empty() {
            return unsupported(strange);
        }
        // One credit, for the inode's block.
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
            core.ctime = self.inode.now();
            Ok(())
        })
    }
}
