//! A timer whose sleep other threads can interrupt.
//!
//! Used by background threads that run periodically. Invariant: a wake-up before the sleep begins
//! is not lost; the next sleep returns at once.

use std::time::Duration;

use crate::sync::{Condvar, Mutex, Rank};

/// A sleep that [`wake`](Self::wake) interrupts once, and [`stop`](Self::stop) for good.
#[derive(Debug)]
pub(crate) struct SleepTimer {
    state: Mutex<TimerState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct TimerState {
    woken: bool,
    stopped: bool,
}

impl Default for SleepTimer {
    fn default() -> Self {
        Self { state: Mutex::new(Rank::Leaf, TimerState::default()), changed: Condvar::default() }
    }
}

impl SleepTimer {
    /// Interrupts the sleep under way, or the next one.
    pub(crate) fn wake(&self) {
        self.state.lock().woken = true;
        self.changed.notify_all();
    }

    /// Interrupts the sleep under way and all later ones.
    pub(crate) fn stop(&self) {
        self.state.lock().stopped = true;
        self.changed.notify_all();
    }

    /// Sleeps for at most `time`. Returns false once the timer is stopped.
    pub(crate) fn sleep(&self, time: Duration) -> bool {
        let mut state = self.state.lock();
        self.changed.wait_while_for(&mut state, |state| !state.woken && !state.stopped, time);
        state.woken = false;
        !state.stopped
    }
}
