//! The concurrency primitives of this crate. All other modules import them from here, so that
//! `--cfg shuttle` model-checks the code that ships.

pub(crate) use parext4_sync::atomic::{AtomicU64, AtomicUsize, Ordering};
pub(crate) use parext4_sync::std_locks::{Condvar, Mutex, MutexGuard};
pub(crate) use parext4_sync::thread_local;

use std::sync::PoisonError;

/// Locks `mutex` and ignores poison: critical sections of this crate call no user code, and a guard
/// dropped by an unwinding thread must still release its range.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
