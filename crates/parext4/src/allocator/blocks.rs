//! Allocating and freeing blocks.
//!
//! The module is responsible for the search of claimed blocks across groups, and for marking blocks
//! used or free. It is not responsible for which blocks a file gets: [`request`](super::request)
//! decides that.

use parext4_format::{FsBlock, GroupNo};

use super::claims::{note_freed, note_lacking};
use super::free_extents::End;
use super::{Allocator, MAX_GROUPS, MAX_RUNS, Reservation, Runs};
use crate::credentials::Credentials;
use crate::error::{Error, Result};
use crate::fault::{Fault, guarded};
use crate::journal::{Freed, Handle};
use crate::layout::{GroupRun, Layout};
use crate::sync::atomic::Ordering;

/// Number of searches of all groups after which missing claimed blocks are reported as corruption.
/// A search fails only if other threads allocated the blocks it had not reached and freed blocks
/// where it had been.
pub(super) const MAX_SEARCHES: u32 = 64;

/// The use of the blocks that an allocation finds. They leave the free extents in any case.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AllocMode<'h> {
    /// The allocation marks the blocks in use under this handle.
    InUse(&'h Handle<'h>),
    /// The allocation claims the blocks: they stay free in the bitmap and in the counters, until
    /// [`use_claimed`](Allocator::use_claimed) or [`release_claimed`](Allocator::release_claimed).
    Claim,
}

/// A run of contiguous blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub start: FsBlock,
    pub len: u32,
}

impl Run {
    /// Returns `run` of `group` as blocks of the volume.
    pub(super) fn in_group(layout: &Layout, group: GroupNo, run: GroupRun) -> Self {
        Self { start: layout.group_start(group) + u64::from(run.start), len: run.len }
    }

    /// Returns the group of the run and the run in that group. All its blocks are in one group.
    pub(super) fn group(self, layout: &Layout) -> (GroupNo, GroupRun) {
        let (group, start) = layout.group_of(self.start);
        (group, GroupRun { start, len: self.len })
    }
}

impl Allocator {
    /// Ends an allocation of `runs` from `claim`. Returns their blocks, or the error of `found`
    /// only if no block was allocated.
    pub(super) fn finish_allocation(
        &self,
        mode: AllocMode<'_>,
        claim: &mut Reservation<'_>,
        runs: Runs,
        found: Result<()>,
    ) -> Result<Runs> {
        let got: u32 = runs.iter().map(|run| run.len).sum();
        let claimed = claim.take(got);
        debug_assert!(claimed, "more blocks were taken than claimed");
        if let AllocMode::InUse(handle) = mode
            && got > 0
        {
            self.counts.sub_blocks(handle, self.blocks_in(got.into()));
        }
        match found {
            Err(error) if got == 0 => Err(error),
            _ => Ok(runs.into_iter().map(|run| self.blocks_of(run)).collect()),
        }
    }

    /// Allocates one block for metadata from a reservation: the first of a cluster of its own.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if the reservation is empty. Corruption of a group.
    pub(crate) fn allocate_metadata(
        &self,
        handle: &Handle<'_>,
        goal: FsBlock,
        reservation: &mut Reservation<'_>,
    ) -> Result<FsBlock> {
        if !reservation.take(1) {
            note_lacking(1);
            return Err(Error::NoSpace);
        }
        let mut runs = Runs::new();
        // Allocates from the last end of a run, so that metadata does not block the growth of its
        // file.
        let found = self.find(AllocMode::InUse(handle), self.cluster_of(goal), 1, End::Last, &mut runs);
        match runs.first() {
            Some(run) => {
                self.counts.sub_blocks(handle, self.blocks_in(1));
                Ok(self.block_of(run.start))
            }
            None => {
                self.unclaim(1);
                Err(found.err().unwrap_or_else(counter_mismatch))
            }
        }
    }

    /// Allocates one block for metadata without a reservation, on behalf of a caller with
    /// `credentials`. Registers at most [`super::ALLOCATE_CREDITS`] blocks.
    ///
    /// # Errors
    /// [`Error::NoSpace`], with nothing changed. Corruption of a group.
    pub(crate) fn allocate_block(
        &self,
        handle: &Handle<'_>,
        goal: FsBlock,
        credentials: Credentials,
    ) -> Result<FsBlock> {
        self.allocate_metadata(handle, goal, &mut self.reserve_data(1, credentials)?)
    }

    /// Finds claimed blocks: first contiguous ones in a group or a window, then any free blocks
    /// from the goal on. Returns at least one block or an error. Away from the goal, allocates from
    /// the end `end` of a run.
    pub(super) fn find(
        &self,
        mode: AllocMode<'_>,
        goal: FsBlock,
        want: u32,
        end: End,
        runs: &mut Runs,
    ) -> Result<()> {
        let goal = self.units.nearest(goal);
        let (goal_group, goal_offset) = self.units.group_of(goal);
        let groups = self.groups_from(goal_group).filter(|&group| self.group(group).largest_hint() >= want);
        for group in groups.chain(std::iter::once_with(|| self.reclaim_together(want)).flatten()) {
            let goal = (group == goal_group).then_some(goal_offset);
            let taken = self.group(group).take(&self.cache, mode, goal, want, Some(end))?;
            if let Some(run) = taken {
                runs.push(run);
                return Ok(());
            }
        }
        for search in 0..MAX_SEARCHES {
            // The first search may miss blocks that move into or out of a window, or that are being
            // discarded. Later searches wait for these blocks.
            let _trim = (search > 0).then(|| self.wait_for_trim());
            let _windows = match search {
                0 => None,
                1 => Some(self.reclaim(want)),
                _ => Some(self.reclaim(u32::MAX)),
            };
            self.find_parts(mode, goal, want, search == 0, runs)?;
            if !runs.is_empty() {
                return Ok(());
            }
        }
        Err(counter_mismatch())
    }

    /// Allocates free blocks in any runs, from the goal on. With `hints`, skips groups whose hint
    /// says that they are full.
    fn find_parts(
        &self,
        mode: AllocMode<'_>,
        goal: FsBlock,
        want: u32,
        hints: bool,
        runs: &mut Runs,
    ) -> Result<()> {
        let (goal_group, goal_offset) = self.units.group_of(goal);
        let (mut left, mut groups) = (want, 0);
        for group in self.groups_from(goal_group) {
            if hints && self.group(group).largest_hint() == 0 {
                continue;
            }
            let (goal, before) = ((group == goal_group).then_some(goal_offset), left);
            self.take_parts(mode, group, goal, &mut left, runs)?;
            groups += u32::from(left != before);
            if left == 0 || groups == MAX_GROUPS || runs.len() >= MAX_RUNS {
                break;
            }
        }
        Ok(())
    }

    /// Allocates free blocks of one group, in as many runs as needed and permitted.
    fn take_parts(
        &self,
        mode: AllocMode<'_>,
        group: GroupNo,
        mut goal: Option<u32>,
        left: &mut u32,
        runs: &mut Runs,
    ) -> Result<()> {
        let slot = self.group(group);
        while *left > 0 && runs.len() < MAX_RUNS {
            let Some(run) = slot.take(&self.cache, mode, goal.take(), *left, None)? else {
                return Ok(());
            };
            *left -= run.len;
            append(runs, run);
        }
        Ok(())
    }

    /// Returns all groups, from `first` on and wrapping around.
    pub(super) fn groups_from(&self, first: GroupNo) -> impl Iterator<Item = GroupNo> {
        let count = self.layout.group_count;
        (0..count).map(move |n| {
            let rest = count - first.get();
            GroupNo(if n < rest { first.get() + n } else { n - rest })
        })
    }

    /// Returns the number of blocks at the end of a run that may be freed in one step of
    /// [`super::FREE_CREDITS`]: the blocks in the last two groups.
    pub(crate) fn freeable_tail(&self, start: FsBlock, len: u32) -> u32 {
        let (_, offset) = self.layout.group_of(start + u64::from(len.saturating_sub(1)));
        len.min((offset + 1).saturating_add(self.layout.blocks_per_group))
    }

    /// Returns the number of blocks at the start of a run that may be marked in use in one step of
    /// [`super::FREE_CREDITS`]: the blocks in its first group.
    pub(crate) fn usable_head(&self, start: FsBlock, len: u32) -> u32 {
        let (_, offset) = self.layout.group_of(start);
        len.min(self.layout.blocks_per_group - offset)
    }

    /// Reads the bitmaps of the groups of a run, at most 64.
    ///
    /// # Errors
    /// Corruption of a group, a failed read.
    pub(crate) fn read_bitmaps(&self, start: FsBlock, len: u32) -> Result<()> {
        const MOST: usize = 64;
        let mut groups = self.split(self.clusters_of(start, len)).take(MOST);
        groups.try_for_each(|(group, _)| self.group(group).read_block_bitmap(&self.cache))
    }

    /// Reads the bitmap from which [`allocate_metadata`](Self::allocate_metadata) allocates for
    /// this goal, unless other threads fill the group first.
    ///
    /// # Errors
    /// Corruption of a group, a failed read.
    pub(crate) fn read_bitmap_for_metadata(&self, goal: FsBlock) -> Result<()> {
        let (first, _) = self.units.group_of(self.units.nearest(self.cluster_of(goal)));
        for group in self.groups_from(first).map(|number| self.group(number)) {
            if group.largest_hint() == 0 {
                continue;
            }
            group.read_block_bitmap(&self.cache)?;
            // The hint of a group whose bitmap was not in memory is an upper bound.
            if group.largest_hint() > 0 {
                break;
            }
        }
        Ok(())
    }

    /// Frees data blocks under `handle`, whole clusters. They become allocatable once its
    /// transaction is durable (I7).
    ///
    /// # Errors
    /// Corruption: blocks outside the volume, blocks of the file system itself, or blocks that are
    /// not in use.
    pub(crate) fn free_data(&self, handle: &Handle<'_>, start: FsBlock, len: u32) -> Result<()> {
        self.mark_free(handle, start, len)?;
        guarded!(Fault::ReuseAtOnce, handle.release_data(start, len), self.release(&[Freed { start, len }]));
        Ok(())
    }

    /// Adds clusters of data to `claim` again that `handle` has allocated from it, and that nothing
    /// refers to. They are allocatable at once, because they were free in the last durable state,
    /// too (I7).
    ///
    /// # Errors
    /// As [`free_data`](Self::free_data).
    pub(crate) fn take_back(
        &self,
        handle: &Handle<'_>,
        blocks: Run,
        claim: &mut Reservation<'_>,
    ) -> Result<()> {
        let clusters = self.clear(handle, blocks.start, blocks.len)?;
        self.release_to_groups(clusters);
        claim.put_back(clusters.len);
        Ok(())
    }

    /// Frees metadata blocks under `handle`, with the rest of their clusters.
    ///
    /// # Errors
    /// As [`free_data`](Self::free_data).
    pub(crate) fn free_metadata(&self, handle: &Handle<'_>, start: FsBlock, len: u32) -> Result<()> {
        self.mark_free(handle, start, len)?;
        handle.revoke(start, len);
        handle.release_data(start, len);
        Ok(())
    }

    /// Marks claimed blocks in use under `handle`. Registers at most [`super::FREE_CREDITS`] blocks
    /// if they are a [`usable_head`](Self::usable_head).
    ///
    /// # Errors
    /// Corruption of a group.
    pub(crate) fn use_claimed(&self, handle: &Handle<'_>, start: FsBlock, len: u32) -> Result<()> {
        let clusters = self.clusters_of(start, len);
        for (group, run) in self.split(clusters) {
            self.group(group).mark_used(&self.cache, handle, run)?;
        }
        self.counts.sub_blocks(handle, self.blocks_in(clusters.len.into()));
        Ok(())
    }

    /// Makes claimed blocks allocatable again.
    pub(crate) fn release_claimed(&self, start: FsBlock, len: u32) {
        let clusters = self.clusters_of(start, len);
        self.release_to_groups(clusters);
        self.unclaim(u64::from(clusters.len));
    }

    fn mark_free(&self, handle: &Handle<'_>, start: FsBlock, len: u32) -> Result<()> {
        let clusters = self.clear(handle, start, len)?;
        self.held.fetch_add(u64::from(clusters.len), Ordering::Relaxed);
        note_freed(clusters.len.into());
        self.claims.note_event();
        Ok(())
    }

    /// Marks blocks free in the bitmaps and the counters, but not in the free extents. Returns
    /// their clusters.
    fn clear(&self, handle: &Handle<'_>, start: FsBlock, len: u32) -> Result<Run> {
        self.layout.check_data_range(start, u64::from(len))?;
        let clusters = self.clusters_of(start, len);
        for (group, run) in self.split(clusters) {
            if !self.group(group).free(&self.cache, handle, run)? {
                return Err(Error::corrupt(format_args!("blocks {start}+{len} are freed but not in use")));
            }
        }
        self.counts.add_blocks(handle, self.blocks_in(clusters.len.into()));
        Ok(clusters)
    }

    /// Adds clusters to the free extents.
    fn release_to_groups(&self, clusters: Run) {
        for (group, run) in self.split(clusters) {
            self.group(group).release([run]);
        }
    }

    /// Makes freed blocks allocatable. Their transaction is durable.
    pub(crate) fn release(&self, freed: &[Freed]) {
        for freed in freed {
            let clusters = self.clusters_of(freed.start, freed.len);
            self.release_to_groups(clusters);
            self.unclaim_released(u64::from(clusters.len));
            // This is the last step, because a thread that found no space gives up if no block is
            // held and none was released. Release pairs with the Acquire in `has_held_blocks`.
            self.held.fetch_sub(u64::from(clusters.len), Ordering::Release);
        }
    }

    /// Splits a run of clusters at group boundaries. Returns each part with its group.
    pub(super) fn split(&self, clusters: Run) -> impl Iterator<Item = (GroupNo, GroupRun)> {
        let (mut start, mut left) = (clusters.start, clusters.len);
        std::iter::from_fn(move || {
            if left == 0 {
                return None;
            }
            let (group, offset) = self.units.group_of(start);
            let here = left.min(self.units.blocks_per_group - offset);
            start += u64::from(here);
            left -= here;
            Some((group, GroupRun { start: offset, len: here }))
        })
    }

    /// Returns the goal for the data of a file whose inode is in `group`. The goals are spread over
    /// the group by inode, so that files that grow at the same time do not interleave.
    pub(crate) fn goal_in_group(&self, group: GroupNo, salt: u32) -> FsBlock {
        let slice = self.layout.blocks_per_group / 16;
        let goal = self.layout.group_start(group) + u64::from(salt % 16 * slice);
        if goal.get() < self.layout.blocks_count { goal } else { self.layout.group_start(group) }
    }
}

/// Appends a run, or extends the last one if `run` continues it.
pub(super) fn append(runs: &mut Runs, run: Run) {
    match runs.last_mut() {
        Some(last) if last.start + u64::from(last.len) == run.start => last.len += run.len,
        _ => runs.push(run),
    }
}

fn counter_mismatch() -> Error {
    Error::corrupt("the free blocks of the counter are in no group")
}
