//! The leaf index: all leaves of the tree in two levels of sorted lists.
//!
//! The index finds the leaf of a file block without a lock. It does not contain the extents of the
//! leaves, which change in place. Invariant: an index never changes. When a leaf is added or
//! removed, a new index replaces it, which shares the lists of all nodes that did not change.
//!
//! In an old index, a reader finds the last version of leaves that were split or removed meanwhile,
//! with their marks retired.

use parext4_format::extent::Extent;
use parext4_format::{BlockRange, FileBlock};

use super::leaf::Leaf;
use crate::sync::Arc;

/// The leaves of a map.
#[derive(Debug)]
pub(super) struct LeafIndex {
    /// The first file block of each group. The first group also covers the blocks before it.
    firsts: Vec<FileBlock>,
    /// The groups, at least one.
    groups: Vec<Arc<LeafGroup>>,
    /// Number of leaves.
    pub leaves: usize,
    /// Number of levels above the leaves.
    pub depth: u16,
}

/// The leaves below one node.
#[derive(Debug)]
pub(super) struct LeafGroup {
    /// The first file block of each leaf.
    firsts: Vec<FileBlock>,
    /// The leaves, at least one.
    leaves: Vec<Arc<Leaf>>,
}

impl LeafGroup {
    pub(super) fn new(leaves: impl Iterator<Item = (FileBlock, Arc<Leaf>)>) -> Arc<Self> {
        let (firsts, leaves) = leaves.unzip();
        Arc::new(Self { firsts, leaves })
    }

    /// Returns true if the group lists exactly these leaves.
    pub(super) fn lists(&self, leaves: impl Iterator<Item = (FileBlock, Arc<Leaf>)>) -> bool {
        self.leaves.iter().map(Arc::as_ptr).eq(leaves.map(|(_, leaf)| Arc::as_ptr(&leaf)))
    }

    fn iter(&self) -> impl Iterator<Item = (FileBlock, &Leaf)> {
        self.firsts.iter().copied().zip(self.leaves.iter().map(|leaf| &**leaf))
    }
}

impl LeafIndex {
    pub(super) fn new(groups: Vec<Arc<LeafGroup>>, depth: u16) -> Self {
        let firsts = groups.iter().map(|group| group.firsts[0]).collect();
        let leaves = groups.iter().map(|group| group.leaves.len()).sum();
        Self { firsts, groups, leaves, depth }
    }

    /// Returns the group of the leaf that maps or would map `block`, and the leaf's position in it.
    fn position(&self, block: FileBlock) -> (usize, usize) {
        let group = last_at_or_before(&self.firsts, block);
        (group, last_at_or_before(&self.groups[group].firsts, block))
    }

    /// Returns the leaf that maps or would map `block`, and the number of blocks from `block` to
    /// the next leaf.
    pub(super) fn leaf(&self, block: FileBlock) -> (&Leaf, u32) {
        let (group, at) = self.position(block);
        let LeafGroup { firsts, leaves } = &*self.groups[group];
        let next = firsts.get(at + 1).or_else(|| self.firsts.get(group + 1));
        (&leaves[at], next.map_or(u32::MAX, |next| *next - block))
    }

    /// Returns the leaf that maps or would map `block` and all leaves after it, each with its first
    /// file block.
    fn leaves_from(&self, block: FileBlock) -> impl Iterator<Item = (FileBlock, &Leaf)> {
        let (group, at) = self.position(block);
        self.groups[group..].iter().flat_map(|group| group.iter()).skip(at)
    }

    /// Returns the first extent that ends after `block`.
    pub(super) fn extent_from(&self, block: FileBlock) -> Option<Extent> {
        // If the leaf ends at or before `block`, the extent is the first of the next leaf.
        self.leaves_from(block).take(2).find_map(|(_, leaf)| leaf.extent_from(block))
    }

    /// Returns the last extent that starts before `block`.
    pub(super) fn extent_before(&self, block: FileBlock) -> Option<Extent> {
        self.leaf(block.checked_sub(1)?).0.extent_before(block)
    }

    /// Returns the last extent of the file.
    pub(super) fn last(&self) -> Option<Extent> {
        self.groups.last()?.leaves.last()?.extents().last().copied()
    }

    /// Returns the leaves that may map one of `blocks`.
    pub(super) fn leaves_within(&self, blocks: BlockRange) -> impl Iterator<Item = &Leaf> {
        let mut leaves = self.leaves_from(blocks.start());
        let first = leaves.next();
        let more = leaves.take_while(move |&(first, _)| first.to_u64() < blocks.end());
        first.into_iter().chain(more).map(|(_, leaf)| leaf)
    }
}

/// Returns the last of the sorted `firsts` that is at most `block`, or the first.
fn last_at_or_before(firsts: &[FileBlock], block: FileBlock) -> usize {
    firsts.partition_point(|&first| first <= block).saturating_sub(1)
}
