//! The group descriptors and bitmaps of a new volume.

use parext4_format::bitmap::{block_bitmap_checksum, inode_bitmap_checksum, set_range};
use parext4_format::group_desc::{GroupDesc, GroupFlags};
use parext4_format::superblock::Superblock;
use parext4_format::{ChecksumSeed, FsBlock, GroupNo};

use crate::geometry::Geometry;
use crate::placement::Placement;

/// Number of directories of an empty volume, both in the first group: the root and `lost+found`.
const DIRECTORIES: u32 = 2;

/// Builds the descriptors and bitmaps of one volume.
pub(crate) struct GroupTables<'a> {
    pub sb: &'a Superblock,
    /// The seed of checksums, with `metadata_csum`.
    pub seed: Option<ChecksumSeed>,
    pub geometry: &'a Geometry,
    pub placement: &'a Placement,
    /// True if the parts of the inode tables that are not written read as zeros.
    pub tables_are_zero: bool,
}

impl GroupTables<'_> {
    /// Returns the descriptor of one group.
    pub(crate) fn descriptor(&self, group: u32) -> GroupDesc {
        let location = self.placement.groups[group as usize];
        let blocks = self.geometry.group(group);
        let free_blocks = blocks.end - blocks.start - self.placement.used_in(self.geometry, group);
        let inodes = self.geometry.inodes_per_group;
        let first = group == 0;
        let free_inodes = if first { inodes - self.placement.used_inodes } else { inodes };
        GroupDesc {
            block_bitmap: FsBlock(location.block_bitmap),
            inode_bitmap: FsBlock(location.inode_bitmap),
            inode_table: FsBlock(location.inode_table),
            free_blocks: u32::try_from(free_blocks / u64::from(self.geometry.cluster_blocks))
                .expect("at most 32768"),
            free_inodes,
            used_dirs: if first { DIRECTORIES } else { 0 },
            flags: self.flags(group),
            exclude_bitmap: 0,
            block_bitmap_csum: self.checksum(block_bitmap_checksum, self.block_bitmap(group)),
            inode_bitmap_csum: self.checksum(inode_bitmap_checksum, self.inode_bitmap(group)),
            itable_unused: if self.geometry.features.has_group_checksums() { free_inodes } else { 0 },
            checksum: 0,
        }
    }

    /// Returns the checksum of a bitmap, 0 for a bitmap that is not written.
    fn checksum(
        &self,
        checksum: fn(ChecksumSeed, &[u8], &Superblock) -> u32,
        bitmap: Option<Vec<u8>>,
    ) -> u32 {
        self.seed.zip(bitmap).map_or(0, |(seed, bitmap)| checksum(seed, &bitmap, self.sb))
    }

    fn flags(&self, group: u32) -> GroupFlags {
        let mut flags = GroupFlags::empty();
        if !self.geometry.features.has_group_checksums() {
            return flags;
        }
        flags.set(GroupFlags::INODE_UNINIT, group != 0);
        flags.set(GroupFlags::BLOCK_UNINIT, self.placement.block_bitmap_uninit(self.geometry, group));
        flags.set(GroupFlags::ITABLE_ZEROED, self.tables_are_zero);
        flags
    }

    /// Returns block `nr` of the group descriptors.
    pub(crate) fn descriptor_block(&self, nr: u32) -> Vec<u8> {
        let mut block = vec![0; self.geometry.block_size as usize];
        let slots = block.chunks_exact_mut(usize::from(self.sb.desc_size()));
        for (group, slot) in (nr * self.sb.descs_per_block()..self.geometry.group_count).zip(slots) {
            self.descriptor(group).encode(slot, self.sb, GroupNo(group));
        }
        block
    }

    /// Returns a group's block bitmap, or `None` if it is left uninitialised.
    pub(crate) fn block_bitmap(&self, group: u32) -> Option<Vec<u8>> {
        if self.placement.block_bitmap_uninit(self.geometry, group) {
            return None;
        }
        let mut bitmap = vec![0; self.geometry.block_size as usize];
        let blocks = self.geometry.group(group);
        let cluster = u64::from(self.geometry.cluster_blocks);
        let bit = |block: u64| {
            u32::try_from((block - blocks.start) / cluster).expect("a group has at most 32768 clusters")
        };
        for run in self.placement.used.runs(blocks.clone()) {
            set_range(&mut bitmap, bit(run.start), bit(run.end) - bit(run.start));
        }
        // Blocks past the end of the group count as used.
        let len = bit(blocks.end);
        set_range(&mut bitmap, len, 8 * self.geometry.block_size - len);
        Some(bitmap)
    }

    /// Returns a group's inode bitmap, or `None` if it is left uninitialised.
    pub(crate) fn inode_bitmap(&self, group: u32) -> Option<Vec<u8>> {
        if group != 0 && self.geometry.features.has_group_checksums() {
            return None;
        }
        let mut bitmap = vec![0; self.geometry.block_size as usize];
        set_range(&mut bitmap, 0, if group == 0 { self.placement.used_inodes } else { 0 });
        let inodes = self.geometry.inodes_per_group;
        set_range(&mut bitmap, inodes, 8 * self.geometry.block_size - inodes);
        Some(bitmap)
    }
}
