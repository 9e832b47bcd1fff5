//! The lock that lets one thread at a time commit.
//!
//! A thread that waits for a transaction needs the lock only if no other thread commits that transaction first. With a
//! plain mutex it would acquire the lock to find that out, and could lose it again and again to threads that commit newer
//! transactions. So it sleeps until the lock is released, and looks before it competes for the lock.

use crate::fault::{Fault, planted};
use crate::lock_order::Rank;
use crate::sync::{Condvar, Mutex, MutexGuard};

/// A value that the thread which commits has for itself.
#[derive(Debug)]
pub(super) struct CommitLock<T> {
    value: Mutex<T>,
    /// Held while a thread tries to lock `value`, and while one says that it has released it: no wake-up is lost.
    waiting: Mutex<()>,
    released: Condvar,
}

impl<T> CommitLock<T> {
    pub(super) fn new(value: T) -> Self {
        Self {
            value: Mutex::new(Rank::Commit, value),
            waiting: Mutex::new(Rank::Commit, ()),
            released: Condvar::default(),
        }
    }

    /// Acquires the lock.
    pub(super) fn lock(&self) -> CommitGuard<'_, T> {
        let mut waiting = self.waiting.lock();
        loop {
            if let Some(value) = self.value.try_lock() {
                return self.guard(value);
            }
            self.released.wait(&mut waiting);
        }
    }

    /// Acquires the lock, or returns `None` once `is_done` is true. Only a thread that holds the lock may make it true.
    pub(super) fn lock_unless(&self, is_done: impl Fn() -> bool) -> Option<CommitGuard<'_, T>> {
        let mut waiting = self.waiting.lock();
        while !is_done() || planted(Fault::WaitForTheLog) {
            if let Some(value) = self.value.try_lock() {
                return Some(self.guard(value));
            }
            self.released.wait(&mut waiting);
        }
        None
    }

    fn guard<'a>(&'a self, value: MutexGuard<'a, T>) -> CommitGuard<'a, T> {
        CommitGuard { value, _release: Release { waiting: &self.waiting, released: &self.released } }
    }
}

/// The lock, held until this is dropped.
#[derive(Debug)]
#[must_use]
pub(super) struct CommitGuard<'a, T> {
    value: MutexGuard<'a, T>,
    // Dropped last: a thread that wakes finds the value free.
    _release: Release<'a>,
}

impl<T> std::ops::Deref for CommitGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> std::ops::DerefMut for CommitGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

#[derive(Debug)]
struct Release<'a> {
    waiting: &'a Mutex<()>,
    released: &'a Condvar,
}

impl Drop for Release<'_> {
    fn drop(&mut self) {
        if cfg!(shuttle) && std::thread::panicking() {
            // A model that failed is torn down; its primitives work no more.
            return;
        }
        drop(self.waiting.lock());
        self.released.notify_all();
    }
}
