//! The middle steps of a queued operation: it prepares its blocks and hands its data to the device.

use parext4_device::{AlignedBuf, Op, Request};
use smallvec::SmallVec;

use super::super::DirectFile;
use super::IoQueue;
use super::pending::{Kind, Pending};
use crate::admission::Admission;
use crate::block_io::{DetachedConversion, IoSegment, PendingConversion, Prepared};
use crate::convert::to_usize;
use crate::error::{Error, Result};
use crate::fault::{Fault, when_planted};
use crate::inode_ref::Hold;
use crate::mapping::Runs;
use crate::sync::Arc;

/// Whether an operation that was granted its range continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Started {
    /// Its requests are on the device, or it is over.
    Yes,
    /// It has released its range, because it needs another one.
    RequestAgain,
}

/// The mapping of the blocks of a write, and what their conversion needs.
type Preparation = (Runs, Option<DetachedConversion>);

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
        let (op, file) = (&self.ops[key], self.file_of(key));
        if op.kind == Kind::Write {
            file.node.check_len(op.len as u64, op.transfer.end() >= file.size())?;
        }
        let prepared =
            if op.nowait { self.prepare_at_once(key, zero_tail) } else { self.prepare(key, zero_tail) };
        let op = &mut self.ops[key];
        let file = self.files.get(op.file);
        match prepared {
            Ok((runs, conversion)) => (op.runs, op.conversion) = (runs, conversion),
            Err(Error::NoSpace) => {
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
            let segment = |slice| self.padding.segment(slice, &buf, file.sector_size() as usize);
            let segments = file.slices(&piece).map(segment).collect();
            if let Some(device) = &mut self.device {
                device.submit(Request { token: token(key, part), op: Op::Write { offset, segments } });
            }
        }
        Ok(Started::Yes)
    }

    fn prepare_at_once(&mut self, key: usize, zero_tail: bool) -> Result<Preparation> {
        if zero_tail {
            return Err(Error::WouldBlock("the rest of the last block must be zeroed first"));
        }
        let op = &mut self.ops[key];
        let file = self.files.get(op.file);
        file.node.prepare_at_once(op.runs.clone(), op.conversion.take(), file.dates).map(detach)
    }

    /// Prepares a write. If it finds no space, first completes the operations of this queue that
    /// have blocks reserved, which no other thread can complete, and then waits for space as a
    /// blocking call does.
    fn prepare(&mut self, key: usize, zero_tail: bool) -> Result<Preparation> {
        let (op, file) = (&self.ops[key], self.file_of(key));
        let Some(hold) = &op.hold else { return Err(Error::Cancelled) };
        match file.try_prepare_write(hold, &op.transfer, &op.runs, zero_tail) {
            Err(Error::NoSpace) => {}
            prepared => return prepared.map(detach),
        }
        self.complete_reserved()?;
        let (op, file) = (&self.ops[key], self.file_of(key));
        let Some(hold) = &op.hold else { return Err(Error::Cancelled) };
        file.prepare_write(hold, &op.transfer, &op.runs, false).map(detach)
    }

    fn file_of(&self, key: usize) -> &DirectFile {
        self.files.get(self.ops[key].file)
    }

    /// Completes operations until none on the device has blocks reserved.
    fn complete_reserved(&mut self) -> Result<()> {
        let has_blocks = |op: &Pending| op.conversion.is_some_and(|conversion| conversion.has_blocks());
        while self.ops.iter().any(|(_, op)| op.parts > 0 && has_blocks(op)) {
            self.harvest_device(true)?;
        }
        Ok(())
    }
}

fn detach(Prepared { runs, conversion, .. }: Prepared<'_>) -> Preparation {
    (runs, conversion.map(PendingConversion::detach))
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
