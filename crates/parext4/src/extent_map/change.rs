//! One change of the map: which file blocks become what.

use parext4_format::FileBlock;
use parext4_format::extent::Extent;
use smallvec::SmallVec;

use super::extents::cut;

/// A change of the map: `[start, end)` becomes `new`, or a hole. It lies within one extent or, if there is
/// something new, in a hole, and so concerns one leaf.
///
/// That bounds what the change can need. The leaf's entries grow by two at most, and it splits once, since two
/// nodes hold more than `capacity + 2`; then its parent grows by one and splits once at most, and so on up
/// to the root, which moves its entries down into one new node. In a tree of depth `d` these are at most
/// `d + 1` new nodes ([`Plan::blocks`](super::Plan) says exactly how many), and `d` nodes that were there change.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    /// In file blocks; the end is up to 2^32.
    pub start: u64,
    pub end: u64,
    pub new: Option<Extent>,
    pub kind: ChangeKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChangeKind {
    /// A hole is mapped.
    Fill,
    /// What was unwritten is written, or the other way round.
    Convert,
    /// Extents are cut at the edges, and stay what they are.
    Cut,
    Remove,
}

impl Change {
    /// Mapping `extent` in a hole.
    pub(super) fn fill(extent: Extent) -> Self {
        Self::set(extent, ChangeKind::Fill)
    }

    /// Mapping `extent` in place of what maps its blocks.
    pub(super) fn convert(extent: Extent) -> Self {
        Self::set(extent, ChangeKind::Convert)
    }

    fn set(extent: Extent, kind: ChangeKind) -> Self {
        Self { start: u64::from(extent.logical.get()), end: extent.end(), new: Some(extent), kind }
    }

    /// The first file block.
    pub(super) fn first(&self) -> u32 {
        u32::try_from(self.start).unwrap_or(u32::MAX)
    }

    /// How many file blocks it concerns.
    pub(super) fn blocks(&self) -> u32 {
        u32::try_from(self.end - self.start).unwrap_or(u32::MAX)
    }

    /// What is to be between the edges, in place of `replaced`.
    pub(super) fn inside(&self, replaced: &[Extent]) -> SmallVec<[Extent; 3]> {
        match self.kind {
            ChangeKind::Cut => {
                replaced.iter().filter_map(|&extent| cut(extent, self.start, self.end)).collect()
            }
            _ => self.new.into_iter().collect(),
        }
    }

    /// Whether what is before `block` and what is from there on are to stay apart.
    pub(super) fn cuts_at(&self, block: FileBlock) -> bool {
        let block = u64::from(block.get());
        self.kind == ChangeKind::Cut && (block == self.start || block == self.end)
    }

    /// Whether it only adds something where there was nothing.
    pub(super) fn fills_hole(&self) -> bool {
        self.kind == ChangeKind::Fill
    }

    /// Whether it is one of a leaf of these `extents` alone: there is a hole to fill behind the first of them, which
    /// the node above names, or one of them to change.
    pub(super) fn stays_within(&self, extents: &[Extent]) -> bool {
        let at = extents.partition_point(|extent| extent.end() <= self.start);
        let first = |extent: &Extent| u64::from(extent.logical.get());
        match self.kind {
            ChangeKind::Fill => at > 0 && extents.get(at).is_none_or(|next| self.end <= first(next)),
            _ => extents.get(at).is_some_and(|one| first(one) <= self.start && self.end <= one.end()),
        }
    }

    /// Whether a mark says the same.
    pub(super) fn is_markable(&self) -> bool {
        self.kind == ChangeKind::Convert && self.new.is_some_and(|extent| !extent.unwritten)
    }

    /// Of a leaf's free entries, those that are kept for marks.
    pub(super) fn share_for_marks(&self, free: usize) -> usize {
        // A mark may come to two entries. Where holes are filled, each new extent takes one too.
        if self.kind == ChangeKind::Fill { free / 3 } else { free / 2 }
    }
}
