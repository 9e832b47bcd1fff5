//! Guards: a held range, which can be narrowed and released.

use crate::lock::RangeLock;
use crate::range::Access;
use crate::table::Placement;
use crate::{ByteRange, Mode};
use std::fmt;
use std::num::NonZeroU64;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

/// A held range of a [`RangeLock`]; dropping it releases the range.
///
/// `L` is the guard's pointer to its lock; see the aliases [`RangeGuard`] and [`OwnedRangeGuard`].
/// A guard may be sent to another thread and dropped there.
#[must_use = "the range is released as soon as the guard is dropped"]
pub struct Guard<L: Deref<Target = RangeLock>> {
    lock: L,
    placement: Placement,
    /// Time that the request waited, in nanoseconds.
    waited: Option<NonZeroU64>,
}

/// A [`Guard`] that borrows its lock.
pub type RangeGuard<'a> = Guard<&'a RangeLock>;

/// A [`Guard`] that keeps its lock alive. It is `'static`, so that it can travel with asynchronous
/// I/O.
pub type OwnedRangeGuard = Guard<Arc<RangeLock>>;

impl<L: Deref<Target = RangeLock>> Guard<L> {
    #[inline]
    pub(crate) fn new(lock: L, placement: Placement, waited: Option<Duration>) -> Self {
        let nanoseconds = |waited: Duration| u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX);
        Self {
            lock,
            placement,
            waited: waited.and_then(|waited| NonZeroU64::new(nanoseconds(waited).max(1))),
        }
    }

    /// Returns the range held.
    #[inline]
    #[must_use]
    pub fn range(&self) -> ByteRange {
        self.placement.access.range
    }

    /// Returns the mode in which the range is held.
    #[inline]
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.placement.access.mode
    }

    /// Returns how long the request waited; `None` if it was granted at once.
    #[inline]
    #[must_use]
    pub fn waited(&self) -> Option<Duration> {
        self.waited.map(|nanoseconds| Duration::from_nanos(nanoseconds.get()))
    }

    /// Returns true if this guard holds a range of `lock`, false if of another lock.
    #[inline]
    #[must_use]
    pub fn is_of(&self, lock: &RangeLock) -> bool {
        std::ptr::eq(&raw const *self.lock, lock)
    }

    /// Converts an exclusive guard to a shared one, without releasing the range in between. No
    /// effect on a shared guard.
    ///
    /// Shared requests that waited only for this guard are granted. A shared request that also
    /// waits for an earlier exclusive one keeps waiting.
    pub fn downgrade(&mut self) {
        self.narrow(Access { mode: Mode::Shared, ..self.placement.access });
    }

    /// Releases the bytes of the range that are not in `to`.
    ///
    /// # Panics
    /// If `to` is not contained in the range held.
    pub fn shrink(&mut self, to: ByteRange) {
        let held = self.placement.access.range;
        assert!(held.contains(&to), "cannot shrink {held:?} to {to:?}");
        self.narrow(Access { range: to, ..self.placement.access });
    }

    fn narrow(&mut self, to: Access) {
        self.placement = self.lock.slots.narrow(self.placement, to);
    }
}

impl<L: Deref<Target = RangeLock>> Drop for Guard<L> {
    #[inline]
    fn drop(&mut self) {
        self.lock.slots.release(self.placement);
    }
}

impl<L: Deref<Target = RangeLock>> fmt::Debug for Guard<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("range", &self.placement.access.range)
            .field("mode", &self.placement.access.mode)
            .field("waited", &self.waited())
            .finish_non_exhaustive()
    }
}
