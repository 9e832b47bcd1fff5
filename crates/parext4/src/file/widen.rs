//! The last way to complete a write when the volume is full: make whole extents written, with zeros around
//! the data, so that none has to be cut. The kernel does so too (`EXT4_EXT_MAY_ZEROOUT`).
//!
//! Only blocks whose contents are known are converted (H9): those that this write fills itself, with data or
//! with zeros, under a range that covers them all.

use parext4_device::AlignedBuf;
use rangelock::ByteRange;

use super::File;
use super::admission::Operation;
use crate::allocator::Growth;
use crate::error::Result;

/// What came of widening a write.
pub(super) enum Widened {
    Written,
    /// It is no way: it would pass the end of the file, or change nothing.
    NoWay,
    /// Another write was there while this one waited; all may be different now.
    Changed,
}

impl File {
    /// Writes `data` at `offset` with zeros around it up to the edges of the unwritten extents there. No range is
    /// held.
    pub(super) fn write_widened(&self, data: &[u8], offset: u64) -> Result<Widened> {
        let end = offset + data.len() as u64;
        let Some(wide) = self.widened(offset, end)? else { return Ok(Widened::NoWay) };
        let held = self.admit(Operation::Widen { offset: wide.start(), end: wide.end() })?;
        if self.widened(offset, end)? != Some(wide) {
            return Ok(Widened::Changed);
        }
        let bytes = self.among_zeros(data, offset, wide);
        let len = usize::try_from(wide.len()).unwrap_or(usize::MAX);
        self.write_held(&bytes[..len], wide.start(), &held, Growth::Exact)?;
        Ok(Widened::Written)
    }

    /// The bytes of `wide`: `data`, which belongs at `offset`, and zeros.
    pub(super) fn among_zeros(&self, data: &[u8], offset: u64, wide: ByteRange) -> AlignedBuf {
        let narrow = |len: u64| usize::try_from(len).unwrap_or(usize::MAX);
        let (len, start) = (narrow(wide.len()), narrow(offset - wide.start()));
        let mut bytes = AlignedBuf::zeroed(len.next_multiple_of(self.sector_size() as usize));
        bytes[start..start + data.len()].copy_from_slice(data);
        self.record().zeroed_out();
        self.record_zeros(len - data.len());
        bytes
    }

    /// The bytes of a request and of the unwritten extents that it cuts. What else it covers in part is written,
    /// and keeps what is beside the request.
    pub(super) fn widened(&self, offset: u64, end: u64) -> Result<Option<ByteRange>> {
        let block_size = self.volume().block_size();
        let (first, len) = self.blocks_of(ByteRange::new(offset, end));
        let map = self.volume().map(self.inode())?;
        let around = |block: u32| {
            let (start, stop) = map.unwritten_around(block);
            let bytes = (u64::from(start) * block_size, u64::from(stop) * block_size);
            map.lookup(block, 1).is_unwritten().then_some(bytes)
        };
        let start = around(first).map_or(offset, |(start, _)| start);
        let stop = around(first + len - 1).map_or(end, |(_, stop)| stop);
        let wide = ByteRange::new(start, stop);
        let zeros = wide.len() - (end - offset);
        // However large the extents are: there is no other way. Only where they end behind the file this is none.
        let sensible = zeros > 0 && wide.end() <= self.size();
        Ok(sensible.then_some(wide))
    }
}
