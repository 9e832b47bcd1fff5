//! What a volume counts: operations on file data, pages, and metadata in memory.

use super::Volume;
use crate::memory::MetadataCacheStats;
use crate::page_cache::PageCacheStats;
use crate::stats::{Explanation, Stats};

impl Volume {
    /// Returns what the operations on file data did since the volume was opened. Always counted.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.engine.usage.stats(self.engine.policy)
    }

    /// Returns why operations waited for each other, first what took the most time in all: one explanation for each pair
    /// of reasons, by the longest of those waits. Empty unless [`VolumeOptions::explain`](crate::VolumeOptions) is
    /// set.
    #[must_use]
    pub fn explain(&self) -> Vec<Explanation> {
        self.engine.usage.explanations()
    }

    /// Returns what the cache of file data holds, and what it has done.
    #[must_use]
    pub fn cache_stats(&self) -> PageCacheStats {
        self.engine.pages.stats()
    }

    /// Returns how much metadata the volume has in memory.
    #[must_use]
    pub fn metadata_cache_stats(&self) -> MetadataCacheStats {
        let budget = self.engine.cache.budget();
        MetadataCacheStats {
            budget: budget.limit(),
            bytes: budget.used(),
            inodes: self.engine.inodes.len() as u64,
            blocks: self.engine.cache.len() as u64,
        }
    }
}
