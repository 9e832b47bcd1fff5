//! [`RangeLock`], and how a request enters the queues of its slots. The module `acquire` has the
//! public methods that acquire ranges.

use crate::range::Access;
use crate::slot::Locked;
use crate::slots::{Slots, grant_or_wait};
use crate::table::Placement;
use crate::wake::{Waiter, Waker};
use std::fmt;
use std::sync::Arc;

/// Attempts to acquire a word before a request queues; about ten nanoseconds each.
const RETRIES: usize = if cfg!(shuttle) { 1 } else { 2 };

/// A lock over the byte offsets `0..u64::MAX`. Each guard holds one [`ByteRange`](crate::ByteRange)
/// in one [`Mode`](crate::Mode).
///
/// Two requests *conflict* if their ranges overlap and at least one is
/// [`Mode::Exclusive`](crate::Mode::Exclusive).
///
/// # Fairness
///
/// A request waits for every earlier request that conflicts with it, granted or waiting, and for no
/// other request. So conflicting requests are granted in the order in which they arrived. Small
/// requests that keep arriving cannot starve a request for the whole file.
///
/// A request *arrives* when the method that makes it enters it into the lock, at some moment
/// between call and return. Two requests that the program orders (the call for one returned before
/// the call for the other began, as seen by happens-before) arrive in that order.
///
/// # Memory order
///
/// The release of a range happens before the return of a conflicting request that is granted later,
/// so everything that the earlier holder wrote is visible to the later holder.
/// [`Guard::shrink`](crate::Guard::shrink) releases the bytes that it removes, and
/// [`Guard::downgrade`](crate::Guard::downgrade) publishes the holder's writes to shared holders
/// that are granted later. Nothing is promised between two shared holders, nor between a holder and
/// a [`try_lock`](Self::try_lock) that returns `None`.
///
/// # Blocking
///
/// Only [`lock`](Self::lock), [`shared`](Self::shared), [`exclusive`](Self::exclusive),
/// [`lock_owned`](Self::lock_owned) and [`Request::wait`](crate::Request::wait) wait for other
/// holders. All other calls, and dropping a guard, wait at most for internal mutexes, which are
/// never held while a thread waits or a callback runs. Any call that releases bytes may run
/// callbacks of [`lock_with`](Self::lock_with); so may a call that acquires a range, if it had
/// acquired part of the range and released that part again.
///
/// # Deadlock
///
/// **A thread must not block for a range of a lock while it holds another range of the same lock**,
/// even if the two are disjoint or both shared, and whatever order all threads follow. A request of
/// another thread that spans both ranges may have arrived in between: it waits for the first range,
/// and the second range waits for it.
///
/// A thread that needs two ranges has two ways:
/// - acquire one range that covers both, and [shrink](crate::Guard::shrink) it later;
/// - acquire the second range by [`try_lock`](Self::try_lock) and, if that fails, release the first
///   one before it blocks.
///
/// # Panics and leaks
///
/// There is no poisoning: a guard that is dropped by a panic releases its range. A leaked guard
/// holds its range for ever.
#[derive(Default)]
pub struct RangeLock {
    pub(crate) slots: Slots,
}

impl RangeLock {
    /// Returns a lock without holders. Does not allocate.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns true if no request holds a range or waits. Another thread may change that before the
    /// caller sees the result, unless the caller prevents new requests.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.slots.is_idle()
    }

    /// Returns the number of requests that wait, for statistics: it visits each of them.
    #[must_use]
    pub fn waiters(&self) -> usize {
        let mut waiters = Vec::new();
        self.slots.for_each_queue(|queue| waiters.extend(queue.wakers().map(Arc::as_ptr)));
        // A request may wait in several slots.
        waiters.sort_unstable();
        waiters.dedup();
        waiters.len()
    }

    /// Retries the word if its holder may release it soon, because a queue costs both requests
    /// more. A retry passes no waiter: a slot with a waiter has no holder in its word.
    #[cold]
    pub(crate) fn retry_acquire(&self, access: Access) -> Option<Placement> {
        if !self.slots.is_worth_a_retry(access) {
            return None;
        }
        (0..RETRIES).find_map(|_| {
            std::hint::spin_loop();
            self.slots.try_acquire(access)
        })
    }

    /// Grants `access` through the queues, or changes nothing and returns `None`.
    #[cold]
    pub(crate) fn try_queued(&self, access: Access) -> Option<Placement> {
        self.slots.enter(access, |queues, _| grant_all(queues, access))
    }

    /// Grants `access` through the queues, or queues it with the waker that `waker` returns.
    #[cold]
    pub(crate) fn enqueue(
        &self,
        access: Access,
        mut waker: impl FnMut(Placement) -> Waker,
    ) -> (Placement, Option<Arc<Waiter>>) {
        let mut waiter = None;
        let placement = self.slots.enter(access, |queues, placement| {
            if !grant_all(queues, access) {
                let waiter = waiter.get_or_insert_with(|| Arc::new(Waiter::new(waker(placement))));
                let blocking =
                    queues.iter_mut().filter_map(|q| grant_or_wait(q, access, waiter).then_some(()));
                waiter.add_slots(blocking.count());
            }
            true
        });
        (placement.expect("the closure always enters the queues"), waiter)
    }
}

/// Grants `access` in all queues if no queue blocks it. Returns true if it did.
fn grant_all(queues: &mut [Locked<'_>], access: Access) -> bool {
    let free = !queues.iter().any(|queue| queue.blocks(access));
    if free {
        queues.iter_mut().for_each(|queue| queue.grant(access));
    }
    free
}

impl fmt::Debug for RangeLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RangeLock")
            .field("is_idle", &self.is_idle())
            .field("waiters", &self.waiters())
            .finish()
    }
}
