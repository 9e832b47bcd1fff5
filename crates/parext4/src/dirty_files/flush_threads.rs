//! The flush threads, which write back old dirty pages, and dirty pages above the limit.
//!
//! This module starts, wakes and joins them. [`writeback`](crate::writeback) passes their work as a
//! function.

use std::sync::Weak;
use std::time::Duration;

use parext4_device::Sharing;

use super::read_ahead::ReadAheadThreads;
use crate::clock::Instant;
use crate::sync::{Arc, Condvar, Mutex, Rank};
use crate::threads::{self, JoinHandle};

const THREADS: usize = 3;
/// Number of threads for a device on a network, where requests wait without using a processor.
const THREADS_FOR_NETWORKS: usize = 7;
/// Time after which the system is asked again for threads that it has refused.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The threads, which start with the first dirty page. They hold a weak reference to the engine, so
/// the last user of the engine closes it, and never one of these threads.
#[derive(Debug)]
pub(crate) struct FlushThreads {
    count: usize,
    interval: Duration,
    wakes: Arc<Wakes>,
    pub read_ahead: ReadAheadThreads,
}

/// The condition on which the threads wait.
#[derive(Debug)]
pub(crate) struct Wakes {
    state: Mutex<WakeState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct WakeState {
    started: bool,
    stopped: bool,
    /// Time at which the system refused to start a thread. `None` once the threads are started.
    refused: Option<Instant>,
    /// Number of wake-ups requested so far.
    wakes: u64,
    threads: Vec<JoinHandle<()>>,
}

impl FlushThreads {
    pub(super) fn new(interval: Duration, sharing: Sharing) -> Self {
        let count = if sharing.is_shared() { THREADS_FOR_NETWORKS } else { THREADS };
        Self { count, interval, wakes: Arc::new(Wakes::new()), read_ahead: ReadAheadThreads::default() }
    }

    /// Starts the threads unless they were started or stopped before. Each of them calls `run`.
    /// After the system has refused a thread, asks it again at most once a second, because this is
    /// called for every file that becomes dirty.
    pub(crate) fn start<E: Send + Sync + 'static>(
        &self,
        engine: &Arc<E>,
        run: fn(&Weak<E>, &Wakes, Duration),
    ) {
        let mut state = self.wakes.state.lock();
        if state.started || state.stopped {
            return;
        }
        let (engine, wakes, interval) = (Arc::downgrade(engine), Arc::clone(&self.wakes), self.interval);
        // If no thread can be started now, syncs, closing and throttled writers write back until
        // one can.
        let block_map = move || run(&engine, &wakes, interval);
        let spawn = || threads::spawn("parext4-flush", block_map.clone());
        state.start(self.count, RETRY_INTERVAL, Instant::now(), spawn);
    }

    /// Wakes the threads.
    pub(crate) fn wake(&self) {
        let mut state = self.wakes.state.lock();
        state.wakes += 1;
        self.wakes.changed.notify_all();
    }

    /// Stops the threads and joins them.
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

impl WakeState {
    /// Starts up to `count` threads with `spawn`, until it refuses one. Does nothing if it refused
    /// the first one less than `retry_interval` before `now`.
    fn start(
        &mut self,
        count: usize,
        retry_interval: Duration,
        now: Instant,
        mut spawn: impl FnMut() -> Option<JoinHandle<()>>,
    ) {
        if self.refused.is_some_and(|refused| now.saturating_duration_since(refused) < retry_interval) {
            return;
        }
        self.threads = (0..count).map_while(|_| spawn()).collect();
        self.started = !self.threads.is_empty();
        self.refused = (!self.started).then_some(now);
    }
}

impl Wakes {
    fn new() -> Self {
        Self { state: Mutex::new(Rank::Leaf, WakeState::default()), changed: Condvar::default() }
    }

    /// Blocks for `time`, or until there are more wake-ups than `seen` counts. Returns false if the
    /// thread must end.
    pub(crate) fn wait(&self, time: Duration, seen: &mut u64) -> bool {
        let mut state = self.state.lock();
        let idle = |state: &mut WakeState| !state.stopped && state.wakes == *seen;
        self.changed.wait_while_for(&mut state, idle, time);
        *seen = state.wakes;
        !state.stopped
    }

    /// Returns true if the threads must end.
    pub(crate) fn is_stopped(&self) -> bool {
        self.state.lock().stopped
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn a_system_that_refuses_threads_is_asked_again_after_the_interval() {
        let (mut state, start) = (WakeState::default(), Instant::now());
        // Returns how many threads the system was asked for at a time.
        let mut asked_at = |millis: u64, refuses: bool| {
            let mut asked = 0;
            state.start(3, Duration::from_secs(5), start + Duration::from_millis(millis), || {
                asked += 1;
                if refuses { None } else { threads::spawn("test", || ()) }
            });
            asked
        };
        let refused = [0, 1, 4999, 5000, 9999].map(|millis| asked_at(millis, true));
        assert_eq!(refused, [1, 0, 0, 1, 0]);
        assert_eq!(asked_at(9999, false), 0);
        assert_eq!(asked_at(10_000, false), 3);
        assert!(state.started && state.refused.is_none());
        threads::join(state.threads);
    }
}
