//! Retrying operations that find no space.

use crate::engine::Engine;
use crate::error::{Error, Result};

impl Engine {
    /// Runs `operation`; if space runs out, frees the blocks mapped ahead of idle files, commits if freed blocks wait
    /// for that, and runs it again if blocks became allocatable, also by another thread's commit. It must have changed
    /// nothing when it fails so.
    pub(crate) fn with_space<R>(&self, mut operation: impl FnMut() -> Result<R>) -> Result<R> {
        /// Others may take what a commit gives, again and again; on a full volume it ends somewhere.
        const TRIES: u32 = 8;
        for _ in 1..TRIES {
            let before = self.allocator.releases();
            match operation() {
                Err(Error::NoSpace) => {}
                other => return other,
            }
            self.return_ahead_of_idle()?;
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
