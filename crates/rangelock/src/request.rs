//! A request that has its place in the queue, and its holder something else to do before it waits.

use crate::guard::{Guard, RangeGuard};
use crate::lock::RangeLock;
use crate::slots::Entry;
use crate::wake::Waiter;
use std::fmt;
use std::sync::Arc;

/// A place in the queue of a [`RangeLock`]; see [`RangeLock::request`]. Dropping it gives the place up.
#[must_use = "the place in the queue is given up as soon as the request is dropped"]
pub struct Request<'a> {
    /// `None` once a guard has taken over the place.
    lock: Option<&'a RangeLock>,
    entry: Entry,
    /// `None` if the range was granted at once.
    waiter: Option<Arc<Waiter>>,
}

impl<'a> Request<'a> {
    pub(crate) fn new(lock: &'a RangeLock, entry: Entry, waiter: Option<Arc<Waiter>>) -> Self {
        Self { lock: Some(lock), entry, waiter }
    }

    /// Blocks the thread until the range is granted. At once if no earlier request conflicts.
    pub fn wait(mut self) -> RangeGuard<'a> {
        let waited = self.waiter.take().map(|waiter| waiter.park());
        let lock = self.lock.take().expect("only this call takes it");
        Guard::new(lock, self.entry, waited)
    }
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        match (self.lock, &self.waiter) {
            (None, _) => {}
            (Some(lock), None) => lock.slots().leave(self.entry),
            (Some(lock), Some(waiter)) => lock.slots().give_up(self.entry, waiter),
        }
    }
}

impl fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("range", &self.entry.claim.range)
            .field("mode", &self.entry.claim.mode)
            .finish()
    }
}
