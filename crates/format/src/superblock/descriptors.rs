//! Group descriptors: their size, their blocks, and the blocks at the start of each group that are
//! kept for copies.
//!
//! Without `meta_bg` all descriptors form one table after the superblock, with a copy in every
//! group that has a backup of the superblock. With `meta_bg` the table ends at block
//! `s_first_meta_bg`. The descriptors of each later *meta group*, as many groups as one block has
//! descriptors for, fill a block at the start of the first group of the meta group; its second and
//! its last group have copies. Source: kernel documentation, "Meta Block Groups".

use zerocopy::little_endian::U32;

use super::Superblock;
use crate::features::{Compat, Incompat, RoCompat};
use crate::number::{FsBlock, GroupNo};

impl Superblock {
    /// Returns the size of a group descriptor, in bytes; 32 without `64bit`.
    #[must_use]
    pub fn desc_size(&self) -> u16 {
        if self.is_64bit() { self.raw.s_desc_size.get() } else { 32 }
    }

    /// Returns the number of group descriptors in one block.
    #[must_use]
    pub fn descs_per_block(&self) -> u32 {
        self.block_size() / u32::from(self.desc_size())
    }

    /// Returns the first block of the group descriptor table: the one after the superblock's.
    #[must_use]
    pub fn first_gdt_block(&self) -> FsBlock {
        FsBlock(Self::OFFSET / u64::from(self.block_size()) + 1)
    }

    /// Returns the number of blocks that hold group descriptors, without copies.
    #[must_use]
    pub fn gdt_blocks(&self) -> u32 {
        self.group_count().div_ceil(self.descs_per_block())
    }

    /// Returns the number of blocks after the descriptor table that are reserved for its growth.
    #[must_use]
    pub fn reserved_gdt_blocks(&self) -> u32 {
        self.raw.s_reserved_gdt_blocks.get().into()
    }

    /// Returns the number of blocks of the descriptor table after the superblock: all of them, or
    /// with `meta_bg` the blocks before `s_first_meta_bg`.
    #[must_use]
    pub fn table_gdt_blocks(&self) -> u32 {
        if self.has_meta_groups() { self.raw.s_first_meta_bg.get() } else { self.gdt_blocks() }
    }

    /// Returns block `nr` of the group descriptors, which is below [`gdt_blocks`](Self::gdt_blocks)
    /// (`descriptor_loc` of the kernel). It may lie past the end of the volume if the last group
    /// has only one block.
    #[must_use]
    pub fn gdt_block(&self, nr: u32) -> FsBlock {
        if nr < self.table_gdt_blocks() {
            return self.first_gdt_block() + u64::from(nr);
        }
        let group = u64::from(nr) * u64::from(self.descs_per_block());
        if group == 0 {
            return self.first_gdt_block();
        }
        let start = u64::from(self.first_data_block()) + group * u64::from(self.blocks_per_group());
        // `nr` is in range, so the group exists, and its number has 32 bits.
        let has_super = u32::try_from(group).is_ok_and(|group| self.has_backup(GroupNo(group)));
        FsBlock(start + u64::from(has_super))
    }

    /// Returns the number of blocks at the start of `group` for copies of the superblock and of
    /// descriptors, with the blocks reserved for the growth of the table.
    #[must_use]
    pub fn base_blocks(&self, group: GroupNo) -> u32 {
        self.copies().base_blocks(group)
    }

    /// Returns true if `group` starts with a copy of the superblock; group 0 always does.
    #[must_use]
    pub fn has_backup(&self, group: GroupNo) -> bool {
        self.copies().has_super(group)
    }

    /// Returns the groups that start with copies, and what they hold.
    #[must_use]
    pub fn copies(&self) -> Copies {
        let supers = if self.compat().contains(Compat::SPARSE_SUPER2) {
            SuperCopies::Two(self.raw.s_backup_bgs.map(U32::get))
        } else if self.ro_compat().contains(RoCompat::SPARSE_SUPER) {
            SuperCopies::Sparse
        } else {
            SuperCopies::All
        };
        Copies {
            supers,
            table: self.table_gdt_blocks(),
            reserved: self.reserved_gdt_blocks(),
            has_meta_groups: self.has_meta_groups(),
            descs_per_block: self.descs_per_block(),
        }
    }

    /// Returns true if group descriptors have checksums, so that groups may be uninitialised.
    #[must_use]
    pub fn has_group_checksums(&self) -> bool {
        self.ro_compat().intersects(RoCompat::METADATA_CSUM | RoCompat::GDT_CSUM)
    }

    fn has_meta_groups(&self) -> bool {
        self.incompat().contains(Incompat::META_BG)
    }
}

/// The groups that start with copies of the superblock and of group descriptors, and the sizes of
/// these copies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copies {
    /// The groups with a copy of the superblock.
    pub supers: SuperCopies,
    /// Number of blocks of the table of descriptors after each copy of the superblock.
    pub table: u32,
    /// Number of blocks after the table that are reserved for its growth.
    pub reserved: u32,
    /// True if the descriptors that are not in the table are in meta groups.
    pub has_meta_groups: bool,
    /// Number of descriptors in one block, which is the number of groups of a meta group.
    pub descs_per_block: u32,
}

/// The groups with a copy of the superblock. Group 0 always has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SuperCopies {
    /// All groups.
    All,
    /// Group 1 and the powers of 3, 5 and 7.
    Sparse,
    /// Only these two groups; 0 means no group.
    Two([u32; 2]),
}

impl Copies {
    /// Returns the number of blocks at the start of `group` that are kept for copies
    /// (`ext4_num_base_meta_clusters` of the kernel).
    #[must_use]
    pub fn base_blocks(&self, group: GroupNo) -> u32 {
        let has_super = self.has_super(group);
        if self.is_in_meta_group(group) {
            return u32::from(has_super) + u32::from(self.has_meta_copy(group));
        }
        if has_super { 1 + self.table + self.reserved } else { 0 }
    }

    /// Returns true if `group` starts with a copy of the superblock.
    #[must_use]
    pub fn has_super(&self, group: GroupNo) -> bool {
        let group = group.get();
        match self.supers {
            _ if group == 0 => true,
            SuperCopies::All => true,
            SuperCopies::Sparse => [3, 5, 7].iter().any(|&base| is_power_of(group, base)),
            SuperCopies::Two(groups) => groups.contains(&group),
        }
    }

    /// Returns true if the block of descriptors of the group's meta group, or a copy, is in the
    /// group: in the first, second and last group.
    #[must_use]
    pub fn has_meta_copy(&self, group: GroupNo) -> bool {
        let place = group.get() % self.descs_per_block;
        self.is_in_meta_group(group) && (place <= 1 || place == self.descs_per_block - 1)
    }

    fn is_in_meta_group(&self, group: GroupNo) -> bool {
        self.has_meta_groups && group.get() / self.descs_per_block >= self.table
    }
}

/// Returns true if `n` is a power of `base`, 1 included. `n` is not 0.
const fn is_power_of(mut n: u32, base: u32) -> bool {
    while n.is_multiple_of(base) {
        n /= base;
    }
    n == 1
}

#[cfg(test)]
mod tests {
    use super::is_power_of;

    #[test]
    fn sparse_groups() {
        let backups: Vec<u32> =
            (1..130).filter(|&g| [3, 5, 7].iter().any(|&base| is_power_of(g, base))).collect();
        assert_eq!(backups, [1, 3, 5, 7, 9, 25, 27, 49, 81, 125]);
    }
}
