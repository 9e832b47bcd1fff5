//! One slot: a word that holds simple states, and a queue for all other states.
//!
//! A request acquires a free word by one compare-and-swap, and releases it by another. A request
//! that finds another value in the word locks the queue. That *inflates* the slot: the holders in
//! the word move to the queue and the word becomes [`QUEUED`], so that the compare-and-swaps of
//! other threads fail and they use the queue, too. Unlocking the queue *deflates* the slot if the
//! queue is empty, or holds only shared holders of one range.
//!
//! Invariants:
//! - W1: the word is `QUEUED` while the queue is locked. While it is unlocked, the word is `QUEUED`
//!   if and only if the queue is not empty.
//! - W2: all waiting requests are in the queue, so no request passes a waiter by the word.

use crate::fault::Fault;
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
    /// Grants the access of `word` in the slot's word. Returns false if the slot's word cannot hold
    /// it now.
    #[inline(always)]
    pub(crate) fn try_acquire(&self, word: u64) -> bool {
        word::try_acquire(&self.word, word)
    }

    /// Releases the access of `word`. Returns false if it is in the queue instead.
    #[inline(always)]
    pub(crate) fn try_release(&self, word: u64) -> bool {
        word::try_release(&self.word, word)
    }

    /// Returns true if no request is in the slot. The load is sequentially consistent, as that of
    /// [`try_acquire`](Self::try_acquire) is.
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

    /// Like [`lock`](Self::lock), but returns `None` if the slot has retired. Calls `retired` with
    /// the queue locked, so that its answer cannot change.
    pub(crate) fn lock_unless(&self, retired: impl FnOnce() -> bool) -> Option<Locked<'_>> {
        let queue = sync::lock(&self.queue);
        (!retired()).then(|| self.inflate(queue))
    }

    fn inflate<'a>(&'a self, mut queue: MutexGuard<'a, Queue>) -> Locked<'a> {
        // Only the thread that holds the queue's mutex changes a `QUEUED` word.
        if self.word.load(Ordering::Relaxed) != QUEUED {
            // The swap synchronizes with releases by the word. It is sequentially consistent,
            // because the caller may read the count of wide requests next.
            let found = word::holders(self.word.swap(QUEUED, Ordering::SeqCst));
            if let Some((access, count)) = found.filter(|_| !Fault::InflateDropsHolders.is_planted()) {
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
    /// Unlocks the empty queue and leaves the word `QUEUED`, so that it can never be acquired
    /// again.
    pub(crate) fn retire(mut self) {
        self.retired = !Fault::ReuseSingleSlot.is_planted();
    }

    /// Empties the queue and returns its content as a word, if one word can hold it.
    fn deflate(&mut self) -> Option<u64> {
        if self.queue.ranges() == 0 || Fault::DeflateInUse.is_planted() {
            return Some(FREE);
        }
        // A single holder stays in the queue: the next request for another range would inflate the
        // slot again. Several shared holders of one range move to the word, because there may never
        // be a moment without one of them.
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

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::Slot;
    use crate::range::{Access, ByteRange, Mode};
    use crate::wake::{Waiter, Waker};
    use std::sync::Arc;

    /// Returns what the slot's word holds after `grants` were made in its queue.
    fn deflated(grants: &[(Access, u32)]) -> (bool, Option<Access>) {
        let slot = Slot::default();
        let mut queue = slot.lock();
        grants.iter().for_each(|&(access, count)| queue.grant_many(access, count));
        drop(queue);
        (slot.is_free(), slot.held())
    }

    #[test]
    fn only_an_empty_queue_and_several_shared_holders_of_one_range_leave_the_queue() {
        let access = |end, mode| Access { range: ByteRange::new(0, end), mode };
        let (reader, writer) = (access(9, Mode::Shared), access(9, Mode::Exclusive));
        assert_eq!(deflated(&[]), (true, None));
        assert_eq!(deflated(&[(reader, 2)]), (false, Some(reader)));
        assert_eq!(deflated(&[(reader, 14)]), (false, Some(reader)));
        for queued in [
            vec![(reader, 1)],
            vec![(writer, 1)],
            vec![(reader, 15)],
            vec![(reader, 2), (access(8, Mode::Shared), 2)],
        ] {
            assert_eq!(deflated(&queued), (false, None), "{queued:?}");
        }
    }

    #[test]
    fn holders_move_between_word_and_queue_and_are_released_there() {
        let reader = Access { range: ByteRange::new(0, 9), mode: Mode::Shared };
        let slot = Slot::default();
        let word = crate::word::of(reader).unwrap();
        assert!(slot.try_acquire(word) && slot.try_acquire(word));
        let mut queue = slot.lock();
        assert!(queue.sole() == Some((reader, 2)) && !slot.try_release(word));
        queue.release(reader, &mut Vec::new());
        drop(queue);
        assert!(slot.held().is_none() && !slot.try_acquire(word));
        slot.lock().release(reader, &mut Vec::new());
        assert!(slot.is_free() && slot.try_acquire(word) && slot.try_release(word) && slot.is_free());
    }

    #[test]
    fn readers_that_waited_move_to_the_word() {
        let [reader, writer] =
            [Mode::Shared, Mode::Exclusive].map(|mode| Access { range: ByteRange::new(0, 9), mode });
        let (slot, mut granted) = (Slot::default(), Vec::new());
        let mut queue = slot.lock();
        queue.grant(writer);
        for _ in 0..2 {
            queue.wait(reader, Arc::new(Waiter::new(Waker::thread())));
        }
        queue.release(writer, &mut granted);
        drop(queue);
        assert_eq!((granted.len(), slot.held()), (2, Some(reader)));
    }
}
