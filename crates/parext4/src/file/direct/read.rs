//! Direct reads.

use rangelock::ByteRange;

use crate::admission::HeldRange;
use crate::error::Result;
use crate::fault::{Fault, planted};
use crate::file::DirectFile;
use crate::operation::Operation;

/// After this many misses a read holds its whole range instead of what lies before the end of the file.
pub(in crate::file) const READ_ATTEMPTS: u32 = 3;

impl DirectFile {
    /// Reads into `buf` from byte `offset` on; returns how many bytes, fewer than asked only at the end of
    /// the file.
    ///
    /// `offset` is a multiple of the sector size, and so is the length of `buf` unless the file ends before.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) for a request off the sectors; what the device or a
    /// corrupt map give.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        let _in_flight = self.begin_read()?;
        self.check_offset(offset)?;
        let wanted = self.end_of(offset, buf.len() as u64)?;
        if buf.is_empty() {
            return Ok(0);
        }
        let operation = |offset, end| Operation::Read { offset, end };
        let Some((_held, end, size)) = self.admit_read(offset, wanted, operation)? else { return Ok(0) };
        self.read_held(buf, offset, end, size)
    }

    /// Waits until a read of `[offset, wanted)` may proceed. Returns what it holds, where it ends and the size of the
    /// file; nothing, if it begins behind the end.
    pub(in crate::file) fn admit_read(
        &self,
        offset: u64,
        wanted: u64,
        operation: impl Fn(u64, u64) -> Operation,
    ) -> Result<Option<(Option<HeldRange<'_>>, u64, u64)>> {
        for attempt in 0.. {
            let size = self.size();
            // A read does not wait for those who write behind the end, unless the end will not keep still.
            let end = if attempt < READ_ATTEMPTS { wanted.min(size) } else { wanted };
            if end <= offset {
                return Ok(None);
            }
            let held = self.node.admit(operation(offset, end))?.unless(Fault::ReadUnheld);
            if let Some((end, size)) = self.end_under(end, wanted) {
                return Ok(Some((held, end, size)));
            }
        }
        unreachable!("the last attempts hold all they want")
    }

    /// Returns where a read up to `wanted` ends that holds its range up to `held`, and the size of the file. `None` if
    /// the file has grown past `held` since the read asked for its range: a read that stopped there would show half of
    /// the write that grew the file.
    ///
    /// The size is loaded once, because a writer past `held` may raise it at any moment, and the read must not read the
    /// range that the writer holds (I2).
    pub(in crate::file) fn end_under(&self, held: u64, wanted: u64) -> Option<(u64, u64)> {
        if planted(Fault::StaleSize) {
            return Some((held, held));
        }
        let now = self.size();
        (now <= held || held == wanted).then(|| (wanted.min(now), now))
    }

    /// Reads `[offset, end)`, which is held and lies within the file of `size` bytes.
    fn read_held(&self, buf: &mut [u8], offset: u64, end: u64, size: u64) -> Result<usize> {
        if end <= offset {
            return Ok(0);
        }
        self.check_len(buf.len() as u64, end < offset + buf.len() as u64 || end == size)?;
        let (first, len) = self.node.blocks_of(ByteRange::new(offset, end));
        let runs = self.node.runs(first, len)?;
        for piece in self.node.read_segments(offset, end, &runs) {
            self.read_piece(&mut buf[piece.data], piece.at)?;
        }
        let count = usize::try_from(end - offset).unwrap_or(buf.len());
        Ok(count)
    }

    /// Reads what lies together at a device offset; zeros, if nothing was written.
    fn read_piece(&self, piece: &mut [u8], at: Option<u64>) -> Result<()> {
        let Some(from) = at else {
            piece.fill(0);
            return Ok(());
        };
        // Only at the end of the file does a piece end inside a sector.
        let whole = piece.len() - piece.len() % self.sector_size() as usize;
        let (sectors, rest) = piece.split_at_mut(whole);
        if !sectors.is_empty() {
            self.node.read_device(from, sectors)?;
        }
        if !rest.is_empty() {
            let mut last = parext4_device::BufferPool::global().take(self.sector_size() as usize);
            self.node.read_device(from + whole as u64, &mut last)?;
            rest.copy_from_slice(&last[..rest.len()]);
        }
        Ok(())
    }
}
