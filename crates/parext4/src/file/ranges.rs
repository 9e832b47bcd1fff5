//! Holding the range that admission asks for.

use parext4_format::FileBlock;
use rangelock::{ByteRange, RangeGuard};

use super::File;
use super::admission::{self, Admission, FileState, Operation};
use crate::error::Result;
use crate::extent_map::{Mapping, State};
use crate::lock_order::{Held, Rank, hold};

/// A range that is held, with the plan that was made under it.
#[must_use]
pub(super) struct HeldRange<'a> {
    pub admission: Admission,
    _guard: RangeGuard<'a>,
    _held: Held,
}

impl File {
    /// Waits until the operation may proceed. What admission saw of the file is true as long as the range
    /// is held (I2).
    pub(super) fn admit(&self, operation: Operation) -> Result<HeldRange<'_>> {
        let mut admission = admission::plan(operation, &self.observe(operation)?);
        loop {
            let held = hold(Rank::Range);
            let guard = self.inode().ranges.lock(admission.range, admission.mode);
            let now = admission::plan(operation, &self.observe(operation)?);
            // While we waited the file may have changed so that a larger range is needed.
            if guard.range().contains(&now.range) {
                return Ok(HeldRange { admission: now, _guard: guard, _held: held });
            }
            admission = now;
        }
    }

    fn observe(&self, operation: Operation) -> Result<FileState> {
        let (all_written, edges_written) = match operation {
            Operation::Write { offset, end } => self.written(offset, end)?,
            _ => (false, false),
        };
        let tail_clean = self.inode().tail.lock().is_clean();
        let block_size = self.volume().block_size();
        Ok(FileState { size: self.size(), block_size, all_written, edges_written, tail_clean })
    }

    /// Whether all blocks of `[offset, end)` are written, and whether those at its edges are that it covers
    /// only in part.
    fn written(&self, offset: u64, end: u64) -> Result<(bool, bool)> {
        let block_size = self.volume().block_size();
        let (first, len) = self.blocks_of(ByteRange::new(offset, end));
        let map = self.volume().map(self.inode())?.read();
        let is_written = |mapping: Mapping| matches!(mapping.state, State::Written(_));
        let all = map.runs(first, len).all(is_written);
        let edge = |at: u64, block: u32| at.is_multiple_of(block_size) || is_written(map.lookup(block, 1));
        let edges = all || (edge(offset, first) && edge(end, first + len - 1));
        Ok((all, edges))
    }

    /// The blocks that a range of bytes touches: the first, and how many.
    pub(super) fn blocks_of(&self, range: ByteRange) -> (u32, u32) {
        let block_size = self.volume().block_size();
        let first = range.start() / block_size;
        let end = range.end().div_ceil(block_size);
        // Requests were checked against the largest file.
        let narrow = |block: u64| FileBlock(u32::try_from(block).unwrap_or(u32::MAX)).get();
        (narrow(first), narrow(end) - narrow(first))
    }
}
