//! Where a file has data.

use super::File;
use crate::error::Result;
use crate::extent_map::State;

/// Blocks looked at under one hold of the map.
const STEP: u32 = 1 << 20;

impl File {
    /// The first range of written data at or behind byte `offset`, as `(start, end)` in bytes, cut at the
    /// end of the file. `None` if only holes and blocks that were never written follow.
    ///
    /// # Errors
    /// A corrupt map.
    pub fn data_range(&self, offset: u64) -> Result<Option<(u64, u64)>> {
        let (size, block_size) = (self.size(), self.volume().block_size());
        let end_block = u32::try_from(size.div_ceil(block_size)).unwrap_or(u32::MAX);
        let mut at = u32::try_from(offset / block_size).unwrap_or(u32::MAX);
        let mut found: Option<(u32, u32)> = None;
        let map = self.volume().map(self.inode())?;
        while at < end_block {
            let run = map.read().lookup(at, (end_block - at).min(STEP));
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
}
