//! The journal of a new volume: its size and its place.
//!
//! The thresholds and limits are taken from mke2fs 1.47. This module does no I/O.

use parext4_format::features::Compat;

use crate::MkfsOptions;
use crate::error::{MkfsError, Result};
use crate::file_blocks::FileBlocks;
use crate::geometry::Geometry;
use crate::used::UsedBlocks;
use parext4_format::convert::saturating_u32;

/// Minimum length of a journal in blocks (`JBD2_MIN_JOURNAL_BLOCKS`).
pub(crate) const MIN_BLOCKS: u32 = 1024;
/// Maximum length of a journal in blocks, as in mke2fs.
const MAX_BLOCKS: u32 = 10_240_000;
/// Ratio of the length of the log to the length of the area for fast commits, as in mke2fs.
const FAST_COMMIT_RATIO: u32 = 64;

/// The length of a journal in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JournalSize {
    /// All blocks, with the area for fast commits.
    pub blocks: u32,
    /// The area for fast commits, at the end; 0 for none.
    pub fast_commits: u32,
}

/// Returns the length that the options ask for, or the default of mke2fs. Returns `None` if the
/// volume is too small for a journal.
///
/// # Errors
/// If a length is out of range, or exceeds half of the volume.
pub(crate) fn size(geometry: &Geometry, options: &MkfsOptions) -> Result<Option<JournalSize>> {
    let Some(log) = options.journal_blocks.or_else(|| default_size(geometry.blocks_count)) else {
        return Ok(None);
    };
    if !(MIN_BLOCKS..=MAX_BLOCKS).contains(&log) {
        return Err(MkfsError::invalid(format_args!(
            "journal of {log} blocks: not between {MIN_BLOCKS} and {MAX_BLOCKS}"
        )));
    }
    let fast_commits = match options.fast_commit_blocks {
        _ if !geometry.features.compat.contains(Compat::FAST_COMMIT) => 0,
        Some(blocks) if (1..=MAX_BLOCKS).contains(&blocks) => blocks,
        Some(blocks) => {
            return Err(MkfsError::invalid(format_args!(
                "area of {blocks} blocks for fast commits: not between 1 and {MAX_BLOCKS}"
            )));
        }
        None => log / FAST_COMMIT_RATIO,
    };
    let blocks = log + fast_commits;
    if options.journal_blocks.is_some() && u64::from(blocks) > geometry.blocks_count / 2 {
        let all = geometry.blocks_count;
        return Err(MkfsError::invalid(format_args!(
            "journal of {blocks} blocks: over half of the volume's {all} blocks"
        )));
    }
    Ok(Some(JournalSize { blocks, fast_commits }))
}

/// Returns the default length of e2fsprogs (`ext2fs_default_journal_size`), which depends on the
/// number of blocks only.
fn default_size(blocks: u64) -> Option<u32> {
    Some(match blocks {
        0..2048 => return None,
        2048..0x8000 => 1024,
        0x8000..0x4_0000 => 4096,
        0x4_0000..0x8_0000 => 8192,
        0x8_0000..0x40_0000 => 16384,
        0x40_0000..0x80_0000 => 32768,
        0x80_0000..0x100_0000 => 65536,
        0x100_0000..0x200_0000 => 131_072,
        _ => 262_144,
    })
}

/// Allocates the journal's blocks: one run from `start` on, or near the middle of the volume, or
/// else several runs.
///
/// # Errors
/// If `start` is not a block of the volume, or there are too few free blocks.
pub(crate) fn allocate(
    geometry: &Geometry,
    used: &mut UsedBlocks,
    start: Option<u64>,
    blocks: u32,
) -> Result<FileBlocks> {
    let goal = match start {
        Some(start) if start >= geometry.blocks_count => {
            let all = geometry.blocks_count;
            return Err(MkfsError::invalid(format_args!(
                "journal at block {start}, in a volume of {all} blocks"
            )));
        }
        Some(start) => start.max(geometry.first_data_block.into()),
        None => geometry.group(goal_group(geometry, used)).start,
    };
    FileBlocks::allocate(geometry, used, goal, blocks)
        .map_err(|error| MkfsError::invalid(format_args!("the journal: {error}")))
}

/// Returns the group to start at: in the middle of the volume, which keeps seeks short, and after
/// the tables of its flex group.
fn goal_group(geometry: &Geometry, used: &UsedBlocks) -> u32 {
    let flex = geometry.flex_groups;
    let middle = (geometry.blocks_count - u64::from(geometry.first_data_block)) / 2;
    let middle = saturating_u32(middle / u64::from(geometry.blocks_per_group));
    let middle = middle.min(geometry.group_count - 1);
    let last = geometry.group_count - 1;
    let free = |group: u32| {
        let blocks = geometry.group(group);
        blocks.end - blocks.start - used.count(blocks)
    };
    let start = if middle > flex {
        let flex_start = middle & !(flex - 1);
        (flex_start..=last).find(|&group| free(group) > 0).unwrap_or(0)
    } else {
        middle.saturating_sub(1)
    };
    let end = middle.max(start).saturating_add(1).min(last);
    // Finds the first of the groups with the most free blocks.
    (start..=end).rev().max_by_key(|&group| free(group)).unwrap_or(start)
}
