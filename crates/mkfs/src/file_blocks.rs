//! The blocks of a file of a new volume: allocation, and the extents that map them. This module
//! does no I/O.

use std::ops::Range;

use parext4_format::extent::{Extent, IndexEntry, MAX_WRITTEN, capacity};
use parext4_format::{FileBlock, FsBlock};

use crate::error::{MkfsError, Result};
use crate::geometry::Geometry;
use crate::used::UsedBlocks;
use parext4_format::convert::to_usize;

/// Number of entries in the root of the extent tree, in the inode.
const ROOT_ENTRIES: usize = 4;

/// The blocks of a file.
#[derive(Clone, Debug)]
pub(crate) struct FileBlocks {
    /// Runs in the order of the file's own blocks. Each is at most as long as one extent can be.
    pub runs: Vec<Range<u64>>,
    /// The leaves of the extent tree, empty if the extents fit into the inode; or the indirect
    /// blocks.
    pub leaves: Vec<u64>,
}

impl FileBlocks {
    /// Allocates `blocks` blocks: one run from `goal` on, or else several.
    ///
    /// # Errors
    /// If there are too few free blocks, or the file would have too many extents.
    pub(crate) fn allocate(
        geometry: &Geometry,
        used: &mut UsedBlocks,
        goal: u64,
        blocks: u32,
    ) -> Result<Self> {
        let whole = u64::from(geometry.first_data_block)..geometry.blocks_count;
        let goal = goal - goal % u64::from(geometry.cluster_blocks);
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
        Ok(Self { runs, leaves: leaves.ok_or_else(|| no_room(blocks))? })
    }

    /// Returns the number of blocks of the file, without the blocks of its map.
    pub(crate) fn len(&self) -> u64 {
        self.runs.iter().map(|run| run.end - run.start).sum()
    }

    /// Returns the extents of the file.
    pub(crate) fn extents(&self) -> Vec<Extent> {
        let mut logical = 0;
        let mut extents = Vec::new();
        for run in &self.runs {
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
    pub(crate) fn leaves<'a>(
        &self,
        extents: &'a [Extent],
        block_size: u32,
    ) -> Vec<(IndexEntry, &'a [Extent])> {
        let chunks = extents.chunks(leaf_capacity(block_size));
        let entry = |(chunk, &leaf): (&'a [Extent], &u64)| {
            (IndexEntry { logical: chunk[0].logical, child: FsBlock(leaf) }, chunk)
        };
        chunks.zip(&self.leaves).map(entry).collect()
    }
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

fn no_room(blocks: u32) -> MkfsError {
    MkfsError::invalid(format_args!("no room for {blocks} blocks"))
}

/// Splits a run into the lengths that one extent can have.
fn split_run(run: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let longest = u64::from(MAX_WRITTEN);
    let starts = (run.start..run.end).step_by(usize::try_from(longest).expect("32768"));
    starts.map(move |start| start..run.end.min(start + longest))
}

/// Returns the number of leaves that `extents` extents need, below a root of four entries.
fn leaf_count(extents: usize, block_size: u32) -> Result<usize> {
    if extents <= ROOT_ENTRIES {
        return Ok(0);
    }
    let leaves = extents.div_ceil(leaf_capacity(block_size));
    if leaves > ROOT_ENTRIES {
        return Err(MkfsError::invalid(format_args!(
            "{extents} extents, which are too many; make it shorter"
        )));
    }
    Ok(leaves)
}

fn leaf_capacity(block_size: u32) -> usize {
    capacity(block_size as usize)
}
