//! Transfers: how much of a request is done, and the kernel's next step for it.
//!
//! Each write of a batch gets its own result: a write that was complete before an error has
//! succeeded.

use std::io;

use rustix::io::Errno;
use smallvec::SmallVec;

use crate::alignment::Alignment;
use crate::batch::Batch;
use crate::pool::{BufferPool, PooledBuf};
use crate::request::{Done, Op, Request};
use crate::short_transfer::{end_of_file, nothing_written};

/// Number of times that a transfer is retried after `EINTR` or `EAGAIN`, before the error is its
/// result.
const RETRIES: u8 = 100;

/// A batch and its progress.
pub(super) struct Transfer {
    requests: SmallVec<[Request; 1]>,
    /// Offset of the first byte in the file, bytes.
    offset: u64,
    len: usize,
    moved: usize,
    retries: u8,
    /// Sector size of direct I/O in bytes, else 1.
    unit: usize,
    /// Copy of the bytes to write, if direct I/O does not accept the request's own memory.
    bounce: Option<PooledBuf>,
}

/// A system call of the kernel.
pub(super) enum Step<'a> {
    Read(&'a mut [u8]),
    Write(&'a [u8]),
    /// Vectored write of the segments of these requests, after the given number of bytes.
    Gather(&'a [Request], usize),
    Flush,
}

impl Transfer {
    /// Makes a transfer of requests on a volume that begins at byte `base` of its file.
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

    /// Returns the next step, and its offset in the file in bytes.
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

    /// Records the result of a step. Returns the result of the transfer, or `None` if it needs
    /// another step.
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
            // A direct read stops inside a sector only at the end of the file.
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

    /// Appends the completion of each request to `done`, and returns their number. An error is the
    /// result of the requests that were not complete before it.
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
            let result =
                if end <= self.moved { Ok(()) } else { result.as_ref().map_err(copy_error).copied() };
            done.push(request.done(result));
        }
        count
    }
}

/// Returns a copy of an error, for another request.
fn copy_error(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}

/// Returns whether direct I/O accepts the memory of all writes.
fn fits(writes: &[Request], alignment: Alignment) -> bool {
    parts(writes, 0).all(|part| alignment.fits(part))
}

/// Copies the bytes of the writes into one aligned buffer.
fn copy(writes: &[Request], len: usize) -> PooledBuf {
    let mut copy = BufferPool::global().take(len);
    let mut rest = &mut copy[..];
    for part in parts(writes, 0) {
        let (target, after) = rest.split_at_mut(part.len());
        target.copy_from_slice(part);
        rest = after;
    }
    copy
}

/// Returns the bytes of the writes' segments after the first `skip` bytes, without empty parts.
pub(super) fn parts(writes: &[Request], mut skip: usize) -> impl Iterator<Item = &[u8]> {
    writes.iter().flat_map(|write| write.op.segments()).filter_map(move |segment| {
        let skipped = skip.min(segment.len);
        skip -= skipped;
        (skipped < segment.len).then(|| &segment.buf[segment.start + skipped..segment.start + segment.len])
    })
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use smallvec::smallvec;

    use super::super::JOINED;
    use super::*;
    use crate::aligned::AlignedBuf;
    use crate::batch::tests::write;

    fn read(len: usize, alignment: Option<Alignment>) -> Transfer {
        let op = Op::Read { offset: 4096, buf: AlignedBuf::zeroed(len), len };
        let batch = Batch { requests: smallvec![Request { token: 1, op }], bytes: len };
        Transfer::new(batch, 8192, alignment)
    }

    #[test]
    fn joined_writes_before_an_error_succeed() {
        let backlog = [write(1, 0, 4096, 1), write(2, 4096, 4096, 2), write(3, 8192, 4096, 3)];
        let batch = Batch::take(&mut VecDeque::from(backlog), &JOINED).unwrap();
        let mut transfer = Transfer::new(batch, 512, Some(Alignment { memory: 512, offset: 512 }));
        // The second write is short.
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
    fn a_short_transfer_continues_where_it_stopped() {
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
    fn an_interruption_is_retried_a_limited_number_of_times() {
        let mut transfer = read(4096, None);
        for _ in 0..RETRIES {
            assert!(transfer.advance(-Errno::AGAIN.raw_os_error()).is_none());
        }
        assert!(transfer.advance(-Errno::AGAIN.raw_os_error()).unwrap().is_err());
        assert!(read(4096, None).advance(-Errno::IO.raw_os_error()).unwrap().is_err());
    }
}
