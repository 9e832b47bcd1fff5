//! Write-back of data that replaces a file's contents: by a rename over the old file, or after a
//! truncation to zero. Many programs replace files in these ways without a sync, and expect the old
//! or the new contents after a crash. As the kernel does with `auto_da_alloc`, a rename writes the
//! new file's data back before its transaction, and closing a file that was truncated to zero
//! starts its write-back.

use super::File;

impl Drop for File {
    /// Starts the write-back of a file that was truncated to zero and written again.
    fn drop(&mut self) {
        let (engine, inode) = (self.file.engine(), self.file.inode());
        if !inode.take_emptied() || !self.file.node.may_have_dirty_pages() || engine.write_back_soon(inode) {
            return;
        }
        // Without background threads, this thread writes back. The file's handles report a failure
        // at their next sync.
        if let Err(error) = self.file.node.write_back_data() {
            log::warn!("writing back inode {}: {error}", inode.ino());
        }
    }
}
