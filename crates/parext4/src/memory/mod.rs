//! Memory for metadata: the budget that its caches share, and what is evicted first.

mod budget;
mod shards;

pub(crate) use budget::{Budget, Charge, Evict, NEVER};
pub(crate) use shards::Shards;

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
