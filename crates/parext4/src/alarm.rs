//! Wakes the periodic commit thread before its interval is over.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A sleep that [`ring`](Self::ring) cuts short once, and `end` for good.
#[derive(Debug, Default)]
pub(crate) struct Alarm {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    rung: bool,
    over: bool,
}

impl Alarm {
    /// Ends the sleep under way, or the next one.
    pub(crate) fn ring(&self) {
        self.lock().rung = true;
        self.changed.notify_all();
    }

    /// Ends the sleep under way and all later ones.
    pub(crate) fn end(&self) {
        self.lock().over = true;
        self.changed.notify_all();
    }

    /// Sleeps for `time`, or less; `false` when there are no more sleeps.
    pub(crate) fn sleep(&self, time: Duration) -> bool {
        let idle = |state: &mut State| !state.rung && !state.over;
        let waited = self.changed.wait_timeout_while(self.lock(), time, idle);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        state.rung = false;
        !state.over
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
