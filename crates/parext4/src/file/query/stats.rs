//! What was counted of a file.

use crate::file::DirectFile;
use crate::stats::{Explanation, Stats};

impl DirectFile {
    /// What the operations on this file's data did since it came into memory, where it stays at least as long as
    /// it is open. Always counted.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.inode().usage.stats(self.engine().policy)
    }

    /// As [`Volume::explain`](crate::Volume::explain), for the waits in this file.
    #[must_use]
    pub fn explain(&self) -> Vec<Explanation> {
        self.inode().usage.explanations()
    }
}
