//! Which inodes have blocks mapped ahead of the end of the file.

use super::Engine;
use crate::fault::{Fault, planted};
use crate::inode::{Behind, Inode};
use crate::sync::{Arc, Mutex, Rank};

/// The inodes with blocks behind their end that nobody asked for.
#[derive(Debug)]
pub(crate) struct Preallocated(Mutex<Vec<Arc<Inode>>>);

impl Preallocated {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Rank::Leaf, Vec::new()))
    }

    /// Returns the inodes that are listed now.
    pub(crate) fn all(&self) -> Vec<Arc<Inode>> {
        self.0.lock().clone()
    }
}

impl Engine {
    /// Notes that blocks were mapped ahead of the end of the file.
    pub(crate) fn note_ahead(&self, inode: &Arc<Inode>) {
        // Looked at first: most of the time it is noted already.
        if inode.behind() != Behind::Nothing {
            return;
        }
        let mut all = self.preallocated.0.lock();
        if inode.set_behind(Behind::Nothing, Behind::Ahead) {
            all.push(Arc::clone(inode));
        }
    }

    /// Notes that what is behind the end of the file is there because somebody asked for it.
    pub(crate) fn keep_behind(&self, inode: &Arc<Inode>) {
        if planted(Fault::KeptAsAhead) {
            return;
        }
        if !inode.set_behind(Behind::Nothing, Behind::Kept) {
            self.forget_ahead(inode, Behind::Kept);
        }
    }

    /// Notes that nothing is behind the end of the file.
    pub(crate) fn cut_behind(&self, inode: &Arc<Inode>) {
        if !inode.set_behind(Behind::Kept, Behind::Nothing) {
            self.forget_ahead(inode, Behind::Nothing);
        }
    }

    /// Takes the inode off the list, if it is there; says whether it was.
    pub(crate) fn forget_ahead(&self, inode: &Arc<Inode>, now: Behind) -> bool {
        if inode.behind() != Behind::Ahead {
            return false;
        }
        let mut all = self.preallocated.0.lock();
        let was_ahead = inode.set_behind(Behind::Ahead, now);
        if was_ahead {
            all.retain(|other| !Arc::ptr_eq(other, inode));
        }
        was_ahead
    }
}
