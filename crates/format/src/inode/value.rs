//! Fields of an inode that has the value of an attribute (`ea_inode`): timestamps and the version
//! have other meanings there.

use super::{Inode, Timestamp};
use crate::convert::low_32;

impl Inode {
    /// Returns the hash of the value (`ext4_xattr_inode_get_hash`).
    #[must_use]
    pub fn value_hash(&self) -> u32 {
        low_32(self.atime.seconds.cast_unsigned())
    }

    /// Sets the hash of the value.
    pub fn set_value_hash(&mut self, hash: u32) {
        // As a signed number it needs no bits of `i_atime_extra`, which an inode of 128 bytes
        // lacks.
        self.atime = Timestamp { seconds: hash.cast_signed().into(), nanoseconds: 0 };
    }

    /// Returns the number of entries that refer to the value (`ext4_xattr_inode_get_ref`).
    #[must_use]
    pub fn value_references(&self) -> u64 {
        let high = self.ctime.seconds.cast_unsigned() & u64::from(u32::MAX);
        high << 32 | self.version & u64::from(u32::MAX)
    }

    /// Sets the number of entries that refer to the value.
    pub fn set_value_references(&mut self, count: u64) {
        self.version = count & u64::from(u32::MAX);
        self.ctime = Timestamp { seconds: low_32(count >> 32).cast_signed().into(), nanoseconds: 0 };
    }
}
