//! The revision of the format. Revision 0 has no features, inodes of 128 bytes, and 11 as the first
//! inode that is not reserved. The fields for these were added with revision 1.

use super::Superblock;

/// The revision with features and with inodes of any size (`EXT4_DYNAMIC_REV`).
pub(super) const DYNAMIC: u32 = 1;
/// The size of an inode of revision 0 (`EXT4_GOOD_OLD_INODE_SIZE`), in bytes.
pub(super) const OLD_INODE_SIZE: u16 = 128;
/// The first inode of revision 0 that is not reserved (`EXT4_GOOD_OLD_FIRST_INO`).
pub(super) const OLD_FIRST_INODE: u32 = 11;

impl Superblock {
    /// Returns true if the volume has revision 0, which has no fields for the size of inodes.
    #[must_use]
    pub const fn is_old_revision(&self) -> bool {
        self.raw.s_rev_level.get() < DYNAMIC
    }

    /// Returns the size of an inode on the device, in bytes.
    #[must_use]
    pub const fn inode_size(&self) -> u16 {
        if self.is_old_revision() { OLD_INODE_SIZE } else { self.raw.s_inode_size.get() }
    }

    /// Returns the first inode that is not reserved.
    #[must_use]
    pub const fn first_inode(&self) -> u32 {
        if self.is_old_revision() { OLD_FIRST_INODE } else { self.raw.s_first_ino.get() }
    }

    /// Makes a volume of revision 0 one of revision 1 if it `gains` a feature
    /// (`ext4_update_dynamic_rev` of the kernel).
    pub(super) fn raise_revision(&mut self, gains: bool) {
        if gains && self.is_old_revision() {
            self.raw.s_rev_level.set(DYNAMIC);
            self.raw.s_inode_size.set(OLD_INODE_SIZE);
            self.raw.s_first_ino.set(OLD_FIRST_INODE);
        }
    }
}
