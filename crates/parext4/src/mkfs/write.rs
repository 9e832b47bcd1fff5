//! Writes of any alignment: file-system blocks may be smaller than the device's sectors.

use std::io::{IoSlice, IoSliceMut};

use parext4_device::{AlignedBuf, Device, zeros};

use crate::error::{Error, Result};

/// The most that one write of zeros covers, in bytes.
const ZERO_PIECE: u64 = 1 << 20;

/// The device, written in units smaller than its sectors where need be. One thread.
pub(super) struct Writer<'a> {
    device: &'a dyn Device,
    block_size: u64,
}

impl<'a> Writer<'a> {
    pub(super) fn new(device: &'a dyn Device, block_size: u32) -> Self {
        Self { device, block_size: block_size.into() }
    }

    /// Writes blocks from `block` on.
    pub(super) fn blocks(&self, what: &str, block: u64, bytes: &[u8]) -> Result<()> {
        self.bytes(what, block * self.block_size, bytes)
    }

    /// Writes at a byte offset; the rest of the sectors touched is kept.
    pub(super) fn bytes(&self, what: &str, offset: u64, bytes: &[u8]) -> Result<()> {
        let failed = |error| Error::device(format_args!("writing {what}"), error);
        let sector = u64::from(self.device.sector_size());
        let end = offset + bytes.len() as u64;
        let (start, stop) = (offset - offset % sector, end.next_multiple_of(sector));
        if (start, stop) == (offset, end) {
            return self.device.write_at(offset, &[IoSlice::new(bytes)]).map_err(failed);
        }
        let mut buf = AlignedBuf::zeroed(usize::try_from(stop - start).expect("as long as `bytes`"));
        self.device.read_at(start, &mut [IoSliceMut::new(&mut buf)]).map_err(failed)?;
        let at = usize::try_from(offset - start).expect("less than a sector");
        buf[at..at + bytes.len()].copy_from_slice(bytes);
        self.device.write_at(start, &[IoSlice::new(&buf)]).map_err(failed)
    }

    /// Writes zeros over `len` blocks from `block` on.
    pub(super) fn zero_blocks(&self, what: &str, block: u64, len: u64) -> Result<()> {
        self.zero(what, block * self.block_size, len * self.block_size)
    }

    /// Writes zeros over `len` bytes from `offset` on.
    pub(super) fn zero(&self, what: &str, offset: u64, len: u64) -> Result<()> {
        let sector = u64::from(self.device.sector_size());
        let end = offset + len;
        let mut at = offset;
        while at < end {
            // Up to the next sector where the range starts within one, whole sectors after that.
            let whole = (end - at) / sector * sector;
            let piece = if !at.is_multiple_of(sector) || whole == 0 {
                (end - at).min(sector - at % sector)
            } else {
                whole.min(ZERO_PIECE)
            };
            self.zero_piece(what, at, piece)?;
            at += piece;
        }
        Ok(())
    }

    fn zero_piece(&self, what: &str, offset: u64, len: u64) -> Result<()> {
        let sector = u64::from(self.device.sector_size());
        let len = usize::try_from(len).expect("at most a piece");
        if !offset.is_multiple_of(sector) || !(len as u64).is_multiple_of(sector) {
            return self.bytes(what, offset, &zeros()[..len]);
        }
        let full = len / zeros().len();
        let mut slices = vec![IoSlice::new(zeros()); full];
        slices.push(IoSlice::new(&zeros()[..len % zeros().len()]));
        self.device
            .write_at(offset, &slices)
            .map_err(|error| Error::device(format_args!("zeroing {what}"), error))
    }

    /// Makes everything written so far durable.
    pub(super) fn flush(&self) -> Result<()> {
        self.device.flush().map_err(|error| Error::device("flushing the new volume", error))
    }
}
