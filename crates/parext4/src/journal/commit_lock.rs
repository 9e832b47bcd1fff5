//! The lock that lets one thread at a time commit.
//!
//! A thread that waits for a transaction needs the lock only if no other thread commits that
//! transaction first. With a plain mutex it would have to acquire the lock to find out, and could
//! lose it repeatedly to threads that commit newer transactions. With this lock it sleeps until the
//! lock is released, and checks the condition before it competes for the lock (`lock_unless`).
//!
//! The lock does not perform the commit. Invariant: no wake-up is lost, because a thread
//! tries to acquire the lock, and announces that it has released it, under `waiting`.

use crate::fault::{Fault, guarded};
use crate::sync::Rank;
use crate::sync::{Condvar, Mutex, MutexGuard};

/// A value that only the committing thread may access.
#[derive(Debug)]
pub(super) struct CommitLock<T> {
    value: Mutex<T>,
    /// Lock that a thread holds from its attempt to lock `value` until it sleeps, and that is
    /// acquired before `released` is signalled.
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

    /// Acquires the lock. Blocks until it is free.
    pub(super) fn lock(&self) -> CommitGuard<'_, T> {
        let mut waiting = self.waiting.lock();
        loop {
            if let Some(value) = self.value.try_lock() {
                return self.guard(value);
            }
            self.released.wait(&mut waiting);
        }
    }

    /// Acquires the lock, or returns `None` once `is_done` returns true. Blocks until one of them
    /// happens.
    ///
    /// Only the holder of the lock may make `is_done` true, because waiting threads check it again
    /// only after a release.
    pub(super) fn lock_unless(&self, is_done: impl Fn() -> bool) -> Option<CommitGuard<'_, T>> {
        let mut waiting = self.waiting.lock();
        while guarded!(Fault::WaitForTheLog, !is_done(), true) {
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

/// Holds the lock until dropped.
#[derive(Debug)]
#[must_use]
pub(super) struct CommitGuard<'a, T> {
    value: MutexGuard<'a, T>,
    // The last field is dropped last, so a woken thread finds `value` unlocked.
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
            // A failed model is being torn down: its primitives no longer work.
            return;
        }
        drop(self.waiting.lock());
        self.released.notify_all();
    }
}
