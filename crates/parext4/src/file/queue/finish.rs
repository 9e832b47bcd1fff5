//! The last steps of a queued operation: it updates the map and the size, releases the range, and
//! completes.

use parext4_device::{Done, Op};

use super::super::DirectFile;
use super::pending::{Kind, Pending};
use super::transfer::of_token;
use super::{Completion, IoQueue};
use crate::block_io::IoSegment;
use crate::block_io::{PendingConversion, Prepared};
use crate::error::{Error, Result};
use crate::fault::{Fault, when_planted};
use crate::inode_ref::Hold;
use crate::sync::Arc;

impl IoQueue {
    /// Records that the device has completed a part of an operation.
    pub(super) fn device_done(&mut self, done: Done) {
        let (key, part) = of_token(done.token);
        let op = &mut self.ops[key];
        let file = self.files.get(op.file);
        op.parts -= 1;
        if let Err(error) = done.result {
            let error = op.device_error(file, error);
            op.error.get_or_insert(error);
        }
        op.take_back(file, done.op, part);
        if op.parts > 0 {
            return;
        }
        // The device has released its reference, so this one is the last.
        op.buf = op.buf.take().or_else(|| op.lent.take().and_then(Arc::into_inner));
        let result = match op.error.take() {
            Some(error) => Err(error),
            None => op.complete(file),
        };
        self.finish(key, result);
    }

    /// Ends an operation.
    pub(super) fn finish(&mut self, key: usize, result: Result<u64>) {
        let mut op = self.ops.remove(key);
        let file = self.files.get(op.file);
        if matches!(result, Err(Error::WouldBlock(_))) {
            file.node.record().refused();
        }
        if op.conversion.is_some() {
            file.node.abandon(op.take_prepared(file));
        }
        match &mut op.hold {
            Some(hold) => op.transfer.release(&file.node, hold, result.is_ok()),
            None => op.transfer.withdraw(&file.node),
        }
        // The queue may be the file's last user.
        self.files.release(op.file);
        self.ready.push(Completion { token: op.token, result, buf: op.buf.take() });
    }
}

impl Pending {
    fn device_error(&self, file: &DirectFile, error: std::io::Error) -> Error {
        if error.raw_os_error() == Some(libc::ECANCELED) {
            return Error::Cancelled;
        }
        let doing = if self.kind == Kind::Read { "reading" } else { "writing" };
        let error = Error::device(format_args!("{doing} inode {}", file.inode_ref().ino()), error);
        // A failed write stops the volume (I8).
        if self.kind == Kind::Read { error } else { file.engine().health().stop(error) }
    }

    /// Takes the buffers of a part back.
    fn take_back(&mut self, file: &DirectFile, op: Op, part: usize) {
        match op {
            Op::Read { buf, .. } if self.buf.is_none() => self.buf = Some(buf),
            Op::Read { buf, .. } => {
                let pieces = file.node.read_segments(self.transfer.offset(), self.transfer.end(), &self.runs);
                if let Some((piece, own)) = { pieces }.nth(part).zip(self.buf.as_mut()) {
                    let IoSegment { data, .. } = piece;
                    let len = data.len();
                    own[data].copy_from_slice(&buf[..len]);
                }
            }
            _ => {}
        }
    }

    /// Makes visible what the device has written, or keeps what it has read. Returns the
    /// operation's result.
    fn complete(&mut self, file: &DirectFile) -> Result<u64> {
        if self.kind == Kind::Read {
            self.forget_rest(self.transfer.len(), file.sector_size());
            return Ok(self.transfer.len() as u64);
        }
        when_planted!(Fault::ReleaseBeforeConversion, self.hold.iter_mut().for_each(Hold::release));
        file.node.complete(self.take_prepared(file), self.transfer.target().end())?;
        Ok(if self.kind == Kind::Append { self.transfer.offset() } else { self.transfer.len() as u64 })
    }

    /// Removes the preparation of a write from the operation, to complete or abandon it.
    fn take_prepared<'a>(&mut self, file: &'a DirectFile) -> Prepared<'a> {
        let conversion = self
            .conversion
            .take()
            .map(|conversion| PendingConversion::attach(conversion, file.engine().allocator()));
        Prepared { runs: std::mem::take(&mut self.runs), conversion, modifies: file.dates }
    }

    /// Zeroes what a read returned of the last sector past the end of the file.
    fn forget_rest(&mut self, count: usize, sector: u32) {
        if let Some(buf) = &mut self.buf {
            let end = buf.len().min(count.next_multiple_of(sector as usize));
            buf[count..end].fill(0);
        }
    }
}
