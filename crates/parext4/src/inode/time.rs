//! The pending modification time of an inode, which writers set without the inode's lock.

use parext4_format::inode::{Inode as RawInode, Timestamp};

use super::Inode;
use crate::clock::{Clock, timestamp};
use crate::journal::Handle;
use crate::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use crate::sync::{Arc, MutexGuard};

/// The time of the last write of data, until it is stored in the inode's attributes, and whether
/// the inode is in the list of inodes with lazy times (H25).
///
/// Sequentially consistent: if a thread sets a time and finds the inode listed, the thread that
/// unlists the inode must see the time.
#[derive(Debug)]
#[repr(align(32))] // In one cache line, because each overwrite loads all fields.
pub(super) struct Written {
    time: AtomicI64,
    /// The time that the attributes have, if it was stored by [`store`](Self::store) and none was
    /// set since. Changes only under the lock of the attributes.
    stored: AtomicI64,
    /// Changes only under the lock of the list.
    listed: AtomicBool,
    clock: Clock,
}

impl Written {
    /// No time is pending.
    const NONE: i64 = -1;

    pub(super) fn new(clock: Clock) -> Self {
        Self {
            time: AtomicI64::new(Self::NONE),
            stored: AtomicI64::new(Self::NONE),
            listed: AtomicBool::new(false),
            clock,
        }
    }

    /// Sets the time to now. Returns false if the attributes have this time, or if it or a later
    /// one is pending: as in the kernel, writes between two ticks of the clock give a sync nothing
    /// to commit.
    pub(super) fn set_now(&self) -> bool {
        self.set(self.clock.nanoseconds())
    }

    pub(super) fn clock(&self) -> Clock {
        self.clock
    }

    fn set(&self, now: i64) -> bool {
        // A thread that finds the time stored also finds the transaction that the inode has joined
        // for it.
        if self.stored.load(Ordering::SeqCst) == now {
            return false;
        }
        // The load first avoids writing to the cache line, so that many writers share it until the
        // clock ticks.
        self.time.load(Ordering::SeqCst) < now && self.time.fetch_max(now, Ordering::SeqCst) < now
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.time.load(Ordering::SeqCst) != Self::NONE
    }

    pub(super) fn get(&self) -> Option<Timestamp> {
        time_of(self.time.load(Ordering::SeqCst))
    }

    /// Removes and returns the time. The caller has joined a transaction, holds the lock of the
    /// attributes, stores the time there, and sets no other.
    pub(super) fn store(&self) -> Option<Timestamp> {
        let time = self.remove();
        if time != Self::NONE {
            self.stored.store(time, Ordering::SeqCst);
        }
        time_of(time)
    }

    /// Like [`store`](Self::store), for a caller that may set other times.
    pub(super) fn take(&self) -> Option<Timestamp> {
        self.stored.store(Self::NONE, Ordering::SeqCst);
        time_of(self.remove())
    }

    fn remove(&self) -> i64 {
        if self.is_waiting() { self.time.swap(Self::NONE, Ordering::SeqCst) } else { Self::NONE }
    }

    pub(super) fn is_listed(&self) -> bool {
        self.listed.load(Ordering::SeqCst)
    }

    /// Records whether the inode is listed. Returns what was recorded before. The caller holds the
    /// lock of the list.
    pub(super) fn set_listed(&self, listed: bool) -> bool {
        self.listed.swap(listed, Ordering::SeqCst)
    }
}

fn time_of(nanoseconds: i64) -> Option<Timestamp> {
    (nanoseconds != Written::NONE).then(|| timestamp(nanoseconds))
}

impl Inode {
    /// Like [`core`](Self::core), for setting times: stores the pending time first, so that newer
    /// times replace it.
    pub(crate) fn core_with_times(&self) -> MutexGuard<'_, RawInode> {
        let mut core = self.core();
        if let Some(time) = self.written.take() {
            (core.mtime, core.ctime) = (time, time);
        }
        core
    }

    /// Returns the modification and change times. `core` is the inode's own.
    pub(crate) fn times(&self, core: &RawInode) -> (Timestamp, Timestamp) {
        self.written.get().map_or((core.mtime, core.ctime), |time| (time, time))
    }

    /// Returns the time of the volume's clock.
    pub(crate) fn now(&self) -> Timestamp {
        self.written.clock().now()
    }

    /// Sets the modification and change times to now, under a handle that the inode has joined.
    pub(crate) fn touch_modified(&self) {
        self.written.set_now();
    }

    /// Sets the change time to now, under a handle that the inode has joined.
    pub(crate) fn touch_changed(&self) {
        let now = self.now();
        self.core_with_times().ctime = now;
    }

    /// Like [`touch_modified`](Self::touch_modified), without a transaction (H25). Returns true if
    /// the caller must add the inode to the list of inodes with lazy times.
    pub(crate) fn touch_lazily(&self) -> bool {
        self.written.set_now();
        // Also if the time was pending already: the thread that set it may not have listed the
        // inode yet.
        self.written.is_waiting() && !self.written.is_listed()
    }

    /// Records that the inode is in the list of inodes with lazy times. Returns false if it was in
    /// the list. The caller holds the lock of the list.
    pub(crate) fn list(&self) -> bool {
        !self.written.set_listed(true)
    }

    /// Records that the inode is not in the list, before the caller checks for pending times. Later
    /// times list it again. The caller holds the lock of the list.
    pub(crate) fn unlist(&self) {
        self.written.set_listed(false);
    }

    /// Returns true if a time is pending.
    pub(crate) fn has_lazy_times(&self) -> bool {
        self.written.is_waiting()
    }

    /// Adds the pending time to a transaction.
    pub(crate) fn fold_lazy(self: &Arc<Self>, handle: &Handle<'_>) {
        // Join first: a thread that finds no pending time must find the transaction that includes
        // it.
        self.join(handle);
        self.store_time(&mut self.core());
    }

    /// Stores the pending time, for a caller that sets no other. The inode has joined the
    /// transaction.
    pub(super) fn store_time(&self, core: &mut RawInode) {
        if let Some(time) = self.written.store() {
            (core.mtime, core.ctime) = (time, time);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_waits_until_it_is_taken() {
        let written = Written::new(Clock::system());
        assert_eq!((written.get(), written.take()), (None, None));
        let before = Clock::system().now();
        assert!(written.set_now());
        let time = written.get().unwrap();
        assert!(time >= before && time <= Clock::system().now());
        assert_eq!(written.take(), Some(time));
        assert!(!written.is_waiting());
        assert!(written.set_now(), "a removed time is not pending");
    }

    #[test]
    fn a_stored_time_is_not_set_again_until_another_may_be() {
        let (first, second) = (5, 6);
        let written = Written::new(Clock::system());
        assert!(written.set(first));
        assert!(written.store().is_some());
        assert!(!written.set(first) && !written.is_waiting(), "the attributes have it");
        assert_eq!(written.take(), None);
        assert!(written.set(first), "the caller of `take` may have set another");
        assert!(written.store().is_some());
        assert!(written.set(second), "a later time");
    }
}
