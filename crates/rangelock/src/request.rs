//! A request that has its place in the queue, and its holder something else to do before it waits.

use crate::guard::{Guard, RangeGuard};
use crate::lock::RangeLock;
use crate::queue::Claim;
use crate::wake::Waiter;
use std::fmt;
use std::sync::Arc;

/// A place in the queue of a [`RangeLock`]; see [`RangeLock::request`]. Dropping it gives the place up.
#[must_use = "the place in the queue is given up as soon as the request is dropped"]
pub struct Request<'a> {
    /// `None` once a guard has taken over the place.
    lock: Option<&'a RangeLock>,
    claim: Claim,
    /// `None` if the range was granted at once.
    waiter: Option<Arc<Waiter>>,
}

impl<'a> Request<'a> {
    pub(crate) fn new(lock: &'a RangeLock, claim: Claim, waiter: Option<Arc<Waiter>>) -> Self {
        Self { lock: Some(lock), claim, waiter }
    }

    /// Blocks the thread until the range is granted. At once if no earlier request conflicts.
    pub fn wait(mut self) -> RangeGuard<'a> {
        let waited = self.waiter.take().map(|waiter| waiter.park());
        let lock = self.lock.take().expect("only this call takes it");
        Guard::new(lock, self.claim, waited)
    }
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        match (self.lock, &self.waiter) {
            (None, _) => {}
            (Some(lock), None) => lock.release(self.claim),
            (Some(lock), Some(waiter)) => lock.give_up(self.claim, waiter),
        }
    }
}

impl fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request").field("range", &self.claim.range).field("mode", &self.claim.mode).finish()
    }
}
