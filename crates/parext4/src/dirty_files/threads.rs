//! Threads of the volume's own.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Threads that end before the volume is closed.
#[derive(Debug, Default)]
pub(super) struct Threads(Mutex<Vec<JoinHandle<()>>>);

impl Threads {
    /// Starts `count` threads that do the same, or as many as there can be.
    pub(super) fn start(&self, name: &str, count: usize, run: impl FnOnce() + Clone + Send + 'static) {
        for _ in 0..count {
            match std::thread::Builder::new().name(name.into()).spawn(run.clone()) {
                Ok(thread) => lock(&self.0).push(thread),
                Err(error) => tracing::warn!("no thread {name}: {error}"),
            }
        }
    }

    /// Waits for them.
    pub(super) fn join(&self) {
        for thread in std::mem::take(&mut *lock(&self.0)) {
            if thread.join().is_err() {
                tracing::error!("a thread of the volume panicked");
            }
        }
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
