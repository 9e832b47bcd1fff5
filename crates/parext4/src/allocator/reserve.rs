//! Claims on free blocks, made before the blocks are looked for.

use super::Allocator;
use crate::allocator::reserved::is_unprivileged;
use crate::error::{Error, Result};
use crate::sync::atomic::Ordering;

/// Blocks claimed for metadata that a later step will need (I5). What is not used goes back on drop.
#[derive(Debug)]
#[must_use]
pub(crate) struct Reservation<'a> {
    allocator: &'a Allocator,
    blocks: u32,
}

impl Reservation<'_> {
    /// Takes blocks out of the reservation to allocate them.
    pub(super) fn take(&mut self, blocks: u32) -> bool {
        let enough = self.blocks >= blocks;
        if enough {
            self.blocks -= blocks;
        }
        enough
    }

    /// How many blocks are reserved; they stay so until [`Allocator::attach`].
    pub(crate) fn detach(mut self) -> u32 {
        std::mem::take(&mut self.blocks)
    }

    /// Returns true if it has at least `blocks`.
    pub(crate) fn has(&self, blocks: u32) -> bool {
        self.blocks >= blocks
    }

    /// Claims what is missing for `blocks` in all.
    ///
    /// # Errors
    /// [`Error::NoSpace`]; the reservation is as before.
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
    /// A reservation that was [detached](Reservation::detach).
    pub(crate) fn attach(&self, blocks: u32) -> Reservation<'_> {
        Reservation { allocator: self, blocks }
    }

    /// Claims `blocks` for metadata, from the pool too.
    ///
    /// # Errors
    /// [`Error::NoSpace`].
    pub(crate) fn reserve(&self, blocks: u32) -> Result<Reservation<'_>> {
        self.claim(u64::from(blocks), 0)?;
        Ok(Reservation { allocator: self, blocks })
    }

    /// As [`reserve`](Self::reserve), for data, which must leave the pool alone.
    ///
    /// # Errors
    /// [`Error::NoSpace`].
    pub(super) fn reserve_data(&self, blocks: u32) -> Result<Reservation<'_>> {
        self.claim_data(u64::from(blocks))?;
        Ok(Reservation { allocator: self, blocks })
    }

    /// Claims `blocks` for data, which must leave the pool alone, and what is reserved for root if it is for others.
    pub(super) fn claim_data(&self, blocks: u64) -> Result<()> {
        let reserved = if is_unprivileged() { self.reserved } else { 0 };
        self.claim(blocks, self.pool + reserved)
    }

    /// Claims for good all but `blocks` that data can have. Less than none takes from the pool, too.
    #[cfg(shuttle)]
    pub(crate) fn leave(&self, blocks: i64) {
        let keep = (self.pool + blocks).max(0);
        let _ =
            self.unclaimed.fetch_update(Ordering::Acquire, Ordering::Relaxed, |free| Some(free.min(keep)));
    }

    fn claim(&self, blocks: u64, leave: i64) -> Result<()> {
        if blocks == 0 {
            // Whatever others have claimed.
            return Ok(());
        }
        let want = i64::try_from(blocks).map_err(|_| Error::NoSpace)?;
        // Acquire pairs with the Release in `unclaim`: the blocks counted are in their groups, and the groups'
        // hints say so.
        self.unclaimed
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, |free| {
                free.checked_sub(want).filter(|&rest| rest >= leave)
            })
            .map(drop)
            .map_err(|_| Error::NoSpace)
    }

    /// Gives a claim back, or adds blocks that became allocatable, after they are in their groups.
    pub(super) fn unclaim(&self, blocks: u64) {
        self.unclaimed.fetch_add(i64::try_from(blocks).unwrap_or(0), Ordering::Release);
    }
}
