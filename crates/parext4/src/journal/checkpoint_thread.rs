//! The background thread that runs checkpoint rounds.
//!
//! This module starts the thread when the log is first half full, wakes it, and joins it when the
//! journal is dropped. The module `checkpoint` decides what a round does, and when one is due.
//! Invariant: the thread refers to the checkpoint and not to the journal, so it never drops the
//! journal's last reference and never joins itself.

use crate::sync::{Arc, Condvar, Mutex, Rank};
use crate::threads::{self, JoinHandle};

/// The thread, if it was started.
#[derive(Debug)]
pub(super) struct CheckpointThread {
    state: Mutex<ThreadState>,
    woken: Condvar,
}

#[derive(Debug, Default)]
struct ThreadState {
    thread: Option<JoinHandle<()>>,
    wanted: bool,
    stopped: bool,
}

impl Default for CheckpointThread {
    fn default() -> Self {
        Self { state: Mutex::new(Rank::Leaf, ThreadState::default()), woken: Condvar::default() }
    }
}

impl CheckpointThread {
    /// Wakes the thread. If there is none, first starts it with `run`. Returns false if no thread
    /// can run: it was stopped, or the system has refused to start one.
    pub(super) fn wake<C: Send + Sync + 'static>(&self, checkpoint: &Arc<C>, run: fn(&C)) -> bool {
        let mut state = self.state.lock();
        if state.stopped {
            return false;
        }
        if state.thread.is_none() {
            let checkpoint = Arc::clone(checkpoint);
            state.thread = threads::spawn("parext4-home", move || run(&checkpoint));
        }
        state.wanted = true;
        self.woken.notify_all();
        state.thread.is_some()
    }

    /// Blocks until the thread is woken. Returns false once it is stopped.
    pub(super) fn wait(&self) -> bool {
        let mut state = self.state.lock();
        while !state.stopped && !state.wanted {
            self.woken.wait(&mut state);
        }
        state.wanted = false;
        !state.stopped
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.state.lock().stopped
    }

    /// Stops the thread and joins it. Blocks until a running round has ended.
    pub(super) fn stop(&self) {
        let mut state = self.state.lock();
        state.stopped = true;
        self.woken.notify_all();
        let thread = state.thread.take();
        drop(state);
        threads::join(thread);
    }
}
