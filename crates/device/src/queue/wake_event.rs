//! The event that the owner of a queue blocks on, for queues that do not block in the kernel.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

/// A flag that a wake sets, with a condition variable for the thread that waits for it.
///
/// `take` clears the flag. A wake that finds the flag set does nothing more.
#[derive(Debug, Default)]
pub(crate) struct WakeEvent {
    set: AtomicBool,
    lock: Mutex<()>,
    changed: Condvar,
}

impl WakeEvent {
    /// Clears the flag and returns whether it was set.
    pub(crate) fn take(&self) -> bool {
        // The load leaves the cache line shared in the usual case.
        self.is_set() && self.set.swap(false, Ordering::AcqRel)
    }

    /// Returns whether a thread has set the flag since the last `take`.
    pub(crate) fn is_set(&self) -> bool {
        self.set.load(Ordering::Acquire)
    }

    /// Blocks until the flag is set or the time `until` is reached.
    pub(crate) fn wait(&self, until: Option<Instant>) {
        let mut lock = self.lock.lock();
        while !self.is_set() {
            match until {
                None => self.changed.wait(&mut lock),
                Some(until) if self.changed.wait_until(&mut lock, until).timed_out() => return,
                Some(_) => {}
            }
        }
    }
}

impl Wake for WakeEvent {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.set.swap(true, Ordering::AcqRel) {
            // Taking the lock guarantees that a thread that found the flag clear is already parked,
            // so the notification cannot be lost.
            drop(self.lock.lock());
            self.changed.notify_one();
        }
    }
}
