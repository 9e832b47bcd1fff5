//! The directory on which a volume was last mounted, as its superblock records it.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::Volume;
use crate::error::Result;

impl Volume {
    /// Implements [`ServerVolume::set_last_mounted`](crate::server::ServerVolume::set_last_mounted).
    pub(crate) fn set_last_mounted(&self, dir: &Path) -> Result<()> {
        let dir = dir.as_os_str().as_bytes();
        // One credit: the block of the superblock.
        self.engine.transact(1, |handle| {
            self.engine.counts().set_last_mounted(handle, dir);
            Ok(())
        })
    }

    /// Returns the directory on which the volume was last mounted, without the padding; empty if
    /// none is recorded.
    #[must_use]
    pub fn last_mounted(&self) -> Vec<u8> {
        self.engine.counts().current().last_mounted().to_vec()
    }
}
