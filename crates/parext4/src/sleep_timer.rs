//! A timer whose sleep other threads can interrupt.
//!
//! Used by background threads that run periodically. Invariant: a wake-up before the sleep begins is not lost; the next
//! sleep returns at once.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A sleep that [`wake`](Self::wake) interrupts once, and [`stop`](Self::stop) for good.
#[derive(Debug, Default)]
pub(crate) struct SleepTimer {
    state: Mutex<TimerState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct TimerState {
    woken: bool,
    stopped: bool,
}

impl SleepTimer {
    /// Interrupts the sleep under way, or the next one.
    pub(crate) fn wake(&self) {
        self.lock().woken = true;
        self.changed.notify_all();
    }

    /// Interrupts the sleep under way and all later ones.
    pub(crate) fn stop(&self) {
        self.lock().stopped = true;
        self.changed.notify_all();
    }

    /// Sleeps for at most `time`. Returns false once the timer is stopped.
    pub(crate) fn sleep(&self, time: Duration) -> bool {
        let idle = |state: &mut TimerState| !state.woken && !state.stopped;
        let waited = self.changed.wait_timeout_while(self.lock(), time, idle);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        state.woken = false;
        !state.stopped
    }

    fn lock(&self) -> MutexGuard<'_, TimerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
