//! The first part of a write: blocks for its data, and all that its completion will need.
//!
//! A write into unwritten blocks leaves a *debt*: when the data is on the device the map must say so. Where
//! its edges cut an extent that takes entries, and perhaps blocks, of the tree. They are provided for here, in
//! the first of these ways that works, since completion must not fail for want of space (I5, H10):
//!
//! 1. the most that cutting can come to is reserved, and the extent is cut at completion;
//! 2. the extent is cut now, and *pinned* so until completion ([`SplitAt::Submission`] begins here);
//! 3. the write is widened to whole extents, with zeros around the data (`admission/widening.rs`), so that nothing is cut.

use rangelock::ByteRange;

use crate::allocator::{Allocator, Growth, Reservation};
use crate::body::{FillOptions, Mapping, Runs, State, worst_case};
use crate::error::{Error, Result};
use crate::fault::{Fault, planted};
use crate::inode::PastEnd;
use crate::node::Node;
use crate::policy::SplitAt;

/// A file that grows has this many blocks before blocks are mapped ahead of it.
const AHEAD_FROM: u32 = 16;
/// The most blocks mapped ahead.
const AHEAD_MOST: u32 = 512;
/// A volume must have so many times that free.
const AHEAD_SPARE: u64 = 64;

/// A write whose blocks are there.
#[must_use]
pub(crate) struct Prepared<'a> {
    /// What its blocks are mapped to; no holes.
    pub runs: Runs,
    pub debt: Option<Debt<'a>>,
    /// Whether the file counts as modified when the write is completed: not if it did when the data was cached.
    pub modifies: bool,
}

/// What the completion of a write owes to the map.
#[must_use]
pub(crate) struct Debt<'a> {
    /// Runs to convert.
    pub pieces: u32,
    pub reservation: Reservation<'a>,
    /// Whether the edges of the runs are pinned.
    pub pinned: bool,
}

impl<'a> Debt<'a> {
    /// The debt without its volume, for whoever cannot borrow that; to be [attached](Self::attach) again.
    pub(crate) fn detach(self) -> DetachedDebt {
        DetachedDebt { pieces: self.pieces, blocks: self.reservation.detach(), pinned: self.pinned }
    }

    pub(crate) fn attach(debt: DetachedDebt, allocator: &'a Allocator) -> Self {
        let reservation = allocator.attach(debt.blocks);
        Self { pieces: debt.pieces, reservation, pinned: debt.pinned }
    }
}

/// A [`Debt`] whose reservation is not given back when it is dropped.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub(crate) struct DetachedDebt {
    pieces: u32,
    blocks: u32,
    pinned: bool,
}

impl Node {
    /// Provides blocks for `[first, first + len)`, which are mapped to `runs` now, and for the conversion of those
    /// that are unwritten. With `dates`, the file counts as modified when the write is completed.
    ///
    /// # Errors
    /// [`Error::NoSpace`], with nothing but blocks behind it that no write has used.
    pub(crate) fn prepare(
        &self,
        first: u32,
        len: u32,
        mut runs: Runs,
        growth: Growth,
        dates: bool,
    ) -> Result<Prepared<'_>> {
        if runs.iter().any(|run| run.state == State::Hole) {
            self.fill_holes(first, len, self.ahead(first, len, growth)?, growth)?;
            runs = self.runs(first, len)?;
        }
        let pieces = runs.iter().filter(|run| run.is_unwritten()).count();
        let debt = match u32::try_from(pieces).unwrap_or(u32::MAX) {
            0 => None,
            pieces => Some(self.borrow_for(&runs, pieces)?),
        };
        Ok(Prepared { runs, debt, modifies: dates })
    }

    /// As [`prepare`](Self::prepare), but waits for nothing and allocates nothing. What was `borrowed` before is
    /// used, or given back.
    ///
    /// # Errors
    /// [`Error::WouldBlock`] if that is not possible, or if the blocks do not lie together in one state.
    pub(crate) fn prepare_at_once(
        &self,
        runs: Runs,
        borrowed: Option<DetachedDebt>,
        dates: bool,
    ) -> Result<Prepared<'_>> {
        let allocator = &self.engine.allocator;
        let borrowed = borrowed.map(|debt| Debt::attach(debt, allocator));
        let debt = match (runs.as_slice(), borrowed) {
            ([Mapping { state: State::Written(_), .. }], _) => None,
            ([Mapping { state: State::Unwritten(_), .. }], Some(debt)) => Some(debt),
            ([Mapping { state: State::Unwritten(_), .. }], None) => {
                let depth = self.engine.map(&self.inode)?.depth();
                let reservation = allocator.reserve(worst_case(depth + 1)).ok();
                let reservation = reservation.ok_or(Error::WouldBlock("space is short"))?;
                Some(Debt { pieces: 1, reservation, pinned: false })
            }
            _ => return Err(Error::WouldBlock("blocks must be found or made first")),
        };
        Ok(Prepared { runs, debt, modifies: dates })
    }

    /// Lets go of what was prepared for a write that is not completed.
    ///
    /// # Errors
    /// A corrupt map.
    pub(crate) fn abandon(&self, prepared: Prepared<'_>) -> Result<()> {
        let Prepared { runs, debt, .. } = prepared;
        if debt.is_some_and(|debt| debt.pinned) { self.unpin(&runs) } else { Ok(()) }
    }

    /// Borrows what a write of `[offset, end)` will need, without waiting.
    ///
    /// # Errors
    /// [`Error::WouldBlock`], as [`prepare_at_once`](Self::prepare_at_once).
    pub(crate) fn borrow_at_once(&self, offset: u64, end: u64) -> Result<Option<DetachedDebt>> {
        let (first, len) = self.blocks_of(ByteRange::new(offset, end));
        let prepared = self.prepare_at_once(self.runs(first, len)?, None, false)?;
        Ok(prepared.debt.map(Debt::detach))
    }

    fn borrow_for(&self, runs: &Runs, pieces: u32) -> Result<Debt<'_>> {
        let allocator = &self.engine.allocator;
        if self.engine.split_at == SplitAt::Completion {
            let depth = self.engine.map(&self.inode)?.depth();
            let most = if planted(Fault::ReserveNothing) { 0 } else { worst_case(depth + 1) };
            match allocator.reserve(most) {
                Ok(reservation) => return Ok(Debt { pieces, reservation, pinned: false }),
                Err(Error::NoSpace) => {}
                Err(error) => return Err(error),
            }
        }
        self.split_runs(runs)?;
        Ok(Debt { pieces, reservation: allocator.reserve(0)?, pinned: true })
    }

    /// Maps the holes of the range to new blocks, unwritten (I1), also behind the end of the file; and
    /// `ahead` blocks more if there is space for them.
    pub(crate) fn fill_holes(&self, first: u32, len: u32, ahead: u32, growth: Growth) -> Result<()> {
        if ahead > 0 {
            // Some of them may be there even if not all are.
            self.engine.note_preallocated(&self.inode);
            match self.fill(first, len + ahead, first + len, growth) {
                Err(Error::NoSpace) => {}
                other => return other,
            }
        }
        self.fill(first, len, first + len, growth)
    }

    /// The same, without any more. The caller holds the blocks before `held`.
    pub(crate) fn fill(&self, first: u32, len: u32, held: u32, growth: Growth) -> Result<()> {
        let (engine, inode) = (&self.engine, &self.inode);
        let end = first + len;
        let in_order = end > held || u64::from(end) * engine.block_size() > self.inode.size();
        let mut done = 0;
        while done < len {
            let credits = engine.map_credits(inode)?;
            done += engine.transact(credits, |handle| {
                let filling = FillOptions { written: false, in_order, growth, claim: None, held };
                engine.fill_holes(handle, inode, first + done, len - done, filling)
            })?;
        }
        Ok(())
    }

    /// How many blocks to map ahead of a write that makes the file grow, so that the next ones find theirs.
    /// They are given back when nobody uses the file any more. XFS does the same ("speculative
    /// preallocation"). Of threads that append side by side, each finds what others have claimed.
    fn ahead(&self, first: u32, len: u32, growth: Growth) -> Result<u32> {
        let block_size = self.engine.block_size();
        let size = self.inode.size().div_ceil(block_size);
        let claimed = match growth {
            Growth::Append => self.inode.tail.lock().end().div_ceil(block_size).max(size),
            Growth::Write | Growth::Exact => size,
        };
        let end = u64::from(first) + u64::from(len);
        let grows = u64::from(first) <= claimed && end > size && first >= AHEAD_FROM;
        let ahead = (first / 4).clamp(AHEAD_FROM, AHEAD_MOST);
        let last = self.engine.map(&self.inode)?.last().map_or(0, |last| last.end());
        let spare = self.engine.counts().free_blocks() / AHEAD_SPARE;
        let free = self.inode.past_end() != PastEnd::Requested && last <= end.max(claimed);
        let together = self.engine.allocator.keeps_together(len);
        let sensible = grows && together && len < ahead && free && u64::from(ahead) <= spare;
        let fits = end + u64::from(ahead) < crate::layout::MAX_FILE_BLOCKS;
        Ok(if sensible && fits { ahead } else { 0 })
    }
}
