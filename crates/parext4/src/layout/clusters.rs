//! Clusters: the unit of allocation of a volume with `bigalloc`. Without the feature a cluster is a
//! block.
//!
//! Clusters begin at block 0 of the volume and of each file, so a block has the same place in its
//! cluster in the file and on the volume.

use parext4_format::{BlockRange, FileBlock, FsBlock};

use super::Layout;

impl Layout {
    /// Returns the number of blocks in a cluster.
    pub(crate) fn cluster_blocks(&self) -> u32 {
        1 << self.cluster_bits
    }

    /// Returns the size of a cluster, in bytes.
    pub(crate) fn cluster_bytes(&self) -> u64 {
        u64::from(self.block_size.bytes()) << self.cluster_bits
    }

    /// Returns `blocks` rounded up to whole clusters.
    pub(crate) fn round_to_clusters(&self, blocks: u64) -> u64 {
        blocks.next_multiple_of(self.cluster_blocks().into())
    }

    /// Returns the number of blocks that `bytes` bytes fill in whole clusters.
    pub(crate) fn allocated_for(&self, bytes: u64) -> u64 {
        self.round_to_clusters(self.block_size.blocks_for(bytes))
    }

    /// Returns `blocks` of a file, rounded out to clusters. The last cluster of the largest file
    /// ends before a block number overflows.
    pub(crate) fn clusters_of(&self, blocks: BlockRange) -> BlockRange {
        let start = blocks.start().to_u64() >> self.cluster_bits << self.cluster_bits;
        BlockRange::clamped(start, self.round_to_clusters(blocks.end()))
    }

    /// Returns the file blocks of the cluster that has `block`.
    pub(crate) fn cluster_of(&self, block: FileBlock) -> BlockRange {
        self.clusters_of(BlockRange::of_block(block))
    }

    /// Returns the first block of the cluster that has `block`.
    pub(crate) fn cluster_start(&self, block: FsBlock) -> FsBlock {
        FsBlock(block.get() >> self.cluster_bits << self.cluster_bits)
    }

    /// Returns true if `blocks` of a file are whole clusters.
    pub(crate) fn is_whole_clusters(&self, blocks: BlockRange) -> bool {
        self.clusters_of(blocks) == blocks
    }

    /// Returns the layout that counts in clusters whatever this one counts in blocks, except sizes
    /// in bytes.
    pub(crate) fn in_clusters(&self) -> Self {
        let bits = self.cluster_bits;
        Self {
            blocks_count: self.blocks_count >> bits,
            blocks_per_group: self.blocks_per_group >> bits,
            cluster_bits: 0,
            system: self.system.iter().map(|&(start, end)| (start >> bits, end >> bits)).collect(),
            ..self.clone()
        }
    }

    /// Rounds sorted ranges of blocks out to clusters, and joins ranges that then touch.
    pub(super) fn round_out(&self, zones: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
        let mut rounded: Vec<(u64, u64)> = Vec::with_capacity(zones.len());
        for (start, end) in zones {
            let start = self.cluster_start(FsBlock(start)).get();
            let end = self.round_to_clusters(end);
            match rounded.last_mut() {
                Some(last) if start <= last.1 => last.1 = end,
                _ => rounded.push((start, end)),
            }
        }
        rounded
    }
}
