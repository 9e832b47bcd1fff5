//! Starting and joining the background threads of a volume.

use std::thread::{Builder, JoinHandle};

/// Starts a thread of this name. Logs a refusal of the system and returns `None`.
pub(crate) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Option<JoinHandle<()>> {
    // In a model only threads of the model checker may run.
    if cfg!(shuttle) {
        return None;
    }
    let spawned = Builder::new().name(name.into()).spawn(run);
    spawned.inspect_err(|error| tracing::warn!("cannot start the thread {name}: {error}")).ok()
}

/// Joins threads and logs their panics.
pub(crate) fn join(threads: impl IntoIterator<Item = JoinHandle<()>>) {
    for thread in threads {
        let name = thread.thread().name().unwrap_or_default().to_owned();
        if thread.join().is_err() {
            tracing::error!("the thread {name} panicked");
        }
    }
}
