//! The error latch: the first failure stops the volume, and everybody hears of it (I8).

use crate::error::{Error, Result};
use crate::lock_order::Rank;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Arc, Mutex};

/// Whether a volume may still be changed.
#[derive(Debug)]
pub(crate) struct Health {
    stopped: AtomicBool,
    cause: Mutex<Option<Arc<str>>>,
}

impl Health {
    pub(crate) fn new() -> Self {
        Self { stopped: AtomicBool::new(false), cause: Mutex::new(Rank::Leaf, None) }
    }

    /// An error if the volume has stopped.
    pub(crate) fn check(&self) -> Result<()> {
        // Acquire pairs with the Release in `stop`, so that the cause is there to read.
        if self.stopped.load(Ordering::Acquire) { Err(self.error()) } else { Ok(()) }
    }

    /// Stops the volume because of `error`, which is returned. Later errors do not replace the first.
    pub(crate) fn stop(&self, error: Error) -> Error {
        let mut cause = self.cause.lock();
        if cause.is_none() {
            tracing::error!("the volume stops: {error}");
            *cause = Some(error.to_string().into());
        }
        self.stopped.store(true, Ordering::Release);
        error
    }

    /// Ends the volume's life in good order: later changes are refused.
    pub(crate) fn close(&self) {
        self.cause.lock().get_or_insert_with(|| "the volume is closed".into());
        self.stopped.store(true, Ordering::Release);
    }

    fn error(&self) -> Error {
        let cause = self.cause.lock().clone();
        Error::Stopped(cause.unwrap_or_else(|| "unknown".into()))
    }
}
