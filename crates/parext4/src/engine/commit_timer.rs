//! Commits at intervals, so that changes without a sync become durable, and soon after an error was found, which the
//! commit records.

use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::ErrorRecorder;
use crate::journal::Journal;
use crate::sleep_timer::SleepTimer;
use crate::sync::Arc;

/// The thread that commits at intervals. It holds the journal, not the volume, so the volume's last user
/// closes it and not this thread.
#[derive(Debug)]
pub(crate) struct CommitTimer {
    timer: Arc<SleepTimer>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl CommitTimer {
    pub(crate) fn start(
        timer: &Arc<SleepTimer>,
        journal: Arc<Journal>,
        recorder: Arc<ErrorRecorder>,
        interval: Duration,
    ) -> Self {
        let timer = Arc::clone(timer);
        let sleeper = Arc::clone(&timer);
        let spawned = std::thread::Builder::new().name("parext4-commit".into()).spawn(move || {
            while sleeper.sleep(interval) {
                // On an error the volume has latched the failure; the next sync or close reports it.
                if journal.commit_all().is_err() {
                    return recorder.write(&journal);
                }
            }
        });
        let thread = spawned.inspect_err(|error| tracing::warn!("no thread for timed commits: {error}")).ok();
        Self { timer, thread: Mutex::new(thread) }
    }

    /// Ends the thread and waits for it.
    pub(crate) fn stop(&self) {
        self.timer.stop();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread for timed commits panicked");
        }
    }
}
