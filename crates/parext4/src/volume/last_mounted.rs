//! The directory on which a volume was last mounted, as its superblock records it.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::Volume;
use crate::error::Result;

impl Volume {
    /// Records in the superblock the directory on which the volume is mounted; `dumpe2fs` shows it.
    /// The first 64 bytes of the path are kept. Durable with the next commit.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// volume.set_last_mounted("/mnt/data")?;
    /// assert_eq!(volume.last_mounted(), b"/mnt/data");
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the volume cannot be changed.
    pub fn set_last_mounted(&self, dir: impl AsRef<Path>) -> Result<()> {
        let dir = dir.as_ref().as_os_str().as_bytes();
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
