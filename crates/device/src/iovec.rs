//! Lengths and copies of vectored requests, whose bytes lie in several buffers.

use std::io::{self, IoSlice, IoSliceMut};
use std::ops::Deref;

/// Returns the request's length in bytes, or `InvalidInput` if it exceeds 64 bits.
pub(crate) fn total<B: Deref<Target = [u8]>>(bufs: &[B]) -> io::Result<u64> {
    // Mutable slices cannot overlap but shared ones can, so the sum is not bounded by memory.
    bufs.iter()
        .try_fold(0u64, |sum, buf| sum.checked_add(buf.len() as u64))
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "device request: total length overflows"))
}

/// Returns the first `len` bytes of `bufs`.
#[cfg(any(test, feature = "testing"))]
pub(crate) fn prefix<'a>(bufs: &'a [IoSlice<'a>], mut len: u64) -> Vec<IoSlice<'a>> {
    let mut out = Vec::new();
    for buf in bufs {
        if len == 0 {
            break;
        }
        let take = buf.len().min(usize::try_from(len).unwrap_or(usize::MAX));
        out.push(IoSlice::new(&buf[..take]));
        len -= take as u64;
    }
    out
}

/// Copies out of a request's buffers, from the first byte to the last.
pub(crate) struct Gather<'a> {
    bufs: &'a [IoSlice<'a>],
    position: usize,
}

impl<'a> Gather<'a> {
    pub(crate) fn new(bufs: &'a [IoSlice<'a>]) -> Self {
        Self { bufs, position: 0 }
    }

    /// Fills `out` with the next bytes of the request, which must have that many left.
    pub(crate) fn copy_to(&mut self, mut out: &mut [u8]) {
        while let Some((buf, rest)) = self.bufs.split_first()
            && !out.is_empty()
        {
            let source = &buf[self.position..];
            let n = source.len().min(out.len());
            let (head, tail) = out.split_at_mut(n);
            head.copy_from_slice(&source[..n]);
            out = tail;
            self.position += n;
            if self.position == buf.len() {
                (self.bufs, self.position) = (rest, 0);
            }
        }
        debug_assert!(out.is_empty(), "gathered past the request's end");
    }
}

/// Copies into a request's buffers, from the first byte to the last.
pub(crate) struct Scatter<'a, 'b> {
    bufs: &'a mut [IoSliceMut<'b>],
    index: usize,
    position: usize,
}

impl<'a, 'b> Scatter<'a, 'b> {
    pub(crate) fn new(bufs: &'a mut [IoSliceMut<'b>]) -> Self {
        Self { bufs, index: 0, position: 0 }
    }

    /// Copies `source` to the next bytes of the request, which must have that many left.
    pub(crate) fn copy_from(&mut self, mut source: &[u8]) {
        while let Some(buf) = self.bufs.get_mut(self.index)
            && !source.is_empty()
        {
            let out = &mut buf[self.position..];
            let n = source.len().min(out.len());
            let (head, tail) = source.split_at(n);
            out[..n].copy_from_slice(head);
            source = tail;
            self.position += n;
            if self.position == buf.len() {
                (self.index, self.position) = (self.index + 1, 0);
            }
        }
        debug_assert!(source.is_empty(), "scattered past the request's end");
    }
}
