//! Returns the counters of a volume: operations on file data, pages, and metadata in memory.

use parext4_device::{Counter, Device};

use super::Volume;
use crate::memory::MetadataCacheStats;
use crate::page_cache::PageCacheStats;
use crate::stats::{Explanation, Stats};

impl Volume {
    /// Returns the counters of operations on file data since the volume was opened. They are always
    /// kept.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// volume.write("/a", "text")?;
    /// assert_eq!(volume.stats().waits, 0, "no other thread used the file");
    /// # Ok::<(), parext4::Error>(())
    /// ```
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.engine.usage().stats(self.engine.policy())
    }

    /// Returns why operations waited for each other: one explanation for each pair of reasons,
    /// which describes the longest of its waits. The pair with the longest total wait is first.
    /// Empty unless [`VolumeOptions::explain`](crate::VolumeOptions) is set.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use parext4::{MemDevice, MkfsOptions, VolumeOptions, mkfs};
    ///
    /// let device = Arc::new(MemDevice::new(16 << 20));
    /// mkfs(&*device, &MkfsOptions::new())?;
    /// let volume = VolumeOptions::new().explain(true).open_device(device)?;
    /// volume.write("/a", "text")?;
    /// for explanation in volume.explain() {
    ///     println!("{explanation:?}");
    /// }
    /// # Ok::<(), parext4::Error>(())
    /// ```
    #[must_use]
    pub fn explain(&self) -> Vec<Explanation> {
        self.engine.usage().explanations()
    }

    /// Returns the contents and the counters of the page cache.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// volume.write("/a", "text")?;
    /// let stats = volume.cache_stats();
    /// assert!(stats.memory <= stats.budget);
    /// # Ok::<(), parext4::Error>(())
    /// ```
    #[must_use]
    pub fn cache_stats(&self) -> PageCacheStats {
        self.engine.pages().stats()
    }

    /// Returns the counters that the device reports about itself; most devices report none.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// for counter in volume.device_counters() {
    ///     println!("{}: {}", counter.name, counter.value);
    /// }
    /// # Ok::<(), parext4::Error>(())
    /// ```
    #[must_use]
    pub fn device_counters(&self) -> Vec<Counter> {
        self.engine.device().counters()
    }

    /// Returns the number of removed files whose deletion in the background has not ended, see
    /// [`VolumeOptions::delete_in_background`](field@crate::VolumeOptions::delete_in_background).
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// volume.write("/a", "text")?;
    /// volume.remove_file("/a")?;
    /// assert_eq!(volume.pending_deletions(), 0, "this thread has deleted the file");
    /// # Ok::<(), parext4::Error>(())
    /// ```
    #[must_use]
    pub fn pending_deletions(&self) -> u64 {
        self.engine.deletions().pending()
    }

    /// Returns the amount of metadata that the volume keeps in memory.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// let stats = volume.metadata_cache_stats();
    /// assert!(stats.bytes > 0);
    /// # Ok::<(), parext4::Error>(())
    /// ```
    #[must_use]
    pub fn metadata_cache_stats(&self) -> MetadataCacheStats {
        let budget = self.engine.cache().budget();
        MetadataCacheStats {
            budget: budget.limit(),
            bytes: budget.used(),
            inodes: self.engine.inodes().len() as u64,
            blocks: self.engine.cache().len() as u64,
        }
    }
}
