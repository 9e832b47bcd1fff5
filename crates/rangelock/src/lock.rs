//! The lock: requests take the words of their [`Slots`], or enter their queues, with nothing locked while one waits
//! or wakes others.

#[cfg(shuttle)]
use crate::fault::Fault;
use crate::guard::{Guard, OwnedRangeGuard, RangeGuard};
use crate::queue::Claim;
use crate::request::Request;
use crate::slot::Locked;
use crate::slots::{Entry, Slots, queue_up};
use crate::wake::{Waiter, Waker};
use crate::{ByteRange, Mode};
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Instant;

/// Some ten nanoseconds each.
const RETRIES: usize = if cfg!(shuttle) { 1 } else { 2 };

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
    #[inline]
    pub fn lock(&self, range: ByteRange, mode: Mode) -> RangeGuard<'_> {
        let claim = Claim { range, mode };
        match self.slots.take(claim) {
            Some(entry) => Guard::new(self, entry, None),
            None => acquire_queued(self, claim),
        }
    }

    /// Takes a place in the queue for `range` without waiting. From now on later conflicting requests come
    /// after this one; [`Request::wait`] blocks until it is granted. For callers that must fix the order
    /// under a lock of their own, which they do not want to hold while they wait.
    #[inline]
    pub fn request(&self, range: ByteRange, mode: Mode) -> Request<'_> {
        let claim = Claim { range, mode };
        let (entry, waiter) = match self.slots.take(claim).or_else(|| self.take_soon(claim)) {
            Some(entry) => (entry, None),
            None => self.enqueue(claim, |_| Waker::thread()),
        };
        Request::new(self, entry, waiter)
    }

    /// [`lock`](Self::lock) in [`Mode::Shared`].
    #[inline]
    pub fn shared(&self, range: ByteRange) -> RangeGuard<'_> {
        self.lock(range, Mode::Shared)
    }

    /// [`lock`](Self::lock) in [`Mode::Exclusive`].
    #[inline]
    pub fn exclusive(&self, range: ByteRange) -> RangeGuard<'_> {
        self.lock(range, Mode::Exclusive)
    }

    /// Acquires `range` if no conflicting request holds it or waits for it.
    #[inline]
    #[must_use]
    pub fn try_lock(&self, range: ByteRange, mode: Mode) -> Option<RangeGuard<'_>> {
        let claim = Claim { range, mode };
        match self.slots.take(claim) {
            Some(entry) => Some(Guard::new(self, entry, None)),
            None => self.try_queued(claim).map(|entry| Guard::new(self, entry, None)),
        }
    }

    /// Like [`lock`](Self::lock); the guard keeps the lock alive.
    #[inline]
    pub fn lock_owned(self: &Arc<Self>, range: ByteRange, mode: Mode) -> OwnedRangeGuard {
        let claim = Claim { range, mode };
        match self.slots.take(claim) {
            Some(entry) => Guard::new(Arc::clone(self), entry, None),
            None => acquire_queued(Arc::clone(self), claim),
        }
    }

    /// Like [`try_lock`](Self::try_lock); the guard keeps the lock alive.
    #[inline]
    #[must_use]
    pub fn try_lock_owned(self: &Arc<Self>, range: ByteRange, mode: Mode) -> Option<OwnedRangeGuard> {
        let claim = Claim { range, mode };
        match self.slots.take(claim) {
            Some(entry) => Some(Guard::new(Arc::clone(self), entry, None)),
            None => self.try_queued(claim).map(|entry| Guard::new(Arc::clone(self), entry, None)),
        }
    }

    /// Acquires `range` without blocking: calls `granted` at once and returns `true`, or returns `false` and
    /// lets the thread whose release grants the range call it. That may be one that acquires a range, if it had
    /// to make way for another first.
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
        let entry = self.slots.take(claim).unwrap_or_else(|| {
            let call = |entry| {
                let (lock, granted, since) = (Arc::clone(self), granted.take(), Instant::now());
                Waker::callback(move || {
                    if let Some(granted) = granted {
                        granted(Guard::new(lock, entry, Some(since.elapsed())));
                    }
                })
            };
            self.enqueue(claim, call).0
        });
        let Some(granted) = granted else { return false };
        granted(Guard::new(Arc::clone(self), entry, None));
        true
    }

    /// Whether nobody holds a range or waits for one. Out of date as soon as it returns, unless the caller
    /// keeps new requests away.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.slots.is_idle()
    }

    /// How many requests wait; for statistics, as it looks at each of them.
    #[must_use]
    pub fn waiters(&self) -> usize {
        let mut waiters = Vec::new();
        self.slots.each(|queue| waiters.extend(queue.wakers().map(Arc::as_ptr)));
        // A request may wait in several slots.
        waiters.sort_unstable();
        waiters.dedup();
        waiters.len()
    }

    /// A lock with a defect, to show that the models find it.
    #[cfg(shuttle)]
    #[must_use]
    pub fn with_fault(fault: Option<Fault>) -> Self {
        Self { slots: Slots::new(crate::fault::Planted { fault }) }
    }

    pub(crate) fn slots(&self) -> &Slots {
        &self.slots
    }

    /// Grants `claim` if that takes no queue now or in a moment: many a holder is about to leave, and a queue costs
    /// both of them more. Nobody is passed, as nobody can be waiting.
    #[cold]
    fn take_soon(&self, claim: Claim) -> Option<Entry> {
        if !self.slots.may_be_free_soon(claim) {
            return None;
        }
        (0..RETRIES).find_map(|_| {
            std::hint::spin_loop();
            self.slots.take(claim)
        })
    }

    /// Grants `claim` at once, or else leaves no trace.
    #[cold]
    fn try_queued(&self, claim: Claim) -> Option<Entry> {
        self.slots.enter(claim, |queues, _| grant_all(queues, claim))
    }

    /// Grants `claim` at once, or else makes it wait with what `waker` returns.
    #[cold]
    fn enqueue(&self, claim: Claim, mut waker: impl FnMut(Entry) -> Waker) -> (Entry, Option<Arc<Waiter>>) {
        let mut waiter = None;
        let entry = self.slots.enter(claim, |queues, entry| {
            if !grant_all(queues, claim) {
                let waiter = waiter.get_or_insert_with(|| Arc::new(Waiter::new(waker(entry))));
                let waits_in =
                    queues.iter_mut().filter_map(|queue| queue_up(queue, claim, waiter).then_some(()));
                waiter.add_slots(waits_in.count());
            }
            true
        });
        (entry.expect("it always enters"), waiter)
    }
}

/// Acquires what the words of the slots could not grant.
#[cold]
fn acquire_queued<L: Deref<Target = RangeLock>>(lock: L, claim: Claim) -> Guard<L> {
    if let Some(entry) = lock.take_soon(claim) {
        return Guard::new(lock, entry, None);
    }
    let (entry, waiter) = lock.enqueue(claim, |_| Waker::thread());
    Guard::new(lock, entry, waiter.map(|waiter| waiter.park()))
}

/// Whether nothing blocks `claim` in any of the queues, which grant it then.
fn grant_all(queues: &mut [Locked<'_>], claim: Claim) -> bool {
    let free = !queues.iter().any(|queue| queue.blocks(claim));
    if free {
        queues.iter_mut().for_each(|queue| queue.grant(claim));
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
