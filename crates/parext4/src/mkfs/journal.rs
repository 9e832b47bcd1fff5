//! The journal of a new volume: its size, its location, and the extents of its inode.
//!
//! The thresholds and limits are taken from mke2fs 1.47. Does no I/O.

use std::ops::Range;

use parext4_format::extent::{Extent, IndexEntry, MAX_WRITTEN, capacity};
use parext4_format::{FileBlock, FsBlock};

use super::geometry::Geometry;
use super::used::UsedBlocks;
use crate::convert::{saturating_u32, to_usize};
use crate::error::{Error, Result};

/// Minimum length in blocks (`JBD2_MIN_JOURNAL_BLOCKS`).
const MIN_BLOCKS: u32 = 1024;
/// Maximum length in blocks, as in mke2fs.
const MAX_BLOCKS: u32 = 10_240_000;
/// Number of entries in the root of the extent tree, in the inode.
const ROOT_ENTRIES: usize = 4;

/// The blocks of the journal.
#[derive(Clone, Debug)]
pub(super) struct JournalLocation {
    /// Runs in the order of the journal's own blocks. Each is at most as long as one extent can be.
    pub runs: Vec<Range<u64>>,
    /// Leaves of the extent tree, empty if the extents fit into the inode; or the indirect blocks.
    pub leaves: Vec<u64>,
}

/// Returns the length in blocks: `asked`, or the default of mke2fs. Returns `None` if the volume is too small for a journal.
///
/// # Errors
/// If `asked` is out of range, or exceeds half of the volume.
pub(super) fn size(geometry: &Geometry, asked: Option<u32>) -> Result<Option<u32>> {
    let Some(asked) = asked else {
        return Ok(default_size(geometry.blocks_count));
    };
    if !(MIN_BLOCKS..=MAX_BLOCKS).contains(&asked) {
        return Err(Error::invalid(format_args!(
            "journal of {asked} blocks: not between {MIN_BLOCKS} and {MAX_BLOCKS}"
        )));
    }
    if u64::from(asked) > geometry.blocks_count / 2 {
        let blocks = geometry.blocks_count;
        return Err(Error::invalid(format_args!(
            "journal of {asked} blocks: over half of the volume's {blocks} blocks"
        )));
    }
    Ok(Some(asked))
}

/// Returns the default length of e2fsprogs (`ext2fs_default_journal_size`), which depends on the number of blocks only.
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

/// Allocates the journal's blocks: one run near the middle of the volume, or else several runs from there on.
pub(super) fn allocate(geometry: &Geometry, used: &mut UsedBlocks, blocks: u32) -> Result<JournalLocation> {
    let whole = u64::from(geometry.first_data_block)..geometry.blocks_count;
    let goal = geometry.group(goal_group(geometry, used)).start;
    let runs = match used.allocate(goal..whole.end, blocks.into()) {
        Some(run) => vec![run],
        None => allocate_runs(used, [goal..whole.end, whole.start..goal], blocks)?,
    };
    let runs: Vec<Range<u64>> = runs.into_iter().flat_map(split_run).collect();
    let leaves = if geometry.has_extents() {
        leaf_count(runs.len(), geometry.block_size)?
    } else {
        to_usize(geometry.shape().pointer_blocks(blocks.into()))
    };
    let leaves =
        (0..leaves).map(|_| used.allocate(whole.clone(), 1).map(|run| run.start)).collect::<Option<_>>();
    Ok(JournalLocation { runs, leaves: leaves.ok_or_else(|| no_room(blocks))? })
}

/// Returns the group to start at: in the middle of the volume, which keeps seeks short, and after the tables of its flex
/// group.
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
    // The first of the groups with the most free blocks.
    (start..=end).rev().max_by_key(|&group| free(group)).unwrap_or(start)
}

/// Allocates free runs in the order of `ranges` until they have `blocks` blocks.
fn allocate_runs(used: &mut UsedBlocks, ranges: [Range<u64>; 2], blocks: u32) -> Result<Vec<Range<u64>>> {
    let mut left = u64::from(blocks);
    let mut runs = Vec::new();
    for range in ranges {
        for free in used.free_runs(range) {
            let run = free.start..free.end.min(free.start + left);
            left -= run.end - run.start;
            runs.push(run);
            if left == 0 {
                break;
            }
        }
        if left == 0 {
            break;
        }
    }
    if left > 0 {
        return Err(no_room(blocks));
    }
    runs.iter().for_each(|run| used.mark(run.clone()));
    Ok(runs)
}

fn no_room(blocks: u32) -> Error {
    Error::invalid(format_args!("no room for a journal of {blocks} blocks"))
}

/// Splits a run into the lengths that one extent can have.
fn split_run(run: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let longest = u64::from(MAX_WRITTEN);
    let starts = (run.start..run.end).step_by(usize::try_from(longest).expect("32768"));
    starts.map(move |start| start..run.end.min(start + longest))
}

/// Returns the number of leaves that `extents` extents need below a root of four entries.
fn leaf_count(extents: usize, block_size: u32) -> Result<usize> {
    if extents <= ROOT_ENTRIES {
        return Ok(0);
    }
    let leaves = extents.div_ceil(leaf_capacity(block_size));
    if leaves > ROOT_ENTRIES {
        return Err(Error::invalid(format_args!(
            "the journal would have {extents} extents; make it shorter"
        )));
    }
    Ok(leaves)
}

fn leaf_capacity(block_size: u32) -> usize {
    capacity(block_size as usize)
}

/// Returns the extents of the journal's inode.
pub(super) fn extents(location: &JournalLocation) -> Vec<Extent> {
    let mut logical = 0;
    let mut extents = Vec::new();
    for run in &location.runs {
        let len = u32::try_from(run.end - run.start).expect("split to the length of an extent");
        extents.push(Extent {
            logical: FileBlock(logical),
            physical: FsBlock(run.start),
            len,
            unwritten: false,
        });
        logical += len;
    }
    extents
}

/// Returns the extents of each leaf, with the leaf's index entry in the root.
pub(super) fn leaves<'a>(
    location: &JournalLocation,
    extents: &'a [Extent],
    block_size: u32,
) -> Vec<(IndexEntry, &'a [Extent])> {
    let chunks = extents.chunks(leaf_capacity(block_size));
    let entry = |(chunk, &leaf): (&'a [Extent], &u64)| {
        (IndexEntry { logical: chunk[0].logical, child: FsBlock(leaf) }, chunk)
    };
    chunks.zip(&location.leaves).map(entry).collect()
}
