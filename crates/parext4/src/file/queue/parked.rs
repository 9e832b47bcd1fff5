//! Where operations of a queue wait for what other threads will give them.

use parext4_device::QueueWaker;
use rangelock::OwnedRangeGuard;

use crate::error::Result;
use crate::lock_order::Rank;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};

/// An operation of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OpId {
    pub key: usize,
    /// The slot may be used again; this is not.
    pub serial: u64,
}

/// What an operation was waiting for.
#[derive(Debug)]
pub(super) enum Given {
    Range(OwnedRangeGuard),
    Synced(Result<()>),
}

/// What other threads have given to the operations of one queue.
#[derive(Debug)]
pub(super) struct Parked {
    given: Mutex<Vec<(OpId, Given)>>,
    /// Whether the queue's thread is about to sleep and wants to be woken. Who gives looks at it after giving,
    /// the queue looks for gifts after setting it; both are sequentially consistent, so one sees the other.
    asleep: AtomicBool,
    waker: QueueWaker,
}

impl Parked {
    pub(super) fn new(waker: QueueWaker) -> Self {
        Self { given: Mutex::new(Rank::Leaf, Vec::new()), asleep: AtomicBool::new(false), waker }
    }

    /// Gives something to an operation, from any thread.
    pub(super) fn give(&self, id: OpId, given: Given) {
        self.given.lock().push((id, given));
        if self.asleep.swap(false, Ordering::SeqCst) {
            self.waker.wake();
        }
    }

    /// Takes all that was given.
    pub(super) fn take(&self) -> Vec<(OpId, Given)> {
        std::mem::take(&mut *self.given.lock())
    }

    /// Announces that the queue's thread goes to sleep; false if it must not, because something was given.
    pub(super) fn may_sleep(&self) -> bool {
        self.asleep.store(true, Ordering::SeqCst);
        self.given.lock().is_empty()
    }

    /// The queue's thread does not sleep.
    pub(super) fn awake(&self) {
        self.asleep.store(false, Ordering::Relaxed);
    }
}
