//! The blocks of a range of bytes, and their mapping.

use rangelock::ByteRange;

use super::Node;
use crate::body::Runs;
use crate::error::Result;
use crate::stats::Record;

impl Node {
    /// Returns the mapping of the file blocks `[first, first + len)`.
    pub(crate) fn runs(&self, first: u32, len: u32) -> Result<Runs> {
        Ok(self.engine.map(&self.inode)?.runs(first, len).collect())
    }

    /// Returns the counters of operations on the file.
    pub(crate) fn record(&self) -> Record<'_> {
        self.engine.usage.record(&self.inode.usage)
    }

    /// Returns the blocks that a range of bytes touches: the first one, and their number.
    pub(crate) fn blocks_of(&self, range: ByteRange) -> (u32, u32) {
        let block_size = self.engine.block_size();
        let first = block_number(range.start() / block_size);
        (first, block_number(range.end().div_ceil(block_size)) - first)
    }

    /// Returns the bounds of the blocks that are wholly in `[offset, end)`. The end is before the start if there are none.
    pub(crate) fn whole_blocks(&self, offset: u64, end: u64) -> (u32, u32) {
        let block_size = self.engine.block_size();
        (block_number(offset.div_ceil(block_size)), block_number(end / block_size))
    }
}

/// Returns the number as a `u32`. Requests were checked against the maximum file size; a larger number becomes `u32::MAX`.
fn block_number(block: u64) -> u32 {
    u32::try_from(block).unwrap_or(u32::MAX)
}
