//! Write-back of data that replaces a file's contents: by a rename over the old file, or after a truncation to zero.
//! Many programs replace files in these ways without a sync, and expect the old or the new contents after a crash. As
//! the kernel does with `auto_da_alloc`, a rename writes the new file's data back before its transaction, and closing a
//! file that was truncated to zero starts its write-back.

use super::{BufferedFile, HowToHold};
use crate::error::Result;
use crate::file::File;
use crate::inode::{Cached, FIXED, Node};

impl Node {
    /// Returns true if the file may have dirty pages. Takes every earlier write of this thread into account.
    pub(crate) fn may_have_dirty_pages(&self) -> bool {
        self.inode.cached().is_some_and(Cached::is_listed)
    }

    /// Writes back the file's dirty pages, so that the next commit makes them durable. The caller holds neither a range
    /// nor a handle.
    ///
    /// # Errors
    /// If the data cannot be written.
    pub(crate) fn write_back_data(&self) -> Result<()> {
        let file = File { node: self.clone(), dates: false, refusing: FIXED };
        file.write_back(0..u32::MAX, HowToHold::Wait)
    }
}

impl Drop for BufferedFile {
    /// Starts the write-back of a file that was truncated to zero and written again.
    fn drop(&mut self) {
        let (volume, inode) = (self.file.volume(), self.file.inode());
        if !inode.take_emptied() || !self.file.node.may_have_dirty_pages() || volume.write_back_soon(inode) {
            return;
        }
        // Without threads, this one writes back. The file's handles report a failure at their next sync.
        if let Err(error) = self.file.node.write_back_data() {
            tracing::warn!("writing back inode {}: {error}", inode.ino());
        }
    }
}
