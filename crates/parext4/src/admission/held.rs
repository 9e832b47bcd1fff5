//! The driver of blocking calls: it performs the steps of [`Transfer`] for an operation, blocks
//! until the range is granted, and holds it until the call ends.

use rangelock::{RangeGuard, RangeLock, Request};

use super::transfer::{EndClaim, RangeRequest, Transfer};
use super::{Admission, Granted};
use crate::error::Result;
use crate::inode_ref::{Hold, InodeRef};
use crate::mapping::Runs;
use crate::operation::Operation;
use crate::stats::{ActiveOperation, ActiveOperations};
use crate::sync::{Held, Rank, hold};

/// A range that a blocking call holds, with the plan that was made under it. Dropping it withdraws
/// the claim on the end of the file and releases the range.
#[must_use]
pub(crate) struct HeldRange<'a> {
    pub admission: Admission,
    /// The mapping of the blocks of a write; empty for every other operation.
    pub runs: Runs,
    node: &'a InodeRef,
    claim: EndClaim,
    is_done: bool,
    hold: Hold<&'a RangeLock>,
    // The entry is dropped after the hold is released.
    _here: Option<ActiveOperation<&'a ActiveOperations>>,
    _held: Held,
}

impl<'a> HeldRange<'a> {
    /// Returns the hold, for functions that require one.
    #[inline]
    pub(crate) fn hold(&self) -> &Hold<&'a RangeLock> {
        &self.hold
    }

    /// Releases the range before the end of the call, as only a planted fault does.
    #[inline]
    pub(crate) fn release(&mut self) {
        self.hold.release();
    }

    /// Marks the operation as successful, so an append keeps the bytes that it claimed.
    #[inline]
    pub(crate) fn set_done(&mut self) {
        self.is_done = true;
    }
}

impl Drop for HeldRange<'_> {
    #[inline]
    fn drop(&mut self) {
        self.claim.release(self.node, &mut self.hold, self.is_done);
    }
}

/// A request that is queued for a range, and the entry from which its wait is explained.
struct Queued<'a> {
    request: Request<'a>,
    here: Option<ActiveOperation<&'a ActiveOperations>>,
}

impl InodeRef {
    /// Acquires the range that a blocking call needs: requests it, blocks until it is granted, and
    /// repeats that until the granted range suffices. Returns `None` for a read that begins at or
    /// past the end of the file. `make_coherent` writes back or drops the pages that conflict with
    /// an operation that holds its range. It returns true if that may have changed blocks.
    ///
    /// # Errors
    /// The errors of [`Transfer::request`] and [`Transfer::granted`]. After an error, the call
    /// holds, announces and claims nothing.
    #[inline]
    pub(crate) fn acquire_with<'a>(
        &'a self,
        transfer: &mut Transfer,
        make_coherent: impl Fn(&Self, &Hold<&'a RangeLock>, Operation) -> Result<bool> + Copy,
    ) -> Result<Option<HeldRange<'a>>> {
        loop {
            let queued = match transfer.request(self, |request| Ok(self.queue(&request))) {
                Ok(Some(queued)) => queued,
                Ok(None) => return Ok(None),
                Err(error) => {
                    transfer.withdraw(self);
                    return Err(error);
                }
            };
            let held = hold(Rank::Range);
            let Queued { request, here } = queued;
            let guard = request.wait();
            if let Some(waited) = guard.waited() {
                self.note_wait(waited, here.as_ref());
            }
            if let Some(held) = self.confirm_granted(transfer, guard, (here, held), make_coherent)? {
                return Ok(Some(held));
            }
        }
    }

    /// Acquires the range of an operation that has neither an end to announce nor conflicting
    /// pages. Returns `None` if another operation holds part of it.
    ///
    /// # Errors
    /// A corrupt map.
    pub(crate) fn try_acquire(&self, operation: Operation) -> Result<Option<HeldRange<'_>>> {
        let (mut transfer, held) = (Transfer::new(operation), hold(Rank::Range));
        let ranges = &self.inode.ranges;
        let lock =
            |request: RangeRequest| Ok(ranges.try_lock(request.admission.range, request.admission.mode));
        match transfer.request(self, lock)?.flatten() {
            Some(guard) => self.confirm_granted(&mut transfer, guard, (None, held), |_, _, _| Ok(false)),
            None => Ok(None),
        }
    }

    /// Returns the held range, or `None` if the operation must release it and request again.
    #[inline]
    fn confirm_granted<'a>(
        &'a self,
        transfer: &mut Transfer,
        guard: RangeGuard<'a>,
        (here, held): (Option<ActiveOperation<&'a ActiveOperations>>, Held),
        make_coherent: impl Fn(&Self, &Hold<&'a RangeLock>, Operation) -> Result<bool>,
    ) -> Result<Option<HeldRange<'a>>> {
        let hold = Hold::new(guard);
        let granted = transfer.granted(self, &hold, make_coherent)?;
        Ok(granted.map(|Granted { admission, runs }| HeldRange {
            admission,
            runs,
            node: self,
            claim: transfer.take_claim(),
            is_done: false,
            hold,
            _here: here,
            _held: held,
        }))
    }

    /// Queues for a range without waiting. The lock order applies only when the caller waits.
    #[inline]
    fn queue(&self, &RangeRequest { operation, admission, .. }: &RangeRequest) -> Queued<'_> {
        let here = self.enter(operation, &admission);
        Queued { request: self.inode.ranges.request(admission.range, admission.mode), here }
    }
}
