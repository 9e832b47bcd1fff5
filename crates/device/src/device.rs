//! The [`Device`] trait and the argument checks that its implementors share.

use std::fmt::Debug;
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;

use crate::iovec;
use crate::queue::QueueKind;

/// A fixed number of bytes with a smallest unit of access, shared by any number of threads.
///
/// Offsets and total lengths are multiples of [`sector_size`](Device::sector_size); anything else is
/// [`io::ErrorKind::InvalidInput`]. A read that ends past [`size`](Device::size) is
/// [`io::ErrorKind::UnexpectedEof`]; such a write or discard is `InvalidInput`. Calls that overlap in time and
/// in range have no order between them.
pub trait Device: Send + Sync + Debug {
    /// Size in bytes, a multiple of the sector size.
    fn size(&self) -> u64;

    /// Smallest unit of reads and writes in bytes, a power of two.
    fn sector_size(&self) -> u32;

    /// Whether writes and discards are refused with `EROFS`.
    fn read_only(&self) -> bool {
        false
    }

    /// Fills all of `bufs` from byte `offset`, or fails.
    fn read_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()>;

    /// Writes all of `bufs` at byte `offset`, or fails; after a failure any sectors of the range may be written.
    fn write_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()>;

    /// On return, every write and discard that completed before the call is durable.
    ///
    /// After a failure nobody knows which of them are; a later success does not change that (I8).
    fn flush(&self) -> io::Result<()>;

    /// Says that `len` bytes at `offset` are no longer needed; reads of them return old bytes or zeros until
    /// they are written again. A device that cannot discard does nothing and succeeds.
    fn discard(&self, offset: u64, len: u64) -> io::Result<()>;

    /// How [`open_queue`](crate::open_queue) serves this device; by default with threads that make the calls
    /// above, so that a device that wraps another sees all that goes on.
    fn queue_kind(&self) -> QueueKind<'_> {
        QueueKind::Threads
    }
}

macro_rules! forward_device {
    ($($pointer:ty),+) => {$(
        impl<T: Device + ?Sized> Device for $pointer {
            fn size(&self) -> u64 {
                (**self).size()
            }
            fn sector_size(&self) -> u32 {
                (**self).sector_size()
            }
            fn read_only(&self) -> bool {
                (**self).read_only()
            }
            fn read_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
                (**self).read_at(offset, bufs)
            }
            fn write_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
                (**self).write_at(offset, bufs)
            }
            fn flush(&self) -> io::Result<()> {
                (**self).flush()
            }
            fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
                (**self).discard(offset, len)
            }
            fn queue_kind(&self) -> QueueKind<'_> {
                (**self).queue_kind()
            }
        }
    )+};
}
forward_device!(&T, Box<T>, Arc<T>);

/// Checks a read and returns its length in bytes.
pub(crate) fn check_read(device: &dyn Device, offset: u64, bufs: &[IoSliceMut<'_>]) -> io::Result<u64> {
    let len = iovec::total(bufs)?;
    check_read_range(device, offset, len)?;
    Ok(len)
}

/// Checks the range of a read.
pub(crate) fn check_read_range(device: &dyn Device, offset: u64, len: u64) -> io::Result<()> {
    check_range(device, offset, len, io::ErrorKind::UnexpectedEof)
}

/// Checks a write and returns its length in bytes.
pub(crate) fn check_write(device: &dyn Device, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<u64> {
    let len = iovec::total(bufs)?;
    check_change(device, offset, len)?;
    Ok(len)
}

/// Checks the range of a write or discard.
pub(crate) fn check_change(device: &dyn Device, offset: u64, len: u64) -> io::Result<()> {
    if device.read_only() {
        return Err(rustix::io::Errno::ROFS.into());
    }
    check_range(device, offset, len, io::ErrorKind::InvalidInput)
}

fn check_range(device: &dyn Device, offset: u64, len: u64, past_end: io::ErrorKind) -> io::Result<()> {
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
