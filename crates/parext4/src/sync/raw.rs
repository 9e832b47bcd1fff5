//! The model checker's primitives with the interface of `parking_lot`. This module exists only with
//! `--cfg shuttle`.

pub(crate) use shuttle::sync::{atomic, mpsc};
pub(crate) use shuttle::thread;
pub(crate) use shuttle::thread_local;
use std::sync::{Arc, LockResult, TryLockError};

use super::simulated_time::Timer;

/// Returns the guard of a lock. A poisoned lock is accepted only while a failed model is torn down.
fn not_poisoned<T>(result: LockResult<T>) -> T {
    result.unwrap_or_else(|poisoned| {
        assert!(std::thread::panicking(), "no model panics with a lock held");
        poisoned.into_inner()
    })
}

#[derive(Debug)]
pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

/// A guard that holds an `Option`, because the model checker's `Condvar::wait` consumes the guard.
#[derive(Debug)]
pub(crate) struct MutexGuard<'a, T>(Option<shuttle::sync::MutexGuard<'a, T>>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(shuttle::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(Some(not_poisoned(self.0.lock())))
    }

    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(MutexGuard(Some(guard))),
            Err(TryLockError::Poisoned(poisoned)) => Some(MutexGuard(Some(not_poisoned(Err(poisoned))))),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl<T> std::ops::Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.0.as_ref().expect("present outside wait")
    }
}

impl<T> std::ops::DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("present outside wait")
    }
}

#[derive(Debug)]
pub(crate) struct RwLock<T>(shuttle::sync::RwLock<T>);
pub(crate) type RwLockReadGuard<'a, T> = shuttle::sync::RwLockReadGuard<'a, T>;
pub(crate) type RwLockWriteGuard<'a, T> = shuttle::sync::RwLockWriteGuard<'a, T>;

impl<T> RwLock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(shuttle::sync::RwLock::new(value))
    }

    pub(crate) fn read(&self) -> RwLockReadGuard<'_, T> {
        not_poisoned(self.0.read())
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, T> {
        not_poisoned(self.0.write())
    }

    pub(crate) fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        match self.0.try_write() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(not_poisoned(Err(poisoned))),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Condvar(Arc<shuttle::sync::Condvar>);

impl Condvar {
    pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let inner = guard.0.take().expect("present outside wait");
        guard.0 = Some(self.0.wait(inner).expect("no model panics with a lock held"));
    }

    /// Blocks while `condition` holds, and in a simulation at most for `time`. In a model no time
    /// passes.
    pub(crate) fn wait_while_for<T>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        mut condition: impl FnMut(&mut T) -> bool,
        time: std::time::Duration,
    ) {
        let timer = Timer::of_condvar(time, &self.0);
        while !timer.is_over() && condition(guard) {
            self.wait(guard);
        }
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }

    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }
}
