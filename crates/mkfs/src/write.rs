//! Writes of any alignment. File system blocks may be smaller than the device's sectors; then the
//! rest of a sector is read and written back. Only one thread may use it.

use std::io::{IoSlice, IoSliceMut};

use parext4_device::{AlignedBuf, Device, zeros};
use parext4_format::superblock::Superblock;

use crate::error::{MkfsError, Result};

/// Bytes at the start and at the end of a device that may contain old signatures.
const SIGNATURE_ZONE: u64 = 64 << 10;
/// Limit of one write of zeros, in bytes.
const MAX_ZERO_WRITE: u64 = 1 << 20;

/// Writes to the device in bytes and blocks.
pub(crate) struct DeviceWriter<'a> {
    device: &'a dyn Device,
    block_size: u64,
}

impl<'a> DeviceWriter<'a> {
    pub(crate) fn new(device: &'a dyn Device, block_size: u32) -> Self {
        Self { device, block_size: block_size.into() }
    }

    /// Writes `bytes` from `block` on. `what` names the structure in errors, here and below.
    pub(crate) fn blocks(&self, what: &str, block: u64, bytes: &[u8]) -> Result<()> {
        self.bytes(what, block * self.block_size, bytes)
    }

    /// Writes `bytes` at a byte offset and keeps the rest of the sectors that they touch.
    pub(crate) fn bytes(&self, what: &str, offset: u64, bytes: &[u8]) -> Result<()> {
        let failed = |error| MkfsError::device(format_args!("writing {what}"), error);
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

    /// Overwrites `len` blocks with zeros, from `block` on.
    pub(crate) fn zero_blocks(&self, what: &str, block: u64, len: u64) -> Result<()> {
        self.zero(what, block * self.block_size, len * self.block_size)
    }

    /// Overwrites `len` bytes with zeros, from `offset` on.
    pub(crate) fn zero(&self, what: &str, offset: u64, len: u64) -> Result<()> {
        let sector = u64::from(self.device.sector_size());
        let end = offset + len;
        let mut at = offset;
        while at < end {
            // A range that starts within a sector is zeroed up to the next sector first, and in
            // whole sectors after that.
            let whole = (end - at) / sector * sector;
            let part = if !at.is_multiple_of(sector) || whole == 0 {
                (end - at).min(sector - at % sector)
            } else {
                whole.min(MAX_ZERO_WRITE)
            };
            self.zero_part(what, at, part)?;
            at += part;
        }
        Ok(())
    }

    fn zero_part(&self, what: &str, offset: u64, len: u64) -> Result<()> {
        let sector = u64::from(self.device.sector_size());
        let len = usize::try_from(len).expect("at most 1 MiB");
        if !offset.is_multiple_of(sector) || !(len as u64).is_multiple_of(sector) {
            return self.bytes(what, offset, &zeros()[..len]);
        }
        let full = len / zeros().len();
        let mut slices = vec![IoSlice::new(zeros()); full];
        slices.push(IoSlice::new(&zeros()[..len % zeros().len()]));
        self.device
            .write_at(offset, &slices)
            .map_err(|error| MkfsError::device(format_args!("zeroing {what}"), error))
    }

    /// Overwrites the superblock of an old volume and flushes, before anything else of it changes.
    /// So a crash leaves the old volume as it was, or none.
    pub(crate) fn retire_old_volume(&self) -> Result<()> {
        self.zero("the old superblock", Superblock::OFFSET, Superblock::SIZE as u64)?;
        self.flush()
    }

    /// Overwrites signatures of file systems, partition tables and RAID members on a device of
    /// `size` bytes.
    pub(crate) fn wipe_signatures(&self, size: u64) -> Result<()> {
        let zone = SIGNATURE_ZONE.min(size);
        self.zero("the start of the device", 0, zone)?;
        self.zero("the end of the device", size - zone, zone)
    }

    /// Flushes the device.
    pub(crate) fn flush(&self) -> Result<()> {
        self.device.flush().map_err(|error| MkfsError::device("flushing the new volume", error))
    }
}
