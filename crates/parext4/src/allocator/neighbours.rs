//! The facts about a file's map that the allocator needs, to place new blocks beside the blocks of
//! the file.

use parext4_format::{FileBlock, FsBlock};

use crate::convert::saturating_u32;

/// The queries of a file's map that the allocator needs.
pub(crate) trait Neighbours {
    /// Returns true if the file has no blocks.
    fn is_empty(&self) -> bool;

    /// Returns the volume block with which file block `at` would continue the blocks before it.
    fn goal(&self, at: FileBlock) -> Option<FsBlock>;

    /// Returns the start of the hole that ends at file block `at`, but at least `low`; `at` if the
    /// block before is mapped.
    fn hole_before(&self, low: FileBlock, at: FileBlock) -> FileBlock;

    /// Returns the number of file blocks from `at` on that are in one run, but at most `most`.
    fn run_len(&self, at: FileBlock, most: u32) -> u32;
}

/// The map of a file, in clusters.
#[derive(Debug)]
pub(super) struct ClusterMap<'a, M> {
    pub map: &'a M,
    pub cluster_bits: u32,
}

impl<M: Neighbours> ClusterMap<'_, M> {
    /// Returns the first block of `cluster`, or the last block that the format can number if the
    /// cluster begins after it.
    fn block(&self, cluster: FileBlock) -> FileBlock {
        FileBlock::from_u64(cluster.to_u64() << self.cluster_bits).unwrap_or(FileBlock::MAX)
    }
}

impl<M: Neighbours> Neighbours for ClusterMap<'_, M> {
    fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    fn goal(&self, at: FileBlock) -> Option<FsBlock> {
        // A file block and its volume block have the same offset in a cluster, so this is the start
        // of a cluster.
        Some(FsBlock(self.map.goal(self.block(at))?.get() >> self.cluster_bits))
    }

    fn hole_before(&self, low: FileBlock, at: FileBlock) -> FileBlock {
        let start = self.map.hole_before(self.block(low), self.block(at)).to_u64();
        // The file has the cluster in which the hole begins, unless the hole begins with that
        // cluster.
        let cluster = FileBlock::from_u64(start.div_ceil(1 << self.cluster_bits));
        cluster.map_or(at, |cluster| cluster.min(at))
    }

    fn run_len(&self, at: FileBlock, most: u32) -> u32 {
        let most = saturating_u32(u64::from(most) << self.cluster_bits);
        self.map.run_len(self.block(at), most) >> self.cluster_bits
    }
}
