//! The blocks that bytes of a file lie in, and what they are mapped to.

use parext4_format::FileBlock;
use rangelock::ByteRange;

use super::Node;
use crate::body::Runs;
use crate::error::Result;
use crate::stats::Record;

impl Node {
    /// Returns what the blocks of `[first, first + len)` are mapped to.
    pub(crate) fn runs(&self, first: u32, len: u32) -> Result<Runs> {
        Ok(self.engine.map(&self.inode)?.runs(first, len).collect())
    }

    /// Where what happens to the file is counted.
    pub(crate) fn record(&self) -> Record<'_> {
        self.engine.usage.record(&self.inode.usage)
    }

    /// The blocks that a range of bytes touches: the first, and how many.
    pub(crate) fn blocks_of(&self, range: ByteRange) -> (u32, u32) {
        let block_size = self.engine.block_size();
        let first = range.start() / block_size;
        let end = range.end().div_ceil(block_size);
        // Requests were checked against the largest file.
        let narrow = |block: u64| FileBlock(u32::try_from(block).unwrap_or(u32::MAX)).get();
        (narrow(first), narrow(end) - narrow(first))
    }

    /// The blocks that lie in `[offset, end)` as a whole; the end is before the start if there are none.
    pub(crate) fn whole_blocks(&self, offset: u64, end: u64) -> (u32, u32) {
        let block_size = self.engine.block_size();
        let narrow = |block: u64| u32::try_from(block).unwrap_or(u32::MAX);
        (narrow(offset.div_ceil(block_size)), narrow(end / block_size))
    }
}
