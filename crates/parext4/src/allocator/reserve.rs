//! Claims of free blocks, made before the blocks are searched.
//!
//! Responsible for the counter of unclaimed blocks. Invariant: the groups and windows have at least as many free blocks as
//! are claimed and not yet allocated.

use super::Allocator;
use crate::credentials::Credentials;
use crate::error::{Error, Result};
use crate::sync::atomic::Ordering;

/// Claimed blocks that a later step needs (I5). Dropping it releases the blocks that were not used.
#[derive(Debug)]
#[must_use]
pub(crate) struct Reservation<'a> {
    allocator: &'a Allocator,
    blocks: u32,
}

impl Reservation<'_> {
    /// Removes `blocks` from the reservation, to allocate them. Returns false, without effect, if it has fewer.
    pub(super) fn take(&mut self, blocks: u32) -> bool {
        let enough = self.blocks >= blocks;
        if enough {
            self.blocks -= blocks;
        }
        enough
    }

    /// Adds the blocks of `other`.
    pub(crate) fn add(&mut self, other: Reservation<'_>) {
        self.blocks += other.detach();
    }

    /// Returns the number of blocks, which stay claimed until [`Allocator::attach`].
    pub(crate) fn detach(mut self) -> u32 {
        std::mem::take(&mut self.blocks)
    }

    /// Returns true if it has at least `blocks`.
    pub(crate) fn has(&self, blocks: u32) -> bool {
        self.blocks >= blocks
    }

    /// Claims the missing blocks so that the reservation has at least `blocks`.
    ///
    /// # Errors
    /// [`Error::NoSpace`], with the reservation unchanged.
    pub(crate) fn top_up(&mut self, blocks: u32) -> Result<()> {
        let missing = blocks.saturating_sub(self.blocks);
        self.allocator.claim(u64::from(missing), 0)?;
        self.blocks += missing;
        Ok(())
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if self.blocks > 0 {
            self.allocator.unclaim(u64::from(self.blocks));
        }
    }
}

impl Allocator {
    /// Returns a reservation that was [detached](Reservation::detach).
    pub(crate) fn attach(&self, blocks: u32) -> Reservation<'_> {
        Reservation { allocator: self, blocks }
    }

    /// Claims `blocks` for metadata. May use the pool.
    ///
    /// # Errors
    /// [`Error::NoSpace`].
    pub(crate) fn reserve(&self, blocks: u32) -> Result<Reservation<'_>> {
        self.claim(u64::from(blocks), 0)?;
        Ok(Reservation { allocator: self, blocks })
    }

    /// Like [`reserve`](Self::reserve), for data of a caller with `credentials`. Data may not use the pool.
    ///
    /// # Errors
    /// [`Error::NoSpace`].
    pub(crate) fn reserve_data(&self, blocks: u32, credentials: Credentials) -> Result<Reservation<'_>> {
        self.claim_data(u64::from(blocks), credentials)?;
        Ok(Reservation { allocator: self, blocks })
    }

    /// Claims `blocks` for data. Leaves the pool, and the blocks reserved for root unless the caller may use them.
    pub(super) fn claim_data(&self, blocks: u64, credentials: Credentials) -> Result<()> {
        self.claim(blocks, self.left_by_data(credentials))
    }

    /// Returns true if a claim of `blocks` for data may fail soon: if there are fewer than twice as many, and some for other writers. A
    /// cluster counts as one block.
    pub(crate) fn is_short_of(&self, blocks: u64, credentials: Credentials) -> bool {
        const MARGIN: i64 = 1024;
        let wanted = i64::try_from(blocks).unwrap_or(i64::MAX).saturating_mul(2).saturating_add(MARGIN);
        self.unclaimed.load(Ordering::Relaxed) - self.left_by_data(credentials) < wanted
    }

    /// Returns the number of blocks that data leaves to metadata and to root.
    fn left_by_data(&self, credentials: Credentials) -> i64 {
        let reserved = if credentials.may_use_reserved_blocks() { 0 } else { self.reserved };
        self.pool + reserved
    }

    /// Claims blocks permanently until only `blocks` are left for data. A negative number also claims from the pool.
    #[cfg(shuttle)]
    pub(crate) fn leave(&self, blocks: i64) {
        let keep = (self.pool + blocks).max(0);
        let _ =
            self.unclaimed.fetch_update(Ordering::Acquire, Ordering::Relaxed, |free| Some(free.min(keep)));
    }

    pub(super) fn claim(&self, blocks: u64, leave: i64) -> Result<()> {
        if blocks == 0 {
            // An empty claim succeeds even if the pool is in use.
            return Ok(());
        }
        let want = i64::try_from(blocks).map_err(|_| Error::NoSpace)?;
        // Acquire pairs with the Release in `unclaim`: the counted blocks are in their groups, and the groups' hints include
        // them.
        self.unclaimed
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, |free| {
                free.checked_sub(want).filter(|&rest| rest >= leave)
            })
            .map(drop)
            .map_err(|_| Error::NoSpace)
    }

    /// Releases a claim, or counts blocks that became allocatable. They must be in their groups before.
    pub(super) fn unclaim(&self, blocks: u64) {
        self.unclaimed.fetch_add(i64::try_from(blocks).unwrap_or(0), Ordering::Release);
    }
}
