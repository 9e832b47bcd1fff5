//! Where each structure of the new volume lies.

use std::ops::Range;

use super::geometry::{Geometry, LOG_GROUPS_PER_FLEX, too_small};
use super::journal;
use super::used::UsedBlocks;
use crate::error::Result;

/// The first blocks of one group's metadata.
#[derive(Clone, Copy, Debug)]
pub(super) struct GroupPlace {
    pub block_bitmap: u64,
    pub inode_bitmap: u64,
    pub inode_table: u64,
}

/// The journal's blocks.
#[derive(Clone, Debug)]
pub(super) struct JournalPlace {
    /// Runs in the order of the journal's own blocks, each at most as long as one extent can be.
    pub runs: Vec<Range<u64>>,
    /// Extent tree leaves; empty when the extents fit the inode.
    pub leaves: Vec<u64>,
}

/// Where everything is, and so which blocks are used.
#[derive(Clone, Debug)]
pub(super) struct Placement {
    pub groups: Vec<GroupPlace>,
    pub root: u64,
    pub lost_found: Range<u64>,
    /// The resize inode's double-indirect block.
    pub resize_map: Option<u64>,
    pub journal: Option<JournalPlace>,
    pub used: UsedBlocks,
    /// Blocks that hold neither data nor directories (`s_overhead_clusters`).
    pub overhead: u64,
}

impl Placement {
    /// Places an empty volume with a journal of `journal_blocks`, or none.
    pub(super) fn new(geometry: &Geometry, journal_blocks: Option<u32>) -> Result<Self> {
        let mut used = UsedBlocks::default();
        for group in (0..geometry.group_count).filter(|&group| Geometry::has_super(group)) {
            let start = geometry.group(group).start;
            used.mark(start..start + u64::from(geometry.super_blocks(group)));
        }
        let mut groups = Vec::new();
        for first in (0..geometry.group_count).step_by(1 << LOG_GROUPS_PER_FLEX) {
            place_flex_group(geometry, first, &mut used, &mut groups)?;
        }
        let whole = u64::from(geometry.first_data_block)..geometry.blocks_count;
        let overhead = whole.start + used.count(whole.clone());
        let mut take = |len| {
            used.take(whole.clone(), len).ok_or_else(|| too_small(geometry.blocks_count, geometry.block_size))
        };
        let root = take(1)?.start;
        let lost_found = take(lost_found_blocks(geometry.block_size))?;
        let resize_map = if geometry.has_resize_inode() { Some(take(1)?.start) } else { None };
        let journal = journal_blocks.map(|blocks| journal::place(geometry, &mut used, blocks)).transpose()?;
        let overhead = overhead + u64::from(journal_blocks.unwrap_or(0));
        Ok(Self { groups, root, lost_found, resize_map, journal, used, overhead })
    }

    /// The used blocks of one group.
    pub(super) fn used_in(&self, geometry: &Geometry, group: u32) -> u64 {
        self.used.count(geometry.group(group))
    }

    /// Whether a group's block bitmap need not be written: only its superblock copy and descriptors are used,
    /// which the kernel marks by itself. The last group's is written, for its padding.
    pub(super) fn block_bitmap_uninit(&self, geometry: &Geometry, group: u32) -> bool {
        group + 1 < geometry.group_count
            && self.used_in(geometry, group) == u64::from(geometry.super_blocks(group))
    }
}

/// Packs the bitmaps and inode tables of one flex group at its start: all block bitmaps, all inode bitmaps,
/// all tables, around the superblock copies.
fn place_flex_group(
    geometry: &Geometry,
    first: u32,
    used: &mut UsedBlocks,
    groups: &mut Vec<GroupPlace>,
) -> Result<()> {
    let last = (first | ((1 << LOG_GROUPS_PER_FLEX) - 1)).min(geometry.group_count - 1);
    let start = geometry.group(first).start;
    let end = geometry.group(last).end;
    let mut each = |len: u32| -> Result<Vec<u64>> {
        let len = u64::from(len);
        (first..=last)
            .map(|_| used.take(start..end, len).map(|run| run.start))
            .collect::<Option<_>>()
            .ok_or_else(|| too_small(geometry.blocks_count, geometry.block_size))
    };
    let block_bitmaps = each(1)?;
    let inode_bitmaps = each(1)?;
    let inode_tables = each(geometry.inode_table_blocks)?;
    let bitmaps = block_bitmaps.into_iter().zip(inode_bitmaps);
    groups.extend(bitmaps.zip(inode_tables).map(|((block_bitmap, inode_bitmap), inode_table)| GroupPlace {
        block_bitmap,
        inode_bitmap,
        inode_table,
    }));
    Ok(())
}

/// `lost+found` gets 16 KiB, so that e2fsck need not allocate, but no more than 12 blocks.
fn lost_found_blocks(block_size: u32) -> u64 {
    (16384 / u64::from(block_size)).min(12)
}
