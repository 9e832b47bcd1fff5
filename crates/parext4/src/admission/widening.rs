//! The last resort of a write on a full volume. The write converts whole extents and fills them with zeros around its
//! data, so no extent has to be split. The kernel does so too (`EXT4_EXT_MAY_ZEROOUT`).
//!
//! The write converts only blocks whose contents it fills itself, with data or zeros, under a range that covers all
//! of them (H9).

use rangelock::ByteRange;

use crate::body::State;
use crate::error::Result;
use crate::fault::{Fault, guarded};
use crate::node::Node;
use crate::operation::Operation;

/// The bytes that a write would fill so that no extent has to be split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WidenedRange {
    /// These bytes.
    Range(ByteRange),
    /// The write's own bytes: no extent has to be split, or none has to be any longer.
    Itself,
    /// Widening is impossible: the range has holes, or it would pass the end of the file.
    NoWay,
}

impl Node {
    /// Returns the bytes of a write and of the unwritten extents that it would split. Other blocks that the write
    /// covers in part are written already, and keep their other bytes.
    pub(super) fn widened_range(&self, offset: u64, end: u64) -> Result<WidenedRange> {
        let block_size = self.engine.block_size();
        let (first, len) = self.blocks_of(ByteRange::new(offset, end));
        let map = self.engine.map(&self.inode)?;
        if map.runs(first, len).any(|run| run.state == State::Hole) {
            return Ok(WidenedRange::NoWay);
        }
        let around = |block: u32| {
            let (start, stop) = map.unwritten_around(block);
            let bytes = (u64::from(start) * block_size, u64::from(stop) * block_size);
            map.lookup(block, 1).is_unwritten().then_some(bytes)
        };
        let start = around(first).map_or(offset, |(start, _)| start);
        let stop = around(first + len - 1).map_or(end, |(_, stop)| stop);
        // The size of the extents has no limit, because there is no alternative.
        Ok(match ByteRange::new(start, stop) {
            wide if wide.end() > self.inode.size() => WidenedRange::NoWay,
            wide if wide == ByteRange::new(offset, end) => WidenedRange::Itself,
            wide => WidenedRange::Range(wide),
        })
    }
}

/// Returns the operation that admission plans for a write widened to `wide`.
pub(super) fn widening(wide: ByteRange) -> Operation {
    let (offset, end) = (wide.start(), wide.end());
    guarded!(Fault::WidenAsWrite, Operation::Widen { offset, end }, Operation::Write { offset, end })
}
