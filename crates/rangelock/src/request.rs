//! A lock request that is queued but not yet waited for.

use crate::guard::{Guard, RangeGuard};
use crate::lock::RangeLock;
use crate::table::Placement;
use crate::wake::Waiter;
use std::fmt;
use std::sync::Arc;

/// A request with a fixed place in the queue of a [`RangeLock`]; see [`RangeLock::request`].
///
/// [`wait`](Self::wait) turns it into a guard. Dropping it cancels the request, whether it is
/// granted by then or not. Cancelling a request that waits takes time linear in the number of
/// requests waiting for the same range.
#[must_use = "dropping the request cancels it"]
pub struct Request<'a> {
    /// The lock; `None` once a guard owns the grant.
    lock: Option<&'a RangeLock>,
    placement: Placement,
    /// The waiter; `None` if the range was granted at once.
    waiter: Option<Arc<Waiter>>,
}

impl<'a> Request<'a> {
    pub(crate) fn new(lock: &'a RangeLock, placement: Placement, waiter: Option<Arc<Waiter>>) -> Self {
        Self { lock: Some(lock), placement, waiter }
    }

    /// Blocks the thread until the range is granted. Returns at once if no earlier request
    /// conflicts.
    pub fn wait(mut self) -> RangeGuard<'a> {
        let waited = self.waiter.take().map(|waiter| waiter.park());
        let lock = self.lock.take().expect("only `wait` takes the lock, and it consumes the request");
        Guard::new(lock, self.placement, waited)
    }
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        match (self.lock, &self.waiter) {
            (None, _) => {}
            (Some(lock), None) => lock.slots.release(self.placement),
            (Some(lock), Some(waiter)) => lock.slots.cancel(self.placement, waiter),
        }
    }
}

impl fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("range", &self.placement.access.range)
            .field("mode", &self.placement.access.mode)
            .finish()
    }
}
