//! A change of the map: a range of file blocks, and its new mapping.
//!
//! This module describes one change of one leaf, and does not apply it.

use parext4_format::extent::Extent;
use parext4_format::{BlockRange, FileBlock};
use smallvec::SmallVec;

use super::extents::cut;

/// A change of the map: `blocks` are mapped by `new`, or become a hole. They lie within one extent,
/// or in a hole if `kind` is [`ChangeKind::Fill`]. So the change concerns one leaf.
///
/// The number of new nodes is bounded: the leaf gets at most two entries more and splits at most
/// once, because two nodes have room for more than `capacity + 2`. Then its parent gets one entry
/// more and splits at most once, and so on up to the root. The root moves its entries into one new
/// node below it. In a tree of depth `d` a change adds at most `d + 1` nodes
/// ([`Plan::blocks`](super::Plan) is the exact number), and changes `d` existing nodes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    pub blocks: BlockRange,
    pub new: Option<Extent>,
    pub kind: ChangeKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChangeKind {
    /// Maps a hole.
    Fill,
    /// Turns unwritten blocks into written ones, or the reverse.
    Convert,
    /// Splits extents at both ends of the range. Their states stay.
    Cut,
    Remove,
}

impl Change {
    /// Returns the change that maps `extent` in a hole.
    pub(super) fn fill(extent: Extent) -> Self {
        Self::set(extent, ChangeKind::Fill)
    }

    /// Returns the change that replaces the mapping of the blocks of `extent`.
    pub(super) fn convert(extent: Extent) -> Self {
        Self::set(extent, ChangeKind::Convert)
    }

    fn set(extent: Extent, kind: ChangeKind) -> Self {
        Self { blocks: extent.blocks(), new: Some(extent), kind }
    }

    /// Returns the new extents of the range, which replace the parts of `replaced` in it.
    pub(super) fn replacement(&self, replaced: &[Extent]) -> SmallVec<[Extent; 3]> {
        match self.kind {
            ChangeKind::Cut => replaced.iter().filter_map(|&extent| cut(extent, self.blocks)).collect(),
            _ => self.new.into_iter().collect(),
        }
    }

    /// Returns true if the extents before `block` and from `block` on must not be joined.
    pub(super) fn cuts_at(&self, block: FileBlock) -> bool {
        let at_bound = block == self.blocks.start() || block.to_u64() == self.blocks.end();
        self.kind == ChangeKind::Cut && at_bound
    }

    /// Returns true if the change maps a hole.
    pub(super) fn fills_hole(&self) -> bool {
        self.kind == ChangeKind::Fill
    }

    /// Returns true if the change concerns only the leaf of these `extents`: it fills a hole after
    /// the leaf's first extent, which keeps the leaf's key, or changes one of the extents.
    pub(super) fn stays_within(&self, extents: &[Extent]) -> bool {
        let at = extents.partition_point(|extent| extent.end() <= self.blocks.start().to_u64());
        match self.kind {
            ChangeKind::Fill => {
                at > 0 && extents.get(at).is_none_or(|next| self.blocks.end() <= next.logical.to_u64())
            }
            _ => extents.get(at).is_some_and(|extent| extent.blocks().covers(self.blocks)),
        }
    }

    /// Returns true if a mark can express the change.
    pub(super) fn is_markable(&self) -> bool {
        self.kind == ChangeKind::Convert && self.new.is_some_and(|extent| !extent.unwritten)
    }

    /// Returns the number of marks for which entries are reserved, out of the `free` entries of a
    /// leaf.
    pub(super) fn entries_for_marks(&self, free: usize) -> usize {
        // Folding a mark adds at most two entries. Where holes are filled, each new extent adds one
        // more.
        if self.kind == ChangeKind::Fill { free / 3 } else { free / 2 }
    }
}
