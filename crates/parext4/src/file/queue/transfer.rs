//! The middle steps of a queued operation: it prepares its blocks and hands its data to the device.

use parext4_device::{AlignedBuf, Op, Request};
use smallvec::SmallVec;

use super::super::DirectFile;
use super::IoQueue;
use super::pending::{Kind, Pending};
use crate::admission::Admission;
use crate::block_io::{IoSegment, PendingConversion, Prepared};
use crate::convert::to_usize;
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
    (to_usize(token & u64::from(u32::MAX)), to_usize(token >> 32))
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
        let count = op.transfer.len();
        if let Some(buf) = &mut op.buf
            && file.read_inline(hold, &mut buf[..count], op.transfer.offset())?
        {
            self.finish(key, Ok(count as u64));
            return Ok(());
        }
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
            op.submitted += 1;
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
            Ok(Prepared { runs, conversion, .. }) => {
                (op.runs, op.conversion) = (runs, conversion.map(PendingConversion::detach))
            }
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
            op.submitted += 1;
            let offset = piece.at.unwrap_or(0);
            let segment = |stretch| self.padding.segment(stretch, &buf, file.sector_size() as usize);
            let segments = file.stretches(&piece).map(segment).collect();
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
        return file.node.prepare_at_once(op.runs.clone(), op.conversion.take(), file.dates);
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
