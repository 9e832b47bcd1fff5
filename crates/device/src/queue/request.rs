//! What a queue is asked to do, and what it answers.

use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;

use smallvec::SmallVec;

use crate::aligned::AlignedBuf;
use crate::device::Device;

/// Part of a buffer that a write reads from; shared, so that one buffer can feed several requests.
#[derive(Clone, Debug)]
pub struct Segment {
    /// The buffer.
    pub buf: Arc<AlignedBuf>,
    /// First byte of the part.
    pub start: usize,
    /// Length of the part in bytes.
    pub len: usize,
}

impl Segment {
    /// All of a buffer.
    pub fn whole(buf: Arc<AlignedBuf>) -> Self {
        let len = buf.len();
        Self { buf, start: 0, len }
    }

    /// The bytes of the part; `InvalidInput` if it does not lie in the buffer.
    pub fn bytes(&self) -> io::Result<&[u8]> {
        let end = self.start.checked_add(self.len);
        let bytes = end.and_then(|end| self.buf.get(self.start..end));
        bytes.ok_or_else(|| outside_buffer(self.start, self.len, self.buf.len()))
    }
}

/// The operation of a [`Request`]. Offsets are bytes on the device.
#[derive(Debug)]
pub enum Op {
    /// Fills the first `len` bytes of `buf` from `offset`.
    Read {
        /// Byte offset.
        offset: u64,
        /// Where to.
        buf: AlignedBuf,
        /// Length in bytes.
        len: usize,
    },
    /// Writes the segments one after the other at `offset`.
    Write {
        /// Byte offset.
        offset: u64,
        /// Where from.
        segments: SmallVec<[Segment; 1]>,
    },
    /// What [`Device::flush`] does; covers the writes that were harvested before it was submitted.
    Flush,
}

impl Op {
    /// Of a write.
    pub(super) fn segments(&self) -> &[Segment] {
        match self {
            Self::Write { segments, .. } => segments,
            Self::Read { .. } | Self::Flush => &[],
        }
    }

    /// Does it with the device's blocking calls.
    pub fn perform(&mut self, device: &dyn Device) -> io::Result<()> {
        match self {
            Self::Read { offset, buf, len } => {
                device.read_at(*offset, &mut [IoSliceMut::new(head(buf, *len)?)])
            }
            Self::Write { offset, segments } => match segments.as_slice() {
                [segment] => device.write_at(*offset, &[IoSlice::new(segment.bytes()?)]),
                segments => device.write_at(*offset, &slices(segments)?),
            },
            Self::Flush => device.flush(),
        }
    }
}

/// Something to do, named by a token of the caller's.
#[derive(Debug)]
pub struct Request {
    /// Comes back in [`Done`].
    pub token: u64,
    /// What to do.
    pub op: Op,
}

impl Request {
    pub(super) fn perform(mut self, device: &dyn Device) -> Done {
        let result = self.op.perform(device);
        self.done(result)
    }

    pub(super) fn done(self, result: io::Result<()>) -> Done {
        Done { token: self.token, result, op: self.op }
    }
}

/// A request that is done.
#[derive(Debug)]
pub struct Done {
    /// The request's.
    pub token: u64,
    /// As of the device's call. After a failed read the contents of its buffer are unspecified.
    pub result: io::Result<()>,
    /// The request's operation, to give its buffers back.
    pub op: Op,
}

/// The first `len` bytes of a read's buffer.
pub(super) fn head(buf: &mut AlignedBuf, len: usize) -> io::Result<&mut [u8]> {
    let available = buf.len();
    buf.get_mut(..len).ok_or_else(|| outside_buffer(0, len, available))
}

pub(super) fn slices(segments: &[Segment]) -> io::Result<SmallVec<[IoSlice<'_>; 4]>> {
    segments.iter().map(|segment| segment.bytes().map(IoSlice::new)).collect()
}

#[cold]
fn outside_buffer(start: usize, len: usize, available: usize) -> io::Error {
    let message = format!("device request: bytes {start} len {len} of a buffer of {available}");
    io::Error::new(io::ErrorKind::InvalidInput, message)
}
