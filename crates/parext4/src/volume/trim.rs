//! Discards the free blocks of a volume on its device.

use std::ops::Range;

use super::Volume;
use crate::convert::saturating_u32;
use crate::error::{Error, Result};

impl Volume {
    /// Discards the free blocks within a range of bytes ([`Device::discard`]), in runs of at least
    /// `least` bytes, as FITRIM does. Returns the number of bytes discarded. An image file releases
    /// their space.
    ///
    /// Skips freed blocks that wait for a commit; [`sync`](Self::sync) commits them.
    ///
    /// [`Device::discard`]: crate::Device::discard
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// // Discards every free run of at least 64 KiB.
    /// let bytes = volume.trim(0..u64::MAX, 64 << 10)?;
    /// assert!(bytes > 0);
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the volume cannot be written, or the device fails. [`Error::Invalid`] if the range begins
    /// past the end of the volume or is shorter than a block, or if `least` is more than the size
    /// of a block group.
    pub fn trim(&self, bytes: Range<u64>, least: u64) -> Result<u64> {
        let (engine, layout) = (&self.engine, self.engine.layout());
        engine.check_writable()?;
        let _in_flight = engine.in_flight().enter()?;
        let block_size = engine.block_size();
        let (first, count) = (bytes.start / block_size, bytes.end.saturating_sub(bytes.start) / block_size);
        let least = saturating_u32(least.div_ceil(block_size));
        if first >= layout.blocks_count || count == 0 || least > layout.blocks_per_group {
            return Err(Error::invalid("a range to trim without a block, or none so long"));
        }
        let blocks = first..first.saturating_add(count).min(layout.blocks_count);
        let discard = |offset: u64, len: u64| {
            engine.device().discard(offset, len).map_err(|e| Error::device("discarding free blocks", e))
        };
        Ok(engine.allocator().discard_free(blocks, least.max(1), discard)? * block_size)
    }
}
