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
    is_held: Mutex<bool>,
    released: Condvar,
    /// Acquired only by the thread that has set `is_held`.
    value: Mutex<T>,
}

impl<T> CommitLock<T> {
    pub(super) fn new(value: T) -> Self {
        Self {
            is_held: Mutex::new(Rank::Commit, false),
            released: Condvar::default(),
            value: Mutex::new(Rank::Commit, value),
        }
    }

    /// Acquires the lock.
    pub(super) fn lock(&self) -> CommitGuard<'_, T> {
        let mut is_held = self.is_held.lock();
        while *is_held {
            self.released.wait(&mut is_held);
        }
        self.hold(is_held)
    }

    /// Acquires the lock, or returns `None` once `is_done` is true. Only a thread that holds the lock may make it true.
    pub(super) fn lock_unless(&self, is_done: impl Fn() -> bool) -> Option<CommitGuard<'_, T>> {
        let is_done = || is_done() && !planted(Fault::WaitForTheLog);
        let mut is_held = self.is_held.lock();
        while *is_held && !is_done() {
            self.released.wait(&mut is_held);
        }
        (!is_done()).then(|| self.hold(is_held))
    }

    fn hold(&self, mut is_held: MutexGuard<'_, bool>) -> CommitGuard<'_, T> {
        *is_held = true;
        drop(is_held);
        CommitGuard {
            value: self.value.lock(),
            _release: Release { is_held: &self.is_held, released: &self.released },
        }
    }
}

/// The lock, held until this is dropped.
#[derive(Debug)]
#[must_use]
pub(super) struct CommitGuard<'a, T> {
    value: MutexGuard<'a, T>,
    // Dropped last: the next holder finds the value free.
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
    is_held: &'a Mutex<bool>,
    released: &'a Condvar,
}

impl Drop for Release<'_> {
    fn drop(&mut self) {
        if cfg!(shuttle) && std::thread::panicking() {
            // A model that failed is torn down; its primitives work no more.
            return;
        }
        *self.is_held.lock() = false;
        self.released.notify_all();
    }
}
