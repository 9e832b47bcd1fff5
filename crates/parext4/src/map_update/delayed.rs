//! The space that dirty pages have reserved (H29), in blocks and in clusters.
//!
//! Responsible for keeping the claims of the allocator and of the file in step. Without `bigalloc`
//! each delayed block has a block claimed for it. With it, a delayed block in a cluster that the
//! file does not have shares the claim of that cluster, and
//! [`DelayedClusters`](crate::inode::Cached) lists these clusters.

use parext4_format::FileBlock;
use smallvec::SmallVec;

use super::blocks::FillOptions;
use super::clusters::{HolePart, has_cluster, without_place};
use crate::allocator::{BlockSource, Reservation};
use crate::block_map::BlockMap;
use crate::convert::saturating_u32;
use crate::credentials::Credentials;
use crate::engine::Engine;
use crate::error::Result;
use crate::inode::{Cached, Inode};
use crate::sync::Arc;

/// Clusters of one file whose claims a fill has taken.
pub(super) type Taken = SmallVec<[u32; 4]>;

impl Engine {
    /// Reserves space for `blocks` of a file, holes that are about to be dirty, on behalf of a
    /// caller with `credentials`.
    ///
    /// # Errors
    /// [`NoSpace`](crate::Error::NoSpace), with nothing reserved.
    pub(crate) fn delay(
        &self,
        inode: &Arc<Inode>,
        cached: &Cached,
        blocks: &[FileBlock],
        credentials: Credentials,
    ) -> Result<()> {
        self.delay_with_pointers(inode, blocks, || self.delay_data(inode, cached, blocks, credentials))
    }

    /// Fails if [`delay`](Self::delay) of `blocks`, a part after the other, would. Reserves
    /// nothing, also no indirect blocks.
    ///
    /// # Errors
    /// [`NoSpace`](crate::Error::NoSpace), [`QuotaExceeded`](crate::Error::QuotaExceeded).
    pub(crate) fn try_delay(
        &self,
        inode: &Arc<Inode>,
        cached: &Cached,
        blocks: &[FileBlock],
        credentials: Credentials,
    ) -> Result<()> {
        // Each part needs a block of the tree for a moment.
        let _spare = self.allocator().reserve_data(1, credentials)?;
        self.delay_data(inode, cached, blocks, credentials)?;
        let count = saturating_u32(blocks.len());
        drop(self.undelay(inode, count));
        self.end_delay(inode, cached, count, blocks.iter().copied());
        Ok(())
    }

    /// Reserves space for the data of `blocks`, and for the extent tree.
    fn delay_data(
        &self,
        inode: &Arc<Inode>,
        cached: &Cached,
        blocks: &[FileBlock],
        credentials: Credentials,
    ) -> Result<()> {
        let count = saturating_u32(blocks.len());
        let bits = self.layout().cluster_bits;
        if bits == 0 {
            inode.delay_quota(count, self.layout().block_size, credentials)?;
        }
        if let Err(error) = self.allocator().delay(count, credentials) {
            self.undelay_quota_of_blocks(inode, count);
            return Err(error);
        }
        if bits == 0 {
            cached.add_delayed(count);
            return Ok(());
        }
        let claimed = self.delay_clusters(inode, cached, blocks, credentials);
        if claimed.is_err() {
            drop(self.allocator().undelay(count));
        }
        claimed
    }

    /// Ends the reservations of `count` blocks, but not of clusters. Returns the claim of the
    /// blocks and of the tree, or with `bigalloc` of the tree alone. The caller also calls
    /// [`end_delay`](Self::end_delay) or [`delay_again`](Self::delay_again).
    pub(crate) fn undelay(&self, inode: &Inode, count: u32) -> Reservation<'_> {
        self.undelay_quota_of_blocks(inode, count);
        self.allocator().undelay(count)
    }

    /// Reserves space again, out of `claim`, for `count` blocks that could not be allocated.
    pub(crate) fn delay_again(&self, inode: &Inode, claim: Reservation<'_>, count: u32) {
        self.allocator().delay_again(claim, count);
        if self.layout().cluster_bits == 0 {
            inode.delay_quota_again(count, self.layout().block_size);
        }
    }

    /// Ends the reservation of blocks of the quotas, which have clusters reserved instead with
    /// `bigalloc`.
    fn undelay_quota_of_blocks(&self, inode: &Inode, count: u32) {
        if self.layout().cluster_bits == 0 {
            inode.undelay_quota(count, self.layout().block_size);
        }
    }

    fn delay_clusters(
        &self,
        inode: &Inode,
        cached: &Cached,
        blocks: &[FileBlock],
        credentials: Credentials,
    ) -> Result<()> {
        let map = match self.block_map(inode)? {
            BlockMap::Extents(map) => map,
            // Clusters have more than one block only on volumes with extents; contents in the inode
            // have no blocks.
            BlockMap::Indirect(_) | BlockMap::Inline(_) => return Ok(()),
        };
        cached.clusters.add(
            blocks.iter().map(|block| (self.file_cluster(*block), *block)),
            |block| has_cluster(self.layout(), map, block),
            |clusters| {
                let (count, unit) = (clusters << self.layout().cluster_bits, self.layout().block_size);
                inode.delay_quota(count, unit, credentials)?;
                if let Err(error) = self.allocator().delay_clusters(clusters, credentials) {
                    inode.undelay_quota(count, unit);
                    return Err(error);
                }
                cached.add_delayed(count);
                Ok(())
            },
        )
    }

    /// Stops counting `blocks` as delayed, which were allocated, or will not be, and releases the
    /// clusters that none of them needs any more. `count` is the number of blocks.
    pub(crate) fn end_delay(
        &self,
        inode: &Inode,
        cached: &Cached,
        count: u32,
        blocks: impl IntoIterator<Item = FileBlock>,
    ) {
        if self.layout().cluster_bits == 0 {
            cached.remove_delayed(count);
            return;
        }
        let clusters = cached.clusters.remove(blocks.into_iter().map(|block| self.file_cluster(block)));
        drop(self.release_clusters(inode, cached, clusters));
    }

    /// Ends the reservation of `clusters`, and returns their claim.
    fn release_clusters(&self, inode: &Inode, cached: &Cached, clusters: u32) -> Reservation<'_> {
        let count = clusters << self.layout().cluster_bits;
        cached.remove_delayed(count);
        inode.undelay_quota(count, self.layout().block_size);
        self.allocator().undelay_clusters(clusters)
    }

    /// Takes the claims of the clusters in which `parts` of a file's holes get blocks, and adds
    /// them to the source of the blocks. The claims of other clusters stay, so a thread that finds
    /// a cluster allocated takes nothing.
    pub(super) fn take_delayed<'a>(
        &'a self,
        inode: &Inode,
        options: &mut FillOptions<'_, 'a>,
        parts: &[HolePart],
    ) -> Taken {
        let bits = self.layout().cluster_bits;
        let (Some(cached), BlockSource::Claim(claim), 1..) = (options.delayed, &mut options.source, bits)
        else {
            return Taken::new();
        };
        let ranges = without_place(parts).map(|part| {
            let clusters = self.layout().clusters_of(part);
            (clusters.start().get() >> bits, saturating_u32(clusters.len() >> bits))
        });
        let taken: Taken = ranges.flat_map(|(first, count)| cached.clusters.take(first, count)).collect();
        claim.add(self.release_clusters(inode, cached, saturating_u32(taken.len())));
        taken
    }

    /// Returns the claims of those clusters among `taken` that were not allocated, because the fill
    /// ended at file block `end`: all claims if it mapped nothing, because the first cluster may
    /// begin before the first hole.
    pub(super) fn return_delayed(
        &self,
        inode: &Inode,
        options: &mut FillOptions<'_, '_>,
        taken: &Taken,
        end: Option<u64>,
    ) {
        let (Some(cached), BlockSource::Claim(claim)) = (options.delayed, &mut options.source) else {
            return;
        };
        let bits = self.layout().cluster_bits;
        let is_left = |cluster: u32| end.is_none_or(|end| u64::from(cluster) << bits >= end);
        for &cluster in taken.iter().filter(|&&cluster| is_left(cluster)) {
            self.allocator().delay_cluster_again(claim);
            inode.delay_quota_again(1 << bits, self.layout().block_size);
            cached.add_delayed(1 << bits);
            cached.clusters.put_back(cluster);
        }
    }

    fn file_cluster(&self, block: FileBlock) -> u32 {
        block.get() >> self.layout().cluster_bits
    }
}
