//! Giving free space back to the device.

use std::ops::Range;

use super::Volume;
use crate::error::{Error, Result};

impl Volume {
    /// Tells the device that the free blocks within a range of bytes are not needed ([`Device::discard`]), in runs of
    /// at least `least` bytes, as FITRIM does; returns how many bytes it were. An image file so gives the space up.
    /// What was freed lately counts once it is committed ([`sync`](Self::sync)).
    ///
    /// [`Device::discard`]: crate::Device::discard
    ///
    /// # Errors
    /// If the volume cannot be written, or the device fails; [`Error::Invalid`] if the range begins behind the end of
    /// the volume or has no whole block, or `least` is more than a group has.
    pub fn trim(&self, bytes: Range<u64>, least: u64) -> Result<u64> {
        let (engine, layout) = (&self.engine, &self.engine.layout);
        engine.check_writable()?;
        let _in_flight = engine.in_flight.enter()?;
        let block_size = engine.block_size();
        let (first, count) = (bytes.start / block_size, bytes.end.saturating_sub(bytes.start) / block_size);
        let least = u32::try_from(least.div_ceil(block_size)).unwrap_or(u32::MAX);
        if first >= layout.blocks_count || count == 0 || least > layout.blocks_per_group {
            return Err(Error::invalid("a range to trim without a block, or none so long"));
        }
        let blocks = first..first.saturating_add(count).min(layout.blocks_count);
        let discard = |offset: u64, len: u64| {
            engine.device.discard(offset, len).map_err(|e| Error::device("discarding free blocks", e))
        };
        Ok(engine.allocator.discard_free(blocks, least.max(1), discard)? * block_size)
    }
}
