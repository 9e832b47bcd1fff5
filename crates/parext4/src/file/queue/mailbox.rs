//! The mailbox of a queue, in which other threads deliver what its parked operations wait for.

use parext4_device::{AlignedBuf, QueueWaker};
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

/// What a parked operation has waited for.
#[derive(Debug)]
pub(super) enum Delivery {
    Range(OwnedRangeGuard),
    Synced(Result<()>),
    /// Its buffer, and the offset at which the data was written to contents in the inode; `None` if
    /// they are in blocks.
    Inline(AlignedBuf, Result<Option<u64>>),
    /// Its buffer, and the number of bytes that were read and verified.
    Verified(AlignedBuf, Result<usize>),
}

/// The deliveries to the operations of one queue.
#[derive(Debug)]
pub(super) struct Mailbox {
    contents: Mutex<Contents>,
    /// Whether the queue's thread is about to sleep and must be woken. A delivering thread delivers
    /// first and then reads the flag; the queue's thread sets the flag first and then checks for
    /// deliveries. Both are sequentially consistent, so at least one of the two threads sees the
    /// other's store.
    asleep: AtomicBool,
    /// Whether a waker wants the queue's thread to return even if no operation is over.
    interrupted: AtomicBool,
    waker: QueueWaker,
    #[cfg(shuttle)]
    sleep: ModelSleep,
}

#[derive(Debug, Default)]
struct Contents {
    deliveries: Vec<(OpId, Delivery)>,
    /// Operations that are over but still queued for a range.
    canceled: Vec<OpId>,
}

impl Contents {
    /// Stores a delivery, or returns it if the operation is over.
    fn add(&mut self, id: OpId, delivery: Delivery) -> Option<Delivery> {
        match self.canceled.iter().position(|&other| other == id) {
            Some(at) => {
                self.canceled.swap_remove(at);
                Some(delivery)
            }
            None => {
                self.deliveries.push((id, delivery));
                None
            }
        }
    }
}

impl Mailbox {
    pub(super) fn new(waker: QueueWaker) -> Self {
        Self {
            contents: Mutex::new(Rank::Leaf, Contents::default()),
            asleep: AtomicBool::new(false),
            interrupted: AtomicBool::new(false),
            waker,
            #[cfg(shuttle)]
            sleep: ModelSleep { woken: Mutex::new(Rank::Leaf, false), changed: Condvar::default() },
        }
    }

    /// Delivers a result to an operation, from any thread. If the operation is over, drops the
    /// result at once, because the queue may never be harvested again.
    pub(super) fn deliver(&self, id: OpId, delivery: Delivery) {
        let unwanted = self.contents.lock().add(id, delivery);
        if unwanted.is_none() {
            self.wake_thread();
        }
    }

    /// Makes the queue's thread return from its wait, from any thread.
    fn interrupt(&self) {
        self.interrupted.store(true, Ordering::SeqCst);
        self.wake_thread();
    }

    fn wake_thread(&self) {
        if self.asleep.swap(false, Ordering::SeqCst) {
            self.waker.wake();
            #[cfg(shuttle)]
            self.sleep.wake();
        }
    }

    /// Returns true if the queue's thread was interrupted since the last check, and resets the
    /// flag.
    pub(super) fn take_interrupt(&self) -> bool {
        self.interrupted.swap(false, Ordering::SeqCst)
    }

    /// Takes all deliveries.
    pub(super) fn take_all(&self) -> Vec<(OpId, Delivery)> {
        std::mem::take(&mut self.contents.lock().deliveries)
    }

    /// Ends an operation that waits for a range: drops the range now, or when it is granted.
    pub(super) fn cancel(&self, id: OpId) {
        let mut contents = self.contents.lock();
        match contents.deliveries.iter().position(|&(other, _)| other == id) {
            Some(at) => {
                let delivery = contents.deliveries.swap_remove(at);
                drop(contents);
                drop(delivery);
            }
            None => contents.canceled.push(id),
        }
    }

    /// Announces that the queue's thread is about to sleep. Returns false if it must not sleep,
    /// because a result was delivered or a waker interrupted it.
    pub(super) fn may_sleep(&self) -> bool {
        self.asleep.store(true, Ordering::SeqCst);
        let idle = !self.interrupted.load(Ordering::SeqCst) && self.contents.lock().deliveries.is_empty();
        guarded!(Fault::SleepUnchecked, idle, true)
    }

    /// Announces that the queue's thread is awake.
    pub(super) fn awake(&self) {
        self.asleep.store(false, Ordering::Relaxed);
    }
}

/// Makes the thread of an [`IoQueue`](super::IoQueue) return from
/// [`harvest`](super::IoQueue::harvest), from any thread.
///
/// ```
/// # let volume = testkit::volume::scratch();
/// let mut queue = volume.io_queue(8);
/// let waker = queue.waker();
/// std::thread::spawn(move || waker.wake()).join().expect("the thread ends");
/// queue.harvest(&mut Vec::new())?;
/// # Ok::<(), parext4::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct IoWaker(Arc<Mailbox>);

impl IoWaker {
    pub(super) fn new(mailbox: &Arc<Mailbox>) -> Self {
        Self(Arc::clone(mailbox))
    }

    /// Makes the blocked harvest return, or else the next one that would block, even if no
    /// operation is over. The queue's thread then sees everything that the caller wrote before.
    /// Wakes are not counted: one return may answer several.
    pub fn wake(&self) {
        self.0.interrupt();
    }
}

/// Stands for the sleep in the device's queue, which the model checker does not see.
#[cfg(shuttle)]
#[derive(Debug)]
struct ModelSleep {
    woken: Mutex<bool>,
    changed: Condvar,
}

#[cfg(shuttle)]
impl ModelSleep {
    fn wake(&self) {
        *self.woken.lock() = true;
        self.changed.notify_all();
    }
}

#[cfg(shuttle)]
impl Mailbox {
    /// Returns true if a request is on the device, whose queue then sleeps. Otherwise blocks until
    /// the thread is woken.
    pub(super) fn sleep(&self, on_the_device: usize) -> bool {
        if on_the_device > 0 {
            return true;
        }
        let mut woken = self.sleep.woken.lock();
        while !*woken {
            self.sleep.changed.wait(&mut woken);
        }
        *woken = false;
        false
    }
}
