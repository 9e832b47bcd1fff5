//! Commits now and then, so that what nobody syncs is not lost for long.

use std::sync::{Condvar, Mutex, Weak};
use std::time::Duration;

use super::Inner;
use crate::sync::Arc;

/// The thread that commits at intervals. It holds no reference to the volume while it sleeps.
#[derive(Debug)]
pub(super) struct Timer {
    stopped: Arc<(Mutex<bool>, Condvar)>,
}

impl Timer {
    pub(super) fn start(volume: Weak<Inner>, interval: Duration) -> Self {
        let stopped = Arc::new((Mutex::new(false), Condvar::new()));
        let timer = Self { stopped: Arc::clone(&stopped) };
        let spawned = std::thread::Builder::new().name("parext4-commit".into()).spawn(move || {
            while !wait(&stopped, interval) {
                let Some(volume) = volume.upgrade() else { return };
                // The volume has latched a failure; whoever syncs or closes hears of it.
                if volume.journal.commit_all().is_err() {
                    return;
                }
            }
        });
        if let Err(error) = spawned {
            tracing::warn!("no thread for timed commits: {error}");
        }
        timer
    }

    pub(super) fn stop(&self) {
        let (stopped, changed) = &*self.stopped;
        *stopped.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = true;
        changed.notify_all();
    }
}

/// Waits for `interval` or until the timer is stopped, which it returns.
fn wait(state: &(Mutex<bool>, Condvar), interval: Duration) -> bool {
    let (stopped, changed) = state;
    let stopped = stopped.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let waited = changed.wait_timeout_while(stopped, interval, |stopped| !*stopped);
    *waited.unwrap_or_else(std::sync::PoisonError::into_inner).0
}
