//! Claims of free blocks, made before the blocks are searched.
//!
//! Responsible for the counter of unclaimed blocks. Invariant: the groups and windows have at least as many free blocks as
//! are claimed and not yet allocated.

use super::Allocator;
use crate::credentials::Credentials;
use crate::error::{Error, Result};
use crate::sync::atomic::Ordering;

/// Claimed blocks that a later step needs (I5). Dropping it releases the blocks that were not used. Until then it counts as a
/// [claim in flight](super::claims) if it had any.
#[derive(Debug)]
#[must_use]
pub(crate) struct Reservation<'a> {
    allocator: &'a Allocator,
    blocks: u32,
    is_counted: bool,
}

/// A reservation that borrows nothing. It still counts as a claim in flight, and must be [resumed](Allocator::resume).
#[derive(Clone, Copy, Debug)]
#[must_use]
pub(crate) struct SuspendedReservation(u32);

impl SuspendedReservation {
    /// Returns true if it has no blocks.
    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl<'a> Reservation<'a> {
    /// Claims `blocks`, if at least `leave` blocks stay unclaimed.
    fn claim(allocator: &'a Allocator, blocks: u32, leave: i64) -> Result<Self> {
        let mut reservation = Self { allocator, blocks: 0, is_counted: false };
        reservation.extend(blocks, leave)?;
        Ok(reservation)
    }

    /// Claims `more` blocks.
    fn extend(&mut self, more: u32, leave: i64) -> Result<()> {
        // An empty claim succeeds even if the pool is in use.
        if more == 0 {
            return Ok(());
        }
        // Threads that find no space at the same time would wait for each other if they counted these claims.
        if !self.allocator.has_unclaimed(more.into(), leave) {
            return Err(Error::NoSpace);
        }
        self.count();
        self.allocator.claim(more.into(), leave)?;
        self.blocks += more;
        Ok(())
    }

    fn count(&mut self) {
        if !std::mem::replace(&mut self.is_counted, true) {
            self.allocator.claims.begin();
        }
    }

    /// Removes `blocks` from the reservation, to allocate them, or because another owner keeps them claimed. Returns false, without
    /// effect, if it has fewer.
    pub(super) fn take(&mut self, blocks: u32) -> bool {
        let enough = self.blocks >= blocks;
        if enough {
            self.blocks -= blocks;
        }
        enough
    }

    /// Adds the blocks of `other`.
    pub(crate) fn add(&mut self, other: Reservation<'_>) {
        self.count();
        self.blocks += other.detach();
    }

    /// Returns the number of blocks, which stay claimed until [`Allocator::attach`].
    pub(crate) fn detach(mut self) -> u32 {
        std::mem::take(&mut self.blocks)
    }

    /// Suspends the reservation, for an owner that cannot borrow the volume.
    pub(crate) fn suspend(mut self) -> SuspendedReservation {
        self.is_counted &= self.blocks == 0;
        SuspendedReservation(std::mem::take(&mut self.blocks))
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
        self.extend(blocks.saturating_sub(self.blocks), 0)
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if self.blocks > 0 {
            self.allocator.unclaim(u64::from(self.blocks));
        }
        if self.is_counted {
            self.allocator.claims.end();
        }
    }
}

impl Allocator {
    /// Returns a reservation of blocks that are claimed already.
    pub(crate) fn attach(&self, blocks: u32) -> Reservation<'_> {
        let mut reservation = Reservation { allocator: self, blocks, is_counted: false };
        if blocks > 0 {
            reservation.count();
        }
        reservation
    }

    /// Returns a reservation that was suspended.
    pub(crate) fn resume(&self, SuspendedReservation(blocks): SuspendedReservation) -> Reservation<'_> {
        Reservation { allocator: self, blocks, is_counted: blocks > 0 }
    }

    /// Claims `blocks` for metadata. May use the pool.
    ///
    /// # Errors
    /// [`Error::NoSpace`].
    pub(crate) fn reserve(&self, blocks: u32) -> Result<Reservation<'_>> {
        Reservation::claim(self, blocks, 0)
    }

    /// Like [`reserve`](Self::reserve), for data of a caller with `credentials`. Data may not use the pool.
    ///
    /// # Errors
    /// [`Error::NoSpace`].
    pub(crate) fn reserve_data(&self, blocks: u32, credentials: Credentials) -> Result<Reservation<'_>> {
        Reservation::claim(self, blocks, self.left_by_data(credentials))
    }

    /// Like [`reserve_data`](Self::reserve_data), with `more` blocks for metadata, which may use the pool.
    ///
    /// # Errors
    /// [`Error::NoSpace`].
    pub(super) fn reserve_both(
        &self,
        data: u32,
        more: u32,
        credentials: Credentials,
    ) -> Result<Reservation<'_>> {
        let leave = self.left_by_data(credentials) - i64::from(more);
        Reservation::claim(self, data + more, leave.max(0))
    }

    /// Returns true if a claim of `blocks` for data may fail soon: if there are fewer than twice as many, and some for other writers. A
    /// cluster counts as one block.
    pub(crate) fn is_short_of(&self, blocks: u64, credentials: Credentials) -> bool {
        const MARGIN: i64 = 1024;
        let wanted = i64::try_from(blocks).unwrap_or(i64::MAX).saturating_mul(2).saturating_add(MARGIN);
        self.unclaimed.load(Ordering::Relaxed) - self.left_by_data(credentials) < wanted
    }

    /// Returns true if an operation may reserve `blocks` of which it will use few. If the volume is to be filled, it may not.
    pub(crate) fn has_plenty(&self, blocks: u32, credentials: Credentials) -> bool {
        !self.options.fill_completely && !self.is_short_of(blocks.into(), credentials)
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

    /// Returns true if a claim of `blocks` would succeed now.
    fn has_unclaimed(&self, blocks: u64, leave: i64) -> bool {
        rest_of(self.unclaimed.load(Ordering::SeqCst), blocks, leave).is_some()
    }

    pub(super) fn claim(&self, blocks: u64, leave: i64) -> Result<()> {
        // Acquire pairs with the Release in `unclaim`: the counted blocks are in their groups, and the groups' hints include
        // them. SeqCst, because a thread that finds too few blocks counts the claims after this, see `claims`.
        self.unclaimed
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |free| rest_of(free, blocks, leave))
            .map(drop)
            .map_err(|_| Error::NoSpace)
    }

    /// Releases a claim, or counts blocks that became allocatable. They must be in their groups before.
    pub(super) fn unclaim(&self, blocks: u64) {
        self.unclaimed.fetch_add(i64::try_from(blocks).unwrap_or(0), Ordering::SeqCst);
        self.claims.note_event();
    }
}

/// Returns what a claim of `blocks` leaves of `free` blocks, if that is at least `leave`.
fn rest_of(free: i64, blocks: u64, leave: i64) -> Option<i64> {
    free.checked_sub(i64::try_from(blocks).ok()?).filter(|&rest| rest >= leave)
}
