//! Delayed allocation: space reserved for dirty pages, whose blocks are allocated at write-back.
//!
//! This module claims blocks for such data and for the tree blocks that will map it. Invariant: for
//! `n` delayed blocks, `n` plus one block for each 32 of them, rounded up, are claimed. With
//! `bigalloc`, the claim for the data is one cluster for each cluster that gets any of the `n`
//! blocks. The file lists these clusters.

use super::{Allocator, Reservation};
use crate::convert::saturating_u32;
use crate::credentials::Credentials;
use crate::error::Result;
use crate::sync::atomic::Ordering;

/// Number of data blocks for which one tree block is claimed. With blocks of 1 KiB a leaf has 84
/// entries, and a leaf that was split is half full, so each data block could become an extent of
/// its own.
const PER_TREE_BLOCK: u64 = 32;

/// Number of clusters that are kept free for the tree of a contiguous write.
const SPARE: u64 = 8;

/// Returns the number of tree blocks to claim for `data` blocks.
fn tree_blocks(data: u64) -> u64 {
    data.div_ceil(PER_TREE_BLOCK)
}

impl Allocator {
    /// Claims space for `blocks` of data that will be written back, of a caller with `credentials`.
    /// The tree blocks may come from the pool.
    ///
    /// # Errors
    /// [`NoSpace`](crate::Error::NoSpace). So the writer gets the error, and write-back does not.
    pub(crate) fn delay(&self, blocks: u32, credentials: Credentials) -> Result<()> {
        let blocks = u64::from(blocks);
        // Both numbers are rounded up, because another thread may pass the next multiple first.
        let (data, tree) = (saturating_u32(self.data(blocks)), saturating_u32(tree_blocks(blocks)));
        let mut claim = self.reserve_both(data, tree, credentials)?;
        let before = self.delayed.fetch_add(blocks, Ordering::Relaxed);
        let taken = claim.take(saturating_u32(self.claim_of(before, blocks)));
        debug_assert!(taken, "the claim was rounded up");
        Ok(())
    }

    /// Claims `clusters` in which delayed blocks will lie, of a caller with `credentials`.
    ///
    /// # Errors
    /// [`NoSpace`](crate::Error::NoSpace).
    pub(crate) fn delay_clusters(&self, clusters: u32, credentials: Credentials) -> Result<()> {
        let claimed = self.reserve_data(clusters, credentials)?.detach();
        debug_assert_eq!(claimed, clusters);
        self.delayed_clusters.fetch_add(clusters.into(), Ordering::Relaxed);
        Ok(())
    }

    /// Ends the delay of `clusters`, which are about to be allocated or are not needed any more.
    /// Returns their claim.
    pub(crate) fn undelay_clusters(&self, clusters: u32) -> Reservation<'_> {
        let mut claim = self.begin_attaching();
        self.delayed_clusters.fetch_sub(clusters.into(), Ordering::SeqCst);
        claim.put_back(clusters);
        claim
    }

    /// Delays a cluster again, out of `claim`. If the claim has no blocks left, claims the cluster
    /// even if that exceeds the free clusters.
    pub(crate) fn delay_cluster_again(&self, claim: &mut Reservation<'_>) {
        if !claim.take(1) {
            self.unclaimed.fetch_sub(1, Ordering::Acquire);
        }
        self.delayed_clusters.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends the delay of `blocks` of data, which are about to be allocated or are not needed any
    /// more. Returns their claim.
    pub(crate) fn undelay(&self, blocks: u32) -> Reservation<'_> {
        let blocks = u64::from(blocks);
        // This comes first, so that a thread that waits for space finds the blocks delayed or
        // claimed.
        let mut claim = self.begin_attaching();
        let before = self.delayed.fetch_sub(blocks, Ordering::SeqCst);
        claim.put_back(saturating_u32(self.claim_of(before.saturating_sub(blocks), blocks)));
        claim
    }

    /// Delays `blocks` of data again that could not be allocated, out of the claim that
    /// [`undelay`](Self::undelay) returned.
    pub(crate) fn delay_again(&self, reservation: Reservation<'_>, blocks: u32) {
        let before = self.delayed.fetch_add(blocks.into(), Ordering::Relaxed);
        let want = self.claim_of(before, blocks.into());
        let have = u64::from(reservation.detach());
        // One tree block may be missing. It is claimed even if that exceeds the free blocks.
        if have >= want {
            self.unclaim(have - want);
        } else {
            self.unclaimed.fetch_sub(i64::try_from(want - have).unwrap_or(0), Ordering::Acquire);
        }
    }

    /// Returns true if `bytes` of data of a caller with `credentials` fit into holes, provided that
    /// the delayed blocks need no tree blocks.
    pub(crate) fn fits_without_trees(&self, bytes: u64, credentials: Credentials) -> bool {
        let trees = tree_blocks(self.delayed.load(Ordering::Relaxed));
        let clusters = bytes.div_ceil(self.layout.cluster_bytes()) + SPARE;
        self.has_unclaimed(clusters.saturating_sub(trees), credentials)
    }

    /// Returns the number of claimed blocks, including the tree blocks.
    pub(crate) fn delayed_blocks(&self) -> u64 {
        let blocks = self.delayed.load(Ordering::SeqCst);
        let clusters = self.delayed_clusters.load(Ordering::SeqCst);
        self.blocks_in(self.data(blocks) + clusters + tree_blocks(blocks))
    }

    /// Returns the number of blocks to claim when `blocks` are added to `before` blocks. The sum
    /// does not depend on the order in which threads add and remove blocks.
    fn claim_of(&self, before: u64, blocks: u64) -> u64 {
        self.data(blocks) + tree_blocks(before + blocks) - tree_blocks(before)
    }

    /// Returns the number of units that are claimed for the data of `blocks`, without the clusters
    /// that are claimed separately.
    fn data(&self, blocks: u64) -> u64 {
        if self.layout.cluster_bits == 0 { blocks } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::volume;
    use super::Credentials;
    use crate::sync::atomic::Ordering;

    #[test]
    fn what_is_kept_comes_back() {
        let volume = volume();
        let allocator = volume.engine.allocator();
        let free = || allocator.unclaimed.load(Ordering::Relaxed);
        let before = free();
        for blocks in [1, 31, 1, 33, 500] {
            allocator.delay(blocks, Credentials::root()).unwrap();
        }
        assert_eq!(allocator.delayed_blocks(), 566 + 18);
        assert_eq!(before - free(), 566 + 18);
        allocator.delay_again(allocator.undelay(40), 40);
        for blocks in [66, 250, 249, 1] {
            drop(allocator.undelay(blocks));
        }
        assert_eq!((free(), allocator.delayed_blocks()), (before, 0));
    }

    #[test]
    fn an_empty_claim_succeeds_while_the_pool_is_in_use() {
        let volume = volume();
        let allocator = volume.engine.allocator();
        let all = u32::try_from(allocator.unclaimed.load(Ordering::Relaxed)).unwrap();
        allocator.delay_again(allocator.reserve(0).unwrap(), all + 1);
        assert!(allocator.reserve(1).is_err() && allocator.reserve(0).is_ok());
        drop(allocator.undelay(all + 1));
    }

    #[test]
    fn no_more_is_kept_than_there_is() {
        let volume = volume();
        let allocator = volume.engine.allocator();
        let mut kept = 0;
        while allocator.delay(64, Credentials::root()).is_ok() {
            kept += 64;
        }
        assert!(kept > 1000 && allocator.reserve_data(70, Credentials::root()).is_err());
        drop(allocator.undelay(kept));
        drop(allocator.reserve_data(1000, Credentials::root()).unwrap());
    }
}
