//! Tells a server of files whose number of blocks has changed without a call of its own.

use std::fmt;

// Its orders are visible to ThreadSanitizer, unlike those inside `std::sync::OnceLock`.
use once_cell::sync::OnceCell;
use parext4_format::InodeNo;

use super::Engine;
use crate::inode::Inode;

type Watcher = Box<dyn Fn(InodeNo) + Send + Sync>;

/// The function that is called, if a server has set one.
#[derive(Default)]
pub(crate) struct BlockWatch(OnceCell<Watcher>);

impl BlockWatch {
    /// Sets the function, unless one is set already.
    pub(crate) fn set(&self, watcher: Watcher) {
        let _ = self.0.set(watcher);
    }
}

impl fmt::Debug for BlockWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockWatch").field("is_set", &self.0.get().is_some()).finish()
    }
}

impl Engine {
    /// Reports a file whose number of blocks write-back or the end of a preallocation has changed,
    /// after the change.
    pub(crate) fn note_changed_blocks(&self, inode: &Inode) {
        if let Some(watcher) = self.block_watch.0.get() {
            watcher(inode.ino());
        }
    }
}
