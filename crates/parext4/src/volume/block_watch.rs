//! Watching the number of blocks of files.

use parext4_format::InodeNo;

use super::Volume;

impl Volume {
    /// Implements [`ServerVolume::watch_blocks`](crate::server::ServerVolume::watch_blocks).
    pub(crate) fn watch_blocks(&self, watcher: impl Fn(InodeNo) + Send + Sync + 'static) {
        self.engine.block_watch().set(Box::new(watcher));
    }
}
