//! Where a file has data.

use crate::body::State;
use crate::error::{Error, Result};
use crate::file::DirectFile;

/// Blocks looked at under one hold of the map.
const STEP: u32 = 1 << 20;

impl DirectFile {
    /// The first range of written data at or behind byte `offset`, as `(start, end)` in bytes, cut at the
    /// end of the file. `None` if only holes and blocks that were never written follow.
    ///
    /// # Errors
    /// A corrupt map.
    pub fn data_range(&self, offset: u64) -> Result<Option<(u64, u64)>> {
        self.node.settle_cache()?;
        let (size, block_size) = (self.size(), self.engine().block_size());
        if offset >= size {
            return Ok(None);
        }
        let end_block = u32::try_from(size.div_ceil(block_size)).unwrap_or(u32::MAX);
        let mut at = u32::try_from(offset / block_size).unwrap_or(u32::MAX);
        let mut found: Option<(u32, u32)> = None;
        // Nothing moves meanwhile.
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

    /// The first byte at or behind `offset` that was written (`SEEK_DATA`). Blocks that were never written are holes.
    ///
    /// # Errors
    /// [`Error::NothingAfter`] if there is none; a corrupt map.
    pub fn seek_data(&self, offset: u64) -> Result<u64> {
        self.data_range(offset)?.map(|(start, _)| start).ok_or(Error::NothingAfter(offset))
    }

    /// The first byte at or behind `offset` that is in a hole (`SEEK_HOLE`). There is one at the end of the file.
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

    /// Where the written block at byte `offset` lies on the device, as `(device offset, length)` in bytes of
    /// what lies together from there on. `None` if nothing is written there.
    ///
    /// # Errors
    /// A corrupt map.
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
