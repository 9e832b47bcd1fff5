//! The lock: one mutex around the [`Queue`], which is held only to change the queue, never to wait or wake.

use crate::guard::{Guard, OwnedRangeGuard, RangeGuard};
use crate::queue::{Claim, Queue, Ticket};
use crate::request::Request;
use crate::sync::{self, Mutex, MutexGuard};
use crate::wake::{Parker, Waker, wake_all};
use crate::{ByteRange, Mode};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A lock over the byte offsets `0..u64::MAX`, of which each holder holds one [`ByteRange`].
///
/// Two requests *conflict* if their ranges overlap and at least one is [`Mode::Exclusive`].
///
/// - A request waits for every request that came before it and conflicts with it, whether that one holds
///   or waits itself. Thus conflicting requests are granted in the order in which they came, and a request
///   for the whole file (`[n, infinity)`) cannot be starved by small ones.
/// - A request that conflicts with nobody never waits; a waiter holds up nobody who does not conflict
///   with it.
/// - A guard may be released by another thread than the one that acquired it.
///
/// # Deadlock
///
/// The lock is not recursive: a thread that holds a range and asks for a conflicting one of the same lock
/// waits for itself. More than that: because waiters count, *no* thread may block for a range of a lock while
/// it holds another range of it, not even for a disjoint or a shared one, nor in any fixed order. Another
/// thread's request that spans both may have arrived in between; it waits for the first range, and the
/// second waits for it. So hold one range of a lock at a time. Who needs two takes one that covers both and
/// [shrinks](Guard::shrink) it later, or takes the second with [`try_lock`](Self::try_lock) and, if that
/// fails, lets go of the first before waiting.
#[derive(Default)]
pub struct RangeLock {
    queue: Mutex<Queue<Waker>>,
}

impl RangeLock {
    /// A lock of which nobody holds a range. Allocates nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Acquires `range`; blocks the thread while a conflicting request holds it or waits before this one.
    pub fn lock(&self, range: ByteRange, mode: Mode) -> RangeGuard<'_> {
        let claim = Claim { range, mode };
        let (ticket, waited) = self.acquire(claim);
        Guard::new(self, ticket, claim, waited)
    }

    /// Takes a place in the queue for `range` without waiting. From now on later conflicting requests come
    /// after this one; [`Request::wait`] blocks until it is granted. For callers that must fix the order
    /// under a lock of their own, which they do not want to hold while they wait.
    pub fn request(&self, range: ByteRange, mode: Mode) -> Request<'_> {
        let claim = Claim { range, mode };
        let (ticket, parker) = self.enqueue(claim);
        Request::new(self, ticket, claim, parker)
    }

    /// [`lock`](Self::lock) in [`Mode::Shared`].
    pub fn shared(&self, range: ByteRange) -> RangeGuard<'_> {
        self.lock(range, Mode::Shared)
    }

    /// [`lock`](Self::lock) in [`Mode::Exclusive`].
    pub fn exclusive(&self, range: ByteRange) -> RangeGuard<'_> {
        self.lock(range, Mode::Exclusive)
    }

    /// Acquires `range` if no conflicting request holds it or waits for it.
    #[must_use]
    pub fn try_lock(&self, range: ByteRange, mode: Mode) -> Option<RangeGuard<'_>> {
        let claim = Claim { range, mode };
        let ticket = self.queue().try_request(claim)?;
        Some(Guard::new(self, ticket, claim, None))
    }

    /// Like [`lock`](Self::lock); the guard keeps the lock alive.
    pub fn lock_owned(self: &Arc<Self>, range: ByteRange, mode: Mode) -> OwnedRangeGuard {
        let claim = Claim { range, mode };
        let (ticket, waited) = self.acquire(claim);
        Guard::new(Arc::clone(self), ticket, claim, waited)
    }

    /// Like [`try_lock`](Self::try_lock); the guard keeps the lock alive.
    #[must_use]
    pub fn try_lock_owned(self: &Arc<Self>, range: ByteRange, mode: Mode) -> Option<OwnedRangeGuard> {
        let claim = Claim { range, mode };
        let ticket = self.queue().try_request(claim)?;
        Some(Guard::new(Arc::clone(self), ticket, claim, None))
    }

    /// Acquires `range` without blocking: calls `granted` at once and returns `true`, or returns `false` and
    /// lets the thread whose release grants the range call it.
    ///
    /// `granted` runs with no internal lock held, so it may use this lock. It must not block: it delays the
    /// thread that released, and what it waits for may be granted to a callback that this same thread runs
    /// next. Callbacks that become due while a thread runs one are run by it afterwards, not nested.
    pub fn lock_with(
        self: &Arc<Self>,
        range: ByteRange,
        mode: Mode,
        granted: impl FnOnce(OwnedRangeGuard) + Send + 'static,
    ) -> bool {
        let claim = Claim { range, mode };
        let mut granted = Some(granted);
        let ticket = self.queue().request(claim, |ticket| {
            let (lock, granted, since) = (Arc::clone(self), granted.take(), Instant::now());
            Waker::Callback(Box::new(move || {
                if let Some(granted) = granted {
                    granted(Guard::new(lock, ticket, claim, Some(since.elapsed())));
                }
            }))
        });
        let Some(granted) = granted else { return false };
        granted(Guard::new(Arc::clone(self), ticket, claim, None));
        true
    }

    /// Whether nobody holds a range or waits for one. Out of date as soon as it returns, unless the caller
    /// keeps new requests away.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.queue().is_empty()
    }

    /// How many requests hold a range, and how many wait; for statistics.
    #[must_use]
    pub fn holders_and_waiters(&self) -> (usize, usize) {
        self.queue().holders_and_waiters()
    }

    /// A lock with a defect, to show that the models find it.
    #[cfg(shuttle)]
    #[must_use]
    pub fn with_fault(fault: Option<crate::Fault>) -> Self {
        let lock = Self::new();
        lock.queue().fault = fault;
        lock
    }

    pub(crate) fn narrow(&self, ticket: Ticket, to: Claim) {
        let granted = self.queue().narrow(ticket, to);
        wake_all(granted);
    }

    pub(crate) fn release(&self, ticket: Ticket) {
        let granted = self.queue().release(ticket);
        wake_all(granted);
    }

    /// Blocks until `claim` is granted; returns its ticket and how long it waited.
    fn acquire(&self, claim: Claim) -> (Ticket, Option<Duration>) {
        let (ticket, parker) = self.enqueue(claim);
        (ticket, parker.map(|parker| parker.park()))
    }

    /// Puts `claim` into the queue; the parker, if any, is where to wait for it.
    fn enqueue(&self, claim: Claim) -> (Ticket, Option<Arc<Parker>>) {
        let mut parker = None;
        let ticket = self
            .queue()
            .request(claim, |_| Waker::Thread(Arc::clone(parker.insert(Arc::new(Parker::new())))));
        (ticket, parker)
    }

    fn queue(&self) -> MutexGuard<'_, Queue<Waker>> {
        sync::lock(&self.queue)
    }
}

impl fmt::Debug for RangeLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (holders, waiters) = self.holders_and_waiters();
        f.debug_struct("RangeLock").field("holders", &holders).field("waiters", &waiters).finish()
    }
}
