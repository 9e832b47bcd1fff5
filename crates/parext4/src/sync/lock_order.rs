//! The lock classes of the engine in their order (I10), and the check of that order in debug
//! builds.
//!
//! Invariant: a thread blocks on a lock only if it holds no lock of the same or of a later class.
//! The exceptions are the classes of which a thread may hold several locks ([`Rank::may_repeat`]).

/// The lock classes, in the order in which a thread acquires them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Rank {
    /// The position of one file handle, while a read or a write moves it.
    FilePosition,
    /// The outcome of closing the volume, while it is being closed.
    Close,
    /// The volume-wide lock of directory moves, which prevents cycles in the tree.
    Rename,
    /// The entries of one directory. A thread acquires several in the order of their inode numbers.
    Directory,
    /// A byte range of one file.
    Range,
    /// The offset of the next append to one file. A thread holds the lock only to read or change
    /// the offset.
    Tail,
    /// The extended attributes of one inode.
    Xattrs,
    /// The header of one quota file, while an entry is added.
    QuotaFile,
    /// The list of files with dirty pages.
    DirtyFiles,
    /// The right to commit.
    Commit,
    /// The right to run a checkpoint round.
    Checkpoint,
    /// The committed blocks that are not at their home locations.
    Pending,
    /// A journal handle. It is not a lock, but a commit waits for it, so it has a rank.
    Handle,
    /// The list of orphan inodes.
    Orphans,
    /// The first load of one inode's extent map.
    BlockMapLoad,
    /// The attributes of one inode.
    InodeCore,
    /// The extent map of one inode.
    ExtentMap,
    /// The allocation windows of one file.
    FileWindows,
    /// The run of free blocks that is being discarded.
    Trimming,
    /// The table of all allocation windows, by age.
    WindowTable,
    /// The free blocks of one allocation window.
    Window,
    /// The free extents and counters, or the inodes, of one block group.
    AllocGroup,
    /// The view of an extent map that readers see.
    MapView,
    /// One leaf of an extent map, while the map's lock is shared.
    MapLeaf,
    /// The clusters in which dirty pages of one file lack blocks.
    DelayedClusters,
    /// The user, group and project of one inode, to charge its space to them.
    Charges,
    /// The entries of one quota file that are in memory.
    Dquots,
    /// The journal's running transaction: its lists and credits.
    Transaction,
    /// The contents of one metadata block.
    MetaBlock,
    /// The shape of the tree of one file's pages.
    PageTree,
    /// The eviction queues of the page cache, and the free frames.
    PageQueues,
    /// Small tables, whose holders acquire no other lock: caches, reservations, statistics.
    Leaf,
}

#[cfg(debug_assertions)]
impl Rank {
    /// Returns true if a thread may hold several locks of this class.
    fn may_repeat(self) -> bool {
        // Directories are ordered by inode number (namespace::lock). Ranges of two files are held
        // together only if one of them is an unlinked inode that no other thread can reach.
        matches!(self, Self::Directory | Self::Range)
    }
}

/// The record that this thread holds a lock. Dropping it removes the record.
#[derive(Debug)]
#[must_use]
pub(crate) struct Held {
    #[cfg(debug_assertions)]
    rank: Rank,
    // The record belongs to the thread that acquired the lock.
    _not_send: std::marker::PhantomData<*const ()>,
}

/// Checks that this thread may wait for a lock of `rank`, and records that the thread holds it.
///
/// # Panics
/// In debug builds, if the thread holds a lock of the same or of a later class.
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

/// Records that this thread holds a lock of `rank`, which it acquired without waiting. Does not
/// check the order.
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
    use parext4_sync::thread_local;
    use std::cell::RefCell;

    thread_local! {
        static HELD: RefCell<Vec<Rank>> = const { RefCell::new(Vec::new()) };
    }

    pub(super) fn push(rank: Rank) {
        HELD.with(|held| {
            let mut held = held.borrow_mut();
            if let Some(&last) = held.iter().max() {
                let allowed = last < rank || (last == rank && rank.may_repeat());
                assert!(allowed, "lock order: acquiring {rank:?} while holding {held:?}");
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

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::*;

    #[test]
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
