//! The lock: requests enter and leave the queues of their [`Slots`], with nothing locked while one waits or
//! wakes others.

use crate::fault::Fault;
use crate::guard::{Guard, OwnedRangeGuard, RangeGuard};
use crate::queue::Claim;
use crate::request::Request;
use crate::slots::{self, Slots};
use crate::wake::{Waiter, Waker, wake_all};
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
    slots: Slots,
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
        Guard::new(self, claim, self.acquire(claim))
    }

    /// Takes a place in the queue for `range` without waiting. From now on later conflicting requests come
    /// after this one; [`Request::wait`] blocks until it is granted. For callers that must fix the order
    /// under a lock of their own, which they do not want to hold while they wait.
    pub fn request(&self, range: ByteRange, mode: Mode) -> Request<'_> {
        let claim = Claim { range, mode };
        Request::new(self, claim, self.enqueue(claim, Waker::thread))
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
        self.try_enqueue(claim).then(|| Guard::new(self, claim, None))
    }

    /// Like [`lock`](Self::lock); the guard keeps the lock alive.
    pub fn lock_owned(self: &Arc<Self>, range: ByteRange, mode: Mode) -> OwnedRangeGuard {
        let claim = Claim { range, mode };
        let waited = self.acquire(claim);
        Guard::new(Arc::clone(self), claim, waited)
    }

    /// Like [`try_lock`](Self::try_lock); the guard keeps the lock alive.
    #[must_use]
    pub fn try_lock_owned(self: &Arc<Self>, range: ByteRange, mode: Mode) -> Option<OwnedRangeGuard> {
        let claim = Claim { range, mode };
        self.try_enqueue(claim).then(|| Guard::new(Arc::clone(self), claim, None))
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
        self.enqueue(claim, || {
            let (lock, granted, since) = (Arc::clone(self), granted.take(), Instant::now());
            Waker::callback(move || {
                if let Some(granted) = granted {
                    granted(Guard::new(lock, claim, Some(since.elapsed())));
                }
            })
        });
        let Some(granted) = granted else { return false };
        granted(Guard::new(Arc::clone(self), claim, None));
        true
    }

    /// Whether nobody holds a range or waits for one. Out of date as soon as it returns, unless the caller
    /// keeps new requests away.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let mut idle = true;
        self.slots.everything(|_, queue| idle &= queue.ranges() == 0);
        idle
    }

    /// How many requests hold a range, and how many wait; for statistics, as it looks at each waiter.
    #[must_use]
    pub fn holders_and_waiters(&self) -> (usize, usize) {
        let (mut present, mut waiters) = (0, Vec::new());
        self.slots.everything(|place, queue| {
            queue.each_range(|range, requests| present += requests * usize::from(place.is_home_of(range)));
            waiters.extend(queue.wakers().map(Arc::as_ptr));
        });
        // A request may wait in several slots.
        waiters.sort_unstable();
        waiters.dedup();
        // One that is giving up its place may be counted as a waiter only.
        (present.saturating_sub(waiters.len()), waiters.len())
    }

    /// A lock with a defect, to show that the models find it.
    #[cfg(shuttle)]
    #[must_use]
    pub fn with_fault(fault: Option<Fault>) -> Self {
        Self { slots: Slots::new(crate::fault::Planted { fault }) }
    }

    pub(crate) fn narrow(&self, from: Claim, to: Claim) {
        let mut granted = Vec::new();
        self.slots.each(from.range, |place, queue| {
            if place.is_of(to.range) {
                queue.narrow(from, to, &mut granted);
            } else if !self.slots.planted().is(Fault::ShrinkKeepsSlots) {
                queue.release(from, &mut granted);
            }
        });
        self.wake(granted);
    }

    #[inline]
    pub(crate) fn release(&self, claim: Claim) {
        let mut granted = Vec::new();
        self.slots.each(claim.range, |_, queue| queue.release(claim, &mut granted));
        self.wake(granted);
    }

    /// Gives up the place of a request that `waiter` has waited for, granted meanwhile or not.
    pub(crate) fn give_up(&self, claim: Claim, waiter: &Arc<Waiter>) {
        let mut granted = Vec::new();
        let is_it = |other: &Arc<Waiter>| Arc::ptr_eq(other, waiter);
        self.slots.each(claim.range, |_, queue| queue.give_up(claim, is_it, &mut granted));
        self.wake(granted);
    }

    fn wake(&self, granted: Vec<Arc<Waiter>>) {
        if !granted.is_empty() {
            wake_all(granted, self.slots.planted());
        }
    }

    /// Blocks until `claim` is granted; returns how long it waited.
    #[inline]
    fn acquire(&self, claim: Claim) -> Option<Duration> {
        self.enqueue(claim, Waker::thread).map(|waiter| waiter.park())
    }

    /// Grants `claim` at once, or else leaves no trace.
    fn try_enqueue(&self, claim: Claim) -> bool {
        self.slots.all(claim.range, |queues| {
            let free = !queues.iter().any(|queue| queue.blocks(claim));
            if free {
                queues.iter_mut().for_each(|queue| queue.grant(claim));
            }
            free
        })
    }

    /// Grants `claim` at once, or else makes it wait with what `waker` returns.
    #[inline]
    fn enqueue(&self, claim: Claim, mut waker: impl FnMut() -> Waker) -> Option<Arc<Waiter>> {
        let mut waiter = None;
        self.slots.all(claim.range, |queues| {
            if !queues.iter().any(|queue| queue.blocks(claim)) {
                queues.iter_mut().for_each(|queue| queue.grant(claim));
                return;
            }
            let waiter = waiter.get_or_insert_with(|| Arc::new(Waiter::new(waker())));
            let waits_in =
                queues.iter_mut().filter_map(|queue| slots::enter(queue, claim, waiter).then_some(()));
            waiter.add_slots(waits_in.count());
        });
        waiter
    }
}

impl fmt::Debug for RangeLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (holders, waiters) = self.holders_and_waiters();
        f.debug_struct("RangeLock").field("holders", &holders).field("waiters", &waiters).finish()
    }
}
