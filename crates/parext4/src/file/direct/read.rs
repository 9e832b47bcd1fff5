//! Direct reads.

use std::ops::Deref;

use rangelock::{ByteRange, Mode, RangeLock};

use crate::admission::Transfer;
use crate::body::Runs;
use crate::error::Result;
use crate::file::DirectFile;
use crate::node::Hold;
use crate::operation::Operation;

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
        self.node.check_offset(offset)?;
        let wanted = self.node.end_of(offset, buf.len() as u64)?;
        if buf.is_empty() {
            return Ok(0);
        }
        let mut transfer = Transfer::reading(Operation::Read { offset, end: wanted });
        let Some(held) = self.node.acquire_to_read(&mut transfer)? else { return Ok(0) };
        let runs = self.plan_read(held.hold(), &transfer, buf.len())?;
        for piece in self.node.read_segments(offset, transfer.end(), &runs) {
            self.read_piece(&mut buf[piece.data], piece.at)?;
        }
        Ok(transfer.len())
    }

    /// Returns where the bytes of a read of `len` bytes lie that was granted its range; nothing, if the file now ends
    /// before them.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) for a length off the sectors; a corrupt map.
    #[inline]
    pub(in crate::file) fn plan_read<L: Deref<Target = RangeLock>>(
        &self,
        hold: &Hold<L>,
        transfer: &Transfer,
        len: usize,
    ) -> Result<Runs> {
        let (offset, end, len) = (transfer.offset(), transfer.end(), len as u64);
        if end <= offset {
            return Ok(Runs::new());
        }
        self.node.check_len(len, end < offset + len || end == transfer.size())?;
        hold.assert_covers(&self.node, offset, end, Mode::Shared);
        let (first, len) = self.node.blocks_of(ByteRange::new(offset, end));
        self.node.runs(first, len)
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
