//! The last way to complete a write when the volume is full: make whole extents written, with zeros around
//! the data, so that none has to be cut. The kernel does so too (`EXT4_EXT_MAY_ZEROOUT`).
//!
//! Only blocks whose contents are known are converted (H9): those that this write fills itself, with data or
//! with zeros, under a range that covers them all.

use parext4_device::AlignedBuf;
use rangelock::ByteRange;

use crate::allocator::Growth;
use crate::body::State;
use crate::error::{Error, Result};
use crate::fault::{Fault, planted};
use crate::file::DirectFile;
use crate::operation::Operation;

/// After so many times that a write found the extents different from what it had looked at it gives up.
pub(in crate::file) const WIDEN_ATTEMPTS: u32 = 64;

/// What a write would be with nothing to cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::file) enum WidenedRange {
    /// These bytes.
    Range(ByteRange),
    /// Itself: nothing has to be cut, at least not any more.
    Itself,
    /// There are holes, or it would pass the end of the file.
    NoWay,
}

impl DirectFile {
    /// Writes `data` at `offset` with zeros around it up to the edges of the unwritten extents there. No range is
    /// held. `false` if others have changed the extents, so that all may be different now.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if that is no way.
    pub(in crate::file) fn write_widened(&self, data: &[u8], offset: u64) -> Result<bool> {
        let end = offset + data.len() as u64;
        let wide = match self.widened(offset, end)? {
            WidenedRange::Range(wide) => wide,
            WidenedRange::Itself => return Ok(false),
            WidenedRange::NoWay => return Err(Error::NoSpace),
        };
        let held = self.node.admit(widening(wide))?;
        if self.widened(offset, end)? != WidenedRange::Range(wide) && !planted(Fault::WidenBlindly) {
            return Ok(false);
        }
        let bytes = self.among_zeros(data, offset, wide);
        let len = usize::try_from(wide.len()).unwrap_or(usize::MAX);
        self.write_held(&bytes[..len], wide.start(), held, Growth::Exact)?;
        Ok(true)
    }

    /// The bytes of `wide`: `data`, which belongs at `offset`, and zeros.
    pub(in crate::file) fn among_zeros(&self, data: &[u8], offset: u64, wide: ByteRange) -> AlignedBuf {
        let narrow = |len: u64| usize::try_from(len).unwrap_or(usize::MAX);
        let (len, start) = (narrow(wide.len()), narrow(offset - wide.start()));
        let mut bytes = AlignedBuf::zeroed(len.next_multiple_of(self.sector_size() as usize));
        bytes[start..start + data.len()].copy_from_slice(data);
        self.node.record().zeroed_out();
        self.record_zeros(len - data.len());
        bytes
    }

    /// The bytes of a request and of the unwritten extents that it cuts. What else it covers in part is written,
    /// and keeps what is beside the request.
    pub(in crate::file) fn widened(&self, offset: u64, end: u64) -> Result<WidenedRange> {
        let block_size = self.engine().block_size();
        let (first, len) = self.node.blocks_of(ByteRange::new(offset, end));
        let map = self.engine().map(self.inode())?;
        if map.runs(first, len).any(|run| run.state == State::Hole) {
            return Ok(WidenedRange::NoWay);
        }
        let around = |block: u32| {
            let (start, stop) = map.unwritten_around(block);
            let bytes = (u64::from(start) * block_size, u64::from(stop) * block_size);
            map.lookup(block, 1).is_unwritten().then_some(bytes)
        };
        let start = around(first).map_or(offset, |(start, _)| start);
        let stop = around(first + len - 1).map_or(end, |(_, stop)| stop);
        // However large the extents are: there is no other way.
        Ok(match ByteRange::new(start, stop) {
            wide if wide.end() > self.size() => WidenedRange::NoWay,
            wide if wide == ByteRange::new(offset, end) => WidenedRange::Itself,
            wide => WidenedRange::Range(wide),
        })
    }
}

/// What a widened write is to admission.
pub(in crate::file) fn widening(wide: ByteRange) -> Operation {
    let (offset, end) = (wide.start(), wide.end());
    if planted(Fault::WidenAsWrite) {
        return Operation::Write { offset, end };
    }
    Operation::Widen { offset, end }
}
