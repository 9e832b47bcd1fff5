//! The last way to complete a write when the volume is full: make whole extents written, with zeros around
//! the data, so that none has to be split. The kernel does so too (`EXT4_EXT_MAY_ZEROOUT`).
//!
//! Only blocks whose contents are known are converted (H9): those that this write fills itself, with data or
//! with zeros, under a range that covers them all.

use rangelock::ByteRange;

use crate::body::State;
use crate::error::Result;
use crate::fault::{Fault, planted};
use crate::node::Node;
use crate::operation::Operation;

/// What a write would fill so that no extent has to be split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WidenedRange {
    /// These bytes.
    Range(ByteRange),
    /// Its own bytes: no extent has to be split, at least not any more.
    Itself,
    /// There are holes, or it would pass the end of the file.
    NoWay,
}

impl Node {
    /// Returns the bytes of a write and of the unwritten extents that it would split. Other blocks that it covers in part
    /// are written, and keep their other bytes.
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
        // However large the extents are: there is no other way.
        Ok(match ByteRange::new(start, stop) {
            wide if wide.end() > self.inode.size() => WidenedRange::NoWay,
            wide if wide == ByteRange::new(offset, end) => WidenedRange::Itself,
            wide => WidenedRange::Range(wide),
        })
    }
}

/// Returns what a write that was widened to `wide` is to admission.
pub(super) fn widening(wide: ByteRange) -> Operation {
    let (offset, end) = (wide.start(), wide.end());
    if planted(Fault::WidenAsWrite) {
        return Operation::Write { offset, end };
    }
    Operation::Widen { offset, end }
}
