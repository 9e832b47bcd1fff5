//! Batches: neighbouring writes joined into one transfer.
//!
//! Writes that adjoin on the device share a transfer, because a system call costs more than the data of a small write.

use std::collections::VecDeque;

use smallvec::{SmallVec, smallvec};

use crate::request::{Op, Request};

/// Limit of joined writes in bytes. Larger writes gain nothing, and fewer requests would use less of the device's
/// parallelism.
const JOINED_BYTES: usize = 256 << 10;
/// Limit of joined writes in segments: the limit of one system call.
const JOINED_SEGMENTS: usize = 1024;

/// Checked requests that share a transfer: one, or writes of which each begins where the previous one ends.
pub(super) struct Batch {
    pub(super) requests: SmallVec<[Request; 1]>,
    /// Length of all requests, bytes.
    pub(super) bytes: usize,
}

impl Batch {
    /// Returns the number of requests.
    pub(super) fn len(&self) -> usize {
        self.requests.len()
    }

    /// Removes the first request of `backlog` and the writes after it that can be joined to it. The backlog holds requests
    /// with their lengths in bytes.
    pub(super) fn take(backlog: &mut VecDeque<(Request, usize)>) -> Option<Self> {
        let (first, len) = backlog.pop_front()?;
        let mut segments = first.op.segments().len();
        let mut batch = Self { requests: smallvec![first], bytes: len };
        let mut end = match batch.requests[0].op {
            Op::Write { offset, .. } => offset + len as u64,
            Op::Read { .. } | Op::Flush => return Some(batch),
        };
        while let Some((next, len)) = backlog.pop_front_if(|(next, len)| {
            let room = JOINED_BYTES.saturating_sub(batch.bytes);
            let more = next.op.segments().len();
            matches!(next.op, Op::Write { offset, .. } if offset == end)
                && *len <= room
                && segments + more <= JOINED_SEGMENTS
        }) {
            segments += next.op.segments().len();
            end += len as u64;
            batch.bytes += len;
            batch.requests.push(next);
        }
        Some(batch)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::aligned::AlignedBuf;
    use crate::request::Segment;

    /// Makes a write of `len` bytes of `byte`, in two segments, with its length.
    pub(in super::super) fn write(token: u64, offset: u64, len: usize, byte: u8) -> (Request, usize) {
        let buf = Arc::new(AlignedBuf::from_slice(&vec![byte; len]));
        let segment = |start| Segment { buf: Arc::clone(&buf), start, len: len / 2 };
        let op = Op::Write { offset, segments: smallvec![segment(0), segment(len / 2)] };
        (Request { token, op }, len)
    }

    /// Returns the tokens of each batch of a backlog.
    fn joined(backlog: Vec<(Request, usize)>) -> Vec<Vec<u64>> {
        let mut backlog = VecDeque::from(backlog);
        let batches = std::iter::from_fn(|| Batch::take(&mut backlog));
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
        let half = JOINED_BYTES / 2;
        let at = |nth: u64| nth * half as u64;
        let large = vec![write(1, at(0), half, 1), write(2, at(1), half, 2), write(3, at(2), half, 3)];
        assert_eq!(joined(large), [vec![1, 2], vec![3]]);
        let many = (0..JOINED_SEGMENTS as u64).map(|nth| write(nth, nth * 512, 512, 1)).collect();
        let lens: Vec<usize> = joined(many).iter().map(Vec::len).collect();
        assert!(lens.iter().all(|&len| len <= JOINED_SEGMENTS / 2 && len > 1), "{lens:?}");
    }
}
