//! One leaf of the tree: its extents, and the [`Marks`] over them.
//!
//! This module changes the extents of one leaf, and folds marks into them. [`node`](super::node)
//! splits and encodes leaves. Invariant: a list of extents never changes; a change replaces the
//! list.

use std::ops::Range;

use parext4_format::extent::Extent;
use parext4_format::{BlockRange, FileBlock};
use smallvec::SmallVec;

use super::change::Change;
use super::extents::{self, cut, join};
use super::marks::{Marked, Marking, Marks};
use crate::fault::{Fault, guarded};
use crate::sync::Rank;
use crate::sync::{Arc, Guard, Mutex, Swap, SwapOption};

/// A leaf that is a block splits early if fewer than one in this number of its entries are free, so
/// that marks have room.
const FREE_SHARE: usize = 8;

/// A leaf of the tree, with its current version.
#[derive(Debug)]
pub(super) struct Leaf {
    /// The extents, sorted and disjoint.
    extents: Swap<Vec<Extent>>,
    marks: SwapOption<Marks>,
    /// The lock of a thread that changes the leaf while it holds the map's lock shared.
    changing: Mutex<()>,
}

/// The leaf after a change.
#[derive(Debug)]
pub(super) struct Outcome {
    pub after: Vec<Extent>,
    /// The marks that stay in force; `None` if they were folded into `after`.
    pub marks: Option<Arc<Marks>>,
}

impl Leaf {
    pub(super) fn new(extents: Vec<Extent>, marks: Option<Arc<Marks>>) -> Arc<Self> {
        let changing = Mutex::new(Rank::MapLeaf, ());
        Arc::new(Self { extents: Swap::new(Arc::new(extents)), marks: SwapOption::new(marks), changing })
    }

    /// Publishes new extents and marks.
    pub(super) fn store(&self, extents: Vec<Extent>, marks: Option<Arc<Marks>>) {
        self.extents.store(Arc::new(extents));
        let before = self.marks.load().as_ref().map(Arc::as_ptr);
        if before != marks.as_ref().map(Arc::as_ptr) {
            self.marks.store(marks);
        }
    }

    pub(super) fn extents(&self) -> Guard<Vec<Extent>> {
        self.extents.load()
    }

    /// Returns the marked ranges as `(start, end)` in file blocks, unsorted.
    pub(super) fn marked(&self) -> Marked {
        self.marks.load().as_ref().map_or_else(Marked::new, |marks| marks.iter().collect())
    }

    /// Returns the first mapped file block; 0 for an empty root.
    pub(super) fn first(&self) -> FileBlock {
        self.extents().first().map_or(FileBlock::ZERO, |extent| extent.logical)
    }

    /// Returns the first extent that ends after `block`.
    pub(super) fn extent_from(&self, block: FileBlock) -> Option<Extent> {
        let extents = self.extents();
        let at = extents.partition_point(|extent| extent.end() <= block.to_u64());
        extents.get(at).copied()
    }

    /// Returns the last extent that starts before `block`.
    pub(super) fn extent_before(&self, block: FileBlock) -> Option<Extent> {
        let extents = self.extents();
        let at = extents.partition_point(|extent| extent.logical < block);
        extents.get(at.checked_sub(1)?).copied()
    }

    /// Marks `blocks` as written. The leaf maps all of them.
    #[inline]
    pub(super) fn mark(&self, tid: u64, blocks: BlockRange) -> Marking {
        self.marks.load().as_ref().map_or(Marking::Refused, |marks| marks.set(tid, blocks))
    }

    /// Computes the leaf after `change` in transaction `tid`. `capacity` is the maximum number of
    /// entries.
    ///
    /// The marks stay in force if the change fills a hole, the set accepts marks of `tid`, and the
    /// leaf has room for two entries for each mark. Otherwise they are retired and folded.
    pub(super) fn outcome(&self, change: &Change, tid: u64, capacity: usize, pins: &Pins) -> Outcome {
        let marks = self.marks.load();
        if let Some(marks) = marks.as_ref().filter(|marks| change.fills_hole() && marks.accepts(tid)) {
            let extents = self.extents();
            let splice = splice(&extents, change, pins);
            let fits = splice.len_after(extents.len()) + 2 * marks.room() <= capacity;
            if guarded!(Fault::MarksWithoutRoom, fits, true) {
                return Outcome { after: splice.apply(&extents), marks: Some(Arc::clone(marks)) };
            }
        }
        let folded = self.folded();
        Outcome { after: splice(&folded, change, pins).apply(&folded), marks: None }
    }

    /// Applies a change that concerns this leaf alone. Returns false without applying it if
    /// transaction `tid` has not registered the leaf, if the change concerns another leaf, or if
    /// the leaf would have to split. Even then the marks may be retired.
    ///
    /// `capacity` is the maximum number of entries. Blocks while another thread changes the leaf.
    pub(super) fn change(&self, change: &Change, tid: u64, capacity: usize, pins: &Pins) -> bool {
        let _changing = guarded!(Fault::LeafUnlocked, Some(self.changing.lock()));
        let registered = self.marks.load().as_ref().is_some_and(|marks| marks.accepts(tid));
        if !registered || !change.stays_within(&self.extents()) {
            return false;
        }
        // The thread that held the lock before may have armed a set with room for a mark.
        if change.is_markable() && self.mark(tid, change.blocks) == Marking::Done {
            return true;
        }
        let Outcome { after, marks } = self.outcome(change, tid, capacity, pins);
        let fits = marks.is_some() || after.len() <= capacity - kept_free(capacity);
        if fits {
            let marks = marks.or_else(|| {
                let free = capacity.saturating_sub(after.len());
                Marks::armed(tid, change.entries_for_marks(free))
            });
            self.store(after, marks);
        }
        fits
    }

    /// Retires the marks, and returns the extents with all marks folded in.
    pub(super) fn folded(&self) -> Vec<Extent> {
        if let Some(marks) = &*self.marks.load() {
            guarded!(Fault::FoldUnretired, marks.retire());
        }
        let mut written = self.marked();
        written.sort_unstable();
        fold(&self.extents(), &written)
    }
}

/// Returns the number of entries that should stay free in a leaf that is a block.
pub(super) fn kept_free(capacity: usize) -> usize {
    capacity / FREE_SHARE
}

/// Returns `extents` with the blocks of the sorted ranges `written` converted from unwritten to
/// written.
fn fold(extents: &[Extent], written: &[(u32, u32)]) -> Vec<Extent> {
    let mut out: Vec<Extent> = Vec::with_capacity(extents.len() + 2 * written.len());
    let mut marks = written.iter().copied().peekable();
    for &extent in extents {
        let mut at = u64::from(extent.logical.get());
        while let Some(&(from, to)) = marks.peek().filter(|&&(from, _)| u64::from(from) < extent.end()) {
            let (start, stop) = (u64::from(from).max(at), u64::from(to).min(extent.end()));
            if extent.unwritten && start < stop {
                out.extend(cut(extent, BlockRange::clamped(at, start)));
                let piece = cut(extent, BlockRange::clamped(start, stop));
                push_joined(&mut out, piece.map(|piece| Extent { unwritten: false, ..piece }));
                at = stop;
            }
            if u64::from(to) > extent.end() {
                // The mark continues in the next extent.
                break;
            }
            marks.next();
        }
        // An extent that was not split must not be joined either, because it may be pinned.
        if at == u64::from(extent.logical.get()) && extent.unwritten {
            out.push(extent);
        } else {
            push_joined(&mut out, extents::after(extent, at));
        }
    }
    out
}

/// Appends a part, or extends the last extent if both are written and the format allows the result.
fn push_joined(out: &mut Vec<Extent>, piece: Option<Extent>) {
    let Some(piece) = piece else { return };
    match out.last_mut() {
        Some(last) if !piece.unwritten => match join(*last, piece) {
            Some(joined) => *last = joined,
            None => out.push(piece),
        },
        _ => out.push(piece),
    }
}

/// File blocks at which unwritten extents were split for writes in flight. The parts must not be
/// joined before the writes have completed.
#[derive(Clone, Debug, Default)]
pub(super) struct Pins(Vec<FileBlock>);

impl Pins {
    pub(super) fn add(&mut self, block: FileBlock) {
        self.0.push(block);
    }

    pub(super) fn remove(&mut self, block: FileBlock) {
        if let Some(at) = self.0.iter().position(|&pin| pin == block) {
            self.0.swap_remove(at);
        }
    }

    fn contains(&self, block: FileBlock) -> bool {
        self.0.contains(&block)
    }
}

/// The extents that replace the entries `range` of a leaf.
pub(super) struct Splice {
    pub range: Range<usize>,
    /// The new extents: at most the left neighbour, the left rest, the new extent, the right rest
    /// and the right neighbour. Neighbours are joined where the format allows it.
    pub extents: SmallVec<[Extent; 5]>,
}

impl Splice {
    /// Returns the number of extents of a leaf of `len` extents after the change.
    ///
    /// Filling a hole adds at most one, converting within one extent at most two, and removing a
    /// part at most one.
    pub(super) fn len_after(&self, len: usize) -> usize {
        len - self.range.len() + self.extents.len()
    }

    /// Returns the extents of the leaf after the change.
    pub(super) fn apply(&self, extents: &[Extent]) -> Vec<Extent> {
        let mut after = Vec::with_capacity(self.len_after(extents.len()));
        after.extend_from_slice(&extents[..self.range.start]);
        after.extend_from_slice(&self.extents);
        after.extend_from_slice(&extents[self.range.end..]);
        after
    }
}

/// Computes the change of a leaf's `extents`.
pub(super) fn splice(extents: &[Extent], change: &Change, pins: &Pins) -> Splice {
    let (start, end) = (change.blocks.start().to_u64(), change.blocks.end());
    let from = extents.partition_point(|extent| extent.end() <= start);
    let to = extents.partition_point(|extent| extent.logical.to_u64() < end).max(from);
    // Folding marks may have split the extent that the caller found, so the range may cover more
    // than one extent.
    debug_assert!(!change.fills_hole() || to == from, "something is mapped where a hole is filled");
    let before = from.saturating_sub(1)..from;
    let after = to..(to + 1).min(extents.len());
    let range = before.start..after.end;

    let replaced = &extents[from..to];
    let ends_here = replaced.last().is_some_and(|last| last.end() >= end);
    debug_assert!(change.fills_hole() || ends_here, "a change of what another leaf maps");
    let head = replaced.first().and_then(|&first| extents::before(first, start));
    let tail = replaced.last().and_then(|&last| extents::after(last, end));
    let mut pieces = SmallVec::<[Extent; 5]>::new();
    let neighbour = |range: Range<usize>| extents[range].iter().copied();
    let replacement = change.replacement(replaced);
    for next in neighbour(before).chain(head).chain(replacement).chain(tail).chain(neighbour(after)) {
        let pinned = guarded!(Fault::PinsForgotten, pins.contains(next.logical));
        let joins = !(next.unwritten && pinned || change.cuts_at(next.logical));
        match pieces.last_mut().filter(|_| joins).and_then(|last| Some((join(*last, next)?, last))) {
            Some((joined, last)) => *last = joined,
            None => pieces.push(next),
        }
    }
    Splice { range, extents: pieces }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parext4_format::FsBlock;

    fn extent(logical: u32, physical: u64, len: u32, unwritten: bool) -> Extent {
        Extent { logical: FileBlock(logical), physical: FsBlock(physical), len, unwritten }
    }

    #[test]
    fn folding_cuts_unwritten_extents_and_joins_written_ones() {
        let extents = [extent(0, 100, 4, false), extent(4, 104, 10, true), extent(14, 500, 4, true)];
        let folded = fold(&extents, &[(4, 6), (6, 7), (5, 7), (9, 10), (14, 18)]);
        let want = [
            extent(0, 100, 7, false),
            extent(7, 107, 2, true),
            extent(9, 109, 1, false),
            extent(10, 110, 4, true),
            extent(14, 500, 4, false),
        ];
        assert_eq!(folded, want);
        assert_eq!(fold(&extents, &[]), extents);
    }

    #[test]
    fn a_fold_makes_at_most_two_entries_of_a_mark() {
        let extents = [extent(0, 1000, 100, true)];
        let marks: Vec<(u32, u32)> = (1..30).map(|n| (n * 3, n * 3 + 1)).collect();
        assert_eq!(fold(&extents, &marks).len(), 1 + 2 * marks.len());
    }
}
