//! The location of each structure of the new volume.
//!
//! Allocates blocks in the order of mke2fs: superblock copies and descriptors, the tables of the
//! flex groups, the first directories, the resize inode's map, and the journal. This module does no
//! I/O.

use std::ops::Range;

use parext4_format::InodeNo;
use parext4_format::quota::QuotaKind;

use crate::MkfsOptions;
use crate::error::Result;
use crate::file_blocks::FileBlocks;
use crate::geometry::{FIRST_INODE, Geometry, lost_found_blocks, too_small};
use crate::journal::{self, JournalSize};
use crate::quota::{NewQuotaFile, PlacedQuotaFile};
use crate::used::UsedBlocks;

/// The location of one group's metadata, as block numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupLocation {
    pub block_bitmap: u64,
    pub inode_bitmap: u64,
    pub inode_table: u64,
}

/// The location of all structures.
#[derive(Clone, Debug)]
pub(crate) struct Placement {
    pub groups: Vec<GroupLocation>,
    pub root: u64,
    pub lost_found: Range<u64>,
    /// The resize inode's double-indirect block.
    pub resize_map: Option<u64>,
    pub journal: Option<FileBlocks>,
    /// The block of multi-mount protection.
    pub mmp: Option<u64>,
    /// The orphan file, whose inode is [`ORPHAN_FILE`].
    pub orphan_file: Option<FileBlocks>,
    pub quota_files: Vec<PlacedQuotaFile>,
    /// Number of inodes in use, which are the first ones.
    pub used_inodes: u32,
    pub used: UsedBlocks,
    /// Number of clusters that hold neither data nor directories (`s_overhead_clusters`).
    pub overhead: u64,
}

/// Number of the orphan file's inode, after `lost+found`.
pub(crate) const ORPHAN_FILE: u32 = FIRST_INODE + 1;

/// The parts of a volume beyond its tables and directories.
pub(crate) struct Contents {
    pub journal: Option<JournalSize>,
    /// Whether the volume has a block of multi-mount protection.
    pub mmp: bool,
    /// Length of the orphan file in blocks.
    pub orphan_file: Option<u32>,
    pub quota_files: Vec<NewQuotaFile>,
}

impl Placement {
    /// Lays out an empty volume.
    ///
    /// # Errors
    /// If the volume is too small.
    pub(crate) fn new(geometry: &Geometry, contents: &Contents, options: &MkfsOptions) -> Result<Self> {
        let mut used = UsedBlocks::default();
        for group in (0..geometry.group_count).filter(|&group| geometry.base_blocks(group) > 0) {
            let blocks = geometry.group(group);
            let end = geometry.super_block(group) + u64::from(geometry.base_blocks(group));
            if end > blocks.end {
                return Err(too_small(geometry.blocks_count, geometry.block_size));
            }
            used.mark(blocks.start..end);
        }
        let mut groups = Vec::new();
        let together = if options.packed_metadata { geometry.group_count } else { geometry.flex_groups };
        for first in (0..geometry.group_count).step_by(together as usize) {
            let end = first.saturating_add(together).min(geometry.group_count);
            allocate_tables(geometry, first..end, &mut used, &mut groups)?;
        }
        // Blocks of the file system itself share clusters, but not with files.
        used.round_out(geometry.cluster_blocks.into());
        let whole = u64::from(geometry.first_data_block)..geometry.blocks_count;
        let overhead = whole.start + used.count(whole.clone());
        let take = |used: &mut UsedBlocks, len| {
            used.allocate(whole.clone(), len)
                .ok_or_else(|| too_small(geometry.blocks_count, geometry.block_size))
        };
        let root = take(&mut used, 1)?.start;
        let lost_found = take(&mut used, lost_found_blocks(geometry.block_size))?;
        let resize_map = if geometry.has_resize_inode() { Some(take(&mut used, 1)?.start) } else { None };
        let start = options.journal_start.or_else(|| options.packed_metadata.then_some(0));
        let journal = contents.journal.map(|size| journal::allocate(geometry, &mut used, start, size.blocks));
        let journal = journal.transpose()?;
        let mmp = if contents.mmp { Some(take(&mut used, 1)?.start) } else { None };
        let orphan_file =
            contents.orphan_file.map(|blocks| FileBlocks::allocate(geometry, &mut used, whole.start, blocks));
        let orphan_file = orphan_file.transpose()?;
        let mut used_inodes = if orphan_file.is_some() { ORPHAN_FILE } else { FIRST_INODE };
        let mut quota_files = Vec::new();
        for file in contents.quota_files.clone() {
            let ino = match file.kind {
                QuotaKind::User => InodeNo::USER_QUOTA,
                QuotaKind::Group => InodeNo::GROUP_QUOTA,
                QuotaKind::Project => {
                    used_inodes += 1;
                    InodeNo(used_inodes)
                }
            };
            let len = file.blocks(geometry.block_size);
            let blocks = FileBlocks::allocate(geometry, &mut used, whole.start, len)?;
            quota_files.push(PlacedQuotaFile { ino, blocks, file });
        }
        let journal_blocks = contents.journal.map_or(0, |size| u64::from(size.blocks));
        let overhead = overhead + geometry.round_to_clusters(journal_blocks);
        let overhead = overhead / u64::from(geometry.cluster_blocks);
        Ok(Self {
            groups,
            root,
            lost_found,
            resize_map,
            journal,
            mmp,
            orphan_file,
            quota_files,
            used_inodes,
            used,
            overhead,
        })
    }

    /// Returns the number of used blocks of one group.
    pub(crate) fn used_in(&self, geometry: &Geometry, group: u32) -> u64 {
        self.used.count(geometry.group(group))
    }

    /// Returns true if a group's block bitmap need not be written, because only the superblock
    /// copy, the descriptors and the group's own bitmaps and table are used, which the kernel marks
    /// by itself. The bitmap of the last group is written always, for its padding.
    pub(crate) fn block_bitmap_uninit(&self, geometry: &Geometry, group: u32) -> bool {
        let is_last = group + 1 == geometry.group_count;
        if !geometry.features.has_group_checksums() || is_last {
            return false;
        }
        if geometry.cluster_blocks > 1 {
            // The structures of a group may share clusters, so the bitmap is left out only for
            // groups that have nothing but the copies.
            let copies = geometry.round_to_clusters(geometry.base_blocks(group).into());
            return group > 0 && self.used_in(geometry, group) == copies;
        }
        let (blocks, own) = (geometry.group(group), self.groups[group as usize]);
        let table = u64::from(geometry.inode_table_blocks);
        let parts = [(own.block_bitmap, 1), (own.inode_bitmap, 1), (own.inode_table, table)];
        let own: u64 = parts.iter().filter(|(at, _)| blocks.contains(at)).map(|(_, len)| len).sum();
        self.used_in(geometry, group) == u64::from(geometry.base_blocks(group)) + own
    }
}

/// Allocates the bitmaps and inode tables of `groups`, such as a flex group, at the start of the
/// first one, around the superblock copies: all block bitmaps, all inode bitmaps, all tables.
fn allocate_tables(
    geometry: &Geometry,
    groups: Range<u32>,
    used: &mut UsedBlocks,
    locations: &mut Vec<GroupLocation>,
) -> Result<()> {
    let mut start = geometry.group(groups.start).start;
    let end = geometry.group(groups.end - 1).end;
    // mke2fs leaves room for the bitmaps of further groups if there is one group, which affects the
    // number of clusters.
    let gap =
        if groups.len() == 1 && geometry.cluster_blocks > 1 { u64::from(geometry.flex_groups) } else { 0 };
    let mut each = |len: u32| -> Result<Vec<u64>> {
        let len = u64::from(len);
        let places: Option<Vec<u64>> =
            groups.clone().map(|_| used.allocate(start..end, len).map(|run| run.start)).collect();
        let places = places.ok_or_else(|| too_small(geometry.blocks_count, geometry.block_size))?;
        if gap > 0 {
            start = (places[0] + gap).min(end);
        }
        Ok(places)
    };
    let block_bitmaps = each(1)?;
    let inode_bitmaps = each(1)?;
    let inode_tables = each(geometry.inode_table_blocks)?;
    let bitmaps = block_bitmaps.into_iter().zip(inode_bitmaps);
    locations.extend(bitmaps.zip(inode_tables).map(|((block_bitmap, inode_bitmap), inode_table)| {
        GroupLocation { block_bitmap, inode_bitmap, inode_table }
    }));
    Ok(())
}
