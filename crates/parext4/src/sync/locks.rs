//! Mutexes, readers-writer locks and condition variables. Each lock has a rank, which debug builds
//! check (I10).

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use super::lock_order::{Held, Rank, hold, hold_tried};
use super::model_step;

/// A mutex with a rank.
#[derive(Debug)]
pub(crate) struct Mutex<T> {
    rank: Rank,
    inner: parext4_sync::Mutex<T>,
}

/// Exclusive access to the value of a [`Mutex`].
#[derive(Debug)]
pub(crate) struct MutexGuard<'a, T> {
    inner: parext4_sync::MutexGuard<'a, T>,
    _held: Held,
}

impl<T> Mutex<T> {
    pub(crate) fn new(rank: Rank, value: T) -> Self {
        Self { rank, inner: parext4_sync::Mutex::new(value) }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        model_step();
        let held = hold(self.rank);
        MutexGuard { inner: self.inner.lock(), _held: held }
    }

    /// Acquires the lock if it is free. Does not block, so the caller may hold locks of any rank.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let inner = self.inner.try_lock()?;
        Some(MutexGuard { inner, _held: hold_tried(self.rank) })
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

/// A readers-writer lock with a rank.
#[derive(Debug)]
pub(crate) struct RwLock<T> {
    rank: Rank,
    inner: parext4_sync::RwLock<T>,
}

/// Shared access to the value of an [`RwLock`].
#[derive(Debug)]
pub(crate) struct ReadGuard<'a, T> {
    inner: parext4_sync::RwLockReadGuard<'a, T>,
    _held: Held,
}

/// Exclusive access to the value of an [`RwLock`].
#[derive(Debug)]
pub(crate) struct WriteGuard<'a, T> {
    inner: parext4_sync::RwLockWriteGuard<'a, T>,
    _held: Held,
}

impl<T> RwLock<T> {
    pub(crate) fn new(rank: Rank, value: T) -> Self {
        Self { rank, inner: parext4_sync::RwLock::new(value) }
    }

    pub(crate) fn read(&self) -> ReadGuard<'_, T> {
        model_step();
        let held = hold(self.rank);
        ReadGuard { inner: self.inner.read(), _held: held }
    }

    pub(crate) fn write(&self) -> WriteGuard<'_, T> {
        model_step();
        let held = hold(self.rank);
        WriteGuard { inner: self.inner.write(), _held: held }
    }

    /// Acquires the lock exclusively if it is free. Does not block, so the caller may hold locks of
    /// any rank.
    pub(crate) fn try_write(&self) -> Option<WriteGuard<'_, T>> {
        let inner = self.inner.try_write()?;
        Some(WriteGuard { inner, _held: hold_tried(self.rank) })
    }
}

impl<T> Deref for ReadGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> Deref for WriteGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for WriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

#[cfg(not(shuttle))]
type Inner = parext4_sync::Condvar;
/// Shared with the timers of a simulation, which wake waiting threads.
#[cfg(shuttle)]
type Inner = std::sync::Arc<parext4_sync::Condvar>;

/// A condition variable for a [`Mutex`].
#[derive(Debug, Default)]
pub(crate) struct Condvar(Inner);

impl Condvar {
    pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        self.0.wait(&mut guard.inner);
    }

    /// Blocks while `condition` holds, but at most for `time`. In a model no time passes.
    pub(crate) fn wait_while_for<T>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        condition: impl FnMut(&mut T) -> bool,
        time: Duration,
    ) {
        #[cfg(not(shuttle))]
        self.0.wait_while_for(&mut guard.inner, condition, time);
        #[cfg(shuttle)]
        super::simulated_time::wait_while_for(&self.0, &mut guard.inner, condition, time);
    }

    pub(crate) fn notify_all(&self) {
        model_step();
        self.0.notify_all();
    }

    pub(crate) fn notify_one(&self) {
        model_step();
        self.0.notify_one();
    }
}
