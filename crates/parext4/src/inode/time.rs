//! The pending modification time of an inode, which writers set without the inode's lock.

use parext4_format::inode::Timestamp;

use crate::clock::{nanoseconds_now, timestamp};
use crate::sync::atomic::{AtomicBool, AtomicI64, Ordering};

/// The time of the last write of data, until it is stored in the inode's attributes, and whether the inode is in the list of
/// inodes with lazy times (H25).
///
/// Sequentially consistent: if a thread sets a time and finds the inode listed, the thread that unlists the inode must see the
/// time.
#[derive(Debug)]
#[repr(align(16))] // In one cache line, because each overwrite loads both fields.
pub(super) struct Written {
    time: AtomicI64,
    /// Changes only under the lock of the list.
    listed: AtomicBool,
}

impl Written {
    /// No time is pending.
    const NONE: i64 = -1;

    pub(super) fn new() -> Self {
        Self { time: AtomicI64::new(Self::NONE), listed: AtomicBool::new(false) }
    }

    /// Sets the time to now. Returns false if the same time or a later one is pending already.
    pub(super) fn set_now(&self) -> bool {
        let now = nanoseconds_now();
        // The load first avoids writing to the cache line, so that many writers share it until the clock ticks.
        self.time.load(Ordering::SeqCst) < now && self.time.fetch_max(now, Ordering::SeqCst) < now
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.time.load(Ordering::SeqCst) != Self::NONE
    }

    pub(super) fn get(&self) -> Option<Timestamp> {
        time_of(self.time.load(Ordering::SeqCst))
    }

    /// Removes and returns the time. The caller stores it in the attributes.
    pub(super) fn take(&self) -> Option<Timestamp> {
        time_of(if self.is_waiting() { self.time.swap(Self::NONE, Ordering::SeqCst) } else { Self::NONE })
    }

    pub(super) fn is_listed(&self) -> bool {
        self.listed.load(Ordering::SeqCst)
    }

    /// Records whether the inode is listed. Returns what was recorded before. The caller holds the lock of the list.
    pub(super) fn set_listed(&self, listed: bool) -> bool {
        self.listed.swap(listed, Ordering::SeqCst)
    }
}

fn time_of(nanoseconds: i64) -> Option<Timestamp> {
    (nanoseconds != Written::NONE).then(|| timestamp(nanoseconds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::now;

    #[test]
    fn a_time_waits_until_it_is_taken() {
        let written = Written::new();
        assert_eq!((written.get(), written.take()), (None, None));
        let before = now();
        assert!(written.set_now());
        let time = written.get().unwrap();
        assert!(time >= before && time <= now());
        assert_eq!(written.take(), Some(time));
        assert!(!written.is_waiting());
        assert!(written.set_now(), "a removed time is not pending");
    }
}
