//! The concurrency primitives, all from here, so that `--cfg shuttle` model-checks the code that ships.

#[cfg(not(shuttle))]
pub(crate) use std::{
    sync::atomic::{AtomicU32, AtomicUsize, Ordering},
    sync::{Condvar, Mutex, MutexGuard, TryLockError},
    thread_local,
};

#[cfg(shuttle)]
pub(crate) use shuttle::{
    sync::atomic::{AtomicU32, AtomicUsize, Ordering},
    sync::{Condvar, Mutex, MutexGuard, TryLockError},
    thread_local,
};

use std::sync::PoisonError;

/// Locks `mutex`. Poison is ignored: the critical sections of this crate run no foreign code, and a guard
/// that is dropped by an unwinding thread must still release its range.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks `mutex`; also returns whether somebody else had it.
pub(crate) fn lock_and_look<T>(mutex: &Mutex<T>) -> (MutexGuard<'_, T>, bool) {
    match mutex.try_lock() {
        Ok(guard) => (guard, false),
        Err(TryLockError::Poisoned(guard)) => (guard.into_inner(), false),
        Err(TryLockError::WouldBlock) => (lock(mutex), true),
    }
}

/// What `mutex` guards, which needs no lock while nobody else can reach it.
pub(crate) fn get_mut<T>(mutex: &mut Mutex<T>) -> &mut T {
    mutex.get_mut().unwrap_or_else(PoisonError::into_inner)
}
