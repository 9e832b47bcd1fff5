//! Whether this implementation can read and write a file system, according to its features.

use super::Superblock;
use crate::error::{FormatError, Result};
use crate::features::{Compat, Incompat, RoCompat};

/// The access to a file system that its features permit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// Every feature is supported.
    ReadWrite,
    /// The file system can be read but must not be written.
    ReadOnly {
        /// The features that forbid writing.
        because: Vec<String>,
    },
}

impl Incompat {
    /// The features of volumes that are supported for reading and writing, with the features of
    /// this crate.
    pub const SUPPORTED: Self = Self::FILETYPE
        .union(Self::RECOVER)
        .union(Self::META_BG)
        .union(Self::EXTENTS)
        .union(Self::BIT64)
        .union(Self::MMP)
        .union(Self::FLEX_BG)
        .union(Self::EA_INODE)
        .union(Self::CSUM_SEED)
        .union(Self::LARGEDIR)
        .union(Self::INLINE_DATA)
        .union(if cfg!(feature = "sha2") { Self::ENCRYPT } else { Self::empty() })
        .union(if cfg!(feature = "casefold") { Self::CASEFOLD } else { Self::empty() });
}

impl RoCompat {
    /// The features of volumes that are supported for writing, with the features of this crate.
    pub const SUPPORTED: Self = Self::SPARSE_SUPER
        .union(Self::LARGE_FILE)
        .union(Self::BTREE_DIR)
        .union(Self::HUGE_FILE)
        .union(Self::GDT_CSUM)
        .union(Self::DIR_NLINK)
        .union(Self::EXTRA_ISIZE)
        .union(Self::QUOTA)
        .union(Self::BIGALLOC)
        .union(Self::METADATA_CSUM)
        .union(Self::PROJECT)
        .union(if cfg!(feature = "sha2") { Self::VERITY } else { Self::empty() })
        .union(Self::ORPHAN_PRESENT);
}

/// Binary logarithm of the largest cluster that is supported for writing, in blocks: one unwritten
/// extent, of at most 32767 blocks, can map all of it.
const MAX_CLUSTER_BITS: u32 = 14;

impl Superblock {
    /// Returns the access that the features permit.
    ///
    /// # Errors
    /// Names the features that forbid reading: unsupported `incompat` features, an encoding of
    /// names that is not known.
    pub fn access(&self) -> Result<Access> {
        let refuse = |field, problem: String| Err(FormatError::new("superblock", field, problem));

        let unsupported = self.incompat().difference(Incompat::SUPPORTED);
        if !unsupported.is_empty() {
            return refuse("s_feature_incompat", unsupported_features(&unsupported.names()));
        }
        self.check_encoding()?;
        let mut because = self.ro_compat().difference(RoCompat::SUPPORTED).names();
        because.extend(self.unsupported_clusters().map(str::to_owned));
        Ok(if because.is_empty() { Access::ReadWrite } else { Access::ReadOnly { because } })
    }

    /// Returns why the clusters of the file system forbid writing. Of the unsupported kinds,
    /// `mke2fs` makes only clusters of more than 16384 blocks.
    fn unsupported_clusters(&self) -> Option<&'static str> {
        let bits = self.cluster_bits();
        if !self.ro_compat().contains(RoCompat::BIGALLOC) {
            None
        } else if !self.incompat().contains(Incompat::EXTENTS) {
            Some("bigalloc without extent")
        } else if bits > MAX_CLUSTER_BITS {
            Some("bigalloc with clusters of more than 16384 blocks")
        } else if bits > 0 && self.first_data_block() != 0 {
            Some("bigalloc with clusters that begin at block 1")
        } else if !self.blocks_count().is_multiple_of(1 << bits) {
            Some("bigalloc with an incomplete last cluster")
        } else {
            None
        }
    }

    /// Returns the names of all features, in the order in which `dumpe2fs` prints them.
    #[must_use]
    pub fn feature_names(&self) -> Vec<String> {
        [self.compat().names(), self.incompat().names(), self.ro_compat().names()].concat()
    }

    /// Returns the type of the volume as blkid(8) names it: `ext4` if the volume has a feature that
    /// the drivers of ext2 and ext3 did not have, else `ext3` with a journal and `ext2` without
    /// one.
    #[must_use]
    pub fn type_name(&self) -> &'static str {
        let older = Incompat::FILETYPE | Incompat::RECOVER | Incompat::META_BG;
        let older_ro = RoCompat::SPARSE_SUPER | RoCompat::LARGE_FILE | RoCompat::BTREE_DIR;
        if !older.contains(self.incompat()) || !older_ro.contains(self.ro_compat()) {
            "ext4"
        } else if self.compat().contains(Compat::HAS_JOURNAL) {
            "ext3"
        } else {
            "ext2"
        }
    }
}

fn unsupported_features(names: &[String]) -> String {
    format!("feature not supported: {}", names.join(", "))
}
