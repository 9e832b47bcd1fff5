//! The thread that runs checkpoint rounds. It is started the first time that the log is half full.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

use super::checkpoint::Checkpoint;
use crate::sync::Arc;

/// The thread, if it was started. It refers to the checkpoint, not to the journal, so it never drops the journal's last
/// reference.
#[derive(Debug, Default)]
pub(super) struct Thread {
    state: Mutex<State>,
    woken: Condvar,
}

#[derive(Debug, Default)]
struct State {
    thread: Option<JoinHandle<()>>,
    wanted: bool,
    stopped: bool,
}

impl Thread {
    /// Wakes the thread, starting it if there is none. Returns false if there can be none.
    pub(super) fn wake(&self, checkpoint: &Arc<Checkpoint>) -> bool {
        let mut state = self.lock();
        // The scheduler of the models cannot schedule threads of the system.
        if state.stopped || cfg!(shuttle) {
            return false;
        }
        if state.thread.is_none() {
            let checkpoint = Arc::clone(checkpoint);
            let spawned = Builder::new().name("parext4-home".into()).spawn(move || checkpoint.serve());
            state.thread =
                spawned.inspect_err(|error| tracing::warn!("no thread for checkpoints: {error}")).ok();
        }
        state.wanted = true;
        self.woken.notify_all();
        state.thread.is_some()
    }

    /// Waits until the thread is woken; false once it is stopped.
    pub(super) fn wait(&self) -> bool {
        let idle = |state: &mut State| !state.stopped && !state.wanted;
        let waited = self.woken.wait_while(self.lock(), idle);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        state.wanted = false;
        !state.stopped
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.lock().stopped
    }

    /// Stops the thread and joins it.
    pub(super) fn stop(&self) {
        let mut state = self.lock();
        state.stopped = true;
        self.woken.notify_all();
        let thread = state.thread.take();
        drop(state);
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread for checkpoints panicked");
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
