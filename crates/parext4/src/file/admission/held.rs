//! Holding the range that admission asks for.

use parext4_format::FileBlock;
use rangelock::{ByteRange, Mode, RangeGuard, Request};

use super::Seen;
use super::{Admission, plan};
use crate::error::Result;
use crate::fault::{Fault, planted};
use crate::file::File;
use crate::file::direct::Runs;
use crate::operation::Operation;
use crate::stats::{Here, Present};
use crate::sync::{Held, Rank, hold};

/// A place in the queue for a range, with the plan that asked for it.
#[must_use]
pub(in crate::file) struct Queued<'a> {
    request: Request<'a>,
    here: Option<Here<&'a Present>>,
}

/// A range that is held, with the plan that was made under it.
#[must_use]
pub(in crate::file) struct HeldRange<'a> {
    pub admission: Admission,
    /// What the blocks of a write are mapped to.
    pub runs: Runs,
    // Before the guard: who sets the size next must not find it announced still (H27).
    pub announced: Option<Announced<'a>>,
    _guard: RangeGuard<'a>,
    // After the guard, so that the range is released before.
    _here: Option<Here<&'a Present>>,
    _held: Held,
}

impl HeldRange<'_> {
    /// Goes on holding the range, unless the models want to know what that is good for.
    pub(in crate::file) fn unless(self, fault: Fault) -> Option<Self> {
        (!planted(fault)).then_some(self)
    }
}

/// An end announced to appends, until it is dropped.
#[must_use]
pub(in crate::file) struct Announced<'a> {
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
    pub(in crate::file) fn admit(&self, operation: Operation) -> Result<HeldRange<'_>> {
        loop {
            let queued = self.queue(operation)?;
            // While we waited the file may have changed so that a larger range is needed.
            if let Some(held) = self.wait(operation, queued)? {
                return Ok(held);
            }
        }
    }

    /// As [`admit`](Self::admit), for an operation that extends the file to `end` if it is shorter: that is
    /// announced to appends in the same moment in which the operation gets its place in the queue.
    pub(in crate::file) fn admit_up_to(&self, operation: Operation, end: u64) -> Result<HeldRange<'_>> {
        loop {
            if end <= self.size() {
                let held = self.admit(operation)?;
                // The file may have been cut while we waited.
                if end <= self.size() {
                    return Ok(held);
                }
                continue;
            }
            // The map is loaded before the lock is taken.
            self.volume().map(self.inode())?;
            let (queued, announced) = {
                let mut tail = self.inode().tail.lock();
                let queued = self.queue(operation)?;
                tail.announce(end);
                (queued, Announced { file: self, end })
            };
            if let Some(held) = self.wait(operation, queued)? {
                return Ok(HeldRange { announced: Some(announced), ..held });
            }
        }
    }

    /// Takes a place in the queue.
    pub(in crate::file) fn queue(&self, operation: Operation) -> Result<Queued<'_>> {
        let admission = self.foresee(operation)?;
        let here = self.enter(operation, &admission);
        // The place in the queue is taken without waiting; the order of locks matters when we wait.
        Ok(Queued { request: self.inode().ranges.request(admission.range, admission.mode), here })
    }

    /// Waits for the range; `None` if by then a larger one is needed, or a shared one exclusively. One that is
    /// larger than needed by then is kept as it is.
    pub(in crate::file) fn wait<'a>(
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
        let confirmed = self.confirm(operation, guard.range(), guard.mode())?;
        Ok(confirmed.map(|(admission, runs)| HeldRange {
            admission,
            runs,
            announced: None,
            _guard: guard,
            _here: here,
            _held: held,
        }))
    }

    /// The plan for `operation` as it is now that `range` is held in `mode` and the pages in its way are settled, and
    /// what the blocks of a write are mapped to; `None` if that is not enough.
    pub(in crate::file) fn confirm(
        &self,
        operation: Operation,
        range: ByteRange,
        mode: Mode,
    ) -> Result<Option<(Admission, Runs)>> {
        let look = || -> Result<Option<(Admission, Seen)>> {
            let seen = self.observe(operation)?;
            let admission = plan(operation, &seen.state, self.volume().policy);
            Ok(admission.is_met_by(range, mode).then_some((admission, seen)))
        };
        let mut looked = look()?;
        // What was dirty there has its blocks and states only now.
        if looked.is_some() && self.make_coherent(operation)? {
            looked = look()?;
        }
        let Some((admission, seen)) = looked else { return Ok(None) };
        self.record().admitted(admission.reason, mode, admission.drains);
        Ok(Some((admission, seen.runs)))
    }

    /// The blocks that a range of bytes touches: the first, and how many.
    pub(in crate::file) fn blocks_of(&self, range: ByteRange) -> (u32, u32) {
        let block_size = self.volume().block_size();
        let first = range.start() / block_size;
        let end = range.end().div_ceil(block_size);
        // Requests were checked against the largest file.
        let narrow = |block: u64| FileBlock(u32::try_from(block).unwrap_or(u32::MAX)).get();
        (narrow(first), narrow(end) - narrow(first))
    }
    /// The blocks that lie in `[offset, end)` as a whole; the end is before the start if there are none.
    pub(in crate::file) fn whole_blocks(&self, offset: u64, end: u64) -> (u32, u32) {
        let block_size = self.volume().block_size();
        let narrow = |block: u64| u32::try_from(block).unwrap_or(u32::MAX);
        (narrow(offset.div_ceil(block_size)), narrow(end / block_size))
    }
}
