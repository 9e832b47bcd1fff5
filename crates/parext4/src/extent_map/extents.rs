//! Parts of extents, and joined extents.

use parext4_format::extent::{self, Extent};
use parext4_format::{BlockRange, FileBlock};

/// Joins two extents. Returns `None` if they are not contiguous or too long for the format.
pub(super) fn join(a: Extent, b: Extent) -> Option<Extent> {
    let max = if a.unwritten { extent::MAX_UNWRITTEN } else { extent::MAX_WRITTEN };
    let fits = a.unwritten == b.unwritten
        && a.end() == u64::from(b.logical.get())
        && a.physical + u64::from(a.len) == b.physical
        && a.len + b.len <= max;
    fits.then_some(Extent { len: a.len + b.len, ..a })
}

/// Returns the part of `extent` in `blocks`, or `None` if that part is empty.
#[inline]
pub(super) fn cut(extent: Extent, blocks: BlockRange) -> Option<Extent> {
    let part = extent.blocks().intersection(blocks);
    (!part.is_empty()).then(|| Extent {
        logical: part.start(),
        physical: extent.physical + u64::from(part.start() - extent.logical),
        len: part.count(),
        unwritten: extent.unwritten,
    })
}

/// Returns the part of `extent` before file block `end`, or `None` if that part is empty.
pub(super) fn before(extent: Extent, end: u64) -> Option<Extent> {
    cut(extent, BlockRange::clamped(0, end))
}

/// Returns the part of `extent` from file block `start` on, or `None` if that part is empty.
pub(super) fn after(extent: Extent, start: u64) -> Option<Extent> {
    cut(extent, BlockRange::clamped(start, FileBlock::LIMIT))
}
