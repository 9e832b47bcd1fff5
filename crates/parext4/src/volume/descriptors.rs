//! Reads all group descriptors when a volume is opened.

use parext4_device::AlignedBuf;
use parext4_format::bitmap;
use parext4_format::group_desc::{GroupDesc, GroupFlags};
use parext4_format::superblock::Superblock;
use parext4_format::{FormatError, FsBlock, GroupNo};

use crate::convert::saturating_u32;
use crate::error::Result;
use crate::layout::Layout;
use crate::meta::{BlockKind, MetaBlock, MetaCache};
use crate::sync::Arc;

/// Reads the blocks of descriptors. Returns them, and the descriptors of all groups.
///
/// A read-only volume does not need the counts of free blocks, nor that checksums match. The kernel
/// does the same (`ext4_check_descriptors`). For writing, counts that no group can have are taken
/// from the bitmaps of the group instead.
pub(super) fn read_descriptors(
    cache: &MetaCache,
    superblock: &Superblock,
    layout: &Layout,
    read_only: bool,
) -> Result<(Vec<Arc<MetaBlock>>, Vec<GroupDesc>)> {
    let size = usize::from(superblock.desc_size());
    let mut blocks = Vec::new();
    // Grows with each descriptor read: the count comes from the superblock, which may be wrong.
    let mut descs = Vec::new();
    for index in 0..superblock.gdt_blocks() {
        let block = cache.read(superblock.gdt_block(index), BlockKind::GroupDescs)?;
        let bytes = block.snapshot();
        for raw in bytes.chunks_exact(size).take(superblock.descs_per_block() as usize) {
            let group = GroupNo(saturating_u32(descs.len()));
            if group.get() >= superblock.group_count() {
                break;
            }
            descs.push(match GroupDesc::parse(raw, superblock, group) {
                Err(error) if read_only => {
                    log::warn!("{error}");
                    GroupDesc::parse_locations(raw, superblock)?
                }
                Err(error) if is_count(&error) => {
                    log::warn!("{error}; counted again");
                    let desc = GroupDesc::parse_locations(raw, superblock)?;
                    Recount { cache, superblock, layout, group }.counted(desc)?
                }
                parsed => parsed?,
            });
        }
        blocks.push(block);
    }
    Ok((blocks, descs))
}

/// Sets the counts of bitmaps that were never written, whatever the descriptors say: all blocks are
/// free but the file system's own ones, and so are all inodes. The kernel counts the blocks so, too
/// (`ext4_free_clusters_after_init`). `layout` has the system zone.
pub(super) fn count_unwritten(superblock: &Superblock, layout: &Layout, descs: &mut [GroupDesc]) {
    let clusters = layout.in_clusters();
    for (group, desc) in (0..).map(GroupNo).zip(descs) {
        if is_unwritten(superblock, desc, GroupFlags::BLOCK_UNINIT) {
            let system: u32 = clusters.system_blocks_in(group).map(|run| run.len).sum();
            desc.free_blocks = clusters.group_blocks(group) - system;
        }
        if is_unwritten(superblock, desc, GroupFlags::INODE_UNINIT) {
            (desc.free_inodes, desc.used_dirs) = (layout.inodes_per_group, 0);
        }
    }
}

/// Returns true if `flag` says that a bitmap of the group was never written. Without group
/// checksums the flags have no meaning.
fn is_unwritten(superblock: &Superblock, desc: &GroupDesc, flag: GroupFlags) -> bool {
    superblock.has_group_checksums() && desc.flags.contains(flag)
}

/// Returns true if the error is a count that no group can have.
pub(super) fn is_count(error: &FormatError) -> bool {
    const COUNTS: [&str; 4] =
        ["bg_free_blocks_count", "bg_free_inodes_count", "bg_used_dirs_count", "bg_itable_unused"];
    COUNTS.contains(&error.field)
}

/// Counts free blocks and inodes of a group in its bitmaps.
struct Recount<'a> {
    cache: &'a MetaCache,
    superblock: &'a Superblock,
    layout: &'a Layout,
    group: GroupNo,
}

impl Recount<'_> {
    /// Returns the descriptor with the counts of its bitmaps. Keeps the counts of a bitmap that was
    /// never written, which [`count_unwritten`] corrects.
    ///
    /// # Errors
    /// The errors of reading and checking the bitmaps.
    fn counted(&self, mut desc: GroupDesc) -> Result<GroupDesc> {
        if !is_unwritten(self.superblock, &desc, GroupFlags::BLOCK_UNINIT) {
            let bytes = self.bitmap(desc.block_bitmap)?;
            bitmap::verify_block_bitmap(&desc, &bytes, self.superblock).map_err(|e| self.located(e))?;
            desc.free_blocks = bitmap::count_zeros(&bytes, self.layout.group_blocks(self.group));
        }
        if !is_unwritten(self.superblock, &desc, GroupFlags::INODE_UNINIT) {
            let bytes = self.bitmap(desc.inode_bitmap)?;
            bitmap::verify_inode_bitmap(&desc, &bytes, self.superblock).map_err(|e| self.located(e))?;
            let per_group = self.layout.inodes_per_group;
            desc.free_inodes = bitmap::count_zeros(&bytes, per_group);
            desc.used_dirs = desc.used_dirs.min(per_group - desc.free_inodes);
            // Inodes after the last one in use were perhaps never written.
            let after_last = (0..per_group).rev().take_while(|&index| !bitmap::test(&bytes, index)).count();
            desc.itable_unused = desc.itable_unused.min(saturating_u32(after_last));
        }
        Ok(desc)
    }

    fn bitmap(&self, block: FsBlock) -> Result<Arc<AlignedBuf>> {
        Ok(self.cache.read(block, BlockKind::Bitmap)?.snapshot())
    }

    fn located(&self, error: FormatError) -> FormatError {
        error.in_group(self.group)
    }
}
