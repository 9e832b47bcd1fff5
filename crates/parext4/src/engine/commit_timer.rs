//! The commit thread: commits at intervals, so that changes become durable without a sync, and soon
//! after an error was found, so that the error is recorded.

use std::time::Duration;

use super::ErrorRecorder;
use crate::error::Result;
use crate::journal::Journal;
use crate::sleep_timer::SleepTimer;
use crate::sync::{Arc, Mutex, Rank};
use crate::threads::{self, JoinHandle};

/// The commit thread. It holds the journal and not the engine, so the engine is closed by its last
/// user and never by this thread.
#[derive(Debug)]
pub(crate) struct CommitTimer {
    timer: Arc<SleepTimer>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl CommitTimer {
    /// Starts the thread.
    ///
    /// # Errors
    /// [`Error::Busy`](crate::Error::Busy) if the system refuses to start it.
    pub(crate) fn start(
        timer: &Arc<SleepTimer>,
        journal: Arc<Journal>,
        recorder: Arc<ErrorRecorder>,
        interval: Duration,
    ) -> Result<Self> {
        let timer = Arc::clone(timer);
        let sleeper = Arc::clone(&timer);
        let thread = threads::spawn_needed("parext4-commit", move || {
            while sleeper.sleep(interval) {
                // On an error the volume has latched the failure; the next sync or close reports
                // it.
                if journal.commit_all().is_err() {
                    return recorder.write(&journal);
                }
            }
        })?;
        Ok(Self { timer, thread: Mutex::new(Rank::Leaf, thread) })
    }

    /// Stops the thread and joins it.
    pub(crate) fn stop(&self) {
        self.timer.stop();
        let thread = self.thread.lock().take();
        threads::join(thread);
    }
}
