//! All leaves of the tree in two levels of lists, to be found without locks.
//!
//! The lists change only when a leaf comes or goes; then new ones take the place of that which names it and of the
//! upper one, so that a change costs no more in a large file. Leaves change in their cells. Who has an old list meets
//! leaves that were split or removed meanwhile as they were then, with their marks retired.

use std::ops::Range;

use parext4_format::extent::Extent;

use super::leaf::Leaf;
use crate::sync::Arc;

/// The leaves of a map.
#[derive(Debug)]
pub(super) struct LeafIndex {
    /// The first file block of each group. The first group also stands for what is before it.
    firsts: Vec<u32>,
    /// At least one.
    groups: Vec<Arc<LeafGroup>>,
    /// How many leaves there are.
    pub leaves: usize,
    /// The levels above the leaves.
    pub depth: u16,
}

/// The leaves below one node.
#[derive(Debug)]
pub(super) struct LeafGroup {
    /// The first file block of each leaf.
    firsts: Vec<u32>,
    /// At least one.
    leaves: Vec<Arc<Leaf>>,
}

impl LeafGroup {
    pub(super) fn new(leaves: impl Iterator<Item = (u32, Arc<Leaf>)>) -> Arc<Self> {
        let (firsts, leaves) = leaves.unzip();
        Arc::new(Self { firsts, leaves })
    }

    /// Whether it lists just these.
    pub(super) fn lists(&self, leaves: impl Iterator<Item = (u32, Arc<Leaf>)>) -> bool {
        self.leaves.iter().map(Arc::as_ptr).eq(leaves.map(|(_, leaf)| Arc::as_ptr(&leaf)))
    }

    fn iter(&self) -> impl Iterator<Item = (u32, &Leaf)> {
        self.firsts.iter().copied().zip(self.leaves.iter().map(|leaf| &**leaf))
    }
}

impl LeafIndex {
    pub(super) fn new(groups: Vec<Arc<LeafGroup>>, depth: u16) -> Self {
        let firsts = groups.iter().map(|group| group.firsts[0]).collect();
        let leaves = groups.iter().map(|group| group.leaves.len()).sum();
        Self { firsts, groups, leaves, depth }
    }

    /// The group of the leaf that maps `block` or would, and where that is in the group.
    fn place(&self, block: u32) -> (usize, usize) {
        let group = last_upto(&self.firsts, block);
        (group, last_upto(&self.groups[group].firsts, block))
    }

    /// The leaf that maps `block` or would, and how many blocks from there on that is true of.
    pub(super) fn leaf(&self, block: u32) -> (&Leaf, u32) {
        let (group, at) = self.place(block);
        let LeafGroup { firsts, leaves } = &*self.groups[group];
        let next = firsts.get(at + 1).or_else(|| self.firsts.get(group + 1));
        (&leaves[at], next.map_or(u32::MAX, |next| next - block))
    }

    /// The leaf that maps `block` or would, and all behind it, each with its first file block.
    fn from(&self, block: u32) -> impl Iterator<Item = (u32, &Leaf)> {
        let (group, at) = self.place(block);
        self.groups[group..].iter().flat_map(|group| group.iter()).skip(at)
    }

    /// The first extent that ends behind `block`.
    pub(super) fn extent_from(&self, block: u32) -> Option<Extent> {
        // The leaf may end before `block`; then it is the next one's first.
        self.from(block).take(2).find_map(|(_, leaf)| leaf.extent_from(block))
    }

    /// The last extent that starts before `block`.
    pub(super) fn extent_before(&self, block: u32) -> Option<Extent> {
        self.leaf(block.checked_sub(1)?).0.extent_before(block)
    }

    /// The last extent of the file.
    pub(super) fn last(&self) -> Option<Extent> {
        self.groups.last()?.leaves.last()?.extents().last().copied()
    }

    /// The leaves that may map something of file blocks `range`.
    pub(super) fn within(&self, range: Range<u64>) -> impl Iterator<Item = &Leaf> {
        let start = u32::try_from(range.start).unwrap_or(u32::MAX);
        let mut leaves = self.from(start);
        let first = leaves.next();
        let more = leaves.take_while(move |&(first, _)| u64::from(first) < range.end);
        first.into_iter().chain(more).map(|(_, leaf)| leaf)
    }
}

/// The last of the sorted `firsts` that is not behind `block`, or the first.
fn last_upto(firsts: &[u32], block: u32) -> usize {
    firsts.partition_point(|&first| first <= block).saturating_sub(1)
}
