//! How far a request has come, and what the kernel is to do next for it.

use std::io;

use rustix::io::Errno;

use super::super::{Op, Request, Segment};
use crate::file::Alignment;
use crate::file::transfer::{file_ends, file_takes_nothing};
use crate::pool::{BufferPool, PooledBuf};

/// How often the kernel may put one request off before that is its result.
const RETRIES: u8 = 100;

/// A request that was checked, on its way.
pub(super) struct Transfer {
    pub(super) request: Request,
    /// Of the request's first byte in the file.
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
    /// The segments without their first so many bytes.
    Gather(&'a [Segment], usize),
    Flush,
}

impl Transfer {
    /// For a request of `len` bytes on a volume at `base` in its file.
    pub(super) fn new(request: Request, len: usize, base: u64, alignment: Option<Alignment>) -> Self {
        let (offset, bounce) = match &request.op {
            Op::Read { offset, .. } => (base + offset, None),
            Op::Write { offset, segments } => {
                let bounce = alignment.filter(|alignment| !fits(segments, *alignment));
                (base + offset, bounce.map(|_| copy(segments, len)))
            }
            Op::Flush => (0, None),
        };
        let unit = alignment.map_or(1, |alignment| alignment.offset as usize);
        Self { request, offset, len, moved: 0, retries: 0, unit, bounce }
    }

    /// What is left to do, and where in the file.
    pub(super) fn step(&mut self) -> (u64, Step<'_>) {
        let moved = self.moved;
        let step = match (&mut self.request.op, &self.bounce) {
            (Op::Write { .. }, Some(bounce)) => Step::Write(&bounce[moved..]),
            (Op::Write { segments, .. }, None) => match &segments[..] {
                [one] => Step::Write(&one.buf[one.start + moved..one.start + one.len]),
                many => Step::Gather(many, moved),
            },
            (Op::Read { buf, len, .. }, _) => Step::Read(&mut buf[moved..*len]),
            (Op::Flush, _) => Step::Flush,
        };
        (self.offset + moved as u64, step)
    }

    /// Takes note of what a step returned; the request's result, or nothing if it needs another step.
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
        match self.request.op {
            // A direct read stops inside a sector only where the file does.
            Op::Read { .. } if moved == 0 || !moved.is_multiple_of(self.unit) => Some(Err(file_ends(offset))),
            _ if moved == 0 => Some(Err(file_takes_nothing(offset))),
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
}

fn fits(segments: &[Segment], alignment: Alignment) -> bool {
    parts(segments, 0).all(|part| alignment.fits(part))
}

fn copy(segments: &[Segment], len: usize) -> PooledBuf {
    let mut copy = BufferPool::global().take(len);
    let mut rest = &mut copy[..];
    for part in parts(segments, 0) {
        let (here, behind) = rest.split_at_mut(part.len());
        here.copy_from_slice(part);
        rest = behind;
    }
    copy
}

/// What the segments hold behind their first `skip` bytes, without empty parts.
pub(super) fn parts(segments: &[Segment], mut skip: usize) -> impl Iterator<Item = &[u8]> {
    segments.iter().filter_map(move |segment| {
        let skipped = skip.min(segment.len);
        skip -= skipped;
        (skipped < segment.len).then(|| &segment.buf[segment.start + skipped..segment.start + segment.len])
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AlignedBuf;

    fn read(len: usize, alignment: Option<Alignment>) -> Transfer {
        let op = Op::Read { offset: 4096, buf: AlignedBuf::zeroed(len), len };
        Transfer::new(Request { token: 1, op }, len, 8192, alignment)
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
