//! The types of volumes, and the uses for which sizes are chosen, as `mke2fs.conf` of e2fsprogs
//! 1.47 has them.

use std::str::FromStr;

use parext4_format::features::{Incompat, RoCompat};

use crate::error::{MkfsError, Result};
use crate::features::Features;

/// A type of volume: the features that it has, unless the options change them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FsType {
    /// No journal, and files mapped by indirect blocks.
    Ext2,
    /// A journal, and files mapped by indirect blocks.
    Ext3,
    /// A journal, extents, checksums, and block numbers of 64 bits.
    #[default]
    Ext4,
}

impl FsType {
    pub(crate) fn features(self) -> Features {
        let mut features = Features::BASE;
        if self == Self::Ext4 {
            features.incompat |= Incompat::EXTENTS | Incompat::BIT64 | Incompat::FLEX_BG;
            features.ro_compat |=
                RoCompat::HUGE_FILE | RoCompat::DIR_NLINK | RoCompat::EXTRA_ISIZE | RoCompat::METADATA_CSUM;
        }
        features
    }

    pub(crate) fn has_journal(self) -> bool {
        self != Self::Ext2
    }
}

impl FromStr for FsType {
    type Err = MkfsError;

    fn from_str(word: &str) -> Result<Self> {
        match word {
            "ext2" => Ok(Self::Ext2),
            "ext3" => Ok(Self::Ext3),
            "ext4" => Ok(Self::Ext4),
            _ => Err(MkfsError::invalid(format_args!(
                "type {word:?} is unknown; there are ext2, ext3 and ext4"
            ))),
        }
    }
}

/// The sizes that the use of a volume, or the size of its device, chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Usage {
    pub block_size: u32,
    /// Bytes of the volume for each inode.
    pub inode_ratio: u64,
}

impl Usage {
    const DEFAULT: Self = Self { block_size: 4096, inode_ratio: 16384 };

    /// Returns the sizes for a list of uses, of which a later one takes precedence.
    ///
    /// # Errors
    /// [`MkfsError::Invalid`] names a use that is unknown.
    pub(crate) fn parse(list: &str) -> Result<Self> {
        let mut usage = Self::DEFAULT;
        for word in list.split(',') {
            let (block_size, inode_ratio) = match word {
                "floppy" => (1024, 8192),
                "small" => (1024, 4096),
                "default" => continue,
                "big" => (usage.block_size, 32768),
                "huge" => (usage.block_size, 65536),
                "news" => (usage.block_size, 4096),
                "largefile" => (4096, 1 << 20),
                "largefile4" => (4096, 4 << 20),
                _ => {
                    return Err(MkfsError::invalid(format_args!(
                        "use {word:?} is unknown; there are floppy, small, default, big, huge, news, largefile and largefile4"
                    )));
                }
            };
            usage = Self { block_size, inode_ratio };
        }
        Ok(usage)
    }

    /// Returns the sizes that mke2fs chooses for a device of `size` bytes.
    pub(crate) fn for_size(size: u64) -> Self {
        const MIB: u64 = 1 << 20;
        const TIB: u64 = 1 << 40;
        let (block_size, inode_ratio) = match size {
            _ if size < 3 * MIB => (1024, 8192),
            _ if size < 512 * MIB => (1024, 4096),
            _ if size < 4 * TIB => return Self::DEFAULT,
            _ if size < 16 * TIB => (4096, 32768),
            _ => (4096, 65536),
        };
        Self { block_size, inode_ratio }
    }
}
