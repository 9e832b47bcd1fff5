//! The background thread that runs checkpoint rounds.
//!
//! Starts the thread when the log is first half full, wakes it, and joins it when the journal is dropped. What a round
//! does, and when one is due, is decided by `checkpoint`. Invariant: the thread refers to the checkpoint and not to the
//! journal, so it never drops the journal's last reference and never joins itself.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

use crate::sync::Arc;

/// The thread, if it was started.
#[derive(Debug, Default)]
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

impl CheckpointThread {
    /// Wakes the thread, and starts it with `run` first if there is none. Returns false if no thread can run: it was stopped, or the
    /// system has refused to start one.
    pub(super) fn wake<C: Send + Sync + 'static>(&self, checkpoint: &Arc<C>, run: fn(&C)) -> bool {
        let mut state = self.lock();
        // In a model only threads of the model checker may run.
        if state.stopped || cfg!(shuttle) {
            return false;
        }
        if state.thread.is_none() {
            let checkpoint = Arc::clone(checkpoint);
            let spawned = Builder::new().name("parext4-home".into()).spawn(move || run(&checkpoint));
            state.thread = spawned
                .inspect_err(|error| tracing::warn!("cannot start the checkpoint thread: {error}"))
                .ok();
        }
        state.wanted = true;
        self.woken.notify_all();
        state.thread.is_some()
    }

    /// Blocks until the thread is woken. Returns false once it is stopped.
    pub(super) fn wait(&self) -> bool {
        let idle = |state: &mut ThreadState| !state.stopped && !state.wanted;
        let waited = self.woken.wait_while(self.lock(), idle);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        state.wanted = false;
        !state.stopped
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.lock().stopped
    }

    /// Stops the thread and joins it. Blocks until the round under way has ended.
    pub(super) fn stop(&self) {
        let mut state = self.lock();
        state.stopped = true;
        self.woken.notify_all();
        let thread = state.thread.take();
        drop(state);
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the checkpoint thread panicked");
        }
    }

    fn lock(&self) -> MutexGuard<'_, ThreadState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
