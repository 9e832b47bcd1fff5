//! Making an inode durable.

use super::InodeRef;
use crate::error::Result;

impl InodeRef {
    /// Makes the inode durable, and the directory entries that were created before. Blocks until
    /// the commit is durable.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// let dir = volume.create_dir("/dir", 0o755)?;
    /// dir.sync()?;
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error if the device fails, or has failed before (I8).
    pub fn sync(&self) -> Result<()> {
        if self.inode.has_lazy_times() {
            self.engine.transact(1, |handle| {
                self.inode.fold_lazy(handle);
                Ok(())
            })?;
        }
        self.commit()
    }

    pub(crate) fn commit(&self) -> Result<()> {
        if self.engine.is_read_only() {
            return Ok(());
        }
        self.engine.health().check()?;
        // A commit flushes data that was written before it closed its transaction, including this
        // thread's data.
        let changed_in = self.inode.changed_in();
        if !self.engine.journal().is_committed(changed_in) && self.engine.journal().commit(changed_in)? {
            return Ok(());
        }
        self.engine.journal().flush()
    }
}
