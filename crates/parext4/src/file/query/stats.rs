//! Statistics of one file.

use crate::file::DirectFile;
use crate::stats::{Explanation, Stats};

impl DirectFile {
    /// Returns statistics of the operations on this file's data since the inode was loaded into
    /// memory. The inode stays loaded at least as long as the file is open. They are always
    /// collected.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let file = volume.open_direct("/file", &parext4::OpenOptions::read_write().create(true))?;
    /// file.write_all_at(&parext4::AlignedBuf::zeroed(4096), 8192)?;
    /// assert_eq!(file.stats().admitted().total(), 1);
    /// # Ok::<(), parext4::Error>(())
    /// ```
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.inode().usage.stats(self.engine().policy())
    }

    /// Like [`Volume::explain`](crate::Volume::explain), for the waits in this file.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let file = volume.open_direct("/file", &parext4::OpenOptions::read_write().create(true))?;
    /// file.write_all_at(&parext4::AlignedBuf::zeroed(4096), 8192)?;
    /// // The volume was opened without `VolumeOptions::explain`.
    /// assert!(file.explain().is_empty());
    /// # Ok::<(), parext4::Error>(())
    /// ```
    #[must_use]
    pub fn explain(&self) -> Vec<Explanation> {
        self.inode().usage.explanations()
    }
}
