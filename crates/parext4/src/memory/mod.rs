//! The memory of metadata: a budget that all caches of a volume share, and the order of eviction.
//!
//! Responsible for which entry is evicted next. The caches decide whether an entry may be evicted.
//! The page cache has a budget of its own (`page_cache`).

mod budget;
mod shards;
mod shrink;

pub(crate) use budget::{Budget, Charge, Evict, NEVER};
pub(crate) use shards::Shards;
pub(crate) use shrink::shrink_if_sparse;

/// Metadata that a volume has in memory, from
/// [`Volume::metadata_cache_stats`](crate::Volume::metadata_cache_stats).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MetadataCacheStats {
    /// The budget, in bytes ([`VolumeOptions::metadata_cache`](crate::VolumeOptions)).
    pub budget: u64,
    /// Estimated size of the metadata in memory, in bytes. Exceeds the budget only while more than
    /// that is in use.
    pub bytes: u64,
    /// Number of inodes in memory.
    pub inodes: u64,
    /// Number of metadata blocks in memory.
    pub blocks: u64,
}
