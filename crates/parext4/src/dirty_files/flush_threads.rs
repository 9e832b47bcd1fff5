//! The threads that write back what has waited long enough, or what is too much. Others read ahead.

use std::sync::{Condvar, Mutex, PoisonError, Weak};
use std::time::Duration;

use super::read_ahead::ReadAheadThreads;
use super::threads::{Threads, lock};
use crate::sync::Arc;

const THREADS: usize = 3;

/// The threads, from the first dirty page on. They refer to the engine without using it, so its last user closes it
/// and not one of them.
#[derive(Debug)]
pub(crate) struct FlushThreads {
    interval: Duration,
    wakes: Arc<Wakes>,
    threads: Threads,
    pub read_ahead: ReadAheadThreads,
}

/// When the threads look for work.
#[derive(Debug, Default)]
pub(crate) struct Wakes {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    started: bool,
    stopped: bool,
    /// How often a caller asked for a look at once.
    wakes: u64,
}

impl FlushThreads {
    pub(super) fn new(interval: Duration) -> Self {
        Self {
            interval,
            wakes: Arc::default(),
            threads: Threads::default(),
            read_ahead: ReadAheadThreads::default(),
        }
    }

    /// Starts the threads, each of which calls `run`, unless they run.
    pub(crate) fn start<E: Send + Sync + 'static>(
        &self,
        engine: &Arc<E>,
        run: fn(&Weak<E>, &Wakes, Duration),
    ) {
        let mut state = lock(&self.wakes.state);
        if std::mem::replace(&mut state.started, true) || state.stopped {
            return;
        }
        let (engine, wakes, interval) = (Arc::downgrade(engine), Arc::clone(&self.wakes), self.interval);
        // Without them, syncs, closing and the limit still write back.
        self.threads.start("parext4-flush", THREADS, move || run(&engine, &wakes, interval));
    }

    /// Has the threads look at once.
    pub(crate) fn wake(&self) {
        let mut state = lock(&self.wakes.state);
        state.wakes += 1;
        self.wakes.changed.notify_all();
    }

    /// Ends the threads and waits for them.
    pub(super) fn stop(&self) {
        lock(&self.wakes.state).stopped = true;
        self.wakes.changed.notify_all();
        self.read_ahead.stop();
        self.threads.join();
    }
}

impl Wakes {
    /// Waits for `time` or until woken; `false` if the threads must end.
    pub(crate) fn wait(&self, time: Duration, seen: &mut u64) -> bool {
        let idle = |state: &mut State| !state.stopped && state.wakes == *seen;
        let waited = self.changed.wait_timeout_while(lock(&self.state), time, idle);
        let state = waited.unwrap_or_else(PoisonError::into_inner).0;
        *seen = state.wakes;
        !state.stopped
    }

    /// Returns true if the threads must end.
    pub(crate) fn is_stopped(&self) -> bool {
        lock(&self.state).stopped
    }
}
