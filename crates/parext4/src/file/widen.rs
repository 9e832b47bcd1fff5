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

/// The most zeros written for one request, bytes.
const MOST_ZEROS: u64 = 1 << 20;

impl File {
    /// Writes `data` at `offset` with zeros around it up to the edges of the unwritten extents there. `None` if
    /// that is no way: it would pass the end of the file, take too many zeros, or change nothing. No range is
    /// held.
    pub(super) fn write_widened(&self, data: &[u8], offset: u64) -> Result<Option<()>> {
        let end = offset + data.len() as u64;
        let Some(wide) = self.widened(offset, end)? else { return Ok(None) };
        let held = self.admit(Operation::Write { offset: wide.start(), end: wide.end() })?;
        // Another write may have been there while we waited.
        if self.widened(offset, end)? != Some(wide) {
            return Ok(None);
        }
        let at = |byte: u64| usize::try_from(byte - wide.start()).unwrap_or(usize::MAX);
        let mut bytes = AlignedBuf::zeroed(at(wide.end()));
        bytes[at(offset)..at(end)].copy_from_slice(data);
        self.write_held(&bytes, wide.start(), &held, Growth::Exact)?;
        self.record().zeroed_out();
        self.record().zeroed(wide.len() - data.len() as u64);
        Ok(Some(()))
    }

    /// The bytes of a request and of the unwritten extents that it cuts.
    fn widened(&self, offset: u64, end: u64) -> Result<Option<ByteRange>> {
        let block_size = self.volume().block_size();
        let (first, len) = self.blocks_of(ByteRange::new(offset, end));
        let map = self.volume().map(self.inode())?;
        let last = first + len - 1;
        let start = if map.lookup(first, 1).is_unwritten() { map.unwritten_around(first).0 } else { first };
        let stop = if map.lookup(last, 1).is_unwritten() { map.unwritten_around(last).1 } else { last + 1 };
        let wide =
            ByteRange::new(offset.min(u64::from(start) * block_size), end.max(u64::from(stop) * block_size));
        let zeros = wide.len() - (end - offset);
        let sensible = zeros > 0 && zeros <= MOST_ZEROS && wide.end() <= self.size();
        Ok(sensible.then_some(wide))
    }
}
