//! Queued writes and appends to files whose contents lie in the inode.
//!
//! Such a write waits for the whole file and for a transaction, so the thread for blocking calls
//! makes it. If the contents are in blocks then, the operation continues as on any file. Invariant:
//! while the thread has an operation of a file, it also gets the later ones of the file, so that
//! appends keep the order in which they were submitted.

use parext4_device::AlignedBuf;
use parext4_format::inode::InodeFlags;

use super::super::inline::InlineWrite;
use super::IoQueue;
use super::blocking::{Call, Job};
use super::pending::Kind;
use crate::error::{Error, Result};

impl IoQueue {
    /// Returns true if a write or an append must go through the thread for blocking calls.
    pub(super) fn goes_to_inode(&self, key: usize) -> Result<bool> {
        let file = self.ops[key].file;
        let follows = || self.ops.iter().any(|(_, op)| op.file == file && op.elsewhere);
        Ok(self.inline_writes > 0 && follows() || self.files.get(file).is_inline()?)
    }

    /// Hands a write or an append to the thread for blocking calls.
    pub(super) fn begin_inline(&mut self, key: usize) -> Result<()> {
        if self.ops[key].nowait {
            return Err(Error::WouldBlock("the file's contents lie in the inode"));
        }
        self.start_blocking()?;
        let op = &mut self.ops[key];
        let (id, file) = (op.id(key), self.files.get(op.file).clone());
        let (place, forbidden) = match op.kind {
            Kind::Append => (InlineWrite::DirectAtEnd, InodeFlags::IMMUTABLE),
            _ => (InlineWrite::DirectAt(op.transfer.offset()), file.refusing),
        };
        let Some(buf) = op.buf.take() else { return Err(Error::Cancelled) };
        op.elsewhere = true;
        self.inline_writes += 1;
        let call = Call::WriteInline { buf, len: op.len, place, forbidden };
        self.call(Job { id, file, call })
    }

    /// Ends an operation whose data was written to contents in the inode, at the offset that
    /// `written` has. If the contents are in blocks, continues it.
    pub(super) fn end_inline(
        &mut self,
        key: usize,
        buf: AlignedBuf,
        written: Result<Option<u64>>,
    ) -> Result<()> {
        let op = &mut self.ops[key];
        (op.buf, op.elsewhere) = (Some(buf), false);
        self.inline_writes -= 1;
        let Some(offset) = written? else { return self.advance(key, None) };
        let result = if op.kind == Kind::Append { offset } else { op.len as u64 };
        self.finish(key, Ok(result));
        Ok(())
    }
}
