//! What was counted of a file.

use std::ops::Deref;
use std::time::Duration;

use rangelock::Mode;

use super::Admission;
use crate::file::File;
use crate::inode::Inode;
use crate::operation::Operation;
use crate::stats::{Explanation, Here, Party, Present, Record, Stats};
use crate::sync::Arc;

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
    pub(in crate::file) fn record(&self) -> Record<'_> {
        self.volume().usage.record(&self.inode().usage)
    }

    /// Notes that `operation` is about to ask for what it needs, if waits are explained.
    pub(in crate::file) fn enter(
        &self,
        operation: Operation,
        admission: &Admission,
    ) -> Option<Here<&Present>> {
        let present = self.volume().usage.present(&self.inode().usage)?;
        Some(Here::enter(present, admission.range, party(operation, admission)))
    }

    /// As [`enter`](Self::enter), for operations that outlive the call.
    pub(in crate::file) fn enter_queued(
        &self,
        operation: Operation,
        admission: &Admission,
    ) -> Option<Here<PresentOf>> {
        self.volume().usage.present(&self.inode().usage)?;
        let present = PresentOf(Arc::clone(self.inode()));
        Some(Here::enter(present, admission.range, party(operation, admission)))
    }

    /// Counts a wait, and explains it if `here` is what [`enter`](Self::enter) gave.
    pub(in crate::file) fn note_wait<P: Deref<Target = Present>>(
        &self,
        waited: Duration,
        here: Option<&Here<P>>,
    ) {
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

fn party(operation: Operation, admission: &Admission) -> Party {
    Party { operation, reason: admission.reason, exclusive: admission.mode == Mode::Exclusive }
}

/// The operations on a file, which it keeps alive. Only made where waits are explained.
#[derive(Debug)]
pub(in crate::file) struct PresentOf(Arc<Inode>);

impl Deref for PresentOf {
    type Target = Present;
    fn deref(&self) -> &Present {
        self.0.usage.entered().expect("waits of this file are explained")
    }
}
