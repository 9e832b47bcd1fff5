//! The wait queues in which threads block until a page's filling, write-back or pins end.
//!
//! Pages share 64 queues by hash. Callers define the condition to wait for, and change the word.
//! Invariant: no wake-up is lost, because
//!
//! 1. a waiting thread acquires the queue's lock and sets the waiters bit of the word, in one step
//!    with the check that the condition still holds, before it sleeps;
//! 2. the thread that ends the condition clears the bit in the same step as it changes the word.
//!    The thread that drops the last pin clears the bit in a second step, but uses the value that
//!    it found in the first step;
//! 3. if the bit was set, this thread then acquires the queue's lock and notifies. A thread of step
//!    1 already sleeps then.

use super::nodes::Slot;
use super::state::{PageState, WAITERS};
use crate::fault::{Fault, guarded};
use crate::stripes::Padded;
use crate::sync::Rank;
use crate::sync::atomic::Ordering;
use crate::sync::{Condvar, Mutex};

/// The number of queues. Models use 2, so that pages share one more often.
const QUEUES: usize = if cfg!(shuttle) { 2 } else { 64 };

#[derive(Debug)]
pub(super) struct WaitQueues([Padded<WaitQueue>; QUEUES]);

#[derive(Debug)]
struct WaitQueue {
    lock: Mutex<()>,
    changed: Condvar,
}

impl WaitQueues {
    pub fn new() -> Self {
        let queue = || WaitQueue { lock: Mutex::new(Rank::Leaf, ()), changed: Condvar::default() };
        Self(std::array::from_fn(|_| Padded(queue())))
    }

    fn queue(&self, slot: Slot<'_>) -> &WaitQueue {
        // Neighbouring pages use different queues.
        &self.0[slot.id.spread() % QUEUES]
    }

    /// Blocks while `holds` is true of the slot's word.
    #[cold]
    pub fn wait_while(&self, slot: Slot<'_>, holds: impl Fn(PageState) -> bool) {
        let queue = self.queue(slot);
        let mut lock = queue.lock.lock();
        let announce = |word| holds(PageState(word)).then_some(word | WAITERS);
        while slot.word.update(Ordering::Relaxed, announce).is_ok() {
            queue.changed.wait(&mut lock);
        }
    }

    /// Wakes the threads that wait for the slot. `before` is the word before its waiters bit was
    /// cleared.
    pub fn wake(&self, slot: Slot<'_>, before: PageState) {
        if guarded!(Fault::WaitersNotWoken, before.has_waiters()) {
            self.wake_queue(self.queue(slot));
        }
    }

    #[cold]
    fn wake_queue(&self, queue: &WaitQueue) {
        guarded!(Fault::WakeTooEarly, drop(queue.lock.lock()));
        queue.changed.notify_all();
    }

    /// Changes the word, clears its waiters bit, and wakes the threads that wait for the slot.
    /// Returns the previous word.
    pub fn update_and_wake(&self, slot: Slot<'_>, change: impl Fn(PageState) -> PageState) -> PageState {
        // Release: a thread that sees the new word sees the earlier writes of this thread.
        let change = |word| Some(change(PageState(word)).0 & !WAITERS);
        let (Ok(before) | Err(before)) = slot.word.update(Ordering::AcqRel, change);
        self.wake(slot, PageState(before));
        PageState(before)
    }
}
