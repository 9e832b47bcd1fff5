//! The extents of one leaf: cutting, replacing and joining them.

use std::ops::Range;

use parext4_format::FileBlock;
use parext4_format::extent::{self, Extent};
use smallvec::SmallVec;

use super::Change;

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
}

/// The change as it concerns the extents of one leaf.
pub(super) fn splice(extents: &[Extent], change: &Change) -> Splice {
    let from = extents.partition_point(|extent| extent.end() <= change.start);
    let to = extents.partition_point(|extent| u64::from(extent.logical.get()) < change.end).max(from);
    debug_assert!(to - from <= 1, "a change concerns one extent at most");
    let before = from.saturating_sub(1)..from;
    let after = to..(to + 1).min(extents.len());
    let range = before.start..after.end;

    let replaced = &extents[from..to];
    let head = replaced.first().and_then(|&first| cut(first, 0, change.start));
    let tail = replaced.last().and_then(|&last| cut(last, change.end, last.end()));
    let mut pieces = SmallVec::<[Extent; 5]>::new();
    let neighbour = |range: Range<usize>| extents[range].iter().copied();
    for next in neighbour(before).chain(head).chain(change.new).chain(tail).chain(neighbour(after)) {
        match pieces.last_mut().and_then(|last| Some((join(*last, next)?, last))) {
            Some((joined, last)) => *last = joined,
            None => pieces.push(next),
        }
    }
    Splice { range, extents: pieces }
}

/// The two extents as one, if the format allows it.
fn join(a: Extent, b: Extent) -> Option<Extent> {
    let max = if a.unwritten { extent::MAX_UNWRITTEN } else { extent::MAX_WRITTEN };
    let fits = a.unwritten == b.unwritten
        && a.end() == u64::from(b.logical.get())
        && a.physical + u64::from(a.len) == b.physical
        && a.len + b.len <= max;
    fits.then_some(Extent { len: a.len + b.len, ..a })
}

/// The part of `extent` in `[start, end)`, in file blocks, if any.
fn cut(extent: Extent, start: u64, end: u64) -> Option<Extent> {
    let first = u64::from(extent.logical.get());
    let (start, end) = (start.max(first), end.min(extent.end()));
    if start >= end {
        return None;
    }
    Some(Extent {
        logical: FileBlock(u32::try_from(start).ok()?),
        physical: extent.physical + (start - first),
        len: u32::try_from(end - start).ok()?,
        unwritten: extent.unwritten,
    })
}
