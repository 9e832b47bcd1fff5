//! A request that has its place in the queue, and its holder something else to do before it waits.

use crate::guard::{Guard, RangeGuard};
use crate::lock::RangeLock;
use crate::queue::{Claim, Ticket};
use crate::wake::Parker;
use std::fmt;
use std::sync::Arc;

/// A place in the queue of a [`RangeLock`]; see [`RangeLock::request`]. Dropping it gives the place up.
#[must_use = "the place in the queue is given up as soon as the request is dropped"]
pub struct Request<'a> {
    /// `None` once a guard has taken over the ticket.
    lock: Option<&'a RangeLock>,
    ticket: Ticket,
    claim: Claim,
    parker: Option<Arc<Parker>>,
}

impl<'a> Request<'a> {
    pub(crate) fn new(
        lock: &'a RangeLock,
        ticket: Ticket,
        claim: Claim,
        parker: Option<Arc<Parker>>,
    ) -> Self {
        Self { lock: Some(lock), ticket, claim, parker }
    }

    /// Blocks the thread until the range is granted. At once if no earlier request conflicts.
    pub fn wait(mut self) -> RangeGuard<'a> {
        let waited = self.parker.take().map(|parker| parker.park());
        let lock = self.lock.take().expect("only this call takes it");
        Guard::new(lock, self.ticket, self.claim, waited)
    }
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        if let Some(lock) = self.lock {
            lock.release(self.ticket);
        }
    }
}

impl fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request").field("range", &self.claim.range).field("mode", &self.claim.mode).finish()
    }
}
