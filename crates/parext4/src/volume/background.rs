//! The threads that write back what has waited long enough, or what is too much, and that read ahead.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use super::Inner;
use crate::file::File;
use crate::inode::Inode;
use crate::sync::Arc;

const THREADS: usize = 3;
/// Requests to read ahead that wait; more are dropped.
const MOST_WAITING: usize = 64;

/// The threads, from the first dirty page on. They refer to the volume without using it, so its last user closes it
/// and not one of them.
#[derive(Debug)]
pub(super) struct Background {
    interval: Duration,
    state: Arc<(Mutex<State>, Condvar)>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct State {
    started: bool,
    stopped: bool,
    /// How often somebody asked for a look at once.
    wakes: u64,
    /// Pages to be read ahead.
    ahead: VecDeque<(Arc<Inode>, Range<u32>)>,
}

impl Background {
    pub(super) fn new(interval: Duration) -> Self {
        Self { interval, state: Arc::default(), threads: Mutex::default() }
    }

    /// Starts the threads if they do not run.
    pub(super) fn start(&self, volume: &Arc<Inner>) {
        let mut state = lock(&self.state.0);
        if std::mem::replace(&mut state.started, true) || state.stopped {
            return;
        }
        for _ in 0..THREADS {
            let (volume, state, interval) = (Arc::downgrade(volume), Arc::clone(&self.state), self.interval);
            let run = move || run(&volume, &state, interval);
            match std::thread::Builder::new().name("parext4-flush".into()).spawn(run) {
                Ok(thread) => lock(&self.threads).push(thread),
                // Syncs, closing and the limit still write back.
                Err(error) => tracing::warn!("no thread to write data back: {error}"),
            }
        }
    }

    /// Has the threads look at once.
    pub(super) fn wake(&self) {
        let mut state = lock(&self.state.0);
        state.wakes += 1;
        self.state.1.notify_all();
    }

    /// Has the threads bring pages in, if they are not too busy.
    pub(super) fn read_ahead(&self, inode: &Arc<Inode>, pages: Range<u32>) {
        let mut state = lock(&self.state.0);
        if state.ahead.len() < MOST_WAITING {
            state.ahead.push_back((Arc::clone(inode), pages));
            self.state.1.notify_one();
        }
    }

    /// Ends the threads and waits for them.
    pub(super) fn stop(&self) {
        lock(&self.state.0).stopped = true;
        self.state.1.notify_all();
        for thread in std::mem::take(&mut *lock(&self.threads)) {
            if thread.join().is_err() {
                tracing::error!("a thread that writes data back panicked");
            }
        }
    }
}

fn run(volume: &Weak<Inner>, shared: &(Mutex<State>, Condvar), interval: Duration) {
    let mut seen = 0;
    // Pages become dirty at any time, so what is due is looked for more often than it becomes so.
    while wait(shared, interval / 5, &mut seen) {
        let Some(volume) = volume.upgrade() else { return };
        while let Some((inode, pages)) = next_ahead(shared) {
            bring_in(&volume, &inode, pages);
        }
        while !lock(&shared.0).stopped && volume.health.check().is_ok() {
            let age = if volume.is_half_full() { Duration::ZERO } else { interval };
            if !volume.write_back_some(age) {
                break;
            }
            if let Some((inode, pages)) = next_ahead(shared) {
                bring_in(&volume, &inode, pages);
            }
        }
    }
}

fn next_ahead(shared: &(Mutex<State>, Condvar)) -> Option<(Arc<Inode>, Range<u32>)> {
    let mut state = lock(&shared.0);
    if state.stopped { None } else { state.ahead.pop_front() }
}

fn bring_in(volume: &Arc<Inner>, inode: &Arc<Inode>, pages: Range<u32>) {
    if let Some(file) = File::for_own_thread(volume, inode)
        && let Err(error) = file.bring_in(pages)
    {
        // Whoever needs the pages will hear of it.
        tracing::debug!("reading ahead in inode {}: {error}", inode.ino());
    }
}

/// Waits for a while or until woken; `false` if it is all over.
fn wait(shared: &(Mutex<State>, Condvar), time: Duration, seen: &mut u64) -> bool {
    let (state, changed) = shared;
    let idle = |state: &mut State| !state.stopped && state.ahead.is_empty() && state.wakes == *seen;
    let waited = changed.wait_timeout_while(lock(state), time, idle);
    let state = waited.unwrap_or_else(PoisonError::into_inner).0;
    *seen = state.wakes;
    !state.stopped
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
