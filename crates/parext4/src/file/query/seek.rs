//! Finds the data and the holes of a file.

use crate::body::State;
use crate::error::{Error, Result};
use crate::file::DirectFile;

/// Blocks searched under one acquisition of the map's lock.
const STEP: u32 = 1 << 20;

impl DirectFile {
    /// Returns the first range of written data at or after byte `offset`, as `(start, end)` in bytes, ending no later
    /// than the file. Returns `None` if only holes and unwritten blocks follow.
    ///
    /// # Errors
    /// The error of a corrupt map.
    pub fn data_range(&self, offset: u64) -> Result<Option<(u64, u64)>> {
        self.node.settle_cache()?;
        let (size, block_size) = (self.size(), self.engine().block_size());
        if offset >= size {
            return Ok(None);
        }
        let end_block = u32::try_from(size.div_ceil(block_size)).unwrap_or(u32::MAX);
        let mut at = u32::try_from(offset / block_size).unwrap_or(u32::MAX);
        let mut found: Option<(u32, u32)> = None;
        // The lock keeps the extents in place.
        let map = self.engine().map(self.inode())?.lock();
        while at < end_block {
            let run = map.lookup(at, (end_block - at).min(STEP));
            match (run.state, &mut found) {
                (State::Written(_), None) => found = Some((at, at + run.len)),
                (State::Written(_), Some((_, end))) => *end += run.len,
                (_, Some(_)) => break,
                (_, None) => {}
            }
            at += run.len;
        }
        let bytes = |block: u32| u64::from(block) * block_size;
        Ok(found.map(|(start, end)| (bytes(start).max(offset), bytes(end).min(size))))
    }

    /// Returns the first byte at or after `offset` that was written (`SEEK_DATA`). Unwritten blocks count as holes.
    ///
    /// # Errors
    /// [`Error::NothingAfter`] if there is none; a corrupt map.
    pub fn seek_data(&self, offset: u64) -> Result<u64> {
        self.data_range(offset)?.map(|(start, _)| start).ok_or(Error::NothingAfter(offset))
    }

    /// Returns the first byte at or after `offset` that is in a hole (`SEEK_HOLE`). The end of the file counts as a
    /// hole.
    ///
    /// # Errors
    /// [`Error::NothingAfter`] if the file ends at or before `offset`; a corrupt map.
    pub fn seek_hole(&self, offset: u64) -> Result<u64> {
        if offset >= self.size() {
            return Err(Error::NothingAfter(offset));
        }
        Ok(match self.data_range(offset)? {
            Some((start, end)) if start <= offset => end,
            _ => offset,
        })
    }

    /// Returns the device range of the written data that starts at byte `offset`, as `(device offset, length)` in
    /// bytes, up to where it stops being contiguous. Returns `None` if no data is written there.
    ///
    /// # Errors
    /// The error of a corrupt map.
    pub fn device_range(&self, offset: u64) -> Result<Option<(u64, u64)>> {
        self.node.settle_cache()?;
        let block_size = self.engine().block_size();
        let block = u32::try_from(offset / block_size).unwrap_or(u32::MAX);
        let map = self.engine().map(self.inode())?;
        let mut together: Option<(u64, u64)> = None;
        let mut at = block;
        loop {
            let run = map.lookup(at, STEP);
            let State::Written(start) = run.state else { break };
            let (start, bytes) = (self.engine().layout.offset(start), u64::from(run.len) * block_size);
            match &mut together {
                None => together = Some((start, bytes)),
                Some((first, len)) if *first + *len == start => *len += bytes,
                Some(_) => break,
            }
            at += run.len;
        }
        let within = offset % block_size;
        Ok(together.map(|(start, len)| (start + within, len - within)))
    }
}
