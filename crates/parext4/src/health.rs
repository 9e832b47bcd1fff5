//! The health of an open volume: the errors found in it, and whether it may still be changed.
//!
//! Responsible for refusing changes after the first failure (I8) and for passing the errors to the
//! record in the superblock. The callers decide which checks report an error, and the commit writes
//! the record.
//!
//! Invariant: once the volume has stopped it stays stopped, and the first cause is kept.

use std::panic::Location;

use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::findings::{ErrorPlace, ErrorSummary, Findings};
use crate::sleep_timer::SleepTimer;
use crate::sync::Rank;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Arc, Mutex};

/// The errors of a volume, and a latch that the first failure closes.
#[derive(Debug)]
pub(crate) struct Health {
    stopped: AtomicBool,
    /// The user has shut the volume down.
    shut_down: AtomicBool,
    cause: Mutex<Option<Arc<str>>>,
    findings: Mutex<Findings>,
    commit_timer: Arc<SleepTimer>,
}

impl Health {
    /// Returns the state of a volume whose superblock has `errors` errors on record. `clock` dates
    /// further errors.
    pub(crate) fn new(errors: u32, clock: Clock) -> Self {
        Self {
            stopped: AtomicBool::new(false),
            shut_down: AtomicBool::new(false),
            cause: Mutex::new(Rank::Leaf, None),
            findings: Mutex::new(Rank::Leaf, Findings::new(errors, clock)),
            commit_timer: Arc::default(),
        }
    }

    /// Returns the timer of the commit thread, which is woken when an error is found, so that the
    /// error is recorded soon.
    pub(crate) fn commit_timer(&self) -> &Arc<SleepTimer> {
        &self.commit_timer
    }

    /// Reports an error that the caller's check found in the volume: logs it, and has the next
    /// transaction record it in the superblock. Returns the error. Errors other than corruption are
    /// only returned.
    #[track_caller]
    pub(crate) fn note(&self, place: impl Into<ErrorPlace>, error: Error) -> Error {
        if matches!(error, Error::Corrupt(_)) {
            self.add(Location::caller(), place.into(), &error);
        }
        error
    }

    /// Logs an error of a file's contents, once for each text. Returns the error.
    pub(crate) fn log_once(&self, error: Error) -> Error {
        self.findings.lock().log_once(&error.to_string());
        error
    }

    fn add(&self, check: &'static Location<'static>, place: ErrorPlace, error: &Error) {
        if self.findings.lock().add(check, place, error) {
            self.commit_timer.wake();
        }
    }

    /// Returns the errors found since the volume was opened, or `None`.
    pub(crate) fn found(&self) -> Option<ErrorSummary> {
        self.findings.lock().all()
    }

    /// Returns the errors found, or `None` if none was found since the last call. The caller
    /// records them in the superblock.
    pub(crate) fn take_unrecorded(&self) -> Option<ErrorSummary> {
        self.findings.lock().take_unrecorded()
    }

    /// Returns an error if the volume has stopped.
    pub(crate) fn check(&self) -> Result<()> {
        // Acquire pairs with the Release in `stop`, so that the cause can be read.
        if self.stopped.load(Ordering::Acquire) { Err(self.error()) } else { Ok(()) }
    }

    /// Stops the volume because of `error`, and returns that error. Keeps the cause of an earlier
    /// stop.
    #[track_caller]
    pub(crate) fn stop(&self, error: Error) -> Error {
        let mut cause = self.cause.lock();
        if cause.is_none() {
            log::error!("the volume stops: {error}");
            *cause = Some(error.to_string().into());
        }
        self.stopped.store(true, Ordering::Release);
        drop(cause);
        self.add(Location::caller(), ErrorPlace::default(), &error);
        error
    }

    /// Refuses later changes for a reason other than a failure, which later errors show.
    pub(crate) fn close(&self, why: &str) {
        self.cause.lock().get_or_insert_with(|| why.into());
        self.stopped.store(true, Ordering::Release);
    }

    /// Refuses later changes with [`Error::ShutDown`], because the user has asked for it.
    pub(crate) fn shut_down(&self) {
        // Before the Release in `close`, so that no thread sees the volume stopped for another
        // reason.
        self.shut_down.store(true, Ordering::Release);
        self.close("it was shut down");
    }

    /// Returns true if the user has shut the volume down.
    pub(crate) fn is_shut_down(&self) -> bool {
        self.shut_down.load(Ordering::Acquire)
    }

    fn error(&self) -> Error {
        if self.is_shut_down() {
            return Error::ShutDown;
        }
        let cause = self.cause.lock().clone();
        Error::Stopped(cause.unwrap_or_else(|| "unknown".into()))
    }
}
