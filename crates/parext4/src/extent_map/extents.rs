//! Parts of extents, and joined extents.

use parext4_format::FileBlock;
use parext4_format::extent::{self, Extent};

/// Returns the two extents as one, or `None` if they are not contiguous or too long for the format.
pub(super) fn join(a: Extent, b: Extent) -> Option<Extent> {
    let max = if a.unwritten { extent::MAX_UNWRITTEN } else { extent::MAX_WRITTEN };
    let fits = a.unwritten == b.unwritten
        && a.end() == u64::from(b.logical.get())
        && a.physical + u64::from(a.len) == b.physical
        && a.len + b.len <= max;
    fits.then_some(Extent { len: a.len + b.len, ..a })
}

/// Returns the part of `extent` in the file blocks `[start, end)`, or `None` if that part is empty.
pub(super) fn cut(extent: Extent, start: u64, end: u64) -> Option<Extent> {
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
