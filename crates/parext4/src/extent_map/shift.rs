//! The extents that move to other file blocks when a range is removed from a file or inserted.
//!
//! This module computes the new extents of each leaf, and the part that remains to be moved. It
//! does not change nodes. Invariant: extents keep their order, because they move into a hole.

use parext4_format::extent::Extent;
use parext4_format::{BlockRange, FileBlock};

use super::extents::{after, before, cut, join};
use crate::mapping::Shift;

impl Shift {
    /// Returns the file blocks whose mapping changes.
    pub(super) fn touched(&self) -> BlockRange {
        let first = if self.up { self.start } else { self.start.saturating_sub(self.by.into()) };
        BlockRange::clamped(first, FileBlock::LIMIT)
    }

    /// Returns true if the extents move towards the end of the file, the last one first.
    pub(super) fn is_up(&self) -> bool {
        self.up
    }

    /// Returns true if a block of `[first, end)` moves.
    pub(super) fn overlaps(&self, first: u64, end: u64) -> bool {
        first < self.end && self.start < end
    }

    /// Returns the moving part of `extent` at its new place, or `None` if no part of it moves.
    pub(super) fn moved(&self, extent: Extent) -> Option<Extent> {
        let piece = cut(extent, BlockRange::clamped(self.start, self.end))?;
        let at = piece.logical.get();
        // The caller has checked that all blocks stay within the limits of a file.
        let to = if self.up { at.saturating_add(self.by) } else { at.saturating_sub(self.by) };
        Some(Extent { logical: FileBlock(to), ..piece })
    }

    /// Returns the extents of a leaf after the move. Joins written extents that meet.
    pub(super) fn apply(&self, extents: &[Extent]) -> Vec<Extent> {
        let mut out: Vec<Extent> = Vec::with_capacity(extents.len() + 1);
        for &extent in extents {
            let before = before(extent, self.start);
            let after = after(extent, self.end);
            for piece in before.into_iter().chain(self.moved(extent)).chain(after) {
                // Unwritten extents may be split and pinned for writes in flight.
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

    /// Advances past a leaf. `extents` are its extents before the move.
    pub(super) fn advance_past(&mut self, extents: &[Extent]) {
        let (Some(first), Some(last)) = (extents.first(), extents.last()) else { return };
        if self.up {
            self.end = self.end.min(self.start.max(first.logical.get().into()));
        } else {
            self.start = self.start.max(last.end());
        }
    }

    /// Ends the shift: nothing remains to be moved.
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
    fn extents_after_a_removed_range_move_down() {
        let mut shift = Shift::down(10, 4);
        let extents = [extent(0, 104, 6), extent(10, 110, 5), extent(20, 200, 1)];
        assert_eq!(shift.apply(&extents), [extent(0, 104, 11), extent(16, 200, 1)]);
        assert!(!shift.overlaps(0, 10) && shift.overlaps(0, 11));
        shift.advance_past(&extents);
        assert_eq!(shift.start, 21, "the shift continues after the leaf");
    }

    #[test]
    fn extents_after_an_inserted_range_move_up_and_one_is_split() {
        let mut shift = Shift::up(FileBlock(10), 4);
        let extents = [extent(0, 100, 12), extent(20, 200, 1)];
        assert_eq!(shift.apply(&extents), [extent(0, 100, 10), extent(14, 110, 2), extent(24, 200, 1)]);
        shift.advance_past(&extents[1..]);
        assert_eq!(shift.end, 20, "the shift continues before the leaf");
        shift.advance_past(&extents);
        assert_eq!((shift.start, shift.end), (10, 10));
    }
}
