//! One place where requests meet: a word as long as that can say who is there, and a queue otherwise.
//!
//! A request that finds the word free writes itself into it, and takes itself out again, in one step each.
//! Whoever finds something else there locks the queue. That *inflates* the slot: what the word says moves into
//! the queue, and the word says so from then on, so the steps of others fail and they come to the queue too.
//! Who unlocks the queue *deflates* the slot if nobody is left there, or only readers of one range.
//!
//! Invariants:
//! - W1: the word is `QUEUED` while the queue is locked, and otherwise if and only if the queue is not empty.
//! - W2: whoever waits is in the queue. So nobody passes a waiter by the word.

use crate::fault::{Fault, Planted};
use crate::queue::{self, Claim};
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

    /// Grants the claim of `word` if the word can say so.
    #[inline(always)]
    pub(crate) fn take(&self, word: u64) -> bool {
        word::take(&self.word, word)
    }

    /// Takes back a grant of the claim of `word` if it is in the word.
    #[inline(always)]
    pub(crate) fn leave(&self, word: u64) -> bool {
        word::leave(&self.word, word)
    }

    /// Whether nobody is there. Sequentially consistent, as [`take`](Self::take) is.
    pub(crate) fn is_free(&self) -> bool {
        self.word.load(Ordering::SeqCst) == FREE
    }

    /// What is held, if the word says that.
    pub(crate) fn held(&self) -> Option<Claim> {
        word::holders(self.word.load(Ordering::Relaxed)).map(|(claim, _)| claim)
    }

    /// Locks the queue, with everything in it.
    pub(crate) fn lock(&self) -> Locked<'_> {
        self.inflate(sync::lock(&self.queue))
    }

    /// Locks the queue if the slot has not retired, which `retired` can tell as soon as nobody can change it.
    pub(crate) fn lock_unless(&self, retired: impl FnOnce() -> bool) -> Option<Locked<'_>> {
        let queue = sync::lock(&self.queue);
        (!retired()).then(|| self.inflate(queue))
    }

    fn inflate<'a>(&'a self, mut queue: MutexGuard<'a, Queue>) -> Locked<'a> {
        // Once it is `QUEUED` only who has the lock changes it.
        if self.word.load(Ordering::Relaxed) != QUEUED {
            // After those who left by the word; and the gate may be looked at next.
            let found = word::holders(self.word.swap(QUEUED, Ordering::SeqCst));
            if let Some((claim, count)) = found.filter(|_| !queue.planted().is(Fault::InflateForgetsHolder)) {
                queue.grant_many(claim, count);
            }
        }
        Locked { word: &self.word, queue, retired: false }
    }
}

/// The locked queue of a slot.
pub(crate) struct Locked<'a> {
    word: &'a AtomicU64,
    queue: MutexGuard<'a, Queue>,
    retired: bool,
}

impl Locked<'_> {
    /// Leaves the empty slot as if somebody were in its queue for ever: no word is taken here any more.
    pub(crate) fn retire(mut self) {
        self.retired = !self.queue.planted().is(Fault::SpreadReopens);
    }

    /// What the word can say instead of the queue, which is empty then.
    fn deflate(&mut self) -> Option<u64> {
        if self.queue.ranges() == 0 || self.queue.planted().is(Fault::DeflatePastWaiters) {
            return Some(FREE);
        }
        // One that is alone would be in the way of the next word as it was of this one. Readers of one range may
        // never all be gone at once.
        let (claim, count) = self.queue.sole().filter(|&(_, count)| count > 1)?;
        let word = word::of_many(claim, count)?;
        self.queue.forget_sole();
        Some(word)
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        if !self.retired
            && let Some(word) = self.deflate()
        {
            // What was done under the lock comes before whoever takes the word.
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
