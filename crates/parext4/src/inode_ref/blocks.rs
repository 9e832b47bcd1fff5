//! The blocks of a range of bytes, and their mapping.

use parext4_format::BlockRange;
use rangelock::ByteRange;

use super::InodeRef;
use crate::error::Result;
use crate::mapping::Runs;
use crate::stats::Record;

impl InodeRef {
    /// Returns the mapping of `blocks`.
    #[inline]
    pub(crate) fn runs(&self, blocks: BlockRange) -> Result<Runs> {
        let runs: Result<Runs> = self.engine.block_map(&self.inode)?.runs(blocks).collect();
        runs.map_err(|error| self.engine.health().note(self.ino(), error))
    }

    /// Returns the counters of operations on the file.
    pub(crate) fn record(&self) -> Record<'_> {
        self.engine.usage().record(&self.inode.usage)
    }

    /// Returns the blocks that a range of bytes touches.
    #[inline]
    pub(crate) fn blocks_of(&self, range: ByteRange) -> BlockRange {
        self.engine.layout().block_size.blocks_touching(range.start()..range.end())
    }

    /// Returns the blocks that are wholly in `[offset, end)`.
    pub(crate) fn whole_blocks(&self, offset: u64, end: u64) -> BlockRange {
        self.engine.layout().block_size.blocks_within(offset..end)
    }
}
