//! All leaves of the tree in one list, to be found without locks.
//!
//! The list changes only when a leaf comes or goes; then a new one takes its place. Leaves change in their
//! cells. Who has an old list meets leaves that were split or removed meanwhile as they were then, with their
//! marks retired.

use std::ops::Range;

use parext4_format::extent::Extent;

use super::leaf::Leaf;
use crate::sync::Arc;

/// The leaves of a map.
#[derive(Debug)]
pub(super) struct Directory {
    /// The first file block of each leaf. The first leaf also stands for what is before it.
    firsts: Vec<u32>,
    /// At least one.
    leaves: Vec<Arc<Leaf>>,
    /// The levels above the leaves.
    pub depth: u16,
}

impl Directory {
    pub(super) fn new(leaves: Vec<(u32, Arc<Leaf>)>, depth: u16) -> Self {
        let (firsts, leaves) = leaves.into_iter().unzip();
        Self { firsts, leaves, depth }
    }

    fn leaf_for(&self, block: u32) -> usize {
        self.firsts.partition_point(|&first| first <= block).saturating_sub(1)
    }

    /// The leaf that maps `block` or would, and how many blocks from there on that is true of.
    pub(super) fn leaf(&self, block: u32) -> (&Leaf, u32) {
        let at = self.leaf_for(block);
        let next = self.firsts.get(at + 1).map_or(u32::MAX, |next| next - block);
        (&self.leaves[at], next)
    }

    /// How many leaves there are.
    pub(super) fn leaves(&self) -> usize {
        self.leaves.len()
    }

    /// The first extent that ends behind `block`.
    pub(super) fn extent_from(&self, block: u32) -> Option<Extent> {
        // The leaf may end before `block`; then it is the next one's first.
        let at = self.leaf_for(block);
        self.leaves[at..].iter().take(2).find_map(|leaf| leaf.extent_from(block))
    }

    /// The last extent that starts before `block`.
    pub(super) fn extent_before(&self, block: u32) -> Option<Extent> {
        self.leaf(block.checked_sub(1)?).0.extent_before(block)
    }

    /// The last extent of the file.
    pub(super) fn last(&self) -> Option<Extent> {
        self.leaves.last()?.extents().last().copied()
    }

    /// The leaves that may map something of file blocks `range`.
    pub(super) fn within(&self, range: Range<u64>) -> impl Iterator<Item = &Leaf> {
        let from = self.leaf_for(u32::try_from(range.start).unwrap_or(u32::MAX));
        let to = self.firsts.partition_point(|&first| u64::from(first) < range.end).max(from + 1);
        self.leaves[from..to].iter().map(|leaf| &**leaf)
    }
}
