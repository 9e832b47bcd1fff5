//! Retrying operations that run out of space.

use crate::engine::Engine;
use crate::error::{Error, Result};

impl Engine {
    /// Runs `operation` and retries it, up to eight attempts in all, while it fails with [`Error::NoSpace`]. Before a retry, frees the
    /// preallocated blocks of idle files, and commits if freed blocks wait for that. Gives up if no block became allocatable. A
    /// failed attempt must have changed nothing.
    ///
    /// # Errors
    /// Returns the error of `operation`, or of the commit.
    pub(crate) fn with_space<R>(&self, mut operation: impl FnMut() -> Result<R>) -> Result<R> {
        /// Other threads may allocate what each commit frees, so the number of attempts is limited.
        const TRIES: u32 = 8;
        for _ in 1..TRIES {
            let before = self.allocator.releases();
            match operation() {
                Err(Error::NoSpace) => {}
                // Preallocated blocks count for their user, too.
                Err(Error::QuotaExceeded(_)) => {
                    self.free_preallocated_of_idle()?;
                    return operation();
                }
                other => return other,
            }
            self.free_preallocated_of_idle()?;
            if self.allocator.has_held_blocks() {
                self.journal.commit_all()?;
            }
            if self.allocator.releases() == before {
                return Err(Error::NoSpace);
            }
        }
        operation()
    }
}
