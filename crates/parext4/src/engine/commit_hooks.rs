//! What a commit does besides the objects that joined its transaction.

use super::LazyTimes;
use crate::allocator::Allocator;
use crate::fault::{Fault, planted};
use crate::health::Health;
use crate::journal::{CommitHooks, Freed, Handle};
use crate::sync::Arc;

/// What the journal does for the volume at a commit. It holds parts of the volume, not the volume, so that
/// a commit never is the last to let go of it.
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
        // What does not fit this transaction waits for the next.
        while let Some(inode) = waiting.pop() {
            if !handle.ensure(1) {
                waiting.push(inode);
                break;
            }
            if !planted(Fault::ListedForEver) {
                inode.unlist();
            }
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
