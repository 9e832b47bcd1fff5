//! Guards: the proof that a range is held, and the way to give it back.

use crate::lock::RangeLock;
use crate::queue::Claim;
use crate::slots::Entry;
use crate::{ByteRange, Mode};
use std::fmt;
use std::num::NonZeroU64;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

/// A held range of a [`RangeLock`]; dropping it releases the range.
///
/// `L` is how the guard refers to its lock; see the two aliases [`RangeGuard`] and [`OwnedRangeGuard`]. A
/// guard may be sent to another thread and released there. A guard that is leaked holds its range forever.
#[must_use = "the range is released as soon as the guard is dropped"]
pub struct Guard<L: Deref<Target = RangeLock>> {
    lock: L,
    entry: Entry,
    /// Nanoseconds.
    waited: Option<NonZeroU64>,
}

/// A guard that borrows its lock.
pub type RangeGuard<'a> = Guard<&'a RangeLock>;

/// A guard that keeps its lock alive: `'static`, for I/O that completes later, elsewhere.
pub type OwnedRangeGuard = Guard<Arc<RangeLock>>;

impl<L: Deref<Target = RangeLock>> Guard<L> {
    #[inline]
    pub(crate) fn new(lock: L, entry: Entry, waited: Option<Duration>) -> Self {
        let nanoseconds = |waited: Duration| u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX);
        Self { lock, entry, waited: waited.and_then(|waited| NonZeroU64::new(nanoseconds(waited).max(1))) }
    }

    /// The range held.
    #[inline]
    #[must_use]
    pub fn range(&self) -> ByteRange {
        self.entry.claim.range
    }

    /// How it is held.
    #[inline]
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.entry.claim.mode
    }

    /// How long the request waited; `None` if it was granted at once.
    #[inline]
    #[must_use]
    pub fn waited(&self) -> Option<Duration> {
        self.waited.map(|nanoseconds| Duration::from_nanos(nanoseconds.get()))
    }

    /// Whether this guard holds a range of `lock`, and not of another lock.
    #[inline]
    #[must_use]
    pub fn is_of(&self, lock: &RangeLock) -> bool {
        std::ptr::eq(&raw const *self.lock, lock)
    }

    /// Turns exclusive into shared without letting go in between; no effect on a shared guard. Shared
    /// requests that waited for this guard alone are granted; one that also waits for an exclusive request
    /// ahead of it waits on.
    pub fn downgrade(&mut self) {
        self.narrow(Claim { mode: Mode::Shared, ..self.entry.claim });
    }

    /// Gives back the parts of the range outside `to` (bytes).
    ///
    /// # Panics
    /// If `to` is not contained in the range held.
    pub fn shrink(&mut self, to: ByteRange) {
        let held = self.entry.claim.range;
        assert!(held.contains(&to), "cannot shrink {held:?} to {to:?}");
        self.narrow(Claim { range: to, ..self.entry.claim });
    }

    fn narrow(&mut self, to: Claim) {
        self.entry = self.lock.slots().narrow(self.entry, to);
    }
}

impl<L: Deref<Target = RangeLock>> Drop for Guard<L> {
    #[inline]
    fn drop(&mut self) {
        self.lock.slots().leave(self.entry);
    }
}

impl<L: Deref<Target = RangeLock>> fmt::Debug for Guard<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("range", &self.entry.claim.range)
            .field("mode", &self.entry.claim.mode)
            .field("waited", &self.waited())
            .finish()
    }
}
