//! Starting and joining the background threads of a volume.

use std::io;

use crate::error::{Error, Result};
pub(crate) use crate::sync::thread::JoinHandle;
use crate::sync::{has_background_threads, thread};

/// Starts a thread of this name.
///
/// # Errors
/// The system refuses to start it.
pub(crate) fn start(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name.into()).spawn(run)
}

/// Starts a background thread of this name, without which the volume would not keep its promises.
/// Returns `None` in a model.
///
/// # Errors
/// [`Error::Busy`] if the system refuses to start it.
pub(crate) fn spawn_needed(
    name: &str,
    run: impl FnOnce() + Send + 'static,
) -> Result<Option<JoinHandle<()>>> {
    if !has_background_threads() {
        return Ok(None);
    }
    let refused = |error| Error::Busy(format!("cannot start the thread {name}: {error}"));
    start(name, run).map(Some).map_err(refused)
}

/// Starts a background thread of this name. Logs a refusal of the system and returns `None`. Also
/// returns `None` in a model.
pub(crate) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Option<JoinHandle<()>> {
    if !has_background_threads() {
        return None;
    }
    start(name, run).inspect_err(|error| log::warn!("cannot start the thread {name}: {error}")).ok()
}

/// Joins threads and logs their panics.
pub(crate) fn join(threads: impl IntoIterator<Item = JoinHandle<()>>) {
    for thread in threads {
        let name = thread.thread().name().unwrap_or_default().to_owned();
        if thread.join().is_err() {
            log::error!("the thread {name} panicked");
        }
    }
}
