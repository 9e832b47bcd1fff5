//! [`RangeLock`]: acquires ranges by the words of their [`Slots`], or else through the queues. A thread that waits, or
//! that wakes other requests, holds no internal lock.

#[cfg(shuttle)]
use crate::fault::Fault;
use crate::guard::{Guard, OwnedRangeGuard, RangeGuard};
use crate::queue::Access;
use crate::request::Request;
use crate::slot::Locked;
use crate::slots::{Slots, grant_or_wait};
use crate::table::Placement;
use crate::wake::{Waiter, Waker};
use crate::{ByteRange, Mode};
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Instant;

/// Attempts to acquire a word before a request queues; about ten nanoseconds each.
const RETRIES: usize = if cfg!(shuttle) { 1 } else { 2 };

/// A lock over the byte offsets `0..u64::MAX`. Each guard holds one [`ByteRange`] in one [`Mode`].
///
/// Two requests *conflict* if their ranges overlap and at least one is [`Mode::Exclusive`].
///
/// # Fairness
///
/// A request waits for every earlier request that conflicts with it, granted or waiting, and for no other request.
/// So conflicting requests are granted in the order in which they arrived. Small requests that keep arriving cannot
/// starve a request for the whole file.
///
/// A request *arrives* when the method that makes it enters it into the lock, at some moment between call and return.
/// Two requests that the program orders (the call for one returned before the call for the other began, as seen by
/// happens-before) arrive in that order.
///
/// # Memory order
///
/// The release of a range happens before the return of a conflicting request that is granted later, so everything
/// that the earlier holder wrote is visible to the later holder. [`Guard::shrink`] releases the bytes that it removes,
/// and [`Guard::downgrade`] publishes the holder's writes to shared holders that are granted later. Nothing
/// is promised between two shared holders, nor between a holder and a [`try_lock`](Self::try_lock) that returns `None`.
///
/// # Blocking
///
/// Only [`lock`](Self::lock), [`shared`](Self::shared), [`exclusive`](Self::exclusive),
/// [`lock_owned`](Self::lock_owned) and [`Request::wait`] wait for other holders. All other calls, and dropping a
/// guard, wait at most for internal mutexes, which are held for a few instructions, or for an allocation. Any call that
/// releases bytes may run callbacks of [`lock_with`](Self::lock_with); so may a call that acquires a range, if it had
/// acquired part of the range and released that part again.
///
/// # Deadlock
///
/// **A thread must not block for a range of a lock while it holds another range of the same lock**, even if the two
/// are disjoint or both shared, and whatever order all threads follow. A request of another thread that spans both
/// ranges may have arrived in between: it waits for the first range, and the second range waits for it.
///
/// A thread that needs two ranges has two ways:
/// - acquire one range that covers both, and [shrink](Guard::shrink) it later;
/// - acquire the second range by [`try_lock`](Self::try_lock) and, if that fails, release the first one before it
///   blocks.
///
/// # Panics and leaks
///
/// There is no poisoning: a guard that is dropped by a panic releases its range. A leaked guard holds its range for
/// ever.
#[derive(Default)]
pub struct RangeLock {
    slots: Slots,
}

impl RangeLock {
    /// Returns a lock without holders. Does not allocate.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Acquires `range`. Blocks the thread while an earlier conflicting request holds its range or waits.
    #[inline]
    pub fn lock(&self, range: ByteRange, mode: Mode) -> RangeGuard<'_> {
        let access = Access { range, mode };
        match self.slots.try_acquire(access) {
            Some(placement) => Guard::new(self, placement, None),
            None => acquire_queued(self, access),
        }
    }

    /// Acquires `range` like [`lock`](Self::lock), but returns before it waits. The request has its place in the queue:
    /// conflicting requests that arrive later wait for it. [`Request::wait`] blocks until the range is granted.
    ///
    /// A caller that fixes the order of requests under a lock of its own can release that lock before it waits:
    ///
    /// ```
    /// # use rangelock::{ByteRange, Mode, RangeLock};
    /// # use std::sync::Mutex;
    /// # let (ranges, end) = (RangeLock::new(), Mutex::new(0));
    /// let request = {
    ///     let mut end = end.lock().unwrap();
    ///     let start = *end;
    ///     *end += 100;
    ///     ranges.request(ByteRange::new(start, *end), Mode::Exclusive)
    /// };
    /// let guard = request.wait();
    /// # assert_eq!(guard.range(), ByteRange::new(0, 100));
    /// ```
    #[inline]
    pub fn request(&self, range: ByteRange, mode: Mode) -> Request<'_> {
        let access = Access { range, mode };
        let acquired = self.slots.try_acquire(access).or_else(|| self.retry_acquire(access));
        let (placement, waiter) = match acquired {
            Some(placement) => (placement, None),
            None => self.enqueue(access, |_| Waker::thread()),
        };
        Request::new(self, placement, waiter)
    }

    /// Acquires `range` in [`Mode::Shared`]; see [`lock`](Self::lock).
    #[inline]
    pub fn shared(&self, range: ByteRange) -> RangeGuard<'_> {
        self.lock(range, Mode::Shared)
    }

    /// Acquires `range` in [`Mode::Exclusive`]; see [`lock`](Self::lock).
    #[inline]
    pub fn exclusive(&self, range: ByteRange) -> RangeGuard<'_> {
        self.lock(range, Mode::Exclusive)
    }

    /// Acquires `range`, or returns `None` if a conflicting request holds its range or waits.
    #[inline]
    #[must_use]
    pub fn try_lock(&self, range: ByteRange, mode: Mode) -> Option<RangeGuard<'_>> {
        let access = Access { range, mode };
        match self.slots.try_acquire(access) {
            Some(placement) => Some(Guard::new(self, placement, None)),
            None => self.try_queued(access).map(|placement| Guard::new(self, placement, None)),
        }
    }

    /// Acquires `range` like [`lock`](Self::lock). The guard keeps the lock alive.
    #[inline]
    pub fn lock_owned(self: &Arc<Self>, range: ByteRange, mode: Mode) -> OwnedRangeGuard {
        let access = Access { range, mode };
        match self.slots.try_acquire(access) {
            Some(placement) => Guard::new(Arc::clone(self), placement, None),
            None => acquire_queued(Arc::clone(self), access),
        }
    }

    /// Acquires `range` like [`try_lock`](Self::try_lock). The guard keeps the lock alive.
    #[inline]
    #[must_use]
    pub fn try_lock_owned(self: &Arc<Self>, range: ByteRange, mode: Mode) -> Option<OwnedRangeGuard> {
        let access = Access { range, mode };
        match self.slots.try_acquire(access) {
            Some(placement) => Some(Guard::new(Arc::clone(self), placement, None)),
            None => self.try_queued(access).map(|placement| Guard::new(Arc::clone(self), placement, None)),
        }
    }

    /// Acquires `range` and passes the guard to `granted`, without blocking. Returns true if it called `granted` before
    /// it returned. Otherwise the thread whose call unblocks the request calls it.
    ///
    /// `granted` runs with no internal lock held, so it may use this lock. It must not block: it delays the thread that
    /// runs it, and what it waits for may depend on a callback that the same thread runs next. Callbacks that become
    /// due while a thread runs a callback run after it, not nested inside it.
    ///
    /// A panic of `granted` propagates into the call that runs it, after all other callbacks that are due.
    pub fn lock_with(
        self: &Arc<Self>,
        range: ByteRange,
        mode: Mode,
        granted: impl FnOnce(OwnedRangeGuard) + Send + 'static,
    ) -> bool {
        let access = Access { range, mode };
        let mut granted = Some(granted);
        let placement = self.slots.try_acquire(access).unwrap_or_else(|| {
            let callback = |placement| {
                let (lock, granted, since) = (Arc::clone(self), granted.take(), Instant::now());
                Waker::callback(move || {
                    if let Some(granted) = granted {
                        granted(Guard::new(lock, placement, Some(since.elapsed())));
                    }
                })
            };
            self.enqueue(access, callback).0
        });
        let Some(granted) = granted else { return false };
        granted(Guard::new(Arc::clone(self), placement, None));
        true
    }

    /// Returns true if no request holds a range or waits. Another thread may change that before the caller sees the
    /// result, unless the caller prevents new requests.
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

    /// Returns a lock with a planted defect, for the models.
    #[cfg(shuttle)]
    #[must_use]
    pub fn with_fault(fault: Option<Fault>) -> Self {
        Self { slots: Slots::new(crate::fault::Planted { fault }) }
    }

    pub(crate) fn slots(&self) -> &Slots {
        &self.slots
    }

    /// Retries the word if its holder may release it soon, because a queue costs both requests more. No waiter is
    /// passed: a slot with a waiter has no holder in its word.
    #[cold]
    fn retry_acquire(&self, access: Access) -> Option<Placement> {
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
    fn try_queued(&self, access: Access) -> Option<Placement> {
        self.slots.enter(access, |queues, _| grant_all(queues, access))
    }

    /// Grants `access` through the queues, or makes it wait with the waker that `waker` returns.
    #[cold]
    fn enqueue(
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

/// Acquires a range that the words of its slots did not grant.
#[cold]
fn acquire_queued<L: Deref<Target = RangeLock>>(lock: L, access: Access) -> Guard<L> {
    if let Some(placement) = lock.retry_acquire(access) {
        return Guard::new(lock, placement, None);
    }
    let (placement, waiter) = lock.enqueue(access, |_| Waker::thread());
    Guard::new(lock, placement, waiter.map(|waiter| waiter.park()))
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
