//! What a caller submits to a queue and what it harvests: requests, their flags, and completions.

use parext4_device::AlignedBuf;

use crate::error::Result;
#[cfg(doc)]
use crate::file::DirectFile;

/// A request. The queue owns the buffer until it returns it with the [`Completion`].
///
/// ```
/// # let volume = testkit::volume::scratch();
/// # let file = volume.open_direct("/file", &parext4::OpenOptions::read_write().create(true))?;
/// use parext4::{AlignedBuf, IoFlags, IoRequest};
///
/// let mut queue = volume.io_queue(8);
/// let buf = AlignedBuf::from_slice(&[7; 4096]);
/// queue.submit(&file, IoRequest::Write { buf, len: 4096, offset: 0 }, 1, IoFlags::new());
/// queue.submit(&file, IoRequest::SyncData, 2, IoFlags::new());
/// let mut done = Vec::new();
/// while queue.in_flight() > 0 {
///     queue.harvest(&mut done)?;
/// }
/// assert!(done.iter().all(|completion| completion.result.is_ok()));
/// # Ok::<(), parext4::Error>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum IoRequest {
    /// Like [`DirectFile::read_at`], into the first `len` bytes of `buf`.
    Read {
        /// Where to.
        buf: AlignedBuf,
        /// Bytes.
        len: usize,
        /// Byte offset in the file.
        offset: u64,
    },
    /// Like [`DirectFile::write_all_at`], of the first `len` bytes of `buf`.
    Write {
        /// Where from.
        buf: AlignedBuf,
        /// Bytes.
        len: usize,
        /// Byte offset in the file.
        offset: u64,
    },
    /// Like [`DirectFile::append`], of the first `len` bytes of `buf`.
    Append {
        /// Where from.
        buf: AlignedBuf,
        /// Bytes.
        len: usize,
    },
    /// Like [`DirectFile::sync_data`]: makes the operations durable that completed before.
    SyncData,
    /// Like [`DirectFile::sync_all`].
    SyncAll,
}

/// The flags of a request. None is set by default.
///
/// ```
/// use parext4::IoFlags;
///
/// let flags = IoFlags::new().nowait(true);
/// assert!(flags.nowait);
/// # Ok::<(), parext4::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct IoFlags {
    /// Fails with [`Error::WouldBlock`](crate::Error::WouldBlock), and changes nothing, instead of
    /// waiting before the data moves: for the range of another operation, for blocks to be
    /// allocated or a map to be read, or because the request is not contiguous on the device.
    /// Completing a write into unwritten blocks may still wait for a commit. The flag has no effect
    /// on syncs.
    pub nowait: bool,
}

impl IoFlags {
    /// Returns no flags.
    #[must_use]
    pub const fn new() -> Self {
        Self { nowait: false }
    }

    /// Sets [`nowait`](field@Self::nowait).
    #[must_use]
    pub const fn nowait(mut self, nowait: bool) -> Self {
        self.nowait = nowait;
        self
    }
}

/// An operation that is over, from [`IoQueue::harvest`](crate::IoQueue::harvest).
#[derive(Debug)]
#[non_exhaustive]
pub struct Completion {
    /// The token that was given with the request.
    pub token: u64,
    /// Bytes read or written; for an append, the offset at which it was written; for a sync, 0.
    pub result: Result<u64>,
    /// The request's buffer.
    pub buf: Option<AlignedBuf>,
}
