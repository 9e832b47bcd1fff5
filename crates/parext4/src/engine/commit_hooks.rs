//! The work of a commit besides encoding the objects that joined its transaction.

use super::{Deletions, LazyTimes};
use crate::allocator::Allocator;
use crate::health::Health;
use crate::journal::{CommitHooks, Freed, Handle, Participant};
use crate::sync::Arc;

/// The journal's callbacks into the volume. They hold parts of the volume and not the engine, so a
/// commit never drops the last reference to it.
#[derive(Debug)]
pub(crate) struct Hooks {
    pub allocator: Arc<Allocator>,
    pub lazy: Arc<LazyTimes>,
    pub health: Arc<Health>,
    pub deletions: Deletions,
}

impl CommitHooks for Hooks {
    fn closing(&self, handle: &Handle<'_>) {
        // If this transaction has no credit left for the superblock, the next one records them.
        if handle.ensure(1)
            && let Some(errors) = self.health.take_unrecorded()
        {
            self.allocator.counts().record_errors(handle, &errors);
        }
        // Inodes that do not fit this transaction wait for the next.
        self.lazy.fold(handle, self.lazy.len());
    }

    fn released(&self, freed: &[Freed]) {
        self.allocator.release(freed);
    }

    fn encoded(&self, objects: Vec<Arc<dyn Participant>>) {
        self.deletions.discard(objects);
    }
}
