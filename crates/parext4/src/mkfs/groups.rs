//! The group descriptors and bitmaps of a new volume.

use parext4_format::bitmap::{block_bitmap_checksum, inode_bitmap_checksum, set_range};
use parext4_format::group_desc::{GroupDesc, GroupFlags};
use parext4_format::superblock::Superblock;
use parext4_format::{ChecksumSeed, FsBlock, GroupNo};

use super::geometry::{FIRST_INODE, Geometry};
use super::placement::Placement;

/// Number of directories of an empty volume, both in the first group: the root and `lost+found`.
const DIRECTORIES: u32 = 2;

/// Builds the descriptors and bitmaps of one volume.
pub(super) struct GroupTables<'a> {
    pub sb: &'a Superblock,
    pub seed: ChecksumSeed,
    pub geometry: &'a Geometry,
    pub placement: &'a Placement,
    /// The parts of the inode tables that are not written read as zeros.
    pub tables_are_zero: bool,
}

impl GroupTables<'_> {
    /// Returns the descriptor of one group.
    pub(super) fn descriptor(&self, group: u32) -> GroupDesc {
        let location = self.placement.groups[group as usize];
        let blocks = self.geometry.group(group);
        let free_blocks = blocks.end - blocks.start - self.placement.used_in(self.geometry, group);
        let inodes = self.geometry.inodes_per_group;
        let first = group == 0;
        let free_inodes = if first { inodes - FIRST_INODE } else { inodes };
        GroupDesc {
            block_bitmap: FsBlock(location.block_bitmap),
            inode_bitmap: FsBlock(location.inode_bitmap),
            inode_table: FsBlock(location.inode_table),
            free_blocks: u32::try_from(free_blocks).expect("at most 32768"),
            free_inodes,
            used_dirs: if first { DIRECTORIES } else { 0 },
            flags: self.flags(group),
            exclude_bitmap: 0,
            block_bitmap_csum: self
                .block_bitmap(group)
                .map_or(0, |bitmap| block_bitmap_checksum(self.seed, &bitmap, self.sb)),
            inode_bitmap_csum: self
                .inode_bitmap(group)
                .map_or(0, |bitmap| inode_bitmap_checksum(self.seed, &bitmap, self.sb)),
            itable_unused: free_inodes,
            checksum: 0,
        }
    }

    fn flags(&self, group: u32) -> GroupFlags {
        let mut flags = GroupFlags::empty();
        flags.set(GroupFlags::INODE_UNINIT, group != 0);
        flags.set(GroupFlags::BLOCK_UNINIT, self.placement.block_bitmap_uninit(self.geometry, group));
        flags.set(GroupFlags::ITABLE_ZEROED, self.tables_are_zero);
        flags
    }

    /// Returns the whole descriptor table.
    pub(super) fn table(&self) -> Vec<u8> {
        let mut table = vec![0; self.geometry.gdt_blocks as usize * self.geometry.block_size as usize];
        let slots = table.chunks_exact_mut(usize::from(self.sb.desc_size()));
        for (group, slot) in (0..self.geometry.group_count).zip(slots) {
            self.descriptor(group).encode(slot, self.sb, GroupNo(group));
        }
        table
    }

    /// Returns a group's block bitmap, or `None` if it is left uninitialised.
    pub(super) fn block_bitmap(&self, group: u32) -> Option<Vec<u8>> {
        if self.placement.block_bitmap_uninit(self.geometry, group) {
            return None;
        }
        let mut bitmap = vec![0; self.geometry.block_size as usize];
        let blocks = self.geometry.group(group);
        let bit = |block: u64| u32::try_from(block - blocks.start).expect("a group has at most 32768 blocks");
        for run in self.placement.used.runs(blocks.clone()) {
            set_range(&mut bitmap, bit(run.start), bit(run.end) - bit(run.start));
        }
        // Blocks past the end of the volume count as used.
        let len = bit(blocks.end);
        set_range(&mut bitmap, len, self.geometry.blocks_per_group - len);
        Some(bitmap)
    }

    /// Returns a group's inode bitmap, or `None` if it is left uninitialised.
    pub(super) fn inode_bitmap(&self, group: u32) -> Option<Vec<u8>> {
        if group != 0 {
            return None;
        }
        let mut bitmap = vec![0; self.geometry.block_size as usize];
        set_range(&mut bitmap, 0, FIRST_INODE);
        let inodes = self.geometry.inodes_per_group;
        set_range(&mut bitmap, inodes, 8 * self.geometry.block_size - inodes);
        Some(bitmap)
    }
}
