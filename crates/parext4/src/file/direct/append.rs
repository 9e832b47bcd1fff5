//! Appends: any number of threads at once, each record at an offset of its own (H27).

use parext4_format::inode::InodeFlags;

use crate::admission::{HeldRange, Queued};
use crate::allocator::Growth;
use crate::error::Result;
use crate::fault::{Fault, planted};
use crate::file::DirectFile;
use crate::inode::Claim;
use crate::operation::Operation;

/// Bytes claimed at the end of a file, until it is dropped.
struct Claimed<'a> {
    file: &'a DirectFile,
    claim: Claim,
    used: bool,
}

impl Drop for Claimed<'_> {
    fn drop(&mut self) {
        self.file.inode().tail.lock().settle(self.claim, self.used, self.file.size());
    }
}

impl DirectFile {
    /// Writes all of `data` at the end of the file and returns the offset where it went. Appends by several
    /// threads go on in parallel; none is lost or torn, and none overlaps another.
    ///
    /// The size, which must be a multiple of the sector size, and the length of `data` are as for
    /// [`write_at`](Self::write_at). The visible size may cover an append that is still going on before
    /// this one; until it is done it reads as zeros. One that fails while others go on behind it leaves
    /// zeros there, and so does one that waits while the size is set and then goes to the new end. What another write
    /// puts there meanwhile may be overwritten.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at), but append-only files are for this.
    pub fn append(&self, data: &[u8]) -> Result<u64> {
        let _in_flight = self.begin_change(InodeFlags::IMMUTABLE)?;
        if data.is_empty() {
            return Ok(self.size());
        }
        self.append_with(
            data.len() as u64,
            |offset, end| {
                self.check_offset(offset)?;
                Ok(Operation::Write { offset, end })
            },
            |offset, held| self.write_held(data, offset, held, Growth::Append),
        )
    }

    /// Claims `len` bytes at the end, waits until they may be written, and has `write` do that. Returns their offset.
    pub(in crate::file) fn append_with(
        &self,
        len: u64,
        operation: impl Fn(u64, u64) -> Result<Operation>,
        write: impl FnOnce(u64, HeldRange<'_>) -> Result<()>,
    ) -> Result<u64> {
        // The map is loaded before the lock of the tail is taken.
        self.engine().map(self.inode())?;
        loop {
            let (mut claimed, operation, queued) = self.claim(len, &operation)?;
            let Some(held) = self.wait_with(claimed.claim, operation, queued)? else { continue };
            let offset = claimed.claim.offset;
            write(offset, held)?;
            claimed.used = true;
            return Ok(offset);
        }
    }

    /// Waits for the range of a claim; `None` if the size was set meanwhile, so that the end is elsewhere. When a
    /// larger range is needed by then the claim stays, as others may have appended behind it: given up it would leave
    /// a gap.
    fn wait_with<'a>(
        &'a self,
        claim: Claim,
        operation: Operation,
        mut queued: Queued<'a>,
    ) -> Result<Option<HeldRange<'a>>> {
        loop {
            let held = self.node.wait(operation, queued)?;
            let stays = self.inode().tail.lock().holds(claim);
            if held.is_some() || !stays || planted(Fault::ClaimAgain) {
                return Ok(held.filter(|_| stays));
            }
            queued = self.node.queue(operation)?;
        }
    }

    /// Claims `len` bytes at the end and takes a place in the queue for them, in one moment: whoever claims
    /// or extends the file after us also comes after us where our bytes overlap.
    fn claim(
        &self,
        len: u64,
        operation: impl Fn(u64, u64) -> Result<Operation>,
    ) -> Result<(Claimed<'_>, Operation, Queued<'_>)> {
        let mut tail = self.inode().tail.lock();
        let offset = if planted(Fault::AppendAtSize) { self.size() } else { tail.end() };
        let operation = operation(offset, self.end_of(offset, len)?)?;
        let queued = self.node.queue(operation)?;
        let mut claim = tail.claim(len);
        claim.offset = offset;
        Ok((Claimed { file: self, claim, used: false }, operation, queued))
    }
}
