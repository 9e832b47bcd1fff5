//! Block, group and inode numbers, each kind with a type of its own.
//!
//! All types are transparent wrappers. Addition panics on overflow in every build, so a wrong
//! number never wraps around silently. Use the `checked_*` methods for numbers from the device.

use crate::convert::{low_32, widen};
use std::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(transparent)]
        pub struct $name(pub $inner);

        impl $name {
            /// Returns the bare number.
            #[inline]
            #[must_use]
            pub const fn get(self) -> $inner {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

/// Arithmetic of a block number with a number of blocks.
macro_rules! block {
    ($name:ident($inner:ty)) => {
        impl $name {
            /// Returns the block that is `blocks` after this one, or `None` on overflow.
            #[inline]
            #[must_use]
            pub const fn checked_add(self, blocks: $inner) -> Option<Self> {
                match self.0.checked_add(blocks) {
                    Some(number) => Some(Self(number)),
                    None => None,
                }
            }

            /// Returns the block that is `blocks` before this one, or `None` if there is none.
            #[inline]
            #[must_use]
            pub const fn checked_sub(self, blocks: $inner) -> Option<Self> {
                match self.0.checked_sub(blocks) {
                    Some(number) => Some(Self(number)),
                    None => None,
                }
            }

            /// Returns the number of blocks from `start` to this one, or `None` if this one is
            /// before `start`.
            #[inline]
            #[must_use]
            pub const fn checked_distance(self, start: Self) -> Option<$inner> {
                self.0.checked_sub(start.0)
            }
        }

        impl std::ops::Add<$inner> for $name {
            type Output = Self;

            /// Returns the block that is `blocks` after this one.
            ///
            /// # Panics
            /// On overflow, in every build.
            #[inline]
            fn add(self, blocks: $inner) -> Self {
                self.checked_add(blocks).expect("block number overflow")
            }
        }

        impl std::ops::AddAssign<$inner> for $name {
            /// Advances the block number.
            ///
            /// # Panics
            /// On overflow, in every build.
            #[inline]
            fn add_assign(&mut self, blocks: $inner) {
                *self = *self + blocks;
            }
        }

        impl std::ops::Sub for $name {
            type Output = $inner;

            /// Returns the number of blocks from `start` to this one.
            ///
            /// # Panics
            /// If this block is before `start`, in every build.
            #[inline]
            fn sub(self, start: Self) -> $inner {
                self.checked_distance(start).expect("a block before the start of the distance")
            }
        }
    };
}

number!(
    /// A block of the volume, counted in file-system blocks from the start of the device.
    FsBlock(u64)
);
block!(FsBlock(u64));
number!(
    /// A block of a file (`ee_block`), counted in file-system blocks from the start of the file.
    ///
    /// A range of file blocks may end at [`FileBlock::LIMIT`], which is not a block number; see
    /// [`BlockRange`](crate::BlockRange).
    FileBlock(u32)
);
block!(FileBlock(u32));
number!(
    /// A block of the journal, counted from the journal's first block, which holds its superblock.
    /// The log begins after it.
    LogBlock(u32)
);
block!(LogBlock(u32));
number!(
    /// An inode number; the first inode is 1, the root directory is 2.
    InodeNo(u32)
);
number!(
    /// A block group, counted from 0.
    GroupNo(u32)
);

impl FileBlock {
    /// The first block of a file.
    pub const ZERO: Self = Self(0);
    /// The last block that the format can number.
    pub const MAX: Self = Self(u32::MAX);
    /// One more than the last block number, 2^32: the end of a range that contains
    /// [`MAX`](Self::MAX).
    pub const LIMIT: u64 = 1 << u32::BITS;

    /// Converts a number, or returns `None` if it is [`LIMIT`](Self::LIMIT) or more.
    #[inline]
    #[must_use]
    pub const fn from_u64(number: u64) -> Option<Self> {
        if number < Self::LIMIT {
            return Some(Self(low_32(number)));
        }
        None
    }

    /// Returns the number, widened for arithmetic that may reach [`LIMIT`](Self::LIMIT).
    #[inline]
    #[must_use]
    pub const fn to_u64(self) -> u64 {
        widen(self.0)
    }
}

impl LogBlock {
    /// The block of the journal's superblock.
    pub const SUPERBLOCK: Self = Self(0);
}

impl InodeNo {
    /// The root directory (`EXT4_ROOT_INO`).
    pub const ROOT: Self = Self(2);
    /// The quota file of users (`EXT4_USR_QUOTA_INO`).
    pub const USER_QUOTA: Self = Self(3);
    /// The quota file of groups (`EXT4_GRP_QUOTA_INO`).
    pub const GROUP_QUOTA: Self = Self(4);
    /// The inode that holds the reserved group descriptor blocks (`EXT4_RESIZE_INO`).
    pub const RESIZE: Self = Self(7);
    /// The journal (`EXT4_JOURNAL_INO`).
    pub const JOURNAL: Self = Self(8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_as_large_as_what_they_wrap() {
        assert_eq!((size_of::<FileBlock>(), align_of::<FileBlock>()), (4, 4));
        assert_eq!((size_of::<FsBlock>(), align_of::<FsBlock>()), (8, 8));
    }

    #[test]
    fn conversions_keep_the_number_or_refuse_it() {
        assert_eq!(FileBlock::from_u64(FileBlock::LIMIT - 1), Some(FileBlock::MAX));
        assert_eq!(FileBlock::from_u64(FileBlock::LIMIT), None);
        assert_eq!(FileBlock::MAX.to_u64() + 1, FileBlock::LIMIT);
    }

    #[test]
    fn checked_arithmetic_refuses_overflow() {
        let one = FileBlock(1);
        assert_eq!(FileBlock::MAX.checked_add(1), None);
        assert_eq!(FileBlock::ZERO.checked_sub(1), None);
        assert_eq!(FileBlock::ZERO.checked_distance(one), None);
        assert_eq!((one + 2, FileBlock(3) - one), (FileBlock(3), 2));
    }

    #[test]
    #[should_panic(expected = "block number overflow")]
    fn addition_never_wraps() {
        let _ = FileBlock::MAX + 1;
    }

    #[test]
    #[should_panic(expected = "before the start")]
    fn subtraction_never_wraps() {
        let _ = FileBlock::ZERO - FileBlock(1);
    }
}
