//! The methods of [`RangeLock`] that acquire ranges: by the words of their slots, or else through
//! the queues. A thread that waits, or that wakes other requests, holds no internal lock.

use crate::guard::{Guard, OwnedRangeGuard, RangeGuard};
use crate::lock::RangeLock;
use crate::range::{Access, ByteRange, Mode};
use crate::request::Request;
use crate::wake::Waker;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Instant;

impl RangeLock {
    /// Acquires `range`. Blocks the thread while an earlier conflicting request holds its range or
    /// waits.
    #[inline]
    pub fn lock(&self, range: ByteRange, mode: Mode) -> RangeGuard<'_> {
        let access = Access { range, mode };
        match self.slots.try_acquire(access) {
            Some(placement) => Guard::new(self, placement, None),
            None => acquire_queued(self, access),
        }
    }

    /// Acquires `range` like [`lock`](Self::lock), but returns before it waits. The request has its
    /// place in the queue: conflicting requests that arrive later wait for it. [`Request::wait`]
    /// blocks until the range is granted.
    ///
    /// A caller that fixes the order of requests under a lock of its own can release that lock
    /// before it waits:
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

    /// Acquires `range` and passes the guard to `granted`, without blocking. Returns true if it
    /// called `granted` before it returned. Otherwise the thread whose call unblocks the request
    /// calls it.
    ///
    /// `granted` runs with no internal lock held, so it may use this lock. It must not block: it
    /// delays the thread that runs it, and what it waits for may depend on a callback that the same
    /// thread runs next. Callbacks that become due while a thread runs a callback run after it, not
    /// nested inside it.
    ///
    /// A panic of `granted` propagates into the call that runs it, after all other callbacks that
    /// are due.
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
}

/// Acquires a range through the queues, after the words of its slots did not grant it.
#[cold]
fn acquire_queued<L: Deref<Target = RangeLock>>(lock: L, access: Access) -> Guard<L> {
    if let Some(placement) = lock.retry_acquire(access) {
        return Guard::new(lock, placement, None);
    }
    let (placement, waiter) = lock.enqueue(access, |_| Waker::thread());
    Guard::new(lock, placement, waiter.map(|waiter| waiter.park()))
}
