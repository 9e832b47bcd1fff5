//! The last resort of a write on a full volume. The write converts whole extents and fills them
//! with zeros around its data, so no extent has to be split. The kernel does the same
//! (`EXT4_EXT_MAY_ZEROOUT`).
//!
//! The write converts only blocks whose contents it fills itself, with data or zeros, under a range
//! that covers all of them (H9).

use parext4_format::FileBlock;
use rangelock::ByteRange;

use crate::error::Result;
use crate::fault::{Fault, guarded};
use crate::inode_ref::InodeRef;
use crate::mapping::BlockState;
use crate::operation::Operation;

/// The range to which a write is widened, so that no extent has to be split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WidenedRange {
    /// The write must fill these bytes.
    Range(ByteRange),
    /// The write fills only its own bytes: no extent has to be split, or no longer.
    Itself,
    /// The write cannot be widened: the range has holes, or it would pass the end of the file.
    NoWay,
}

impl InodeRef {
    /// Returns the bytes of a write and of the unwritten extents that it would split. Other blocks
    /// that the write covers in part are written already, and keep their other bytes.
    pub(super) fn widened_range(&self, offset: u64, end: u64) -> Result<WidenedRange> {
        let unit = self.engine.layout().block_size;
        let blocks = self.blocks_of(ByteRange::new(offset, end));
        let block_map = self.engine.block_map(&self.inode)?;
        for run in block_map.runs(blocks) {
            if run?.is_hole() {
                return Ok(WidenedRange::NoWay);
            }
        }
        let around = |block: FileBlock| -> Result<_> {
            let is_unwritten = matches!(block_map.state_of(block)?, BlockState::Unwritten(_));
            Ok(is_unwritten.then(|| unit.bytes_of(block_map.unwritten_around(block))))
        };
        let start = around(blocks.start())?.map_or(offset, |bytes| bytes.start);
        let stop = blocks.last().map(around).transpose()?.flatten().map_or(end, |bytes| bytes.end);
        // The length of the extents is not limited, because there is no alternative.
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
