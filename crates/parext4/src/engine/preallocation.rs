//! The list of inodes with preallocated blocks past the end of the file.

use super::Engine;
use crate::block_map::BlockMap;
use crate::fault::{Fault, when_planted};
use crate::inode::{Inode, PastEnd};
use crate::sync::{Arc, Mutex, Rank};

/// The inodes with blocks past the end of the file that no user requested.
#[derive(Debug)]
pub(crate) struct Preallocated(Mutex<Vec<Arc<Inode>>>);

impl Preallocated {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Rank::Leaf, Vec::new()))
    }

    /// Returns the inodes in the list.
    pub(crate) fn all(&self) -> Vec<Arc<Inode>> {
        self.0.lock().clone()
    }
}

impl Engine {
    /// Records that blocks were preallocated past the end of the file.
    pub(crate) fn note_preallocated(&self, inode: &Arc<Inode>) {
        // The load first: usually it is recorded already.
        if inode.past_end() != PastEnd::Nothing {
            return;
        }
        let mut all = self.preallocated.0.lock();
        if inode.set_past_end(PastEnd::Nothing, PastEnd::Preallocated) {
            all.push(Arc::clone(inode));
        }
    }

    /// Records that a user requested the blocks past the end of the file.
    pub(crate) fn note_requested(&self, inode: &Arc<Inode>) {
        when_planted!(Fault::AllocatedAsPreallocated, return);
        if !inode.set_past_end(PastEnd::Nothing, PastEnd::Requested) {
            self.forget_preallocated(inode, PastEnd::Requested);
        }
    }

    /// Records that nothing is mapped past the end of the file.
    pub(crate) fn note_nothing_past_end(&self, inode: &Arc<Inode>) {
        // The list also has files with claims and reservations, which a truncation may leave.
        if inode.loaded_block_map().is_some_and(BlockMap::has_claims) {
            return;
        }
        if !inode.set_past_end(PastEnd::Requested, PastEnd::Nothing) {
            self.forget_preallocated(inode, PastEnd::Nothing);
        }
    }

    /// Removes the inode from the list and sets its state to `now`. Returns true if it was in the
    /// list.
    pub(crate) fn forget_preallocated(&self, inode: &Arc<Inode>, now: PastEnd) -> bool {
        if inode.past_end() != PastEnd::Preallocated {
            return false;
        }
        let mut all = self.preallocated.0.lock();
        let was_preallocated = inode.set_past_end(PastEnd::Preallocated, now);
        if was_preallocated {
            all.retain(|other| !Arc::ptr_eq(other, inode));
        }
        was_preallocated
    }
}
