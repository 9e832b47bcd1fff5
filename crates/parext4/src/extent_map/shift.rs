//! Which extents move to other file blocks when a range is taken out of a file or put in.

use std::ops::Range;

use parext4_format::FileBlock;
use parext4_format::extent::Extent;

use super::extents::{cut, join};

/// What is still to be moved, and where to. All moves by the same number of blocks, up or down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shift {
    /// The file blocks `[start, end)`, as they are counted before.
    pub start: u64,
    pub end: u64,
    by: u32,
    up: bool,
}

impl Shift {
    /// Everything from file block `start` on, by `by` blocks towards the start of the file, where there is a hole.
    /// Begins at the front, so that the hole moves up.
    pub(crate) fn down(start: u32, by: u32) -> Self {
        Self { start: start.into(), end: 1 << 32, by, up: false }
    }

    /// Everything from file block `start` on, by `by` blocks towards the end of the file. Begins at the back, so that
    /// a hole moves down.
    pub(crate) fn up(start: u32, by: u32) -> Self {
        Self { start: start.into(), end: 1 << 32, by, up: true }
    }

    /// Of this, what is at and behind file block `start`.
    pub(crate) fn behind(&self, start: u64) -> Self {
        Self { start: start.min(self.end), ..*self }
    }

    /// The file blocks of which some lie elsewhere, before or after.
    pub(super) fn touched(&self) -> Range<u64> {
        let first = if self.up { self.start } else { self.start.saturating_sub(self.by.into()) };
        first..1 << 32
    }

    /// Whether it begins with the last extent.
    pub(super) fn is_up(&self) -> bool {
        self.up
    }

    /// Whether something of `[first, end)` moves.
    pub(super) fn meets(&self, first: u64, end: u64) -> bool {
        first < self.end && self.start < end
    }

    /// Where what moves of `extent` goes.
    pub(super) fn moved(&self, extent: Extent) -> Option<Extent> {
        let piece = cut(extent, self.start, self.end)?;
        let at = piece.logical.get();
        // Whoever shifts has seen to it that all stays in the file.
        let to = if self.up { at.saturating_add(self.by) } else { at.saturating_sub(self.by) };
        Some(Extent { logical: FileBlock(to), ..piece })
    }

    /// The extents of a leaf with what is to be moved in its new place, where written ones are joined that meet. Order
    /// is kept, since nothing is where it goes.
    pub(super) fn apply(&self, extents: &[Extent]) -> Vec<Extent> {
        let mut out: Vec<Extent> = Vec::with_capacity(extents.len() + 1);
        for &extent in extents {
            let before = cut(extent, 0, self.start);
            let behind = cut(extent, self.end, extent.end());
            for piece in before.into_iter().chain(self.moved(extent)).chain(behind) {
                // Unwritten ones may be cut for writes under way.
                match out
                    .last_mut()
                    .filter(|_| !piece.unwritten)
                    .and_then(|last| Some((join(*last, piece)?, last)))
                {
                    Some((joined, last)) => *last = joined,
                    None => out.push(piece),
                }
            }
        }
        out
    }

    /// Notes that of a leaf's `extents`, as they were, nothing is to be moved any more.
    pub(super) fn passed(&mut self, extents: &[Extent]) {
        let (Some(first), Some(last)) = (extents.first(), extents.last()) else { return };
        if self.up {
            self.end = self.end.min(self.start.max(first.logical.get().into()));
        } else {
            self.start = self.start.max(last.end());
        }
    }

    /// Notes that all is done.
    pub(super) fn finish(&mut self) {
        self.start = self.end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parext4_format::FsBlock;

    fn extent(logical: u32, physical: u64, len: u32) -> Extent {
        Extent { logical: FileBlock(logical), physical: FsBlock(physical), len, unwritten: false }
    }

    #[test]
    fn what_is_behind_moves_down() {
        let mut shift = Shift::down(10, 4);
        let extents = [extent(0, 104, 6), extent(10, 110, 5), extent(20, 200, 1)];
        assert_eq!(shift.apply(&extents), [extent(0, 104, 11), extent(16, 200, 1)]);
        assert!(!shift.meets(0, 10) && shift.meets(0, 11));
        shift.passed(&extents);
        assert_eq!(shift.start, 21, "it goes on behind the leaf");
    }

    #[test]
    fn what_is_behind_moves_up_and_an_extent_is_cut() {
        let mut shift = Shift::up(10, 4);
        let extents = [extent(0, 100, 12), extent(20, 200, 1)];
        assert_eq!(shift.apply(&extents), [extent(0, 100, 10), extent(14, 110, 2), extent(24, 200, 1)]);
        shift.passed(&extents[1..]);
        assert_eq!(shift.end, 20, "it goes on before the leaf");
        shift.passed(&extents);
        assert_eq!((shift.start, shift.end), (10, 10));
    }
}
