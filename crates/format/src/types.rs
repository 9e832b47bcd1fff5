//! Numbers that must not be mixed up: each kind of block and inode number has a type of its own.

use std::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl $name {
            /// The bare number.
            #[must_use]
            pub const fn get(self) -> $inner {
                self.0
            }

            /// This number plus `n`, or `None` on overflow.
            #[must_use]
            pub const fn checked_add(self, n: $inner) -> Option<Self> {
                match self.0.checked_add(n) {
                    Some(value) => Some(Self(value)),
                    None => None,
                }
            }
        }

        impl std::ops::Add<$inner> for $name {
            type Output = Self;
            fn add(self, n: $inner) -> Self {
                Self(self.0 + n)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number!(
    /// A block of the volume, counted in file-system blocks from the start of the device.
    FsBlock(u64)
);
number!(
    /// A block of a file, counted in file-system blocks from the start of the file (`ee_block`).
    FileBlock(u32)
);
number!(
    /// An inode number; the first inode is 1, the root directory is 2.
    InodeNo(u32)
);
number!(
    /// A block group, counted from 0.
    GroupNo(u32)
);

impl InodeNo {
    /// The root directory (`EXT4_ROOT_INO`).
    pub const ROOT: Self = Self(2);
    /// The inode that holds the reserved group descriptor blocks (`EXT4_RESIZE_INO`).
    pub const RESIZE: Self = Self(7);
    /// The journal (`EXT4_JOURNAL_INO`).
    pub const JOURNAL: Self = Self(8);
}
