//! What readers look things up in: all leaves of the tree in one list, without locks.
//!
//! The list changes only when a leaf comes or goes; then a new one takes its place. Leaves change in their
//! cells. A reader with an old list meets leaves that were split or removed meanwhile as they were then, which
//! for the range that it holds is as they are (I2).

use parext4_format::FileBlock;
use parext4_format::extent::Extent;

use super::leaf::LeafCell;
use super::{Mapping, State};
use crate::sync::Arc;

/// The leaves of a map.
#[derive(Debug)]
pub(super) struct Directory {
    /// The first file block of each leaf. The first leaf also stands for what is before it.
    firsts: Vec<u32>,
    /// At least one.
    leaves: Vec<Arc<LeafCell>>,
    /// The levels above the leaves.
    pub depth: u16,
}

impl Directory {
    pub(super) fn new(leaves: Vec<(u32, Arc<LeafCell>)>, depth: u16) -> Self {
        let (firsts, leaves) = leaves.into_iter().unzip();
        Self { firsts, leaves, depth }
    }

    fn leaf_for(&self, block: u32) -> usize {
        self.firsts.partition_point(|&first| first <= block).saturating_sub(1)
    }

    /// The leaf that maps `block` or would.
    pub(super) fn cell(&self, block: u32) -> &Arc<LeafCell> {
        &self.leaves[self.leaf_for(block)]
    }

    /// How many leaves there are.
    pub(super) fn leaves(&self) -> usize {
        self.leaves.len()
    }

    /// The first extent that ends behind `block`.
    pub(super) fn extent_from(&self, block: u32) -> Option<Extent> {
        // The leaf may end before `block`; then it is the next one's first.
        let at = self.leaf_for(block);
        self.leaves[at..].iter().take(2).find_map(|cell| cell.load().extent_from(block))
    }

    /// The last extent that starts before `block`.
    pub(super) fn extent_before(&self, block: u32) -> Option<Extent> {
        self.cell(block.checked_sub(1)?).load().extent_before(block)
    }

    /// The last extent of the file.
    pub(super) fn last(&self) -> Option<Extent> {
        self.leaves.last()?.load().extents.last().copied()
    }

    /// The run that `block` lies in, cut to `[block, block + max)`. It may go on in the same state.
    pub(super) fn lookup(&self, block: u32, max: u32) -> Mapping {
        let at = self.leaf_for(block);
        let leaf = self.leaves[at].load();
        let next = match leaf.extent_from(block) {
            Some(extent) if extent.logical.get() <= block => return leaf.run(extent, block, max),
            Some(next) => Some(next.logical.get()),
            None => self.firsts.get(at + 1).copied(),
        };
        let len = next.map_or(max, |next| (next - block).min(max));
        Mapping { logical: FileBlock(block), len, state: State::Hole }
    }
}
