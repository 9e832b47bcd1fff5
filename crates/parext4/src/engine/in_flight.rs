//! The operations on file data in flight, for which closing the volume waits.

use crate::error::{Error, Result};
use crate::stripes::Stripes;
use crate::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use crate::sync::yield_now;

/// Counts operations until it is closed.
///
/// An operation increments a count and then checks whether the gate is closed. The closing thread
/// closes the gate and then waits until the counts are zero. All accesses are sequentially
/// consistent, so one of the two sees the other.
#[derive(Debug)]
pub(crate) struct InFlight {
    closed: AtomicBool,
    counts: Stripes<AtomicU32, 16>,
}

/// An operation in flight. Dropping it ends the operation.
#[derive(Debug)]
#[must_use]
pub(crate) struct Entered<'a>(&'a AtomicU32);

impl InFlight {
    pub(crate) fn new() -> Self {
        Self { closed: AtomicBool::new(false), counts: Stripes::default() }
    }

    /// Begins an operation.
    ///
    /// # Errors
    /// Returns an error if the volume is closed.
    pub(crate) fn enter(&self) -> Result<Entered<'_>> {
        let count = self.counts.mine();
        count.fetch_add(1, Ordering::SeqCst);
        let entered = Entered(count);
        self.check_open()?;
        Ok(entered)
    }

    /// Returns an error if the volume is closed.
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::SeqCst) {
            Err(Error::Stopped("the volume is closed".into()))
        } else {
            Ok(())
        }
    }

    /// Returns the number of operations in flight.
    pub(crate) fn count(&self) -> u64 {
        self.counts.iter().map(|count| u64::from(count.load(Ordering::SeqCst))).sum()
    }

    /// Opens the gate again.
    pub(crate) fn reopen(&self) {
        self.closed.store(false, Ordering::SeqCst);
    }

    /// Closes the gate. Returns true if it was open. Does not wait for the operations in flight.
    pub(crate) fn close(&self) -> bool {
        !self.closed.swap(true, Ordering::SeqCst)
    }

    /// Blocks until no operation is in flight, while the gate is closed.
    pub(crate) fn wait(&self) {
        while self.counts.iter().any(|count| count.load(Ordering::SeqCst) > 0) {
            yield_now();
        }
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
