//! Holding the range that admission asks for.

use parext4_format::FileBlock;
use rangelock::{ByteRange, Mode, RangeGuard, Request};

use super::File;
use super::admission::{self, Admission, FileState, Operation};
use crate::error::Result;
use crate::inode::Tail;
use crate::lock_order::{Held, Rank, hold};
use crate::stats::Here;

/// A place in the queue for a range, with the plan that asked for it.
#[must_use]
pub(super) struct Queued<'a> {
    request: Request<'a>,
    here: Option<Here<'a>>,
}

/// A range that is held, with the plan that was made under it.
#[must_use]
pub(super) struct HeldRange<'a> {
    pub admission: Admission,
    _guard: RangeGuard<'a>,
    // After the guard, so that the range is released before.
    _here: Option<Here<'a>>,
    _held: Held,
}

/// An end announced to appends, until it is dropped.
#[must_use]
pub(super) struct Announced<'a> {
    file: &'a File,
    end: u64,
}

impl Drop for Announced<'_> {
    fn drop(&mut self) {
        self.file.inode().tail.lock().withdraw(self.end, self.file.size());
    }
}

impl File {
    /// Waits until an operation may proceed that does not extend the file, or sets its size. What admission
    /// saw of the file is true as long as the range is held (I2).
    pub(super) fn admit(&self, operation: Operation) -> Result<HeldRange<'_>> {
        loop {
            let state = self.observe(operation, self.inode().tail.lock().is_clean())?;
            let queued = self.queue(operation, &state);
            // While we waited the file may have changed so that a larger range is needed.
            if let Some(held) = self.wait(operation, queued)? {
                return Ok(held);
            }
        }
    }

    /// As [`admit`](Self::admit), for an operation that extends the file to `end` if it is shorter: that is
    /// announced to appends in the same moment in which the operation gets its place in the queue.
    pub(super) fn admit_up_to(
        &self,
        operation: Operation,
        end: u64,
    ) -> Result<(HeldRange<'_>, Option<Announced<'_>>)> {
        loop {
            if end <= self.size() {
                let held = self.admit(operation)?;
                // The file may have been cut while we waited.
                if end <= self.size() {
                    return Ok((held, None));
                }
                continue;
            }
            // The map is loaded before the lock is taken.
            self.volume().map(self.inode())?;
            let (queued, announced) = {
                let mut tail = self.inode().tail.lock();
                let queued = self.queue_under(&tail, operation)?;
                tail.announce(end);
                (queued, Announced { file: self, end })
            };
            if let Some(held) = self.wait(operation, queued)? {
                return Ok((held, Some(announced)));
            }
        }
    }

    /// Takes a place in the queue under the lock of the tail.
    pub(super) fn queue_under(&self, tail: &Tail, operation: Operation) -> Result<Queued<'_>> {
        let state = self.observe(operation, tail.is_clean())?;
        Ok(self.queue(operation, &state))
    }

    fn queue(&self, operation: Operation, state: &FileState) -> Queued<'_> {
        let admission = admission::plan(operation, state, self.volume().policy);
        let here = self.enter(operation, &admission);
        // The place in the queue is taken without waiting; the order of locks matters when we wait.
        Queued { request: self.inode().ranges.request(admission.range, admission.mode), here }
    }

    /// Waits for the range; `None` if by then a larger one is needed, or a shared one exclusively. One that is
    /// larger than needed by then is kept as it is.
    pub(super) fn wait<'a>(
        &'a self,
        operation: Operation,
        queued: Queued<'a>,
    ) -> Result<Option<HeldRange<'a>>> {
        let held = hold(Rank::Range);
        let Queued { request, here } = queued;
        let guard = request.wait();
        if let Some(waited) = guard.waited() {
            self.note_wait(waited, here.as_ref());
        }
        let admission = self.confirm(operation, guard.range(), guard.mode())?;
        Ok(admission.map(|admission| HeldRange { admission, _guard: guard, _here: here, _held: held }))
    }

    /// The plan for `operation` as it is now that `range` is held in `mode`; `None` if that is not enough.
    pub(super) fn confirm(
        &self,
        operation: Operation,
        range: ByteRange,
        mode: Mode,
    ) -> Result<Option<Admission>> {
        let clean = self.inode().tail.lock().is_clean();
        let admission = self.plan(operation, clean)?;
        if !admission.is_met_by(range, mode) {
            return Ok(None);
        }
        self.record().admitted(admission.reason, mode, admission.drains);
        Ok(Some(admission))
    }

    /// What `operation` needs as far as one can see now.
    pub(super) fn plan(&self, operation: Operation, tail_clean: bool) -> Result<Admission> {
        Ok(admission::plan(operation, &self.observe(operation, tail_clean)?, self.volume().policy))
    }

    /// The blocks that a range of bytes touches: the first, and how many.
    pub(super) fn blocks_of(&self, range: ByteRange) -> (u32, u32) {
        let block_size = self.volume().block_size();
        let first = range.start() / block_size;
        let end = range.end().div_ceil(block_size);
        // Requests were checked against the largest file.
        let narrow = |block: u64| FileBlock(u32::try_from(block).unwrap_or(u32::MAX)).get();
        (narrow(first), narrow(end) - narrow(first))
    }
}
