//! The limit on the number of threads that write to the page cache, or write it back, at a time.
//!
//! This module blocks a thread that would exceed the limit. Invariant: the cache has memory for
//! each admitted writer beside the dirty pages. Without that, a writer could wait for memory while
//! it holds its range, and the dirty pages that would free memory could be in that range.

use crate::fault::{Fault, guarded};
use crate::stripes::{Padded, number_of_thread};
use crate::sync::Rank;
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{Condvar, Mutex};

/// Maximum number of shards. More shards hardly reduce contention.
const MAX_SHARDS: u32 = 32;

/// A counting semaphore in shards, so that threads rarely contend. A thread has its own shard and
/// tries the remaining shards only if its own is full.
#[derive(Debug)]
pub struct WriterLimit(Box<[Padded<LimitShard>]>);

#[derive(Debug)]
struct LimitShard {
    free: AtomicU32,
    waiting: AtomicU32,
    lock: Mutex<()>,
    freed: Condvar,
}

/// A slot of the limit. Dropping it releases the slot.
#[derive(Debug)]
#[must_use]
pub struct WriterSlot<'a>(&'a LimitShard);

impl WriterLimit {
    /// Returns a limit of about `limit` slots, and at least one.
    #[must_use]
    pub fn new(limit: u32) -> Self {
        let shards = (limit / 8).clamp(1, MAX_SHARDS);
        Self((0..shards).map(|_| Padded(LimitShard::new((limit / shards).max(1)))).collect())
    }

    /// Acquires a slot. Blocks while all slots are in use. The caller holds no range and no slot.
    pub fn acquire(&self) -> WriterSlot<'_> {
        let own = number_of_thread() % self.0.len();
        let (before, from_own) = self.0.split_at(own);
        match from_own.iter().chain(before).find(|shard| shard.try_acquire()) {
            Some(shard) => WriterSlot(shard),
            None => {
                self.0[own].acquire_slow();
                WriterSlot(&self.0[own])
            }
        }
    }
}

impl LimitShard {
    fn new(slots: u32) -> Self {
        Self {
            free: AtomicU32::new(slots),
            waiting: AtomicU32::new(0),
            lock: Mutex::new(Rank::Leaf, ()),
            freed: Condvar::default(),
        }
    }

    fn try_acquire(&self) -> bool {
        let one_less = |free: u32| free.checked_sub(1);
        self.free.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_ok()
    }

    #[cold]
    fn acquire_slow(&self) {
        let mut lock = self.lock.lock();
        // All accesses to `free` and `waiting` are SeqCst. So either the releasing thread sees this
        // waiter, or this thread sees the released slot.
        self.waiting.fetch_add(1, Ordering::SeqCst);
        while !self.try_acquire() {
            self.freed.wait(&mut lock);
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Drop for WriterSlot<'_> {
    fn drop(&mut self) {
        let Self(shard) = self;
        shard.free.fetch_add(1, Ordering::SeqCst);
        if guarded!(Fault::SlotFreedUnnotified, shard.waiting.load(Ordering::SeqCst) > 0) {
            // Acquiring the lock guarantees that a thread that found no free slot is already
            // parked, so the notification cannot be lost.
            drop(shard.lock.lock());
            shard.freed.notify_one();
        }
    }
}
