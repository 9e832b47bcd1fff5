//! The middle steps of a queued operation: it prepares its blocks and hands its data to the device.

use std::collections::VecDeque;

use parext4_device::{AlignedBuf, Op, Request, Segment, zeros};
use smallvec::SmallVec;

use super::super::DirectFile;
use super::IoQueue;
use super::pending::{Kind, Pending};
use crate::admission::Admission;
use crate::block_io::IoSegment;
use crate::block_io::{Debt, Prepared};
use crate::error::{Error, Result};
use crate::fault::{Fault, when_planted};
use crate::node::Hold;
use crate::sync::Arc;

/// Whether an operation that was granted its range continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Started {
    /// Its requests are on the device, or it is over.
    Yes,
    /// It has released its range, because it needs another one.
    RequestAgain,
}

/// Returns the device token for a part of an operation.
pub(super) fn token(key: usize, part: usize) -> u64 {
    (part as u64) << 32 | key as u64
}

/// Returns the key of the operation and the index of the part that a device token identifies.
pub(super) fn of_token(token: u64) -> (usize, usize) {
    let narrow = |half: u64| usize::try_from(half).unwrap_or(usize::MAX);
    (narrow(token & u64::from(u32::MAX)), narrow(token >> 32))
}

impl IoQueue {
    /// Hands the data of an operation that holds its range to the device.
    pub(super) fn transfer(&mut self, key: usize, admission: &Admission) -> Result<Started> {
        match self.ops[key].kind {
            Kind::Read => self.transfer_read(key).map(|()| Started::Yes),
            _ => self.transfer_write(key, admission.zero_tail),
        }
    }

    fn transfer_read(&mut self, key: usize) -> Result<()> {
        let op = &mut self.ops[key];
        let file = self.files.get(op.file);
        let Some(hold) = &op.hold else { return Ok(()) };
        op.runs = file.plan_read(hold, &op.transfer, op.len)?;
        if op.nowait && op.runs.len() > 1 {
            return Err(Error::WouldBlock("the blocks do not lie together"));
        }
        let pieces: SmallVec<[IoSegment; 2]> =
            file.node.read_segments(op.transfer.offset(), op.transfer.end(), &op.runs).collect();
        let sector = file.sector_size() as usize;
        for (part, piece) in pieces.iter().enumerate() {
            let Some(offset) = piece.at else {
                if let Some(buf) = &mut op.buf {
                    buf[piece.data.clone()].fill(0);
                }
                continue;
            };
            let len = piece.data.len().next_multiple_of(sector);
            // A single piece is read directly into the operation's buffer.
            let whole = pieces.len() == 1 && op.buf.as_ref().is_some_and(|buf| buf.len() >= len);
            let buf = if whole { op.buf.take() } else { None };
            let buf = buf.unwrap_or_else(|| AlignedBuf::zeroed(len));
            op.parts += 1;
            if let Some(device) = &mut self.device {
                device.submit(Request { token: token(key, part), op: Op::Read { offset, buf, len } });
            }
        }
        if op.parts == 0 {
            let count = op.transfer.len() as u64;
            self.finish(key, Ok(count));
        }
        Ok(())
    }

    fn transfer_write(&mut self, key: usize, zero_tail: bool) -> Result<Started> {
        let op = &mut self.ops[key];
        let file = self.files.get(op.file);
        if op.kind == Kind::Write {
            file.node.check_len(op.len as u64, op.transfer.end() >= file.size())?;
        }
        match prepare(file, op, zero_tail) {
            Ok(Prepared { runs, debt, .. }) => (op.runs, op.debt) = (runs, debt.map(Debt::detach)),
            Err(Error::NoSpace) if !op.nowait => {
                op.transfer.widen(&file.node)?;
                op.hold = None;
                return Ok(Started::RequestAgain);
            }
            Err(error) => return Err(error),
        }
        when_planted!(Fault::ReleaseAtSubmission, op.hold.iter_mut().for_each(Hold::release));
        let (buf, target) = (op.lend(file), op.transfer.target());
        for (part, piece) in file.node.write_segments(target.start(), target.end(), &op.runs).enumerate() {
            op.parts += 1;
            file.record_zeros(piece.pads.0 + piece.pads.1);
            let offset = piece.at.unwrap_or(0);
            let segments = segments(&buf, &piece, file.sector_size() as usize, &mut self.zeros);
            if let Some(device) = &mut self.device {
                device.submit(Request { token: token(key, part), op: Op::Write { offset, segments } });
            }
        }
        Ok(Started::Yes)
    }
}

fn prepare<'a>(file: &'a DirectFile, op: &mut Pending, zero_tail: bool) -> Result<Prepared<'a>> {
    if op.nowait {
        if zero_tail {
            return Err(Error::WouldBlock("the rest of the last block must be zeroed first"));
        }
        return file.node.prepare_at_once(op.runs.clone(), op.debt.take(), file.dates);
    }
    let Some(hold) = &op.hold else { return Err(Error::Cancelled) };
    file.prepare_write(hold, &op.transfer, std::mem::take(&mut op.runs), zero_tail)
}

impl Pending {
    /// Returns the buffer for the device to write: the operation's own, or its data among zeros.
    fn lend(&mut self, file: &DirectFile) -> Arc<AlignedBuf> {
        let data = self.buf.as_ref().map_or(&[][..], |buf| &buf[..self.len]);
        let buf = match self.transfer.widened() {
            Some(wide) => Some(file.among_zeros(data, self.transfer.offset(), wide)),
            None => self.buf.take(),
        };
        let buf = Arc::new(buf.unwrap_or_else(|| AlignedBuf::zeroed(0)));
        self.lent = Some(Arc::clone(&buf));
        buf
    }
}

/// Returns the segments of a piece of a write: zeros, data, the rest of its last sector, zeros.
fn segments(
    buf: &Arc<AlignedBuf>,
    piece: &IoSegment,
    sector: usize,
    padding: &mut Padding,
) -> SmallVec<[Segment; 1]> {
    let (head, tail) = piece.pads;
    let whole = piece.data.len() - piece.data.len() % sector;
    let mut segments = SmallVec::new();
    let mut add = |buf: &Arc<AlignedBuf>, start: usize, len: usize| {
        if len > 0 {
            segments.push(Segment { buf: Arc::clone(buf), start, len });
        }
    };
    if head > 0 {
        add(padding.zeros(), 0, head);
    }
    add(buf, piece.data.start, whole);
    if whole < piece.data.len() {
        let last = padding.last_sector(&buf[piece.data.start + whole..piece.data.end], sector);
        add(&last, 0, sector);
    }
    if tail > 0 {
        add(padding.zeros(), 0, tail);
    }
    segments
}

/// Memory around the data of writes.
#[derive(Debug, Default)]
pub(super) struct Padding {
    /// One block of zeros, allocated when first needed.
    zeros: Option<Arc<AlignedBuf>>,
    /// Last sectors of writes, the oldest first. Sectors that the device has written are reused, because allocating
    /// one takes longer than filling it.
    sectors: VecDeque<Arc<AlignedBuf>>,
}

impl Padding {
    fn zeros(&mut self) -> &Arc<AlignedBuf> {
        self.zeros.get_or_insert_with(|| Arc::new(AlignedBuf::zeroed(zeros().len())))
    }

    /// Returns a sector of `data` and zeros after it.
    fn last_sector(&mut self, data: &[u8], sector: usize) -> Arc<AlignedBuf> {
        let written = self.sectors.pop_front_if(|last| Arc::get_mut(last).is_some());
        let mut last = written.unwrap_or_else(|| Arc::new(AlignedBuf::zeroed(sector)));
        if let Some(last) = Arc::get_mut(&mut last) {
            last[..data.len()].copy_from_slice(data);
            last[data.len()..].fill(0);
        }
        self.sectors.push_back(Arc::clone(&last));
        last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_last_sector_is_used_again_only_when_it_was_written_and_then_has_zeros_after_its_data() {
        let mut padding = Padding::default();
        let first = padding.last_sector(&[1; 500], 512);
        let second = padding.last_sector(&[2; 7], 512);
        assert_eq!((first[499], first[500], second[6], second[7]), (1, 0, 2, 0));
        let memory = first.as_ptr();
        drop(first);
        let third = padding.last_sector(&[3; 10], 512);
        assert_eq!(third.as_ptr(), memory);
        assert_eq!(third[..], [vec![3; 10], vec![0; 502]].concat());
        assert_eq!(second[..7], [2; 7]);
        assert_eq!(padding.sectors.len(), 2);
    }
}
