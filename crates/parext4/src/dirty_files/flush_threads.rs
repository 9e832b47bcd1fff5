//! The threads that write back what has waited long enough, or what is too much. Others read ahead.

use std::sync::Weak;
use std::thread::JoinHandle;
use std::time::Duration;

use super::read_ahead::ReadAheadThreads;
use crate::sync::{Arc, Condvar, Mutex, Rank};
use crate::threads;

const THREADS: usize = 3;

/// The threads, from the first dirty page on. They refer to the engine without using it, so its last user closes it
/// and not one of them.
#[derive(Debug)]
pub(crate) struct FlushThreads {
    interval: Duration,
    wakes: Arc<Wakes>,
    pub read_ahead: ReadAheadThreads,
}

/// When the threads look for work.
#[derive(Debug)]
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
    threads: Vec<JoinHandle<()>>,
}

impl FlushThreads {
    pub(super) fn new(interval: Duration) -> Self {
        Self { interval, wakes: Arc::new(Wakes::new()), read_ahead: ReadAheadThreads::default() }
    }

    /// Starts the threads, each of which calls `run`, unless they run.
    pub(crate) fn start<E: Send + Sync + 'static>(
        &self,
        engine: &Arc<E>,
        run: fn(&Weak<E>, &Wakes, Duration),
    ) {
        let mut state = self.wakes.state.lock();
        if std::mem::replace(&mut state.started, true) || state.stopped {
            return;
        }
        let (engine, wakes, interval) = (Arc::downgrade(engine), Arc::clone(&self.wakes), self.interval);
        // Without them, syncs, closing and the limit still write back.
        let body = move || run(&engine, &wakes, interval);
        state.threads = (0..THREADS).filter_map(|_| threads::spawn("parext4-flush", body.clone())).collect();
    }

    /// Has the threads look at once.
    pub(crate) fn wake(&self) {
        let mut state = self.wakes.state.lock();
        state.wakes += 1;
        self.wakes.changed.notify_all();
    }

    /// Ends the threads and waits for them.
    pub(super) fn stop(&self) {
        let threads = {
            let mut state = self.wakes.state.lock();
            state.stopped = true;
            std::mem::take(&mut state.threads)
        };
        self.wakes.changed.notify_all();
        self.read_ahead.stop();
        threads::join(threads);
    }
}

impl Wakes {
    fn new() -> Self {
        Self { state: Mutex::new(Rank::Leaf, State::default()), changed: Condvar::default() }
    }

    /// Waits for `time` or until woken; `false` if the threads must end.
    pub(crate) fn wait(&self, time: Duration, seen: &mut u64) -> bool {
        let mut state = self.state.lock();
        let idle = |state: &mut State| !state.stopped && state.wakes == *seen;
        self.changed.wait_while_for(&mut state, idle, time);
        *seen = state.wakes;
        !state.stopped
    }

    /// Returns true if the threads must end.
    pub(crate) fn is_stopped(&self) -> bool {
        self.state.lock().stopped
    }
}
