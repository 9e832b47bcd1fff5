//! Requests of a queue and their results: operation, buffers, token.
//!
//! This module only describes requests. [`check`](crate::check) tests them against a device, and a
//! [`Queue`](crate::Queue) performs them.

use std::io::{self, IoSlice};
use std::sync::Arc;

use smallvec::SmallVec;

use crate::aligned::AlignedBuf;

/// Part of a buffer that a write reads from.
///
/// The buffer is shared, so that one buffer can feed several requests.
#[derive(Clone, Debug)]
pub struct Segment {
    /// Buffer that holds the bytes.
    pub buf: Arc<AlignedBuf>,
    /// Index of the part's first byte in the buffer.
    pub start: usize,
    /// Length of the part in bytes.
    pub len: usize,
}

impl Segment {
    /// Returns a segment that covers all of `buf`.
    pub fn whole(buf: Arc<AlignedBuf>) -> Self {
        let len = buf.len();
        Self { buf, start: 0, len }
    }

    /// Returns the bytes of the part.
    ///
    /// # Errors
    /// `InvalidInput` if the part does not lie in the buffer.
    pub fn bytes(&self) -> io::Result<&[u8]> {
        let end = self.start.checked_add(self.len);
        let bytes = end.and_then(|end| self.buf.get(self.start..end));
        bytes.ok_or_else(|| outside_buffer(self.start, self.len, self.buf.len()))
    }
}

/// Operation of a [`Request`]. Offsets are in bytes from the start of the device.
///
/// Operations may be added. A queue completes an operation that it does not know with
/// [`io::ErrorKind::Unsupported`].
#[derive(Debug)]
#[non_exhaustive]
pub enum Op {
    /// Fills the first `len` bytes of `buf` with the bytes at `offset`.
    Read {
        /// Offset on the device, bytes.
        offset: u64,
        /// Buffer to fill, at least `len` bytes long. Bytes after the first `len` do not change.
        buf: AlignedBuf,
        /// Length in bytes.
        len: usize,
    },
    /// Writes the segments one after the other at `offset`.
    Write {
        /// Offset on the device, bytes.
        offset: u64,
        /// Parts of buffers that hold the bytes to write.
        segments: SmallVec<[Segment; 1]>,
    },
    /// Makes durable all writes that were harvested before this request was submitted.
    Flush,
}

impl Op {
    /// Returns the segments of a write, and none of another operation.
    pub(crate) fn segments(&self) -> &[Segment] {
        match self {
            Self::Write { segments, .. } => segments,
            Self::Read { .. } | Self::Flush => &[],
        }
    }
}

/// An operation, named by a token of the caller's choice.
#[derive(Debug)]
pub struct Request {
    /// Token that [`Done`] returns to the caller. Need not be unique.
    pub token: u64,
    /// Operation to perform.
    pub op: Op,
}

impl Request {
    /// Returns the completion of this request with `result`.
    pub fn done(self, result: io::Result<()>) -> Done {
        Done { token: self.token, result, op: self.op }
    }

    /// Returns the completion of this request with `ECANCELED`.
    pub fn canceled(self) -> Done {
        self.done(Err(rustix::io::Errno::CANCELED.into()))
    }
}

/// Completion of a [`Request`].
#[derive(Debug)]
pub struct Done {
    /// Token of the request.
    pub token: u64,
    /// Result that the device's blocking call would return. After a failed read the contents of its
    /// buffer are unspecified.
    pub result: io::Result<()>,
    /// Operation of the request, which returns the buffers to the caller.
    pub op: Op,
}

/// Returns the first `len` bytes of a read's buffer, or `InvalidInput` if it is shorter.
pub(crate) fn read_target(buf: &mut AlignedBuf, len: usize) -> io::Result<&mut [u8]> {
    let available = buf.len();
    buf.get_mut(..len).ok_or_else(|| outside_buffer(0, len, available))
}

/// Returns the bytes of each segment, or `InvalidInput` if one does not lie in its buffer.
pub(crate) fn slices(segments: &[Segment]) -> io::Result<SmallVec<[IoSlice<'_>; 4]>> {
    segments.iter().map(|segment| segment.bytes().map(IoSlice::new)).collect()
}

/// Returns the error of a request whose bytes `start..start + len` do not lie in its buffer.
#[cold]
pub(crate) fn outside_buffer(start: usize, len: usize, available: usize) -> io::Error {
    let message = format!("device request: bytes {start} len {len} of a buffer of {available}");
    io::Error::new(io::ErrorKind::InvalidInput, message)
}
