//! Where operations of a queue wait for what other threads will give them.

use parext4_device::QueueWaker;
use rangelock::OwnedRangeGuard;

use crate::error::Result;
use crate::fault::{Fault, planted};
#[cfg(shuttle)]
use crate::sync::Condvar;
use crate::sync::Rank;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Arc, Mutex};

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
    gifts: Mutex<Gifts>,
    /// Whether the queue's thread is about to sleep and wants to be woken. Who gives looks at it after giving,
    /// the queue looks for gifts after setting it; both are sequentially consistent, so one sees the other.
    asleep: AtomicBool,
    /// Whether somebody wants the queue's thread back, whatever is over.
    called: AtomicBool,
    waker: QueueWaker,
    #[cfg(shuttle)]
    bell: Bell,
}

#[derive(Debug, Default)]
struct Gifts {
    given: Vec<(OpId, Given)>,
    /// Operations that are over and still have a place in the queue for a range.
    given_up: Vec<OpId>,
}

impl Gifts {
    /// Takes a gift, or hands it back if nobody wants it any more.
    fn add(&mut self, id: OpId, given: Given) -> Option<Given> {
        match self.given_up.iter().position(|&other| other == id) {
            Some(at) => {
                self.given_up.swap_remove(at);
                Some(given)
            }
            None => {
                self.given.push((id, given));
                None
            }
        }
    }
}

impl Parked {
    pub(super) fn new(waker: QueueWaker) -> Self {
        Self {
            gifts: Mutex::new(Rank::Leaf, Gifts::default()),
            asleep: AtomicBool::new(false),
            called: AtomicBool::new(false),
            waker,
            #[cfg(shuttle)]
            bell: Bell { rung: Mutex::new(Rank::Leaf, false), changed: Condvar::default() },
        }
    }

    /// Gives something to an operation, from any thread. One that is over lets go of it at once, for nobody may
    /// look after the queue any more.
    pub(super) fn give(&self, id: OpId, given: Given) {
        let unwanted = self.gifts.lock().add(id, given);
        if unwanted.is_none() {
            self.rouse();
        }
    }

    /// Has the queue's thread come back from its wait, from any thread.
    fn call(&self) {
        self.called.store(true, Ordering::SeqCst);
        self.rouse();
    }

    fn rouse(&self) {
        if self.asleep.swap(false, Ordering::SeqCst) {
            self.waker.wake();
            #[cfg(shuttle)]
            self.bell.ring();
        }
    }

    /// Whether the queue's thread was called since this was asked last.
    pub(super) fn take_call(&self) -> bool {
        self.called.swap(false, Ordering::SeqCst)
    }

    /// Takes all that was given.
    pub(super) fn take(&self) -> Vec<(OpId, Given)> {
        std::mem::take(&mut self.gifts.lock().given)
    }

    /// An operation that waits for a range is over: lets go of it now, or when it is given.
    pub(super) fn give_up(&self, id: OpId) {
        let mut gifts = self.gifts.lock();
        match gifts.given.iter().position(|&(other, _)| other == id) {
            Some(at) => {
                let gift = gifts.given.swap_remove(at);
                drop(gifts);
                drop(gift);
            }
            None => gifts.given_up.push(id),
        }
    }

    /// Announces that the queue's thread goes to sleep; false if it must not, because something was given or it was
    /// called.
    pub(super) fn may_sleep(&self) -> bool {
        self.asleep.store(true, Ordering::SeqCst);
        let idle = !self.called.load(Ordering::SeqCst) && self.gifts.lock().given.is_empty();
        idle || planted(Fault::SleepUnchecked)
    }

    /// The queue's thread does not sleep.
    pub(super) fn awake(&self) {
        self.asleep.store(false, Ordering::Relaxed);
    }
}

/// Calls the thread of an [`IoQueue`](super::IoQueue) back from [`harvest`](super::IoQueue::harvest), from any thread.
#[derive(Clone, Debug)]
pub struct IoWaker(Arc<Parked>);

impl IoWaker {
    pub(super) fn new(parked: &Arc<Parked>) -> Self {
        Self(Arc::clone(parked))
    }

    /// Has the harvest that waits, or else the next one that would, return though nothing may be over. What was
    /// written before is seen by the queue's thread then. Wakes are not counted: one return may answer several.
    pub fn wake(&self) {
        self.0.call();
    }
}

/// Stands for the sleep in the device's queue, which the model checker does not see.
#[cfg(shuttle)]
#[derive(Debug)]
struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
}

#[cfg(shuttle)]
impl Bell {
    fn ring(&self) {
        *self.rung.lock() = true;
        self.changed.notify_all();
    }
}

#[cfg(shuttle)]
impl Parked {
    /// Sleeps, if nothing is on the device, until it is woken.
    pub(super) fn sleep(&self, on_the_device: usize) {
        let mut rung = self.bell.rung.lock();
        while on_the_device == 0 && !*rung {
            self.bell.changed.wait(&mut rung);
        }
        *rung = false;
    }
}
