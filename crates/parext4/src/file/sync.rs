//! Making a file durable.

use super::File;
use crate::error::Result;
use crate::inode::Node;

impl File {
    /// Makes the file's data durable, and of its attributes what is needed to read it back.
    ///
    /// # Errors
    /// If the device fails, or has failed before (I8).
    pub fn sync_data(&self) -> Result<()> {
        self.settle_cache()?;
        self.node.commit()
    }

    /// Makes the file's data and all its attributes durable.
    ///
    /// # Errors
    /// As [`sync_data`](Self::sync_data).
    pub fn sync_all(&self) -> Result<()> {
        self.settle_cache()?;
        self.node.sync()
    }
}

impl Node {
    /// Makes the inode durable, and with it the directory entries that were made before.
    ///
    /// # Errors
    /// If the device fails, or has failed before (I8).
    pub fn sync(&self) -> Result<()> {
        if self.inode.has_lazy_times() {
            self.volume.transact(1, |handle| {
                self.inode.fold_lazy(handle);
                Ok(())
            })?;
        }
        self.commit()
    }

    pub(super) fn commit(&self) -> Result<()> {
        if self.volume.is_read_only() {
            return Ok(());
        }
        self.volume.health.check()?;
        // A commit flushes data that was written before it closed its transaction, ours included.
        let changed_in = self.inode.changed_in();
        if !self.volume.journal.is_committed(changed_in) && self.volume.journal.commit(changed_in)? {
            return Ok(());
        }
        self.volume.journal.flush()
    }
}
