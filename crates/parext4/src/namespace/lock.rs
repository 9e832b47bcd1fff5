//! Locking the entries of several directories.

use smallvec::SmallVec;

use crate::inode::Inode;
use crate::sync::{Arc, WriteGuard};

/// Exclusive access to the entries of directories.
#[derive(Debug)]
#[must_use]
pub(super) struct LockedDirs<'a> {
    _guards: SmallVec<[WriteGuard<'a, u64>; 4]>,
}

/// Locks the entries of all `dirs`, each once, in ascending inode number. Blocks while another
/// thread holds one of them.
pub(super) fn lock_all<'a>(dirs: impl IntoIterator<Item = &'a Arc<Inode>>) -> LockedDirs<'a> {
    let mut dirs: SmallVec<[&Arc<Inode>; 4]> = dirs.into_iter().collect();
    dirs.sort_unstable_by_key(|dir| dir.ino());
    dirs.dedup_by_key(|dir| dir.ino());
    LockedDirs { _guards: dirs.into_iter().map(|dir| dir.change_entries()).collect() }
}
