//! A block for data that is on the device before a transaction allocates the block.
//!
//! This module keeps the block from other requests meanwhile. Like a window, a kept block exists
//! only in memory: it is not in the free extents of its group, but free in the bitmap, so a crash
//! leaves it free.

use parext4_format::FsBlock;

use super::blocks::MAX_SEARCHES;
use super::{Allocator, Reservation, Run};
use crate::credentials::Credentials;
use crate::error::{Error, Result};
use crate::journal::Handle;
use crate::layout::GroupRun;

/// A free block that no other request gets. Dropping it makes the block allocatable again.
#[derive(Debug)]
#[must_use]
pub(crate) struct KeptBlock<'a> {
    allocator: &'a Allocator,
    /// The block's claim.
    claim: Reservation<'a>,
    run: Run,
    is_used: bool,
}

impl KeptBlock<'_> {
    pub(crate) fn number(&self) -> FsBlock {
        self.allocator.block_of(self.run.start)
    }

    /// Allocates the block. Registers at most [`ALLOCATE_CREDITS`](super::ALLOCATE_CREDITS) blocks.
    ///
    /// # Errors
    /// Corruption of the group.
    pub(crate) fn allocate(mut self, handle: &Handle<'_>) -> Result<FsBlock> {
        let (group, run) = self.run.group(&self.allocator.units);
        self.allocator.group(group).mark_used(&self.allocator.cache, handle, run)?;
        self.is_used = true;
        let claimed = self.claim.take(1);
        debug_assert!(claimed, "a kept block without a claim");
        self.allocator.counts.sub_blocks(handle, self.allocator.blocks_in(1));
        Ok(self.number())
    }
}

impl Drop for KeptBlock<'_> {
    fn drop(&mut self) {
        if !self.is_used {
            let (group, run) = self.run.group(&self.allocator.units);
            self.allocator.group(group).release([run]);
        }
    }
}

impl Allocator {
    /// Keeps a free block for the data of a caller with `credentials`: at `goal`, or after it if
    /// possible.
    ///
    /// # Errors
    /// [`Error::NoSpace`]. Corruption of a group.
    pub(crate) fn keep_block(&self, goal: FsBlock, credentials: Credentials) -> Result<KeptBlock<'_>> {
        let claim = self.reserve_data(1, credentials)?;
        for search in 0..MAX_SEARCHES {
            // As in `find`, later searches wait for blocks that the first may miss.
            let _trim = (search > 0).then(|| self.wait_for_trim());
            let _windows = match search {
                0 => None,
                1 => Some(self.reclaim(1)),
                _ => Some(self.reclaim(u32::MAX)),
            };
            if let Some(run) = self.keep_one(self.cluster_of(goal), search == 0)? {
                return Ok(KeptBlock { allocator: self, claim, run, is_used: false });
            }
        }
        Err(Error::corrupt("the free blocks of the counter are in no group"))
    }

    /// Keeps the first free block from `goal` on. With `hints`, skips groups whose hint says that
    /// they are full.
    fn keep_one(&self, goal: FsBlock, hints: bool) -> Result<Option<Run>> {
        let (first, offset) = self.units.group_of(self.units.nearest(goal));
        for number in self.groups_from(first) {
            let group = self.group(number);
            if hints && group.largest_hint() == 0 {
                continue;
            }
            let from = if number == first { offset } else { 0 };
            let kept = group.keep_for_window(&self.cache, |free| {
                let after = free.runs_from(from).next().map(|run| run.start.max(from));
                let start = after.or_else(|| free.largest_run().map(|run| run.start))?;
                Some(GroupRun { start, len: 1 })
            })?;
            if let Some(run) = kept {
                return Ok(Some(Run::in_group(&self.units, number, run)));
            }
        }
        Ok(None)
    }
}
