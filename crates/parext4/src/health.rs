//! The state of an open volume: the errors found in it, and the latch that the first failure closes (I8).

use std::panic::Location;

use crate::alarm::Alarm;
use crate::error::{Error, Result};
use crate::findings::{Findings, Found, Place};
use crate::sync::Rank;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Arc, Mutex};

/// Whether a volume may still be changed, and the errors found in it.
#[derive(Debug)]
pub(crate) struct Health {
    stopped: AtomicBool,
    cause: Mutex<Option<Arc<str>>>,
    findings: Mutex<Findings>,
    alarm: Arc<Alarm>,
}

impl Health {
    /// Of a volume whose superblock has `errors` on record.
    pub(crate) fn new(errors: u32) -> Self {
        Self {
            stopped: AtomicBool::new(false),
            cause: Mutex::new(Rank::Leaf, None),
            findings: Mutex::new(Rank::Leaf, Findings::new(errors)),
            alarm: Arc::default(),
        }
    }

    /// Wakes the commit thread when an error is found, so that it is recorded soon.
    pub(crate) fn alarm(&self) -> &Arc<Alarm> {
        &self.alarm
    }

    /// Logs an error that the caller's check found in the volume, has the next transaction record it in the superblock,
    /// and returns it. Errors that are not of the volume itself are only returned.
    #[track_caller]
    pub(crate) fn note(&self, place: impl Into<Place>, error: Error) -> Error {
        if matches!(error, Error::Corrupt(_)) {
            self.add(Location::caller(), place.into(), &error);
        }
        error
    }

    fn add(&self, check: &'static Location<'static>, place: Place, error: &Error) {
        if self.findings.lock().add(check, place, error) {
            self.alarm.ring();
        }
    }

    /// The errors found since the volume was opened, if any.
    pub(crate) fn found(&self) -> Option<Found> {
        self.findings.lock().all()
    }

    /// Like [`found`](Self::found), but `None` if no error was found since the last call. The caller records them in
    /// the superblock.
    pub(crate) fn take_unrecorded(&self) -> Option<Found> {
        self.findings.lock().take_unrecorded()
    }

    /// An error if the volume has stopped.
    pub(crate) fn check(&self) -> Result<()> {
        // Acquire pairs with the Release in `stop`, so that the cause is there to read.
        if self.stopped.load(Ordering::Acquire) { Err(self.error()) } else { Ok(()) }
    }

    /// Stops the volume because of `error`, which is returned. Later errors do not replace the first.
    #[track_caller]
    pub(crate) fn stop(&self, error: Error) -> Error {
        let mut cause = self.cause.lock();
        if cause.is_none() {
            tracing::error!("the volume stops: {error}");
            *cause = Some(error.to_string().into());
        }
        self.stopped.store(true, Ordering::Release);
        drop(cause);
        self.add(Location::caller(), Place::default(), &error);
        error
    }

    /// Refuses later changes for a reason other than a failure.
    pub(crate) fn close(&self, why: &str) {
        self.cause.lock().get_or_insert_with(|| why.into());
        self.stopped.store(true, Ordering::Release);
    }

    fn error(&self) -> Error {
        let cause = self.cause.lock().clone();
        Error::Stopped(cause.unwrap_or_else(|| "unknown".into()))
    }
}
