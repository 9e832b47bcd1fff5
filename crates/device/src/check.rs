//! Checks of requests against a device's size, sector size and mode, for implementations of
//! [`Device`] and [`Queue`](crate::Queue).
//!
//! Each function returns the error that the contract of [`Device`] asks for.

use std::io::{self, IoSlice, IoSliceMut};

use crate::device::Device;
use crate::iovec;
use crate::request::{Op, outside_buffer};

/// Checks a read and returns its length in bytes.
///
/// # Errors
/// `InvalidInput` if offset or length is not a multiple of the sector size; `UnexpectedEof` if the
/// read ends past the end of the device.
pub fn read(device: &dyn Device, offset: u64, bufs: &[IoSliceMut<'_>]) -> io::Result<u64> {
    let len = iovec::total(bufs)?;
    read_range(device, offset, len)?;
    Ok(len)
}

/// Checks the range of a read, in bytes.
///
/// # Errors
/// The errors of [`read`].
pub fn read_range(device: &dyn Device, offset: u64, len: u64) -> io::Result<()> {
    range(device, offset, len, io::ErrorKind::UnexpectedEof)
}

/// Checks a write and returns its length in bytes.
///
/// # Errors
/// `EROFS` if the device is read-only; `InvalidInput` if offset or length is not a multiple of the
/// sector size, or if the write ends past the end of the device.
pub fn write(device: &dyn Device, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<u64> {
    let len = iovec::total(bufs)?;
    change_range(device, offset, len)?;
    Ok(len)
}

/// Checks the range of a write or discard, in bytes.
///
/// # Errors
/// The errors of [`write()`].
pub fn change_range(device: &dyn Device, offset: u64, len: u64) -> io::Result<()> {
    if device.read_only() {
        return Err(rustix::io::Errno::ROFS.into());
    }
    range(device, offset, len, io::ErrorKind::InvalidInput)
}

impl Op {
    /// Checks the operation as the device's blocking call would, and returns its length in bytes: 0
    /// for a flush.
    ///
    /// # Errors
    /// The errors of [`check::read`](read) and [`check::write`](write()), and `InvalidInput` if a
    /// range lies outside its buffer.
    pub fn check(&self, device: &dyn Device) -> io::Result<usize> {
        match self {
            Self::Flush => Ok(0),
            Self::Read { offset, buf, len } => {
                if *len > buf.len() {
                    return Err(outside_buffer(0, *len, buf.len()));
                }
                read_range(device, *offset, *len as u64)?;
                Ok(*len)
            }
            Self::Write { offset, segments } => {
                let mut len = 0usize;
                for segment in segments {
                    len = len.saturating_add(segment.bytes()?.len());
                }
                change_range(device, *offset, len as u64)?;
                Ok(len)
            }
        }
    }
}

/// Checks alignment and end of a range; a range that ends past the end of the device fails with
/// `past_end`.
fn range(device: &dyn Device, offset: u64, len: u64, past_end: io::ErrorKind) -> io::Result<()> {
    let sector = u64::from(device.sector_size());
    if !offset.is_multiple_of(sector) || !len.is_multiple_of(sector) {
        let message =
            format!("device request: offset {offset} or len {len} not a multiple of sector {sector}");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    let size = device.size();
    match offset.checked_add(len) {
        Some(end) if end <= size => Ok(()),
        _ => {
            let message = format!("device request: offset {offset} len {len} ends past size {size}");
            Err(io::Error::new(past_end, message))
        }
    }
}
