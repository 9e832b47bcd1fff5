//! Commits now and then, so that what nobody syncs is not lost for long.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::journal::Journal;
use crate::sync::Arc;

/// The thread that commits at intervals. It holds the journal, not the volume, so the volume's last user
/// closes it and not this thread.
#[derive(Debug)]
pub(super) struct Timer {
    stopped: Arc<(Mutex<bool>, Condvar)>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Timer {
    pub(super) fn start(journal: Arc<Journal>, interval: Duration) -> Self {
        let stopped = Arc::new((Mutex::new(false), Condvar::new()));
        let state = Arc::clone(&stopped);
        let spawned = std::thread::Builder::new().name("parext4-commit".into()).spawn(move || {
            // On an error the volume has latched the failure; whoever syncs or closes hears of it.
            while !wait(&state, interval) && journal.commit_all().is_ok() {}
        });
        let thread = spawned.inspect_err(|error| tracing::warn!("no thread for timed commits: {error}")).ok();
        Self { stopped, thread: Mutex::new(thread) }
    }

    /// Ends the thread and waits for it.
    pub(super) fn stop(&self) {
        let (stopped, changed) = &*self.stopped;
        *lock(stopped) = true;
        changed.notify_all();
        let thread = lock(&self.thread).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread for timed commits panicked");
        }
    }
}

/// Waits for `interval` or until the timer is stopped, which it returns.
fn wait(state: &(Mutex<bool>, Condvar), interval: Duration) -> bool {
    let (stopped, changed) = state;
    let waited = changed.wait_timeout_while(lock(stopped), interval, |stopped| !*stopped);
    *waited.unwrap_or_else(PoisonError::into_inner).0
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
