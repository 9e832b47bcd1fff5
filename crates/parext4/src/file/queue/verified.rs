//! Queued reads of files that fs-verity protects.
//!
//! Such a read may need blocks of the Merkle tree, and hashing takes longer than other steps of a
//! queue, so the thread for blocking calls makes it.

use parext4_device::AlignedBuf;

use super::IoQueue;
use super::blocking::{Call, Job};
use crate::error::{Error, Result};

impl IoQueue {
    /// Hands a read to the thread for blocking calls.
    pub(super) fn begin_verified(&mut self, key: usize) -> Result<()> {
        if self.ops[key].nowait {
            return Err(Error::WouldBlock("the data must be verified"));
        }
        self.start_blocking()?;
        let op = &mut self.ops[key];
        let (id, file) = (op.id(key), self.files.get(op.file).clone());
        let Some(buf) = op.buf.take() else { return Err(Error::Cancelled) };
        op.elsewhere = true;
        let call = Call::ReadVerified { buf, len: op.len, offset: op.transfer.offset() };
        self.call(Job { id, file, call })
    }

    /// Ends a read that the thread has made.
    pub(super) fn end_verified(&mut self, key: usize, buf: AlignedBuf, read: Result<usize>) {
        self.ops[key].buf = Some(buf);
        self.finish(key, read.map(|count| count as u64));
    }
}
