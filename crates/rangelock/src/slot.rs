//! One slot: a word that holds simple states, and a queue for all other states.
//!
//! A request acquires a free word by one compare-and-swap, and releases it by another. A request that finds another
//! value in the word locks the queue. That *inflates* the slot: the holders in the word move to the queue and the word
//! becomes [`QUEUED`], so that the compare-and-swaps of other threads fail and they use the queue, too. Unlocking the
//! queue *deflates* the slot if the queue is empty, or holds only shared holders of one range.
//!
//! Invariants:
//! - W1: the word is `QUEUED` while the queue is locked. While it is unlocked, the word is `QUEUED` if and only if the
//!   queue is not empty.
//! - W2: all waiting requests are in the queue, so no request passes a waiter by the word.

use crate::fault::{Fault, Planted};
use crate::queue;
use crate::range::Access;
use crate::sync::{self, AtomicU64, Mutex, MutexGuard, Ordering};
use crate::wake::Waiter;
use crate::word::{self, FREE, QUEUED};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

pub(crate) type Queue = queue::Queue<Arc<Waiter>>;

/// A slot, alone in its cache line.
#[derive(Default)]
#[repr(align(64))]
pub(crate) struct Slot {
    word: AtomicU64,
    queue: Mutex<Queue>,
}

impl Slot {
    pub(crate) fn new(planted: Planted) -> Self {
        Self { word: AtomicU64::new(FREE), queue: Mutex::new(Queue::new(planted)) }
    }

    /// Grants the access of `word` in the slot's word. Returns false if the slot's word cannot hold it now.
    #[inline(always)]
    pub(crate) fn try_acquire(&self, word: u64) -> bool {
        word::try_acquire(&self.word, word)
    }

    /// Releases the access of `word`. Returns false if it is in the queue instead.
    #[inline(always)]
    pub(crate) fn try_release(&self, word: u64) -> bool {
        word::try_release(&self.word, word)
    }

    /// Returns true if no request is in the slot. Sequentially consistent, as [`try_acquire`](Self::try_acquire) is.
    pub(crate) fn is_free(&self) -> bool {
        self.word.load(Ordering::SeqCst) == FREE
    }

    /// Returns the access that the word holds, if any.
    pub(crate) fn held(&self) -> Option<Access> {
        word::holders(self.word.load(Ordering::Relaxed)).map(|(access, _)| access)
    }

    /// Inflates the slot and locks its queue.
    pub(crate) fn lock(&self) -> Locked<'_> {
        self.inflate(sync::lock(&self.queue))
    }

    /// Like [`lock`](Self::lock), but returns `None` if the slot has retired. Calls `retired` with the queue locked, so
    /// that its answer cannot change.
    pub(crate) fn lock_unless(&self, retired: impl FnOnce() -> bool) -> Option<Locked<'_>> {
        let queue = sync::lock(&self.queue);
        (!retired()).then(|| self.inflate(queue))
    }

    fn inflate<'a>(&'a self, mut queue: MutexGuard<'a, Queue>) -> Locked<'a> {
        // Only the thread that holds the queue's mutex changes a `QUEUED` word.
        if self.word.load(Ordering::Relaxed) != QUEUED {
            // Synchronizes with releases by the word. Sequentially consistent, because the caller may read the count
            // of wide requests next.
            let found = word::holders(self.word.swap(QUEUED, Ordering::SeqCst));
            if let Some((access, count)) = found.filter(|_| !queue.planted().is(Fault::InflateDropsHolders)) {
                queue.grant_many(access, count);
            }
        }
        Locked { word: &self.word, queue, retired: false }
    }
}

/// The locked queue of a slot. Dropping it deflates and unlocks the slot.
pub(crate) struct Locked<'a> {
    word: &'a AtomicU64,
    queue: MutexGuard<'a, Queue>,
    retired: bool,
}

impl Locked<'_> {
    /// Unlocks the empty queue and leaves the word `QUEUED`, so that it can never be acquired again.
    pub(crate) fn retire(mut self) {
        self.retired = !self.queue.planted().is(Fault::ReuseSingleSlot);
    }

    /// Empties the queue and returns its content as a word, if one word can hold it.
    fn deflate(&mut self) -> Option<u64> {
        if self.queue.ranges() == 0 || self.queue.planted().is(Fault::DeflateInUse) {
            return Some(FREE);
        }
        // A single holder stays in the queue: the next request for another range would inflate the slot again. Several
        // shared holders of one range move to the word, because there may never be a moment without one of them.
        let (access, count) = self.queue.sole().filter(|&(_, count)| count > 1)?;
        let word = word::of_many(access, count)?;
        self.queue.clear_sole();
        Some(word)
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        if !self.retired
            && let Some(word) = self.deflate()
        {
            // Publishes the changes of the queue to the thread that acquires the word next.
            self.word.store(word, Ordering::Release);
        }
    }
}

impl Deref for Locked<'_> {
    type Target = Queue;

    fn deref(&self) -> &Queue {
        &self.queue
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Queue {
        &mut self.queue
    }
}
