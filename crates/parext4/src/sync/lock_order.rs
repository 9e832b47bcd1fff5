//! Every lock class of the engine in its order (I10), and the check of that order in debug builds.
//!
//! A thread may take a lock only if it holds none of a later class. Two locks of one class may be held
//! together only where [`Rank::may_repeat`] says how they are ordered among themselves.

/// The lock classes, first taken first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Rank {
    /// The volume-wide lock of directory moves, which keeps the tree free of cycles.
    Rename,
    /// The entries of one directory; several are taken in ascending inode number.
    Directory,
    /// A byte range of one file.
    Range,
    /// Where the next append to one file goes; held for a few instructions.
    Tail,
    /// The extended attributes of one inode.
    Xattrs,
    /// The files with dirty pages.
    DirtyFiles,
    /// One committer at a time.
    Commit,
    /// One checkpoint round at a time.
    Checkpoint,
    /// The committed blocks that are not at home.
    Pending,
    /// A journal handle: not a lock, but the commit waits for it, so it takes part in the order.
    Handle,
    /// The list of orphan inodes.
    Orphans,
    /// The first load of one inode's extent map.
    MapLoad,
    /// The attributes of one inode.
    InodeCore,
    /// The extent map of one inode.
    ExtentMap,
    /// The allocation windows of one file.
    FileWindows,
    /// The run of free blocks that is being discarded.
    Trimming,
    /// All allocation windows, by age.
    WindowTable,
    /// What is left of one allocation window.
    Window,
    /// The free extents and counters, or the inodes, of one block group.
    AllocGroup,
    /// What readers of an extent map are shown.
    MapView,
    /// One leaf of an extent map, for who shares the map.
    MapLeaf,
    /// The journal's running transaction: its lists and counters.
    Transaction,
    /// The contents of one metadata block.
    MetaBlock,
    /// The shape of the tree of one file's pages.
    PageTree,
    /// Which page is evicted next, and the free frames.
    PageQueues,
    /// Small tables whose holders take no other lock: caches, reservations, statistics.
    Leaf,
}

#[cfg(debug_assertions)]
impl Rank {
    /// Whether a thread may hold several locks of this class.
    fn may_repeat(self) -> bool {
        // Directories are taken in ascending inode number (namespace::lock). Ranges of two files are held
        // together only where one is of an unlinked inode that nobody else can reach.
        matches!(self, Self::Directory | Self::Range)
    }
}

/// Proof that the order was checked for one lock; dropping it says the lock is released.
#[derive(Debug)]
#[must_use]
pub(crate) struct Held {
    #[cfg(debug_assertions)]
    rank: Rank,
    // A rank belongs to the thread that took it.
    _not_send: std::marker::PhantomData<*const ()>,
}

/// Checks that this thread may take a lock of `rank` now, and notes that it holds it.
///
/// # Panics
/// In debug builds, if the thread holds a lock of a later class.
pub(crate) fn hold(rank: Rank) -> Held {
    #[cfg(debug_assertions)]
    checker::push(rank);
    let _ = rank;
    Held {
        #[cfg(debug_assertions)]
        rank,
        _not_send: std::marker::PhantomData,
    }
}

/// Notes that this thread holds a lock of `rank` that it acquired without waiting; the order is not checked.
pub(crate) fn hold_tried(rank: Rank) -> Held {
    #[cfg(debug_assertions)]
    checker::note(rank);
    let _ = rank;
    Held {
        #[cfg(debug_assertions)]
        rank,
        _not_send: std::marker::PhantomData,
    }
}

#[cfg(debug_assertions)]
impl Drop for Held {
    fn drop(&mut self) {
        checker::pop(self.rank);
    }
}

#[cfg(debug_assertions)]
mod checker {
    use super::Rank;
    use crate::sync::raw::thread_local;
    use std::cell::RefCell;

    thread_local! {
        static HELD: RefCell<Vec<Rank>> = const { RefCell::new(Vec::new()) };
    }

    pub(super) fn push(rank: Rank) {
        HELD.with(|held| {
            let mut held = held.borrow_mut();
            if let Some(&last) = held.iter().max() {
                let allowed = last < rank || (last == rank && rank.may_repeat());
                assert!(allowed, "lock order: {rank:?} taken while holding {held:?}");
            }
            held.push(rank);
        });
    }

    pub(super) fn note(rank: Rank) {
        HELD.with(|held| held.borrow_mut().push(rank));
    }

    pub(super) fn pop(rank: Rank) {
        HELD.with(|held| {
            let mut held = held.borrow_mut();
            if let Some(at) = held.iter().rposition(|&r| r == rank) {
                held.remove(at);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(debug_assertions)]
    fn inversion_panics_and_order_does_not() {
        let handle = hold(Rank::Handle);
        let map = hold(Rank::ExtentMap);
        assert!(std::panic::catch_unwind(|| hold(Rank::Range)).is_err());
        drop(handle);
        drop(map);
        let _range = hold(Rank::Range);
        let _again = hold(Rank::Range);
        let _handle = hold(Rank::Handle);
    }
}
