//! Waking a queue whose thread waits in `harvest`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

/// Makes a waiting [`harvest`](super::Queue::harvest), or else the next waiting one, return.
///
/// Wakes are not counted: one return may answer several.
#[derive(Clone, Debug)]
pub struct QueueWaker(Waker);

impl QueueWaker {
    /// A waker that does what `wake` says, for implementors of [`Queue`](super::Queue).
    pub fn new<W: Wake + Send + Sync + 'static>(wake: Arc<W>) -> Self {
        Self(Waker::from(wake))
    }

    /// Wakes the queue. What was written before is seen by the queue's thread after the harvest.
    pub fn wake(&self) {
        self.0.wake_by_ref();
    }
}

/// What a queue without a kernel behind it waits on.
#[derive(Debug, Default)]
pub(super) struct Bell {
    rung: AtomicBool,
    lock: Mutex<()>,
    changed: Condvar,
}

impl Bell {
    /// Whether it was rung since the last time it was asked.
    pub(super) fn take(&self) -> bool {
        // Looking first leaves the cache line shared.
        self.is_rung() && self.rung.swap(false, Ordering::AcqRel)
    }

    pub(super) fn is_rung(&self) -> bool {
        self.rung.load(Ordering::Acquire)
    }

    /// Sleeps until it is rung or the time has come.
    pub(super) fn wait(&self, until: Option<Instant>) {
        let mut lock = self.lock.lock();
        while !self.is_rung() {
            match until {
                None => self.changed.wait(&mut lock),
                Some(until) if self.changed.wait_until(&mut lock, until).timed_out() => return,
                Some(_) => {}
            }
        }
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.rung.swap(true, Ordering::AcqRel) {
            // Whoever found it silent under the lock sleeps before this gets the lock.
            drop(self.lock.lock());
            self.changed.notify_one();
        }
    }
}
