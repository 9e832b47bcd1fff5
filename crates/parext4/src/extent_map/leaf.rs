//! One leaf: its extents, and the [`Marks`] laid over them.
//!
//! The extents never change; a change puts new ones into their place.

use std::ops::Range;

use parext4_format::FileBlock;
use parext4_format::extent::Extent;
use smallvec::SmallVec;

use super::change::Change;
use super::extents::{cut, join};
use super::marks::{Marked, Marking, Marks};
use crate::fault::{Fault, planted};
use crate::sync::Rank;
use crate::sync::{Arc, Guard, Mutex, Swap, SwapOption};

/// A leaf that is a block splits early, so that there is room for marks, when less than this part of its entries
/// is free.
const SCARCE: usize = 8;

/// The place of a leaf in the tree, with its present version.
#[derive(Debug)]
pub(super) struct Leaf {
    /// Sorted, disjoint.
    extents: Swap<Vec<Extent>>,
    marks: SwapOption<Marks>,
    /// Held by who changes it without holding the whole map.
    changing: Mutex<()>,
}

/// What a change makes of a leaf.
#[derive(Debug)]
pub(super) struct Outcome {
    pub after: Vec<Extent>,
    /// The marks that stay laid over it, if they do not have to be folded.
    pub marks: Option<Arc<Marks>>,
}

impl Leaf {
    pub(super) fn new(extents: Vec<Extent>, marks: Option<Arc<Marks>>) -> Arc<Self> {
        let changing = Mutex::new(Rank::MapLeaf, ());
        Arc::new(Self { extents: Swap::new(Arc::new(extents)), marks: SwapOption::new(marks), changing })
    }

    /// Puts the next version into place.
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

    /// What is marked, as `(start, end)` in file blocks, in no order.
    pub(super) fn marked(&self) -> Marked {
        self.marks.load().as_ref().map_or_else(Marked::new, |marks| marks.iter().collect())
    }

    /// The first file block mapped; none in an empty root.
    pub(super) fn first(&self) -> u32 {
        self.extents().first().map_or(0, |extent| extent.logical.get())
    }

    /// The first extent that ends behind `block`.
    pub(super) fn extent_from(&self, block: u32) -> Option<Extent> {
        let extents = self.extents();
        let at = extents.partition_point(|extent| extent.end() <= u64::from(block));
        extents.get(at).copied()
    }

    /// The last extent that starts before `block`.
    pub(super) fn extent_before(&self, block: u32) -> Option<Extent> {
        let extents = self.extents();
        let at = extents.partition_point(|extent| extent.logical.get() < block);
        extents.get(at.checked_sub(1)?).copied()
    }

    /// Marks `[start, start + len)`, which the leaf maps, as written.
    pub(super) fn mark(&self, tid: u64, start: u32, len: u32) -> Marking {
        self.marks.load().as_ref().map_or(Marking::Refused, |marks| marks.set(tid, start, len))
    }

    /// What `change`, in transaction `tid`, makes of a leaf of so many entries. Marks stay where they
    /// are if nothing is taken away and the leaf has room for all that they may come to; else they are
    /// retired and folded.
    pub(super) fn outcome(&self, change: &Change, tid: u64, capacity: usize, pins: &Pins) -> Outcome {
        let marks = self.marks.load();
        if let Some(marks) = marks.as_ref().filter(|marks| change.fills_hole() && marks.serve(tid)) {
            let extents = self.extents();
            let splice = splice(&extents, change, pins);
            let fits = splice.len_after(extents.len()) + 2 * marks.room() <= capacity;
            if fits || planted(Fault::MarksWithoutRoom) {
                return Outcome { after: splice.apply(&extents), marks: Some(Arc::clone(marks)) };
            }
        }
        let folded = self.folded();
        Outcome { after: splice(&folded, change, pins).apply(&folded), marks: None }
    }

    /// Carries out a change of no other leaf, if transaction `tid` has registered this one, which has room for
    /// `capacity` extents. Says whether it has; if not the marks may be retired, as behind a plan that was dropped.
    pub(super) fn change(&self, change: &Change, tid: u64, capacity: usize, pins: &Pins) -> bool {
        let _changing = (!planted(Fault::LeafUnheld)).then(|| self.changing.lock());
        let registered = self.marks.load().as_ref().is_some_and(|marks| marks.serve(tid));
        if !registered || !change.stays_within(&self.extents()) {
            return false;
        }
        // Whoever had the leaf before us may have made room for a mark.
        if change.is_markable() && self.mark(tid, change.first(), change.blocks()) == Marking::Done {
            return true;
        }
        let Outcome { after, marks } = self.outcome(change, tid, capacity, pins);
        let fits = marks.is_some() || after.len() <= capacity - scarce(capacity);
        if fits {
            let marks = marks.or_else(|| {
                let free = capacity.saturating_sub(after.len());
                Marks::armed(tid, change.share_for_marks(free))
            });
            self.store(after, marks);
        }
        fits
    }

    /// The extents with all marks folded in; the marks are retired.
    pub(super) fn folded(&self) -> Vec<Extent> {
        if let Some(marks) = &*self.marks.load()
            && !planted(Fault::FoldUnretired)
        {
            marks.retire();
        }
        let mut written = self.marked();
        written.sort_unstable();
        fold(&self.extents(), &written)
    }
}

/// How many entries of a leaf that is a block should stay free.
pub(super) fn scarce(capacity: usize) -> usize {
    capacity / SCARCE
}

/// `extents` with the blocks of the sorted ranges `written` turned from unwritten to written.
fn fold(extents: &[Extent], written: &[(u32, u32)]) -> Vec<Extent> {
    let mut out: Vec<Extent> = Vec::with_capacity(extents.len() + 2 * written.len());
    let mut marks = written.iter().copied().peekable();
    for &extent in extents {
        let mut at = u64::from(extent.logical.get());
        while let Some(&(from, to)) = marks.peek().filter(|&&(from, _)| u64::from(from) < extent.end()) {
            let (start, stop) = (u64::from(from).max(at), u64::from(to).min(extent.end()));
            if extent.unwritten && start < stop {
                out.extend(cut(extent, at, start));
                push_joined(
                    &mut out,
                    cut(extent, start, stop).map(|piece| Extent { unwritten: false, ..piece }),
                );
                at = stop;
            }
            if u64::from(to) > extent.end() {
                // It goes on in the next one.
                break;
            }
            marks.next();
        }
        // What was not cut was not to be joined either.
        if at == u64::from(extent.logical.get()) && extent.unwritten {
            out.push(extent);
        } else {
            push_joined(&mut out, cut(extent, at, extent.end()));
        }
    }
    out
}

/// Adds a piece, as part of the last one if both are written and may be one.
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

/// File blocks at which unwritten extents were cut for writes under way, and must not be joined again before
/// those have completed.
#[derive(Clone, Debug, Default)]
pub(super) struct Pins(Vec<u32>);

impl Pins {
    pub(super) fn add(&mut self, block: u32) {
        self.0.push(block);
    }

    pub(super) fn remove(&mut self, block: u32) {
        if let Some(at) = self.0.iter().position(|&pin| pin == block) {
            self.0.swap_remove(at);
        }
    }

    fn hold(&self, block: FileBlock) -> bool {
        self.0.contains(&block.get())
    }
}

/// What takes the place of `range` in a leaf.
pub(super) struct Splice {
    pub range: Range<usize>,
    /// At most a neighbour, head, new, tail, and the other neighbour, joined where they can be.
    pub extents: SmallVec<[Extent; 5]>,
}

impl Splice {
    /// How many extents a leaf of `len` has afterwards.
    ///
    /// At most one more on a hole, two more within one extent, one more if a piece is cut out of one.
    pub(super) fn len_after(&self, len: usize) -> usize {
        len - self.range.len() + self.extents.len()
    }

    /// What a leaf of `extents` has afterwards.
    pub(super) fn apply(&self, extents: &[Extent]) -> Vec<Extent> {
        let mut after = Vec::with_capacity(self.len_after(extents.len()));
        after.extend_from_slice(&extents[..self.range.start]);
        after.extend_from_slice(&self.extents);
        after.extend_from_slice(&extents[self.range.end..]);
        after
    }
}

/// The change as it concerns the extents of one leaf.
pub(super) fn splice(extents: &[Extent], change: &Change, pins: &Pins) -> Splice {
    let from = extents.partition_point(|extent| extent.end() <= change.start);
    let to = extents.partition_point(|extent| u64::from(extent.logical.get()) < change.end).max(from);
    // More than one if marks were folded since somebody looked: what was one extent is several then, in one place.
    debug_assert!(!change.fills_hole() || to == from, "something is mapped where a hole is filled");
    let before = from.saturating_sub(1)..from;
    let after = to..(to + 1).min(extents.len());
    let range = before.start..after.end;

    let replaced = &extents[from..to];
    let ends_here = replaced.last().is_some_and(|last| last.end() >= change.end);
    debug_assert!(change.fills_hole() || ends_here, "a change of what another leaf maps");
    let head = replaced.first().and_then(|&first| cut(first, 0, change.start));
    let tail = replaced.last().and_then(|&last| cut(last, change.end, last.end()));
    let mut pieces = SmallVec::<[Extent; 5]>::new();
    let neighbour = |range: Range<usize>| extents[range].iter().copied();
    let inside = change.inside(replaced);
    for next in neighbour(before).chain(head).chain(inside).chain(tail).chain(neighbour(after)) {
        let pinned = pins.hold(next.logical) && !planted(Fault::PinsForgotten);
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
