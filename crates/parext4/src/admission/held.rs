//! Holding the range that admission asks for.

use rangelock::{ByteRange, Mode, RangeGuard, Request};

use super::Facts;
use super::{Admission, plan};
use crate::body::Runs;
use crate::error::Result;
use crate::fault::{Fault, planted};
use crate::node::Node;
use crate::operation::Operation;
use crate::stats::{ActiveOperation, ActiveOperations};
use crate::sync::{Held, Rank, hold};

/// A place in the queue for a range, with the plan that asked for it.
#[must_use]
pub(crate) struct Queued<'a> {
    request: Request<'a>,
    here: Option<ActiveOperation<&'a ActiveOperations>>,
}

/// A range that is held, with the plan that was made under it.
#[must_use]
pub(crate) struct HeldRange<'a> {
    pub admission: Admission,
    /// What the blocks of a write are mapped to.
    pub runs: Runs,
    // Before the guard: who sets the size next must not find it announced still (H27).
    pub announced: Option<Announced<'a>>,
    _guard: RangeGuard<'a>,
    // After the guard, so that the range is released before.
    _here: Option<ActiveOperation<&'a ActiveOperations>>,
    _held: Held,
}

impl HeldRange<'_> {
    /// Goes on holding the range, unless the models want to know what that is good for.
    pub(crate) fn unless(self, fault: Fault) -> Option<Self> {
        (!planted(fault)).then_some(self)
    }
}

/// An end announced to appends, until it is dropped.
#[must_use]
pub(crate) struct Announced<'a> {
    node: &'a Node,
    end: u64,
}

impl Drop for Announced<'_> {
    fn drop(&mut self) {
        self.node.inode.tail.lock().withdraw(self.end, self.node.inode.size());
    }
}

impl Node {
    /// Waits until an operation may proceed that does not extend the file, or sets its size. What admission
    /// saw of the file is true as long as the range is held (I2). `settle` prepares what is in the way of an operation that
    /// has its range, and returns whether blocks may have changed by it.
    pub(crate) fn admit_settling(
        &self,
        operation: Operation,
        settle: impl Fn(&Self, Operation) -> Result<bool> + Copy,
    ) -> Result<HeldRange<'_>> {
        loop {
            let queued = self.queue(operation)?;
            // While we waited the file may have changed so that a larger range is needed.
            if let Some(held) = self.wait_settling(operation, queued, settle)? {
                return Ok(held);
            }
        }
    }

    /// As [`admit_settling`](Self::admit_settling), for an operation that extends the file to `end` if it is shorter: that is
    /// announced to appends in the same moment in which the operation gets its place in the queue.
    pub(crate) fn admit_up_to_settling(
        &self,
        operation: Operation,
        end: u64,
        settle: impl Fn(&Self, Operation) -> Result<bool> + Copy,
    ) -> Result<HeldRange<'_>> {
        loop {
            if end <= self.inode.size() {
                let held = self.admit_settling(operation, settle)?;
                // The file may have been cut while we waited.
                if end <= self.inode.size() {
                    return Ok(held);
                }
                continue;
            }
            // The map is loaded before the lock is taken.
            self.engine.map(&self.inode)?;
            let (queued, announced) = {
                let mut tail = self.inode.tail.lock();
                let queued = self.queue(operation)?;
                tail.announce(end);
                (queued, Announced { node: self, end })
            };
            if let Some(held) = self.wait_settling(operation, queued, settle)? {
                return Ok(HeldRange { announced: Some(announced), ..held });
            }
        }
    }

    /// Takes a place in the queue.
    pub(crate) fn queue(&self, operation: Operation) -> Result<Queued<'_>> {
        let admission = self.tentative_plan(operation)?;
        let here = self.enter(operation, &admission);
        // The place in the queue is taken without waiting; the order of locks matters when we wait.
        Ok(Queued { request: self.inode.ranges.request(admission.range, admission.mode), here })
    }

    /// Waits for the range; `None` if by then a larger one is needed, or a shared one exclusively. One that is
    /// larger than needed by then is kept as it is.
    pub(crate) fn wait_settling<'a>(
        &'a self,
        operation: Operation,
        queued: Queued<'a>,
        settle: impl FnOnce(&Self, Operation) -> Result<bool>,
    ) -> Result<Option<HeldRange<'a>>> {
        let held = hold(Rank::Range);
        let Queued { request, here } = queued;
        let guard = request.wait();
        if let Some(waited) = guard.waited() {
            self.note_wait(waited, here.as_ref());
        }
        let confirmed = self.confirm_settling(operation, guard.range(), guard.mode(), settle)?;
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
    pub(crate) fn confirm_settling(
        &self,
        operation: Operation,
        range: ByteRange,
        mode: Mode,
        settle: impl FnOnce(&Self, Operation) -> Result<bool>,
    ) -> Result<Option<(Admission, Runs)>> {
        let plan_now = || -> Result<Option<(Admission, Facts)>> {
            let facts = self.facts(operation)?;
            let admission = plan(operation, &facts.state, self.engine.policy);
            Ok(admission.is_met_by(range, mode).then_some((admission, facts)))
        };
        let mut looked = plan_now()?;
        // What was dirty there has its blocks and states only now.
        if looked.is_some() && settle(self, operation)? {
            looked = plan_now()?;
        }
        let Some((admission, facts)) = looked else { return Ok(None) };
        self.record().admitted(admission.reason, mode, admission.drains);
        Ok(Some((admission, facts.runs)))
    }
}
