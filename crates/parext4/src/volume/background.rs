//! The threads that write back what has waited long enough, or what is too much. Others read ahead.

use std::ops::Range;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use super::Inner;
use super::dirty::TURN;
use super::readers::Readers;
use crate::inode::Inode;
use crate::sync::Arc;

const THREADS: usize = 3;

/// The threads, from the first dirty page on. They refer to the volume without using it, so its last user closes it
/// and not one of them.
#[derive(Debug)]
pub(super) struct Background {
    interval: Duration,
    state: Arc<(Mutex<State>, Condvar)>,
    threads: Threads,
    readers: Readers,
}

/// Threads that end before the volume is closed.
#[derive(Debug, Default)]
pub(super) struct Threads(Mutex<Vec<JoinHandle<()>>>);

#[derive(Debug, Default)]
struct State {
    started: bool,
    stopped: bool,
    /// How often somebody asked for a look at once.
    wakes: u64,
}

impl Background {
    pub(super) fn new(interval: Duration) -> Self {
        Self { interval, state: Arc::default(), threads: Threads::default(), readers: Readers::default() }
    }

    /// Starts the threads if they do not run.
    pub(super) fn start(&self, volume: &Arc<Inner>) {
        let mut state = lock(&self.state.0);
        if std::mem::replace(&mut state.started, true) || state.stopped {
            return;
        }
        let (volume, state, interval) = (Arc::downgrade(volume), Arc::clone(&self.state), self.interval);
        // Without them, syncs, closing and the limit still write back.
        self.threads.start("parext4-flush", THREADS, move || run(&volume, &state, interval));
    }

    /// Has the threads look at once.
    pub(super) fn wake(&self) {
        let mut state = lock(&self.state.0);
        state.wakes += 1;
        self.state.1.notify_all();
    }

    /// Has other threads bring pages in, if they are not too busy.
    pub(super) fn read_ahead(&self, volume: &Arc<Inner>, inode: &Arc<Inode>, pages: Range<u32>) {
        self.readers.read_ahead(volume, inode, pages);
    }

    /// Ends the threads and waits for them.
    pub(super) fn stop(&self) {
        lock(&self.state.0).stopped = true;
        self.state.1.notify_all();
        self.readers.stop();
        self.threads.join();
    }
}

impl Threads {
    /// Starts so many that do the same, or as many as there can be.
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

fn run(volume: &Weak<Inner>, shared: &(Mutex<State>, Condvar), interval: Duration) {
    let (mut seen, mut is_idle) = (0, false);
    // Pages become dirty at any time, so what is due is looked for more often than it becomes so.
    while wait(shared, if is_idle { Duration::MAX } else { interval / 5 }, &mut seen) {
        let Some(volume) = volume.upgrade() else { return };
        while !lock(&shared.0).stopped && volume.health.check().is_ok() {
            let age = if volume.is_half_full() { Duration::ZERO } else { interval };
            if !matches!(volume.write_back_some(age, TURN), Ok(true)) {
                break;
            }
        }
        is_idle = volume.has_no_dirty_files();
    }
}

/// Waits for a while or until woken; `false` if it is all over.
fn wait(shared: &(Mutex<State>, Condvar), time: Duration, seen: &mut u64) -> bool {
    let (state, changed) = shared;
    let idle = |state: &mut State| !state.stopped && state.wakes == *seen;
    let waited = changed.wait_timeout_while(lock(state), time, idle);
    let state = waited.unwrap_or_else(PoisonError::into_inner).0;
    *seen = state.wakes;
    !state.stopped
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
