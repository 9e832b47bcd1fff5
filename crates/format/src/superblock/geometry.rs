//! Numbers that are derived from the superblock: blocks, groups, inodes.

use super::Superblock;
use crate::block_size::BlockSize;
use crate::convert::low_32;
use crate::features::{Incompat, RoCompat};

/// Size of the extra inode fields that the kernel knows, in bytes.
const KNOWN_EXTRA_ISIZE: u16 = 32;

/// Blocks and groups.
impl Superblock {
    /// Returns the size of a block, in bytes: a power of two from 1 to 64 KiB.
    #[must_use]
    pub const fn block_size(&self) -> u32 {
        1 << self.block_bits()
    }

    /// Returns the binary logarithm of the block size: 10 to 16.
    #[must_use]
    pub const fn block_bits(&self) -> u32 {
        10 + self.raw.s_log_block_size.get()
    }

    /// Returns the block size for conversions between bytes and blocks.
    #[must_use]
    pub fn block_unit(&self) -> BlockSize {
        BlockSize::from_bits(self.block_bits()).expect("the geometry check admits only supported sizes")
    }

    /// Returns the number of blocks on the volume.
    #[must_use]
    pub fn blocks_count(&self) -> u64 {
        self.wide(self.raw.s_blocks_count_lo.get(), self.raw.s_blocks_count_hi.get())
    }

    /// Returns the number of blocks that only root may allocate.
    #[must_use]
    pub fn reserved_blocks(&self) -> u64 {
        self.wide(self.raw.s_r_blocks_count_lo.get(), self.raw.s_r_blocks_count_hi.get())
    }

    /// Returns the number of free blocks. Only the group descriptors are exact; this sum may be
    /// stale after a crash.
    #[must_use]
    pub fn free_blocks(&self) -> u64 {
        self.wide(self.raw.s_free_blocks_count_lo.get(), self.raw.s_free_blocks_count_hi.get())
    }

    /// Sets the number of free blocks.
    pub fn set_free_blocks(&mut self, blocks: u64) {
        self.raw.s_free_blocks_count_lo.set(low_32(blocks));
        if self.is_64bit() {
            self.raw.s_free_blocks_count_hi.set(low_32(blocks >> 32));
        }
    }

    /// Returns the first block of group 0: 1 if blocks have 1024 bytes, else 0.
    #[must_use]
    pub const fn first_data_block(&self) -> u32 {
        self.raw.s_first_data_block.get()
    }

    /// Returns the number of blocks in a group; the last group may have fewer.
    #[must_use]
    pub const fn blocks_per_group(&self) -> u32 {
        self.raw.s_blocks_per_group.get()
    }

    /// Returns the number of bits in a group's block bitmap: clusters with `bigalloc`, else blocks.
    /// Without the feature the field has the size of fragments, which no implementation supports,
    /// and is ignored.
    #[must_use]
    pub const fn clusters_per_group(&self) -> u32 {
        let has_clusters = self.ro_compat().contains(RoCompat::BIGALLOC);
        if has_clusters { self.raw.s_clusters_per_group.get() } else { self.raw.s_blocks_per_group.get() }
    }

    /// Returns the binary logarithm of the number of blocks in a cluster, the unit of allocation: 0
    /// without `bigalloc`.
    #[must_use]
    pub const fn cluster_bits(&self) -> u32 {
        (self.blocks_per_group() / self.clusters_per_group()).ilog2()
    }

    /// Returns the number of block groups.
    #[must_use]
    pub fn group_count(&self) -> u32 {
        let blocks = self.blocks_count() - u64::from(self.first_data_block());
        let groups = blocks.div_ceil(u64::from(self.blocks_per_group()));
        u32::try_from(groups).expect("the geometry check admits no more groups")
    }

    /// Returns the number of groups whose metadata may be stored together; 1 without `flex_bg`.
    #[must_use]
    pub fn groups_per_flex(&self) -> u32 {
        let flex = self.incompat().contains(Incompat::FLEX_BG);
        if flex { 1 << self.raw.s_log_groups_per_flex } else { 1 }
    }
}

/// Inodes.
impl Superblock {
    /// Returns the number of inodes on the volume.
    #[must_use]
    pub const fn inodes_count(&self) -> u32 {
        self.raw.s_inodes_count.get()
    }

    /// Returns the number of free inodes. Only the group descriptors are exact; this sum may be
    /// stale after a crash.
    #[must_use]
    pub const fn free_inodes(&self) -> u32 {
        self.raw.s_free_inodes_count.get()
    }

    /// Sets the number of free inodes.
    pub fn set_free_inodes(&mut self, inodes: u32) {
        self.raw.s_free_inodes_count.set(inodes);
    }

    /// Returns the number of inodes in each group.
    #[must_use]
    pub const fn inodes_per_group(&self) -> u32 {
        self.raw.s_inodes_per_group.get()
    }

    /// Returns the number of blocks of one group's inode table.
    #[must_use]
    pub fn inode_table_blocks(&self) -> u32 {
        self.inodes_per_group().div_ceil(self.block_size() / u32::from(self.inode_size()))
    }

    /// Returns the smallest number of extra bytes of any inode; 0 without `extra_isize`.
    #[must_use]
    pub fn min_extra_isize(&self) -> u16 {
        let promised = self.ro_compat().contains(RoCompat::EXTRA_ISIZE);
        if promised { self.raw.s_min_extra_isize.get() } else { 0 }
    }

    /// Returns the number of extra bytes of a new inode: enough for the kernel's fields, or more if
    /// the superblock asks for more.
    #[must_use]
    pub fn want_extra_isize(&self) -> u16 {
        if self.inode_size() <= 128 {
            return 0;
        }
        let asks = self.ro_compat().contains(RoCompat::EXTRA_ISIZE);
        let want = if asks { self.raw.s_want_extra_isize.get() } else { 0 };
        want.max(self.min_extra_isize()).max(KNOWN_EXTRA_ISIZE)
    }

    /// Returns the journal's inode; 0 if there is none.
    #[must_use]
    pub const fn journal_inode(&self) -> u32 {
        self.raw.s_journal_inum.get()
    }

    /// Returns the first inode of the orphan list; 0 if it is empty.
    #[must_use]
    pub const fn last_orphan(&self) -> u32 {
        self.raw.s_last_orphan.get()
    }

    /// Sets the first inode of the orphan list.
    pub fn set_last_orphan(&mut self, ino: u32) {
        self.raw.s_last_orphan.set(ino);
    }

    /// Returns the inode of the orphan file; meaningful with `orphan_file` only.
    #[must_use]
    pub const fn orphan_file_inode(&self) -> u32 {
        self.raw.s_orphan_file_inum.get()
    }
}

impl Superblock {
    pub(super) const fn is_64bit(&self) -> bool {
        self.incompat().contains(Incompat::BIT64)
    }

    /// Joins the halves of a block count; the high one counts with `64bit` only.
    fn wide(&self, low: u32, high: u32) -> u64 {
        let high = if self.is_64bit() { high } else { 0 };
        u64::from(high) << 32 | u64::from(low)
    }
}
