//! How many writers may be at work in the page cache at a time, or write it back.
//!
//! A writer holds its range while it waits for memory, and then nobody else gets at pages that are wanted by somebody
//! who waits for that range. So there must always be memory for all that are at work, beside what may be dirty.

use crate::fault::{Fault, planted};
use crate::stripes::{Padded, number_of_thread};
use crate::sync::Rank;
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{Condvar, Mutex};

/// With more parts than these, threads hardly meet less.
const MOST_PARTS: u32 = 32;

/// So many places, in parts so that threads do not meet where there are many. A thread has a part of its own, and looks at
/// the others only when that is full.
#[derive(Debug)]
pub struct WriterLimit(Box<[Padded<LimitShard>]>);

#[derive(Debug)]
struct LimitShard {
    free: AtomicU32,
    waiting: AtomicU32,
    lock: Mutex<()>,
    freed: Condvar,
}

/// A writer at work, until this is dropped.
#[derive(Debug)]
#[must_use]
pub struct AtWork<'a>(&'a LimitShard);

impl WriterLimit {
    /// Lets `most` be at work at a time, or one if that is none.
    #[must_use]
    pub fn new(most: u32) -> Self {
        let parts = (most / 8).clamp(1, MOST_PARTS);
        Self((0..parts).map(|_| Padded(LimitShard::new((most / parts).max(1)))).collect())
    }

    /// Waits until the calling thread may be at work. It holds no range, and is not at work.
    pub fn enter(&self) -> AtWork<'_> {
        let own = number_of_thread() % self.0.len();
        let (before, from_own) = self.0.split_at(own);
        match from_own.iter().chain(before).find(|part| part.take()) {
            Some(part) => AtWork(part),
            None => {
                self.0[own].wait();
                AtWork(&self.0[own])
            }
        }
    }
}

impl LimitShard {
    fn new(places: u32) -> Self {
        Self {
            free: AtomicU32::new(places),
            waiting: AtomicU32::new(0),
            lock: Mutex::new(Rank::Leaf, ()),
            freed: Condvar::default(),
        }
    }

    fn take(&self) -> bool {
        let one_less = |free: u32| free.checked_sub(1);
        self.free.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_ok()
    }

    #[cold]
    fn wait(&self) {
        let mut lock = self.lock.lock();
        // SeqCst, as all of both: who leaves sees it, or this one what was freed.
        self.waiting.fetch_add(1, Ordering::SeqCst);
        while !self.take() {
            self.freed.wait(&mut lock);
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        let Self(part) = self;
        part.free.fetch_add(1, Ordering::SeqCst);
        if part.waiting.load(Ordering::SeqCst) > 0 && !planted(Fault::PlaceFreedUnheard) {
            // By now, who has found none sleeps.
            drop(part.lock.lock());
            part.freed.notify_one();
        }
    }
}
