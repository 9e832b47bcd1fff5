//! Where a file's blocks lie, as FIEMAP tells it.

use std::ops::Range;

use rangelock::ByteRange;

use crate::body::State;
use crate::error::Result;
use crate::file::DirectFile;

/// Bytes of a file that lie together on the device, in one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileExtent {
    /// Where in the file, bytes.
    pub offset: u64,
    /// Where on the device, bytes.
    pub device_offset: u64,
    /// Bytes.
    pub len: u64,
    /// Allocated, but nothing is written: it reads as zeros.
    pub unwritten: bool,
    /// Nothing is mapped behind it.
    pub last: bool,
}

impl DirectFile {
    /// What the blocks of the bytes in `range` are mapped to, in order, with blocks behind the end of the file; holes
    /// are left out. As it is at one moment: nobody is waited for, and writes may be under way.
    ///
    /// # Errors
    /// A corrupt map.
    pub fn fiemap(&self, range: Range<u64>) -> Result<Vec<FileExtent>> {
        self.node.settle_cache()?;
        let block_size = self.engine().block_size();
        // Nothing moves meanwhile.
        let map = self.engine().map(self.inode())?.lock();
        let mapped = map.last().map_or(0, |last| last.end());
        let end = range.end.min(mapped * block_size);
        if range.start >= end {
            return Ok(Vec::new());
        }
        let (first, len) = self.node.blocks_of(ByteRange::new(range.start, end));
        let extents = map.runs(first, len).filter_map(|run| {
            let (physical, unwritten) = match run.state {
                State::Hole => return None,
                State::Unwritten(physical) => (physical, true),
                State::Written(physical) => (physical, false),
            };
            let (start, blocks) = (u64::from(run.logical.get()), u64::from(run.len));
            Some(FileExtent {
                offset: start * block_size,
                device_offset: self.node.device_offset(physical, 0),
                len: blocks * block_size,
                unwritten,
                last: start + blocks == mapped,
            })
        });
        Ok(extents.collect())
    }
}
