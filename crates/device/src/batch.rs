//! Batches: neighbouring writes of a queue's backlog, joined into one request of the device.
//!
//! Writes that adjoin on the device share a request, because a system call or a message costs more
//! than the data of a small write.

use std::collections::VecDeque;
use std::num::NonZeroU64;

use smallvec::{SmallVec, smallvec};

use crate::request::{Op, Request};

/// Limits of joined writes.
#[derive(Clone, Copy, Debug)]
pub struct JoinLimits {
    /// Maximum length of joined writes in bytes. A single write may be longer.
    pub bytes: usize,
    /// Maximum number of segments of joined writes.
    pub segments: usize,
    /// Size in bytes of the pieces that the device stores apart: writes are not joined where two
    /// pieces meet.
    pub object_size: Option<NonZeroU64>,
}

impl JoinLimits {
    /// Returns whether `offset` is where two pieces of the device meet.
    fn is_boundary(&self, offset: u64) -> bool {
        self.object_size.is_some_and(|size| offset.is_multiple_of(size.get()))
    }
}

/// Checked requests that share a request of the device: one, or writes of which each begins where
/// the previous one ends.
#[derive(Debug)]
pub struct Batch {
    pub(crate) requests: SmallVec<[Request; 1]>,
    /// Length of all requests, bytes.
    pub(crate) bytes: usize,
}

impl Batch {
    /// Removes the first request of `backlog` and the writes after it that can be joined to it. The
    /// backlog holds requests with their lengths in bytes.
    pub fn take(backlog: &mut VecDeque<(Request, usize)>, limits: &JoinLimits) -> Option<Self> {
        let (first, len) = backlog.pop_front()?;
        let mut segments = first.op.segments().len();
        let mut batch = Self { requests: smallvec![first], bytes: len };
        let mut end = match batch.requests[0].op {
            Op::Write { offset, .. } => offset + len as u64,
            Op::Read { .. } | Op::Flush => return Some(batch),
        };
        while let Some((next, len)) = backlog.pop_front_if(|(next, len)| {
            let room = limits.bytes.saturating_sub(batch.bytes);
            let more = next.op.segments().len();
            matches!(next.op, Op::Write { offset, .. } if offset == end)
                && *len <= room
                && segments + more <= limits.segments
                && !limits.is_boundary(end)
        }) {
            segments += next.op.segments().len();
            end += len as u64;
            batch.bytes += len;
            batch.requests.push(next);
        }
        Some(batch)
    }

    /// Returns the number of requests, which is at least 1.
    #[expect(clippy::len_without_is_empty, reason = "a batch has a request")]
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Returns the length of all requests in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the requests, at least one. A batch of several requests has only writes.
    pub fn requests_mut(&mut self) -> &mut [Request] {
        &mut self.requests
    }

    /// Returns the requests, to complete them.
    pub fn into_requests(self) -> impl Iterator<Item = Request> {
        self.requests.into_iter()
    }

    /// Returns the bytes of the writes, one part for each segment that is not empty.
    pub fn parts(&self) -> impl Iterator<Item = &[u8]> {
        let segments = self.requests.iter().flat_map(|request| request.op.segments());
        // Requests of a batch are checked, so each segment lies in its buffer.
        segments.filter_map(|segment| segment.bytes().ok().filter(|bytes| !bytes.is_empty()))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::aligned::AlignedBuf;
    use crate::request::Segment;

    const LIMITS: JoinLimits = JoinLimits { bytes: 256 << 10, segments: 1024, object_size: None };

    /// Makes a write of `len` bytes of `byte`, in two segments, with its length.
    pub(crate) fn write(token: u64, offset: u64, len: usize, byte: u8) -> (Request, usize) {
        let buf = Arc::new(AlignedBuf::from_slice(&vec![byte; len]));
        let segment = |start| Segment { buf: Arc::clone(&buf), start, len: len / 2 };
        let op = Op::Write { offset, segments: smallvec![segment(0), segment(len / 2)] };
        (Request { token, op }, len)
    }

    /// Returns the tokens of each batch of a backlog.
    fn joined(backlog: Vec<(Request, usize)>) -> Vec<Vec<u64>> {
        joined_within(&LIMITS, backlog)
    }

    fn joined_within(limits: &JoinLimits, backlog: Vec<(Request, usize)>) -> Vec<Vec<u64>> {
        let mut backlog = VecDeque::from(backlog);
        let batches = std::iter::from_fn(|| Batch::take(&mut backlog, limits));
        batches.map(|batch| batch.requests.iter().map(|request| request.token).collect()).collect()
    }

    #[test]
    fn writes_that_adjoin_share_a_transfer() {
        let flush = (Request { token: 9, op: Op::Flush }, 0);
        let read = Op::Read { offset: 12288, buf: AlignedBuf::zeroed(4096), len: 4096 };
        let read = (Request { token: 8, op: read }, 4096);
        assert_eq!(joined(vec![write(1, 0, 4096, 1), write(2, 4096, 8192, 2), read]), [vec![1, 2], vec![8]]);
        // Writes are not joined across a flush, across a gap, or backwards.
        assert_eq!(joined(vec![write(1, 0, 4096, 1), flush, write(2, 4096, 512, 2)]), [[1], [9], [2]]);
        let apart = vec![write(1, 0, 4096, 1), write(2, 8192, 4096, 2), write(3, 4096, 4096, 3)];
        assert_eq!(joined(apart), [[1], [2], [3]]);
        let half = LIMITS.bytes / 2;
        let at = |nth: u64| nth * half as u64;
        let large = vec![write(1, at(0), half, 1), write(2, at(1), half, 2), write(3, at(2), half, 3)];
        assert_eq!(joined(large), [vec![1, 2], vec![3]]);
        let many = (0..LIMITS.segments as u64).map(|nth| write(nth, nth * 512, 512, 1)).collect();
        let lens: Vec<usize> = joined(many).iter().map(Vec::len).collect();
        assert!(lens.iter().all(|&len| len <= LIMITS.segments / 2 && len > 1), "{lens:?}");
    }
    #[test]
    fn writes_of_two_objects_are_not_joined() {
        let limits = JoinLimits { object_size: NonZeroU64::new(16 << 10), ..LIMITS };
        let writes = (0..8).map(|nth| write(nth, 8192 + nth * 4096, 4096, 1)).collect();
        assert_eq!(joined_within(&limits, writes), [vec![0, 1], vec![2, 3, 4, 5], vec![6, 7]]);
    }

    #[test]
    fn parts_are_the_bytes_of_all_writes() {
        let mut backlog = VecDeque::from(vec![write(1, 0, 1024, 1), write(2, 1024, 512, 2)]);
        let batch = Batch::take(&mut backlog, &LIMITS).unwrap();
        let parts: Vec<_> = batch.parts().map(|part| (part.len(), part[0])).collect();
        assert_eq!(
            (batch.len(), batch.bytes(), parts),
            (2, 1536, vec![(512, 1), (512, 1), (256, 2), (256, 2)])
        );
    }
}
