//! How far a request has come, and what the kernel is to do next for it.
//!
//! Writes that adjoin on the device share a transfer, as a system call for each would cost more than the data of small
//! ones. Each of them still gets a result of its own: those that were written before an error have succeeded.

use std::collections::VecDeque;
use std::io;

use rustix::io::Errno;
use smallvec::{SmallVec, smallvec};

use crate::alignment::Alignment;
use crate::pool::{BufferPool, PooledBuf};
use crate::request::{Done, Op, Request};
use crate::short_transfer::{end_of_file, nothing_written};

/// How often the kernel may put one request off before that is its result.
const RETRIES: u8 = 100;

/// Writes are joined up to this many bytes. Larger ones gain nothing by it, and would keep fewer parts of the device busy.
const JOINED_BYTES: usize = 256 << 10;
/// Writes are joined up to this many segments, which one system call takes.
const JOINED_SEGMENTS: usize = 1024;

/// Checked requests that move together: one, or writes of which each begins where the one before it ends.
pub(super) struct Batch {
    requests: SmallVec<[Request; 1]>,
    /// Bytes of all requests.
    bytes: usize,
}

/// A batch on its way.
pub(super) struct Transfer {
    requests: SmallVec<[Request; 1]>,
    /// Of the first byte in the file.
    offset: u64,
    len: usize,
    moved: usize,
    retries: u8,
    /// Under direct I/O, the smallest part of a file, else 1.
    unit: usize,
    /// A copy of what is to be written, if direct I/O does not take the request's own memory.
    bounce: Option<PooledBuf>,
}

/// What the kernel is asked for.
pub(super) enum Step<'a> {
    Read(&'a mut [u8]),
    Write(&'a [u8]),
    /// A vectored write of the segments of these requests, without the given number of bytes at their beginning.
    Gather(&'a [Request], usize),
    Flush,
}

impl Batch {
    /// Requests in it.
    pub(super) fn len(&self) -> usize {
        self.requests.len()
    }

    /// Takes the first request of `backlog`, and the writes after it that can be joined to it. The backlog's numbers are
    /// the lengths of the requests in bytes.
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

impl Transfer {
    /// For requests on a volume at `base` in its file.
    pub(super) fn new(batch: Batch, base: u64, alignment: Option<Alignment>) -> Self {
        let Batch { requests, bytes: len } = batch;
        let (offset, bounce) = match &requests[0].op {
            Op::Read { offset, .. } => (base + offset, None),
            Op::Write { offset, .. } => {
                let bounce = alignment.filter(|alignment| !fits(&requests, *alignment));
                (base + offset, bounce.map(|_| copy(&requests, len)))
            }
            Op::Flush => (0, None),
        };
        let unit = alignment.map_or(1, |alignment| alignment.offset as usize);
        Self { requests, offset, len, moved: 0, retries: 0, unit, bounce }
    }

    /// What is left to do, and where in the file.
    pub(super) fn step(&mut self) -> (u64, Step<'_>) {
        let moved = self.moved;
        let step = match (&mut self.requests[..], &self.bounce) {
            (_, Some(bounce)) => Step::Write(&bounce[moved..]),
            ([Request { op: Op::Read { buf, len, .. }, .. }], None) => Step::Read(&mut buf[moved..*len]),
            ([Request { op: Op::Flush, .. }], None) => Step::Flush,
            (writes, None) => match (writes.len(), writes[0].op.segments()) {
                (1, [one]) => Step::Write(&one.buf[one.start + moved..one.start + one.len]),
                _ => Step::Gather(writes, moved),
            },
        };
        (self.offset + moved as u64, step)
    }

    /// Takes note of what a step returned; the result, or nothing if it needs another step.
    pub(super) fn advance(&mut self, result: i32) -> Option<io::Result<()>> {
        match usize::try_from(result) {
            Ok(moved) => self.advance_by(moved),
            Err(_) => self.failed(Errno::from_raw_os_error(-result)),
        }
    }

    fn advance_by(&mut self, moved: usize) -> Option<io::Result<()>> {
        self.moved += moved;
        if self.moved >= self.len {
            return Some(Ok(()));
        }
        let offset = self.offset + self.moved as u64;
        match self.requests[0].op {
            // A direct read stops inside a sector only where the file does.
            Op::Read { .. } if moved == 0 || !moved.is_multiple_of(self.unit) => {
                Some(Err(end_of_file(offset)))
            }
            _ if moved == 0 => Some(Err(nothing_written(offset))),
            _ => None,
        }
    }

    fn failed(&mut self, error: Errno) -> Option<io::Result<()>> {
        if matches!(error, Errno::INTR | Errno::AGAIN) && self.retries < RETRIES {
            self.retries += 1;
            return None;
        }
        Some(Err(error.into()))
    }

    /// Gives each request back with its own result: an error is that of the requests which were not written whole before
    /// it. Returns how many there are.
    pub(super) fn end(self, result: io::Result<()>, done: &mut Vec<Done>) -> usize {
        let count = self.requests.len();
        if count == 1 || result.is_ok() {
            let mut result = Some(result);
            done.extend(
                self.requests.into_iter().map(|request| request.done(result.take().unwrap_or(Ok(())))),
            );
            return count;
        }
        let mut end = 0;
        for request in self.requests {
            end += parts(std::slice::from_ref(&request), 0).map(<[u8]>::len).sum::<usize>();
            let result = if end <= self.moved { Ok(()) } else { result.as_ref().map_err(again).copied() };
            done.push(request.done(result));
        }
        count
    }
}

/// The same error for another request.
fn again(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}

fn fits(writes: &[Request], alignment: Alignment) -> bool {
    parts(writes, 0).all(|part| alignment.fits(part))
}

fn copy(writes: &[Request], len: usize) -> PooledBuf {
    let mut copy = BufferPool::global().take(len);
    let mut rest = &mut copy[..];
    for part in parts(writes, 0) {
        let (here, behind) = rest.split_at_mut(part.len());
        here.copy_from_slice(part);
        rest = behind;
    }
    copy
}

/// What the writes' segments hold after their first `skip` bytes, without empty parts.
pub(super) fn parts(writes: &[Request], mut skip: usize) -> impl Iterator<Item = &[u8]> {
    writes.iter().flat_map(|write| write.op.segments()).filter_map(move |segment| {
        let skipped = skip.min(segment.len);
        skip -= skipped;
        (skipped < segment.len).then(|| &segment.buf[segment.start + skipped..segment.start + segment.len])
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::aligned::AlignedBuf;
    use crate::request::Segment;

    fn read(len: usize, alignment: Option<Alignment>) -> Transfer {
        let op = Op::Read { offset: 4096, buf: AlignedBuf::zeroed(len), len };
        let batch = Batch { requests: smallvec![Request { token: 1, op }], bytes: len };
        Transfer::new(batch, 8192, alignment)
    }

    /// A write of `len` bytes of `byte`, in two segments.
    fn write(token: u64, offset: u64, len: usize, byte: u8) -> (Request, usize) {
        let buf = Arc::new(AlignedBuf::from_slice(&vec![byte; len]));
        let segment = |start| Segment { buf: Arc::clone(&buf), start, len: len / 2 };
        let op = Op::Write { offset, segments: smallvec![segment(0), segment(len / 2)] };
        (Request { token, op }, len)
    }

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
        // Neither across a flush, nor across a gap, nor back.
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

    #[test]
    fn of_joined_writes_those_before_the_error_have_succeeded() {
        let backlog = [write(1, 0, 4096, 1), write(2, 4096, 4096, 2), write(3, 8192, 4096, 3)];
        let batch = Batch::take(&mut VecDeque::from(backlog)).unwrap();
        let mut transfer = Transfer::new(batch, 512, Some(Alignment { memory: 512, offset: 512 }));
        // The second is written in part.
        assert!(transfer.advance(4096 + 512).is_none());
        let (offset, step) = transfer.step();
        assert_eq!(offset, 512 + 4096 + 512);
        let Step::Gather(writes, skip) = step else { panic!("one write") };
        let rest: Vec<u8> = parts(writes, skip).flatten().copied().collect();
        assert_eq!(rest, [vec![2; 4096 - 512], vec![3; 4096]].concat());
        let failed = transfer.advance(-Errno::NOSPC.raw_os_error()).unwrap();
        let mut done = Vec::new();
        assert_eq!(transfer.end(failed, &mut done), 3);
        let codes: Vec<_> = done
            .iter()
            .map(|done| (done.token, done.result.as_ref().err().and_then(io::Error::raw_os_error)))
            .collect();
        let no_space = Some(Errno::NOSPC.raw_os_error());
        assert_eq!(codes, [(1, None), (2, no_space), (3, no_space)]);
    }

    #[test]
    fn what_came_short_goes_on_where_it_stopped() {
        let mut transfer = read(4096, None);
        assert!(transfer.advance(1000).is_none());
        let (offset, step) = transfer.step();
        assert!(matches!(step, Step::Read(rest) if rest.len() == 3096));
        assert_eq!(offset, 8192 + 4096 + 1000);
        transfer.advance(3096).unwrap().unwrap();
    }

    #[test]
    fn the_end_of_the_file_is_an_error() {
        let kind = |result: Option<io::Result<()>>| result.unwrap().unwrap_err().kind();
        assert_eq!(kind(read(4096, None).advance(0)), io::ErrorKind::UnexpectedEof);
        let direct = Some(Alignment { memory: 512, offset: 512 });
        assert!(read(4096, direct).advance(1024).is_none());
        assert_eq!(kind(read(4096, direct).advance(1000)), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn an_interruption_is_tried_again_but_not_for_ever() {
        let mut transfer = read(4096, None);
        for _ in 0..RETRIES {
            assert!(transfer.advance(-Errno::AGAIN.raw_os_error()).is_none());
        }
        assert!(transfer.advance(-Errno::AGAIN.raw_os_error()).unwrap().is_err());
        assert!(read(4096, None).advance(-Errno::IO.raw_os_error()).unwrap().is_err());
    }
}
