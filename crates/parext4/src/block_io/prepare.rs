//! The first step of a write: allocates blocks for its data, and reserves what its completion will
//! need.
//!
//! A write into unwritten blocks leaves a *pending conversion*: once the data is on the device, the
//! map must convert the blocks. Where the edges of the write split an extent, the conversion needs
//! entries, and perhaps blocks, of the tree. Completion must not fail because there is no space
//! (I5, H10). So this step provides for it in the first of these ways that works:
//!
//! 1. while the volume has space, it reserves the worst case of a split, and completion splits the
//!    extent;
//! 2. it splits the extent now, and *pins* the split until completion ([`SplitAt::Submission`]
//!    begins here). That needs blocks only if the split does, so the write of a small file needs
//!    none;
//! 3. the caller widens the write to whole extents, with zeros around the data
//!    (`admission/widening.rs`), so that no extent is split.

use parext4_format::BlockRange;
use rangelock::ByteRange;

use crate::allocator::{Allocator, BlockSource, Growth, Reservation, SuspendedReservation};
use crate::error::{Error, Result};
use crate::fault::{Fault, guarded};
use crate::inode::PastEnd;
use crate::inode_ref::InodeRef;
use crate::map_update::FillOptions;
use crate::mapping::{BlockState, Mapping, Runs};
use crate::policy::SplitAt;

/// Preallocation starts at this file block. It is also the smallest preallocation, in blocks.
const MIN_PREALLOCATION: u32 = 16;
/// The largest preallocation, in blocks.
const MAX_PREALLOCATION: u32 = 512;
/// The number of free blocks that the volume must have for each preallocated block.
const FREE_PER_PREALLOCATED: u64 = 64;

/// A write whose blocks are allocated.
#[must_use]
pub(crate) struct Prepared<'a> {
    /// The mapping of its blocks, which has no holes.
    pub runs: Runs,
    pub conversion: Option<PendingConversion<'a>>,
    /// Whether completing the write marks the file as modified. Write-back does not: the file was
    /// marked when the data was cached.
    pub modifies: bool,
}

/// The conversion of blocks to written that the completion of a write must make in the map.
#[must_use]
pub(crate) struct PendingConversion<'a> {
    /// Number of runs to convert.
    pub pieces: u32,
    pub reservation: Reservation<'a>,
    /// Whether the edges of the runs are pinned.
    pub pinned: bool,
}

impl<'a> PendingConversion<'a> {
    /// Detaches the reservation from the volume, for an owner that cannot borrow the volume.
    /// [`attach`](Self::attach) reverses it.
    pub(crate) fn detach(self) -> DetachedConversion {
        DetachedConversion {
            pieces: self.pieces,
            reservation: self.reservation.suspend(),
            pinned: self.pinned,
        }
    }

    pub(crate) fn attach(conversion: DetachedConversion, allocator: &'a Allocator) -> Self {
        let reservation = allocator.resume(conversion.reservation);
        Self { pieces: conversion.pieces, reservation, pinned: conversion.pinned }
    }
}

/// A [`PendingConversion`] whose reservation is suspended.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub(crate) struct DetachedConversion {
    pieces: u32,
    reservation: SuspendedReservation,
    pinned: bool,
}

impl DetachedConversion {
    /// Returns true if blocks are reserved for it, which may come back.
    pub(crate) fn has_blocks(&self) -> bool {
        !self.reservation.is_empty()
    }
}

impl InodeRef {
    /// Allocates blocks for the holes of `blocks`, which are mapped to `runs` now, and reserves
    /// what the conversion of unwritten blocks needs. With `dates`, completing the write marks the
    /// file as modified.
    ///
    /// # Errors
    /// [`Error::NoSpace`]. Unwritten blocks that were allocated before the failure may remain in
    /// the file.
    pub(crate) fn prepare(
        &self,
        blocks: BlockRange,
        mut runs: Runs,
        growth: Growth,
        dates: bool,
    ) -> Result<Prepared<'_>> {
        if runs.iter().any(Mapping::is_hole) {
            self.fill_holes(blocks, self.preallocation_len(blocks, growth)?, growth)?;
            runs = self.runs(blocks)?;
        }
        let pieces = runs.iter().map(|run| u32::from(run.is_unwritten())).sum();
        let conversion = if pieces > 0 { Some(self.reserve_for(&runs, pieces)?) } else { None };
        Ok(Prepared { runs, conversion, modifies: dates })
    }

    /// Like [`prepare`](Self::prepare), but neither waits nor allocates. Uses the conversion
    /// `reserved` earlier, or releases it.
    ///
    /// # Errors
    /// [`Error::WouldBlock`] if the write would have to wait or allocate, or if its blocks are more
    /// than one run.
    pub(crate) fn prepare_at_once(
        &self,
        runs: Runs,
        reserved: Option<DetachedConversion>,
        dates: bool,
    ) -> Result<Prepared<'_>> {
        let allocator = self.engine.allocator();
        let reserved = reserved.map(|conversion| PendingConversion::attach(conversion, allocator));
        let conversion = match (runs.as_slice(), reserved) {
            ([Mapping { state: BlockState::Written(_), .. }], _) => None,
            ([Mapping { state: BlockState::Unwritten(_), .. }], Some(conversion)) => Some(conversion),
            ([Mapping { state: BlockState::Unwritten(_), .. }], None) => {
                let most = self.engine.block_map(&self.inode)?.conversion_blocks();
                let reservation = allocator.reserve(most).ok();
                let reservation = reservation.ok_or(Error::WouldBlock("space is short"))?;
                Some(PendingConversion { pieces: 1, reservation, pinned: false })
            }
            _ => return Err(Error::WouldBlock("blocks must be found or made first")),
        };
        Ok(Prepared { runs, conversion, modifies: dates })
    }

    /// Releases what was prepared for a write that is not completed. Only logs the error of a
    /// corrupt map, because the caller reports the error that ended the write.
    pub(crate) fn abandon(&self, prepared: Prepared<'_>) {
        let Prepared { runs, conversion, .. } = prepared;
        if conversion.is_some_and(|conversion| conversion.pinned)
            && let Err(error) = self.unpin(&runs)
        {
            log::debug!("abandoning a write that was prepared: {error}");
        }
    }

    /// Reserves, without waiting, what the completion of a write of `[offset, end)` needs.
    ///
    /// # Errors
    /// [`Error::WouldBlock`], like [`prepare_at_once`](Self::prepare_at_once).
    pub(crate) fn reserve_at_once(&self, offset: u64, end: u64) -> Result<Option<DetachedConversion>> {
        let runs = self.runs(self.blocks_of(ByteRange::new(offset, end)))?;
        let prepared = self.prepare_at_once(runs, None, false)?;
        Ok(prepared.conversion.map(PendingConversion::detach))
    }

    fn reserve_for(&self, runs: &Runs, pieces: u32) -> Result<PendingConversion<'_>> {
        let allocator = self.engine.allocator();
        let block_map = self.engine.block_map(&self.inode)?;
        let most = guarded!(Fault::ReserveNothing, block_map.conversion_blocks());
        let has_plenty = most == 0 || allocator.has_plenty(most, self.engine.credentials());
        if self.engine.split_at() == SplitAt::Completion && has_plenty {
            match allocator.reserve(most) {
                Ok(reservation) => return Ok(PendingConversion { pieces, reservation, pinned: false }),
                Err(Error::NoSpace) => {}
                Err(error) => return Err(error),
            }
        }
        self.split_runs(runs)?;
        Ok(PendingConversion { pieces, reservation: allocator.reserve(0)?, pinned: true })
    }

    /// Maps the holes of `blocks` to new unwritten blocks (I1), also past the end of the file.
    /// Preallocates `ahead` blocks more if there is space for them.
    pub(crate) fn fill_holes(&self, blocks: BlockRange, ahead: u32, growth: Growth) -> Result<()> {
        if ahead > 0 {
            // Notes it first, because a failed preallocation may have mapped part of its blocks.
            self.engine.note_preallocated(&self.inode);
            let more = BlockRange::clamped(blocks.start().to_u64(), blocks.end() + u64::from(ahead));
            let filled = self.fill(more, blocks.end(), growth);
            // Again, because another thread may have freed what it found before.
            self.engine.note_preallocated(&self.inode);
            match filled {
                Err(Error::NoSpace | Error::QuotaExceeded(_)) => {}
                other => return other,
            }
        }
        self.fill(blocks, blocks.end(), growth)
    }

    /// Like [`fill_holes`](Self::fill_holes), but does not preallocate past the request. The caller
    /// holds the blocks before `held`.
    pub(crate) fn fill(&self, blocks: BlockRange, held: u64, growth: Growth) -> Result<()> {
        let (engine, inode) = (&self.engine, &self.inode);
        let in_order = blocks.end() > held || blocks.end() * engine.block_size() > self.inode.size();
        let mut rest = blocks;
        while !rest.is_empty() {
            let credits = engine.map_credits(inode)?;
            rest = rest.skip(engine.transact(credits, |handle| {
                let source = BlockSource::Free(engine.credentials());
                let (written, delayed) = (false, None);
                let filling = FillOptions { written, in_order, growth, source, delayed, held };
                engine.fill_holes(handle, inode, rest, filling)
            })?);
        }
        Ok(())
    }

    /// Returns how many blocks to preallocate past a write that grows the file, so that later
    /// writes find their blocks mapped. The preallocation is freed once the file is no longer in
    /// use. XFS does the same ("speculative preallocation"). For an append, the end of the file
    /// includes the bytes that other appends have claimed.
    fn preallocation_len(&self, blocks: BlockRange, growth: Growth) -> Result<u32> {
        let unit = self.engine.layout().block_size;
        let size = unit.blocks_for(self.inode.size());
        let claimed = match growth {
            Growth::Append => unit.blocks_for(self.inode.tail.lock().end()).max(size),
            Growth::Write | Growth::Exact => size,
        };
        let (first, end) = (blocks.start(), blocks.end());
        let grows = first.to_u64() <= claimed && end > size && first.get() >= MIN_PREALLOCATION;
        let ahead = (first.get() / 4).clamp(MIN_PREALLOCATION, MAX_PREALLOCATION);
        let block_map = self.engine.block_map(&self.inode)?;
        if !block_map.has_unwritten() {
            return Ok(0);
        }
        let last = block_map.end()?;
        let spare = self.engine.counts().free_blocks() / FREE_PER_PREALLOCATED;
        let free = self.inode.past_end() != PastEnd::Requested && last <= end.max(claimed);
        let together = self.engine.allocator().keeps_together(blocks.count());
        let sensible = grows && together && blocks.count() < ahead && free && u64::from(ahead) <= spare;
        let fits = end + u64::from(ahead) < self.engine.layout().max_file_blocks;
        Ok(if sensible && fits { ahead } else { 0 })
    }
}
