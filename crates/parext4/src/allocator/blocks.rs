//! Allocating and freeing blocks.

use parext4_format::{FsBlock, GroupNo};

use super::free_extents::End;
use super::{Allocator, MAX_GROUPS, MAX_RUNS, Reservation, Runs};
use crate::error::{Error, Result};
use crate::fault::{Fault, planted};
use crate::journal::{Freed, Handle};
use crate::sync::atomic::Ordering;

/// Looks at all groups before it counts as corruption that claimed blocks are in none. A look finds nothing
/// only if others took the blocks that it had yet to come to, and theirs became free where it had been.
const LOOKS: u32 = 64;

/// Blocks that lie together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub start: FsBlock,
    pub len: u32,
}

impl Allocator {
    /// Ends an allocation that has taken `runs` out of `claim`: what `found` says counts only if it got none.
    pub(super) fn settle(
        &self,
        handle: &Handle<'_>,
        claim: &mut Reservation<'_>,
        runs: Runs,
        found: Result<()>,
    ) -> Result<Runs> {
        let got: u32 = runs.iter().map(|run| run.len).sum();
        let claimed = claim.take(got);
        debug_assert!(claimed, "more blocks were taken than claimed");
        self.counts.take_blocks(handle, got);
        match found {
            Err(error) if got == 0 => Err(error),
            _ => Ok(runs),
        }
    }

    /// Allocates one block for metadata out of a reservation.
    ///
    /// # Errors
    /// Corruption; [`Error::NoSpace`] if the reservation is used up.
    pub(crate) fn allocate_metadata(
        &self,
        handle: &Handle<'_>,
        goal: FsBlock,
        reservation: &mut Reservation<'_>,
    ) -> Result<FsBlock> {
        if !reservation.take(1) {
            return Err(Error::NoSpace);
        }
        let mut runs = Runs::new();
        // Not where the file that it is for grows.
        let found = self.find(handle, goal, 1, End::Last, &mut runs);
        match runs.first() {
            Some(run) => {
                self.counts.take_blocks(handle, 1);
                Ok(run.start)
            }
            None => {
                self.unclaim(1);
                Err(found.err().unwrap_or_else(lost))
            }
        }
    }

    /// Allocates one block of metadata that nobody has reserved. Registers at most [`super::ALLOCATE_CREDITS`] blocks.
    ///
    /// # Errors
    /// [`Error::NoSpace`] with nothing changed; corruption.
    pub(crate) fn allocate_block(&self, handle: &Handle<'_>, goal: FsBlock) -> Result<FsBlock> {
        self.claim_data(1)?;
        self.allocate_metadata(handle, goal, &mut self.attach(1))
    }

    /// Looks for claimed blocks: first for a group that has them together, or a window that has; then
    /// whatever there is, from the goal on. Takes at least one, or fails. Takes `end` of a run elsewhere than
    /// at the goal.
    pub(super) fn find(
        &self,
        handle: &Handle<'_>,
        goal: FsBlock,
        want: u32,
        end: End,
        runs: &mut Runs,
    ) -> Result<()> {
        let goal = self.layout.nearest(goal);
        let (goal_group, goal_offset) = self.layout.group_of(goal);
        let groups = self.groups_from(goal_group).filter(|&group| self.group(group).largest_hint() >= want);
        for group in groups.chain(std::iter::once_with(|| self.reclaim_together(want)).flatten()) {
            let goal = (group == goal_group).then_some(goal_offset);
            let taken = self.group(group).take(&self.cache, handle, goal, want, Some(end))?;
            if let Some((start, len)) = taken {
                runs.push(Run { start, len });
                return Ok(());
            }
        }
        for look in 0..LOOKS {
            // The first search may miss blocks that are moving into or out of a window, or are being discarded. Later
            // searches wait for those.
            let _trim = (look > 0).then(|| self.wait_for_trim());
            let _windows = match look {
                0 => None,
                1 => Some(self.reclaim(want)),
                _ => Some(self.reclaim(u32::MAX)),
            };
            self.find_parts(handle, goal, want, look == 0, runs)?;
            if !runs.is_empty() {
                return Ok(());
            }
        }
        Err(lost())
    }

    /// Takes what there is from the goal on, for which it may trust the groups' `hints`.
    fn find_parts(
        &self,
        handle: &Handle<'_>,
        goal: FsBlock,
        want: u32,
        hints: bool,
        runs: &mut Runs,
    ) -> Result<()> {
        let (goal_group, goal_offset) = self.layout.group_of(goal);
        let (mut left, mut groups) = (want, 0);
        for group in self.groups_from(goal_group) {
            if hints && self.group(group).largest_hint() == 0 {
                continue;
            }
            let (goal, before) = ((group == goal_group).then_some(goal_offset), left);
            self.take_parts(handle, group, goal, &mut left, runs)?;
            groups += u32::from(left != before);
            if left == 0 || groups == MAX_GROUPS || runs.len() >= MAX_RUNS {
                break;
            }
        }
        Ok(())
    }

    /// Takes what one group has, in as many runs as it takes and may be returned.
    fn take_parts(
        &self,
        handle: &Handle<'_>,
        group: GroupNo,
        mut goal: Option<u32>,
        left: &mut u32,
        runs: &mut Runs,
    ) -> Result<()> {
        let slot = self.group(group);
        while *left > 0 && runs.len() < MAX_RUNS {
            let Some((start, len)) = slot.take(&self.cache, handle, goal.take(), *left, None)? else {
                return Ok(());
            };
            *left -= len;
            append(runs, Run { start, len });
        }
        Ok(())
    }

    /// All groups, from `first` on and around.
    pub(super) fn groups_from(&self, first: GroupNo) -> impl Iterator<Item = GroupNo> {
        let count = self.layout.group_count;
        (0..count).map(move |n| {
            let rest = count - first.get();
            GroupNo(if n < rest { first.get() + n } else { n - rest })
        })
    }

    /// How many blocks at the end of a run may be freed in one step of [`super::FREE_CREDITS`]: those in its
    /// last two groups.
    pub(crate) fn freeable_tail(&self, start: FsBlock, len: u32) -> u32 {
        let (_, offset) = self.layout.group_of(start + u64::from(len.saturating_sub(1)));
        len.min((offset + 1).saturating_add(self.layout.blocks_per_group))
    }

    /// Frees blocks of data within `handle`; they are reused once its transaction is durable (I7).
    ///
    /// # Errors
    /// Corruption: blocks outside the volume, of the file system itself, or not in use.
    pub(crate) fn free_data(&self, handle: &Handle<'_>, start: FsBlock, len: u32) -> Result<()> {
        self.mark_free(handle, start, len)?;
        if planted(Fault::ReuseAtOnce) {
            self.release(&[Freed { start, len }]);
        } else {
            handle.release_data(start, len);
        }
        Ok(())
    }

    /// Frees blocks of metadata within `handle`.
    ///
    /// # Errors
    /// As [`free_data`](Self::free_data).
    pub(crate) fn free_metadata(&self, handle: &Handle<'_>, start: FsBlock, len: u32) -> Result<()> {
        self.mark_free(handle, start, len)?;
        for nth in 0..u64::from(len) {
            handle.release_metadata(start + nth);
        }
        Ok(())
    }

    fn mark_free(&self, handle: &Handle<'_>, start: FsBlock, len: u32) -> Result<()> {
        self.layout.check_data_range(start, u64::from(len))?;
        for (group, offset, len) in self.split(start, len) {
            self.group(group).free(&self.cache, handle, offset, len)?;
        }
        self.counts.give_blocks(handle, len);
        self.held.fetch_add(u64::from(len), Ordering::Relaxed);
        Ok(())
    }

    /// Makes blocks allocatable whose freeing is durable.
    pub(crate) fn release(&self, freed: &[Freed]) {
        for freed in freed {
            for (group, offset, len) in self.split(freed.start, freed.len) {
                self.group(group).release([(offset, len)]);
            }
            self.unclaim(u64::from(freed.len));
            self.held.fetch_sub(u64::from(freed.len), Ordering::Relaxed);
            self.releases.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A run cut at group boundaries: group, first block in it, length.
    fn split(&self, start: FsBlock, len: u32) -> impl Iterator<Item = (GroupNo, u32, u32)> {
        let (mut start, mut left) = (start, len);
        std::iter::from_fn(move || {
            if left == 0 {
                return None;
            }
            let (group, offset) = self.layout.group_of(start);
            let here = left.min(self.layout.blocks_per_group - offset);
            start += u64::from(here);
            left -= here;
            Some((group, offset, here))
        })
    }

    /// Where the data of a file whose inode is in `group` should begin: spread over the group by inode, so
    /// that files that grow side by side do not get in each other's way.
    pub(crate) fn goal_in_group(&self, group: GroupNo, salt: u32) -> FsBlock {
        let slice = self.layout.blocks_per_group / 16;
        let goal = self.layout.group_start(group) + u64::from(salt % 16 * slice);
        if goal.get() < self.layout.blocks_count { goal } else { self.layout.group_start(group) }
    }
}

/// Adds a run, as part of the last one where it continues that.
pub(super) fn append(runs: &mut Runs, run: Run) {
    match runs.last_mut() {
        Some(last) if last.start + u64::from(last.len) == run.start => last.len += run.len,
        _ => runs.push(run),
    }
}

fn lost() -> Error {
    Error::corrupt("free blocks that are counted are in no group")
}
