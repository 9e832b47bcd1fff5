//! Orphans whose blocks are about to become free, for a thread that has found no space.
//!
//! An inode without names is deleted when its last [`InodeRef`](crate::InodeRef) is dropped. Some
//! references go without an action of a user: the references of background threads, and references
//! that stand for a kernel which is about to forget the inode. They count as *departing*.

use super::Engine;
use crate::inode::Inode;
use crate::sync::atomic::Ordering;
use crate::sync::has_background_threads;

/// When blocks of orphans become free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Departure {
    /// No orphan has any, or a thread has waited for each in vain.
    None,
    /// When a user drops a removed file, which may be under way, or when the kernel forgets one,
    /// which it does not while a process has it as its directory.
    WithLastUser,
    /// Soon: a truncation or a deletion is under way.
    Soon,
}

impl Engine {
    /// Returns when blocks of orphans become free: the earliest time.
    pub(crate) fn departure(&self) -> Departure {
        let mut first = Departure::None;
        self.orphans.visit(self.inodes(), |inode| {
            first = first.max(departure_of(inode));
            first < Departure::Soon
        });
        first
    }

    /// Returns true if only departing references keep an orphan, for which no thread has waited in
    /// vain.
    pub(crate) fn has_departing_orphans(&self) -> bool {
        let mut found = false;
        self.orphans.visit(self.inodes(), |inode| {
            found = has_background_threads()
                && inode.core().links == 0
                && inode.has_only_departing_references()
                && !inode.stays.load(Ordering::Relaxed);
            !found
        });
        found
    }

    /// Has no thread wait again for the orphans there are now, because the caller has waited in
    /// vain, until a reference to the inode is dropped.
    pub(crate) fn await_no_more(&self) {
        self.orphans.visit(self.inodes(), |inode| {
            inode.stays.store(true, Ordering::Relaxed);
            true
        });
    }
}

fn departure_of(inode: &Inode) -> Departure {
    let has_space = inode.sectors() > 0 || inode.cached().is_some_and(|cached| cached.delayed() > 0);
    if !has_space || inode.stays.load(Ordering::Relaxed) {
        Departure::None
    } else if inode.core().links > 0 || !inode.has_references() {
        Departure::Soon
    } else if inode.has_only_departing_references() || has_background_threads() {
        Departure::WithLastUser
    } else {
        // In a model no time passes.
        Departure::None
    }
}
