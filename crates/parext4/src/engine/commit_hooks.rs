//! The work of a commit besides encoding the objects that joined its transaction.

use super::LazyTimes;
use crate::allocator::Allocator;
use crate::fault::{Fault, guarded};
use crate::health::Health;
use crate::journal::{CommitHooks, Freed, Handle};
use crate::sync::Arc;

/// The journal's callbacks into the volume. They hold parts of the volume and not the engine, so a commit never drops the last
/// reference to it.
#[derive(Debug)]
pub(crate) struct Hooks {
    pub allocator: Arc<Allocator>,
    pub lazy: Arc<LazyTimes>,
    pub health: Arc<Health>,
}

impl CommitHooks for Hooks {
    fn closing(&self, handle: &Handle<'_>) {
        // If this transaction has no credit left for the superblock, the next one records them.
        if handle.ensure(1)
            && let Some(errors) = self.health.take_unrecorded()
        {
            self.allocator.counts().record_errors(handle, &errors);
        }
        let mut waiting = std::mem::take(&mut *self.lazy.0.lock());
        // Inodes that do not fit this transaction wait for the next.
        while let Some(inode) = waiting.pop() {
            if !handle.ensure(1) {
                waiting.push(inode);
                break;
            }
            guarded!(Fault::ListedAfterCommit, inode.unlist());
            if inode.has_lazy_times() {
                inode.fold_lazy(handle);
            }
        }
        self.lazy.0.lock().append(&mut waiting);
    }

    fn released(&self, freed: &[Freed]) {
        self.allocator.release(freed);
    }
}
