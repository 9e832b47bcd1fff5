//! Claims of free blocks, made before the blocks are searched.
//!
//! The module is responsible for the counter of unclaimed blocks. Invariant: the groups and windows
//! have at least as many free blocks as are claimed and not yet allocated.

use parext4_format::BlockRange;

use super::Allocator;
use super::claims::{Epoch, note_lacking};
use crate::credentials::Credentials;
use crate::error::{Error, Result};
use crate::sync::atomic::Ordering;

/// Claimed blocks that a later step needs (I5). Dropping it releases the unused blocks. Until then
/// it counts as a [claim in flight](super::claims), unless it never had any blocks.
#[derive(Debug)]
#[must_use]
pub(crate) struct Reservation<'a> {
    allocator: &'a Allocator,
    blocks: u32,
    counted: Option<Counted>,
}

/// The record of a reservation that counts as a claim in flight.
#[derive(Clone, Copy, Debug)]
struct Counted {
    /// Epoch in which the reservation began to count.
    epoch: Epoch,
    /// True if the reservation has blocks that were claimed before that.
    has_earlier: bool,
}

/// A reservation that does not borrow the volume. It still counts as a claim in flight, and must be
/// [resumed](Allocator::resume).
#[derive(Clone, Copy, Debug)]
#[must_use]
pub(crate) struct SuspendedReservation {
    blocks: u32,
    counted: Option<Counted>,
}

impl SuspendedReservation {
    /// Returns true if the reservation has no blocks.
    pub(crate) fn is_empty(self) -> bool {
        self.blocks == 0
    }
}

impl<'a> Reservation<'a> {
    /// Claims `blocks`, if at least `leave` blocks stay unclaimed.
    fn claim(allocator: &'a Allocator, blocks: u32, leave: i64) -> Result<Self> {
        let mut reservation = Self { allocator, blocks: 0, counted: None };
        reservation.extend(blocks, leave)?;
        Ok(reservation)
    }

    /// Claims `more` blocks.
    fn extend(&mut self, more: u32, leave: i64) -> Result<()> {
        // An empty claim succeeds even if the pool is in use.
        if more == 0 {
            return Ok(());
        }
        // Threads that find no space at the same time would wait for each other if they counted
        // these claims.
        self.allocator.check_unclaimed(more.into(), leave)?;
        self.count(false);
        self.allocator.claim(more.into(), leave)?;
        self.blocks += more;
        Ok(())
    }

    /// Makes the reservation count as a claim in flight. `has_earlier` is true if it gets blocks
    /// that were claimed before.
    fn count(&mut self, has_earlier: bool) {
        let begin = || Counted { epoch: self.allocator.claims.begin(), has_earlier: false };
        let counted = self.counted.get_or_insert_with(begin);
        if has_earlier && !std::mem::replace(&mut counted.has_earlier, true) {
            self.allocator.claims.begin_attached();
        }
    }

    /// Removes `blocks` from the reservation, to allocate them, or because another owner keeps them
    /// claimed. Returns false, without effect, if the reservation has fewer.
    pub(crate) fn take(&mut self, blocks: u32) -> bool {
        let enough = self.blocks >= blocks;
        if enough {
            self.blocks -= blocks;
        }
        enough
    }

    /// Adds blocks again that [`take`](Self::take) has removed.
    pub(super) fn put_back(&mut self, blocks: u32) {
        self.blocks += blocks;
    }

    /// Releases all blocks but `most`. The caller makes sure that no [attached](Allocator::attach)
    /// blocks are among them.
    pub(crate) fn release_over(&mut self, most: u32) {
        let over = self.blocks.saturating_sub(most);
        self.blocks -= over;
        if over > 0 {
            self.allocator.unclaim_of(over.into(), self.counted.map(|counted| counted.epoch));
        }
    }

    /// Returns the number of blocks.
    pub(crate) fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Adds the blocks of `other`.
    pub(crate) fn add(&mut self, other: Reservation<'_>) {
        self.count(true);
        self.blocks += other.detach();
    }

    /// Ends the reservation and returns its number of blocks, which stay claimed until
    /// [`Allocator::attach`].
    pub(crate) fn detach(mut self) -> u32 {
        std::mem::take(&mut self.blocks)
    }

    /// Suspends the reservation, for an owner that cannot borrow the volume.
    pub(crate) fn suspend(mut self) -> SuspendedReservation {
        let blocks = std::mem::take(&mut self.blocks);
        SuspendedReservation { blocks, counted: if blocks > 0 { self.counted.take() } else { None } }
    }

    /// Returns true if the reservation has at least `blocks`.
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
        let counted = self.counted.take();
        if self.blocks > 0 {
            let later = counted.filter(|counted| !counted.has_earlier);
            self.allocator.unclaim_of(u64::from(self.blocks), later.map(|counted| counted.epoch));
        }
        if let Some(Counted { epoch, has_earlier }) = counted {
            if has_earlier {
                self.allocator.claims.end_attached();
            }
            self.allocator.claims.end(epoch);
        }
    }
}

impl Allocator {
    /// Returns a reservation of blocks that are claimed already.
    pub(crate) fn attach(&self, blocks: u32) -> Reservation<'_> {
        let mut reservation = Reservation { allocator: self, blocks, counted: None };
        if blocks > 0 {
            reservation.count(true);
        }
        reservation
    }

    /// Returns an empty reservation that counts as a claim in flight, for blocks that are claimed
    /// already.
    pub(super) fn begin_attaching(&self) -> Reservation<'_> {
        let mut reservation = Reservation { allocator: self, blocks: 0, counted: None };
        reservation.count(true);
        reservation
    }

    /// Resumes a suspended reservation.
    pub(crate) fn resume(&self, suspended: SuspendedReservation) -> Reservation<'_> {
        let SuspendedReservation { blocks, counted } = suspended;
        Reservation { allocator: self, blocks, counted }
    }

    /// Claims `blocks` for metadata. May use the pool.
    ///
    /// # Errors
    /// [`Error::NoSpace`].
    pub(crate) fn reserve(&self, blocks: u32) -> Result<Reservation<'_>> {
        Reservation::claim(self, blocks, 0)
    }

    /// Like [`reserve`](Self::reserve), for data of a caller with `credentials`. Data may not use
    /// the pool.
    ///
    /// # Errors
    /// [`Error::NoSpace`].
    pub(crate) fn reserve_data(&self, blocks: u32, credentials: Credentials) -> Result<Reservation<'_>> {
        Reservation::claim(self, blocks, self.left_by_data(credentials))
    }

    /// Claims the clusters of `holes` for data of a caller with `credentials`.
    ///
    /// # Errors
    /// [`Error::NoSpace`].
    pub(crate) fn reserve_for_holes(
        &self,
        holes: &[BlockRange],
        credentials: Credentials,
    ) -> Result<Reservation<'_>> {
        self.reserve_data(holes.iter().map(|hole| self.file_clusters(*hole).count()).sum(), credentials)
    }

    /// Like [`reserve_data`](Self::reserve_data), with `more` blocks for metadata, which may use
    /// the pool.
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

    /// Returns true if a claim of `blocks` for data may fail soon: if data has fewer than twice as
    /// many unclaimed blocks, and 1024 for other writers. A cluster counts as one block.
    pub(crate) fn is_short_of(&self, blocks: u64, credentials: Credentials) -> bool {
        const MARGIN: i64 = 1024;
        let wanted = i64::try_from(blocks).unwrap_or(i64::MAX).saturating_mul(2).saturating_add(MARGIN);
        self.unclaimed.load(Ordering::Relaxed) - self.left_by_data(credentials) < wanted
    }

    /// Returns true if a claim of `blocks` for data would succeed now.
    pub(super) fn has_unclaimed(&self, blocks: u64, credentials: Credentials) -> bool {
        rest_of(self.unclaimed.load(Ordering::SeqCst), blocks, self.left_by_data(credentials)).is_some()
    }

    /// Returns true if an operation may reserve `blocks` of which it will use few. On a volume that
    /// is to be filled it may not.
    pub(crate) fn has_plenty(&self, blocks: u32, credentials: Credentials) -> bool {
        !self.options.fill_completely && !self.is_short_of(blocks.into(), credentials)
    }

    /// Returns the number of blocks that data leaves to metadata and to root.
    fn left_by_data(&self, credentials: Credentials) -> i64 {
        let reserved = if credentials.may_use_reserved_blocks() { 0 } else { self.reserved };
        self.pool + reserved
    }

    /// Claims blocks permanently until only `blocks` are left for data. A negative number also
    /// claims from the pool.
    #[cfg(shuttle)]
    pub(crate) fn leave(&self, blocks: i64) {
        let keep = (self.pool + blocks).max(0);
        let _ =
            self.unclaimed.fetch_update(Ordering::Acquire, Ordering::Relaxed, |free| Some(free.min(keep)));
    }

    /// Fails if a claim of `blocks` would fail now.
    fn check_unclaimed(&self, blocks: u64, leave: i64) -> Result<()> {
        let free = self.unclaimed.load(Ordering::SeqCst);
        rest_of(free, blocks, leave).map(drop).ok_or_else(|| lacks(free, blocks, leave))
    }

    pub(super) fn claim(&self, blocks: u64, leave: i64) -> Result<()> {
        // Acquire pairs with the Release in `unclaim`: the counted blocks are in their groups, and
        // the groups' hints include them. SeqCst, because a thread that finds too few blocks counts
        // the claims after this, see `claims`.
        self.unclaimed
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |free| rest_of(free, blocks, leave))
            .map(drop)
            .map_err(|free| lacks(free, blocks, leave))
    }

    /// Releases a claim, or counts blocks that became allocatable. The caller has added them to
    /// their groups before.
    pub(super) fn unclaim(&self, blocks: u64) {
        self.unclaim_of(blocks, None);
    }

    /// Like [`unclaim`](Self::unclaim), for blocks that a commit makes allocatable.
    pub(super) fn unclaim_released(&self, blocks: u64) {
        self.unclaimed.fetch_add(i64::try_from(blocks).unwrap_or(0), Ordering::SeqCst);
        self.claims.note_released(blocks);
    }

    /// Like [`unclaim`](Self::unclaim). All the blocks were claimed in `epoch` or later; `None` if
    /// the epoch is not known.
    fn unclaim_of(&self, blocks: u64, epoch: Option<Epoch>) {
        self.unclaimed.fetch_add(i64::try_from(blocks).unwrap_or(0), Ordering::SeqCst);
        self.claims.note_returned(blocks, epoch);
    }
}

/// Returns the number of blocks that a claim of `blocks` leaves of `free` blocks, if that is at
/// least `leave`.
fn rest_of(free: i64, blocks: u64, leave: i64) -> Option<i64> {
    free.checked_sub(i64::try_from(blocks).ok()?).filter(|&rest| rest >= leave)
}

/// Returns the error of a claim of `blocks` out of `free` blocks, of which it may leave no fewer
/// than `leave`. Records the number of lacking blocks.
fn lacks(free: i64, blocks: u64, leave: i64) -> Error {
    let needed = i64::try_from(blocks).unwrap_or(i64::MAX).saturating_add(leave);
    note_lacking(needed.saturating_sub(free).max(1).unsigned_abs());
    Error::NoSpace
}
