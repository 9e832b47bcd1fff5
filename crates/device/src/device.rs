//! The [`Device`] trait: the storage under a volume.
//!
//! This module states the contract between a device and its callers. It knows no particular device.

use std::fmt::Debug;
use std::io::{self, IoSlice, IoSliceMut};
use std::num::NonZeroU64;
use std::sync::Arc;

use crate::counter::Counter;
use crate::lock_owner::LockOwner;
use crate::queue::Queue;
use crate::sharing::Sharing;
use crate::write_guard::WriteGuard;

/// A fixed number of bytes with a smallest unit of access, shared by any number of threads.
///
/// # Contract
/// An implementation outside this crate must keep all of these rules; callers rely on them.
///
/// - **Units.** Offsets and lengths are in bytes. Offsets and total lengths are multiples of
///   [`sector_size`](Self::sector_size), or the call fails with [`io::ErrorKind::InvalidInput`].
///   Single buffers may have any length, and any address.
/// - **Range.** A read that ends past [`size`](Self::size) fails with
///   [`io::ErrorKind::UnexpectedEof`], a write or discard with `InvalidInput`. An empty request
///   succeeds. [`check`](crate::check) has functions for these tests.
/// - **Whole requests.** A call transfers all bytes or fails: it continues a short transfer itself.
/// - **Blocking.** Each call blocks until the request is done. Calls from several threads run at
///   the same time, and should not wait for each other.
/// - **Order.** Calls that overlap in time and in range have no order between them. A sector is
///   written as a whole or not at all, also by a crash.
/// - **Durability.** A completed write may be lost by a crash until a [`flush`](Self::flush) that
///   was called after the write completed has returned.
/// - **Errors.** An error is reported once, to the caller of the failed call. The engine retries no
///   request: a device on a network reconnects and retries by itself, and fails the call when it
///   gives up.
///
/// A device that wraps another one forwards the methods that it does not change with
/// [`forward_device`](crate::forward_device).
///
/// # Example
/// ```
/// # use parext4_device::{Device, check};
/// # use std::io::{self, IoSlice, IoSliceMut};
/// /// A device without contents: reads return zeros, and writes are dropped.
/// #[derive(Debug)]
/// struct Null(u64);
///
/// impl Device for Null {
///     fn size(&self) -> u64 { self.0 }
///     fn sector_size(&self) -> u32 { 512 }
///     fn read_only(&self) -> bool { false }
///     fn read_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
///         check::read(self, offset, bufs)?;
///         bufs.iter_mut().for_each(|buf| buf.fill(0));
///         Ok(())
///     }
///     fn write_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> { check::write(self, offset, bufs).map(drop) }
///     fn flush(&self) -> io::Result<()> { Ok(()) }
///     fn discard(&self, offset: u64, len: u64) -> io::Result<()> { check::change_range(self, offset, len) }
/// }
/// # assert!(Null(4096).write_at(4096, &[IoSlice::new(&[0; 512])]).is_err());
/// ```
pub trait Device: Send + Sync + Debug {
    /// Returns the size in bytes, a multiple of the sector size. It does not change while the
    /// device is open.
    fn size(&self) -> u64;

    /// Returns the smallest unit of reads and writes in bytes, a power of two. A volume needs
    /// sectors that are no larger than its blocks.
    fn sector_size(&self) -> u32;

    /// Returns whether the device refuses writes and discards with `EROFS`.
    fn read_only(&self) -> bool;

    /// Fills all of `bufs` with the bytes at `offset`.
    ///
    /// # Errors
    /// After a failure the contents of `bufs` are unspecified.
    fn read_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()>;

    /// Writes all of `bufs` at byte `offset`.
    ///
    /// # Errors
    /// After a failure any set of sectors in the range may hold the new bytes.
    fn write_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()>;

    /// Makes durable every write and discard that completed before this call.
    ///
    /// # Errors
    /// After a failure it is unknown which of them are durable, and a later success does not change
    /// that (I8).
    fn flush(&self) -> io::Result<()>;

    /// Releases the storage of `len` bytes at `offset`. Reads return the old bytes or zeros until
    /// the range is written again.
    ///
    /// A device that cannot discard does nothing and succeeds.
    ///
    /// # Errors
    /// The request failed; the range may be discarded in part.
    fn discard(&self, offset: u64, len: u64) -> io::Result<()>;

    /// Returns whether other machines can open the device, and what keeps them from writing. Does
    /// not change while the device is open.
    fn sharing(&self) -> Sharing {
        Sharing::Local
    }

    /// Returns whether the open of this device has broken another client's lock, so that the device
    /// refuses all writes of that client. A lock that was free fences no client.
    fn has_fenced(&self) -> bool {
        false
    }

    /// Asks the servers of the device for the client that holds its lock, also through a device
    /// that was opened read-only. Returns `None` if no client holds the lock, or the device has no
    /// such lock. May block for as long as a read.
    ///
    /// # Errors
    /// The servers do not answer.
    fn lock_owner(&self) -> io::Result<Option<LockOwner>> {
        Ok(None)
    }

    /// Asks the servers of the device whether this client has the right to fence the owner of the
    /// lock, which a takeover needs. Succeeds on a device without such a lock. May block for as
    /// long as a read.
    ///
    /// # Errors
    /// [`io::ErrorKind::PermissionDenied`] if this client has no such right; other errors if the
    /// servers do not answer.
    fn check_fence(&self) -> io::Result<()> {
        Ok(())
    }

    /// Returns the size in bytes of the pieces that the device stores apart, such as the objects of
    /// an RBD image; `None` if it does not store pieces apart. Piece `i` holds the bytes from `i`
    /// times that size. A request within one piece costs less than one that crosses two.
    fn object_size(&self) -> Option<NonZeroU64> {
        None
    }

    /// Returns counters of the device since it was opened, such as the number of lost connections.
    /// Most devices have none.
    fn counters(&self) -> Vec<Counter> {
        Vec::new()
    }

    /// Makes a device that is not [`Fenced`](Sharing::Fenced) ask `guard` before it sends writes,
    /// and before it sends them again on a new connection. A volume with protection that is opened
    /// for writing calls this before its first write; the last guard counts. A device of this
    /// machine ignores it.
    fn guard_writes(&self, guard: Arc<dyn WriteGuard>) {
        let _ = guard;
    }

    /// Opens a queue of the device's own, with about `depth` requests on the device at a time.
    /// `None` if the device has only the blocking calls above.
    ///
    /// [`open_queue`](crate::open_queue) calls this. Without a native queue it serves the device
    /// with threads that make the blocking calls; so a device that wraps another and leaves out
    /// this method sees every request. A native queue keeps `self`, and so the device stays open
    /// until its last queue is dropped. A device may have any number of queues at the same time,
    /// each used by one thread. They share the device's ranges as blocking calls of several threads
    /// do.
    ///
    /// # Errors
    /// The queue cannot be opened; [`open_queue`](crate::open_queue) then falls back to threads.
    fn native_queue(self: Arc<Self>, depth: u32) -> io::Result<Option<Box<dyn Queue>>> {
        let _ = depth;
        Ok(None)
    }
}
