//! Memory for metadata: the budget that its caches share, and what is evicted first.

mod budget;
mod shards;

pub(crate) use budget::{Budget, Charge, Evict, NEVER};
pub(crate) use shards::Shards;

use crate::volume::Volume;

/// Metadata that a volume has in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MetadataCacheStats {
    /// The budget: [`OpenOptions::metadata_cache`](crate::OpenOptions), in bytes.
    pub budget: u64,
    /// What is in memory, in bytes, by estimate. More than the budget only if more is in use.
    pub bytes: u64,
    /// Inodes in memory.
    pub inodes: u64,
    /// Metadata blocks in memory.
    pub blocks: u64,
}

impl Volume {
    /// Returns how much metadata the volume has in memory.
    #[must_use]
    pub fn metadata_cache_stats(&self) -> MetadataCacheStats {
        let budget = self.inner.cache.budget();
        MetadataCacheStats {
            budget: budget.limit(),
            bytes: budget.used(),
            inodes: self.inner.inodes.len() as u64,
            blocks: self.inner.cache.len() as u64,
        }
    }
}
