//! The model checker's locks with the interface of `parking_lot`. This module exists only under
//! `--cfg shuttle`.

use std::ops::{Deref, DerefMut};
use std::sync::{LockResult, TryLockError, TryLockResult};
use std::time::Duration;

use shuttle::sync;
pub use shuttle::sync::{RwLockReadGuard, RwLockWriteGuard};

/// Returns the guard of a lock. A poisoned lock is accepted only while a failed model is torn down.
fn not_poisoned<T>(result: LockResult<T>) -> T {
    result.unwrap_or_else(|poisoned| {
        assert!(std::thread::panicking(), "no model panics with a lock held");
        poisoned.into_inner()
    })
}

/// Like [`not_poisoned`], but returns `None` if another thread holds the lock.
fn tried<T>(result: TryLockResult<T>) -> Option<T> {
    match result {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(not_poisoned(Err(poisoned))),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// A mutex.
#[derive(Debug, Default)]
pub struct Mutex<T>(sync::Mutex<T>);

/// Exclusive access to the value of a [`Mutex`]. Holds an `Option`, because the model checker's
/// `Condvar::wait` consumes the guard.
#[derive(Debug)]
pub struct MutexGuard<'a, T>(Option<sync::MutexGuard<'a, T>>);

impl<T> Mutex<T> {
    /// Returns a mutex that no thread holds.
    pub fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    /// Acquires the mutex. Blocks while another thread holds it.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(Some(not_poisoned(self.0.lock())))
    }

    /// Acquires the mutex, or returns `None` if a thread holds it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        tried(self.0.try_lock()).map(|guard| MutexGuard(Some(guard)))
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.0.as_ref().expect("present outside wait")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("present outside wait")
    }
}

/// A readers-writer lock.
#[derive(Debug, Default)]
pub struct RwLock<T>(sync::RwLock<T>);

impl<T> RwLock<T> {
    /// Returns a lock that no thread holds.
    pub fn new(value: T) -> Self {
        Self(sync::RwLock::new(value))
    }

    /// Acquires the lock for reading. Blocks while another thread holds it for writing.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        not_poisoned(self.0.read())
    }

    /// Acquires the lock for writing. Blocks while another thread holds it.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        not_poisoned(self.0.write())
    }

    /// Acquires the lock for writing, or returns `None` if a thread holds it.
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        tried(self.0.try_write())
    }
}

/// A condition variable for a [`Mutex`].
#[derive(Debug, Default)]
pub struct Condvar(sync::Condvar);

impl Condvar {
    /// Returns a condition variable for which no thread waits.
    pub fn new() -> Self {
        Self::default()
    }

    /// Releases the mutex, blocks until a notification, and acquires the mutex again.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let inner = guard.0.take().expect("present outside wait");
        guard.0 = Some(not_poisoned(self.0.wait(inner)));
    }

    /// Like [`wait`](Self::wait), but the model checker may also end the wait as if `timeout` had
    /// passed.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, timeout: Duration) -> WaitTimeoutResult {
        let inner = guard.0.take().expect("present outside wait");
        let (inner, result) = not_poisoned(self.0.wait_timeout(inner, timeout));
        guard.0 = Some(inner);
        WaitTimeoutResult(result.timed_out())
    }

    /// Wakes one thread that waits.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all threads that wait.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// Whether a wait ended by its timeout.
#[derive(Clone, Copy, Debug)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// Returns true if the wait ended by its timeout.
    pub fn timed_out(self) -> bool {
        self.0
    }
}
