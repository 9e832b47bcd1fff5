//! The boundary of the allocator: callers count in blocks, and the allocator in clusters.
//!
//! The module is responsible for the conversion. Without `bigalloc` a cluster is a block, and
//! nothing changes.

use parext4_format::{BlockRange, FsBlock};

use super::{Allocator, Run};
use crate::convert::saturating_u32;

impl Allocator {
    /// Returns the cluster that has `block`.
    pub(super) fn cluster_of(&self, block: FsBlock) -> FsBlock {
        FsBlock(block.get() >> self.layout.cluster_bits)
    }

    /// Returns the first block of `cluster`.
    pub(super) fn block_of(&self, cluster: FsBlock) -> FsBlock {
        FsBlock(cluster.get() << self.layout.cluster_bits)
    }

    /// Returns the clusters that have a block of `[start, start + len)`.
    pub(super) fn clusters_of(&self, start: FsBlock, len: u32) -> Run {
        let first = self.cluster_of(start);
        let end = self.layout.round_to_clusters(start.get() + u64::from(len)) >> self.layout.cluster_bits;
        // There are no more clusters than blocks.
        Run { start: first, len: saturating_u32(end - first.get()) }
    }

    /// Returns the blocks of a run of clusters.
    pub(super) fn blocks_of(&self, run: Run) -> Run {
        Run { start: self.block_of(run.start), len: run.len << self.layout.cluster_bits }
    }

    /// Returns the number of blocks in `clusters`.
    pub(super) fn blocks_in(&self, clusters: u64) -> u64 {
        clusters << self.layout.cluster_bits
    }

    /// Returns the clusters of a file that have a block of `blocks`.
    pub(super) fn file_clusters(&self, blocks: BlockRange) -> BlockRange {
        let bits = self.layout.cluster_bits;
        BlockRange::clamped(
            blocks.start().to_u64() >> bits,
            self.layout.round_to_clusters(blocks.end()) >> bits,
        )
    }
}
