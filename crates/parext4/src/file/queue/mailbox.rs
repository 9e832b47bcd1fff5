//! The parked operations of a queue, and the mailbox in which other threads deliver what the operations wait for.

use parext4_device::QueueWaker;
use rangelock::OwnedRangeGuard;

use crate::error::Result;
use crate::fault::{Fault, guarded};
#[cfg(shuttle)]
use crate::sync::Condvar;
use crate::sync::Rank;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Arc, Mutex};

/// An operation of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OpId {
    pub key: usize,
    /// Unlike the slot, the serial number is never reused.
    pub serial: u64,
}

/// What a parked operation waits for.
#[derive(Debug)]
pub(super) enum Given {
    Range(OwnedRangeGuard),
    Synced(Result<()>),
}

/// The results that other threads have delivered to the operations of one queue.
#[derive(Debug)]
pub(super) struct Parked {
    gifts: Mutex<Gifts>,
    /// Whether the queue's thread is about to sleep and must be woken. A delivering thread delivers first and then
    /// reads the flag; the queue's thread sets the flag first and then checks for deliveries. Both are sequentially
    /// consistent, so at least one of the two threads sees the other's store.
    asleep: AtomicBool,
    /// Whether a waker wants the queue's thread to return even if no operation is over.
    called: AtomicBool,
    waker: QueueWaker,
    #[cfg(shuttle)]
    bell: Bell,
}

#[derive(Debug, Default)]
struct Gifts {
    given: Vec<(OpId, Given)>,
    /// Operations that are over but still queued for a range.
    given_up: Vec<OpId>,
}

impl Gifts {
    /// Stores a delivery, or returns it if the operation has given up.
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

    /// Delivers a result to an operation, from any thread. If the operation is over, drops the result at once,
    /// because the queue may never be harvested again.
    pub(super) fn give(&self, id: OpId, given: Given) {
        let unwanted = self.gifts.lock().add(id, given);
        if unwanted.is_none() {
            self.rouse();
        }
    }

    /// Makes the queue's thread return from its wait, from any thread.
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

    /// Returns true if the queue's thread was called since the last check, and resets the flag.
    pub(super) fn take_call(&self) -> bool {
        self.called.swap(false, Ordering::SeqCst)
    }

    /// Takes all deliveries.
    pub(super) fn take(&self) -> Vec<(OpId, Given)> {
        std::mem::take(&mut self.gifts.lock().given)
    }

    /// Ends an operation that waits for a range: drops the range now, or when it is granted.
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

    /// Announces that the queue's thread is about to sleep. Returns false if it must not sleep, because a result was
    /// delivered or a waker called it.
    pub(super) fn may_sleep(&self) -> bool {
        self.asleep.store(true, Ordering::SeqCst);
        let idle = !self.called.load(Ordering::SeqCst) && self.gifts.lock().given.is_empty();
        guarded!(Fault::SleepUnchecked, idle, true)
    }

    /// Announces that the queue's thread is awake.
    pub(super) fn awake(&self) {
        self.asleep.store(false, Ordering::Relaxed);
    }
}

/// Makes the thread of an [`IoQueue`](super::IoQueue) return from [`harvest`](super::IoQueue::harvest), from any
/// thread.
///
/// ```
/// # let volume = testkit::volume::scratch();
/// let mut queue = volume.io_queue(8);
/// let waker = queue.waker();
/// std::thread::spawn(move || waker.wake()).join().expect("the thread ends");
/// queue.harvest(true, &mut Vec::new())?;
/// # Ok::<(), parext4::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct IoWaker(Arc<Parked>);

impl IoWaker {
    pub(super) fn new(parked: &Arc<Parked>) -> Self {
        Self(Arc::clone(parked))
    }

    /// Makes the blocked harvest return, or else the next one that would block, even if no operation is over. The
    /// queue's thread then sees everything that the caller wrote before. Wakes are not counted: one return may answer
    /// several.
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
