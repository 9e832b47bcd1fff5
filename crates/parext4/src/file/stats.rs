//! What was counted of a file.

use std::time::Duration;

use rangelock::Mode;

use super::File;
use super::admission::{Admission, Operation};
use crate::stats::{Explanation, Here, Party, Record, Stats};

impl File {
    /// What the operations on this file's data did since it came into memory, where it stays at least as long as
    /// it is open. Always counted.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.inode().usage.stats(self.volume().policy)
    }

    /// As [`Volume::explain`](crate::Volume::explain), for the waits in this file.
    #[must_use]
    pub fn explain(&self) -> Vec<Explanation> {
        self.inode().usage.explanations()
    }

    /// Where what happens to the file is counted.
    pub(super) fn record(&self) -> Record<'_> {
        self.volume().usage.record(&self.inode().usage)
    }

    /// Notes that `operation` is about to ask for what it needs, if waits are explained.
    pub(super) fn enter(&self, operation: Operation, admission: &Admission) -> Option<Here<'_>> {
        let present = self.volume().usage.present(&self.inode().usage)?;
        let exclusive = admission.mode == Mode::Exclusive;
        Some(present.enter(admission.range, Party { operation, reason: admission.reason, exclusive }))
    }

    /// Counts a wait, and explains it if `here` is what [`enter`](Self::enter) gave.
    pub(super) fn note_wait(&self, waited: Duration, here: Option<&Here<'_>>) {
        self.record().waited(waited);
        let Some(here) = here else { return };
        let wait = Explanation {
            ino: self.node.ino(),
            waiter: here.party,
            holder: here.holder,
            whole_file: self.volume().policy.locks_whole_file(),
            waited,
            times: 1,
            total: waited,
        };
        self.volume().usage.explain(&self.inode().usage, &wait);
    }
}
