//! The place and the size of a new window.
//!
//! This module chooses the region of the file and the free run. It does not manage the table of
//! windows.

use parext4_format::{BlockRange, FileBlock, FsBlock, GroupNo};

use super::windows::{WindowTable, Windows};
use super::{Allocator, Neighbours, Run};
use crate::convert::saturating_u32;
use crate::error::Result;
use crate::layout::{GroupRun, MAX_FILE_BLOCKS};
use crate::sync::atomic::Ordering;

/// Maximum number of blocks in a window.
const MAX_BLOCKS: u32 = 16384;
/// Minimum number of blocks in a window.
const MIN_BLOCKS: u32 = 8;
/// Smallest number of windows by which the free space is divided. A window's size is the free space
/// divided by the number of open windows, at least this number, and by [`SHARES`].
const EXPECTED: usize = 16;
const SHARES: usize = 4;
/// A window that would be smaller than its size divided by this factor is placed elsewhere.
const SHRINK: u32 = 8;
/// Maximum number of groups examined for a new place, and maximum number of groups tried.
const GROUPS_EXAMINED: usize = 256;
const GROUPS_TRIED: u32 = 4;

/// The requirements of a new window.
#[derive(Clone, Copy, Debug)]
struct Requirements {
    /// The file blocks that are allocated next. The first must be in the window, the others should
    /// be.
    next: BlockRange,
    /// The region of the file that the window may cover. It contains the first block of `next`.
    region: BlockRange,
    /// Minimum number of blocks.
    least: u32,
    /// Number of file blocks before the region for which free space stays before the window: if
    /// threads write a new file side by side, any of them may come first.
    lead: u32,
}

impl Allocator {
    /// Opens a window for the hole in `map` that contains `next`, the file blocks that are
    /// allocated next. Returns true if a window now covers the first of them.
    ///
    /// `home` is the goal of a file without blocks, if it is in the volume.
    pub(super) fn open_window(
        &self,
        file: &mut Windows,
        map: &impl Neighbours,
        home: FsBlock,
        next: BlockRange,
    ) -> Result<bool> {
        let mut table = self.windows.lock();
        let size = self.window_size(table.len().saturating_sub(file.len()));
        let region = region(file, map, next.start(), size);
        // If the request uses the whole region, nothing would be left for the window.
        if size < MIN_BLOCKS || next.len() >= region.len() {
            return Ok(false);
        }
        let least = next.count().max(size / SHRINK);
        let lead = if file.is_empty() && map.is_empty() { region.start().get() } else { 0 };
        let needs = Requirements { next, region, least, lead };
        let goal = goal(file, map, next.start(), region.start()).filter(|&goal| self.units.contains(goal));
        let mut found = None;
        if let Some(goal) = goal {
            found = self.place_at(goal, &needs)?;
        }
        if found.is_none() {
            found = self.place_elsewhere(&table, goal.unwrap_or(self.units.nearest(home)), &needs)?;
        }
        let Some((first, run)) = found else { return Ok(false) };
        self.add_window(&mut table, file, first, run);
        Ok(true)
    }

    /// Returns the goal for file block `at` outside any window: beside the blocks that the file
    /// has.
    pub(super) fn goal_beside(
        &self,
        file: &Windows,
        map: &impl Neighbours,
        at: FileBlock,
    ) -> Option<FsBlock> {
        goal(file, map, at, at).filter(|&goal| self.units.contains(goal))
    }

    /// Returns the size of a new window if `open` windows of other files exist: a power of two, so
    /// that regions of different sizes nest.
    fn window_size(&self, open: usize) -> u32 {
        let free = u64::try_from(self.unclaimed.load(Ordering::Relaxed)).unwrap_or(0);
        let share = free / (open.max(EXPECTED) * SHARES) as u64;
        let most = MAX_BLOCKS.min(self.units.blocks_per_group / 2);
        let share = saturating_u32(share).min(most);
        share.checked_ilog2().map_or(0, |bits| 1 << bits)
    }

    /// Places a window so that the first block of `needs.next` gets the block `goal`. Returns its
    /// first file block and its blocks.
    fn place_at(&self, goal: FsBlock, needs: &Requirements) -> Result<Option<(FileBlock, Run)>> {
        let (group, offset) = self.units.group_of(goal);
        let limit = self.units.group_blocks(group);
        let (before, after) = needs.region.split_at(needs.next.start());
        let low = offset.saturating_sub(before.count());
        let high = offset.saturating_add(after.count()).min(limit);
        // If the region continues in the next group, a shorter part in this group suffices.
        let least = needs.least.min(high - offset);
        let taken = self.group(group).keep_for_window(&self.cache, |free| {
            free.around(offset, low, high).filter(|run| run.end() - offset >= least)
        })?;
        Ok(taken.map(|run| {
            let first = needs.region.start() + (before.count() - (offset - run.start));
            (first, Run::in_group(&self.units, group, run))
        }))
    }

    /// Places a window in the largest free run of a group with much free space, from `near` on; in
    /// the middle of the run if another file may grow into its start. Returns its first file block
    /// and its blocks.
    fn place_elsewhere(
        &self,
        table: &WindowTable,
        near: FsBlock,
        needs: &Requirements,
    ) -> Result<Option<(FileBlock, Run)>> {
        let (near, _) = self.units.group_of(near);
        for _ in 0..GROUPS_TRIED {
            let Some(group) = self.roomiest_group(near, needs.least) else { return Ok(None) };
            let (before, from_next) = needs.region.split_at(needs.next.start());
            let mut part = needs.region;
            let taken = self.group(group).keep_for_window(&self.cache, |free| {
                let run = free.largest_run().filter(|run| run.len >= needs.least)?;
                let start = Run::in_group(&self.units, group, run).start;
                let crowded = run.len / 2 >= needs.least && table.ends_at(start);
                let skip = if crowded { run.len / 2 } else { 0 };
                let led = skip.saturating_add(needs.lead);
                let skip = if led.saturating_add(part.count()) <= run.len { led } else { skip };
                let room = run.len - skip;
                // The window covers the region from its start if `next` then fits, otherwise only
                // the part from `next` on.
                if before.count().saturating_add(needs.next.count()) > room {
                    part = from_next;
                }
                Some(GroupRun { start: run.start + skip, len: room.min(part.count()) })
            })?;
            if let Some(run) = taken {
                return Ok(Some((part.start(), Run::in_group(&self.units, group, run))));
            }
        }
        Ok(None)
    }

    /// Returns a group that probably has a free run of at least `least` blocks: the first from
    /// `near` on whose largest run is at least three quarters of a group, otherwise the group with
    /// the largest run.
    fn roomiest_group(&self, near: GroupNo, least: u32) -> Option<GroupNo> {
        let plenty = self.units.blocks_per_group / 4 * 3;
        let mut best = (least.max(1) - 1, None);
        for group in self.groups_from(near).take(GROUPS_EXAMINED) {
            let hint = self.group(group).largest_hint();
            if hint > best.0 {
                best = (hint, Some(group));
            }
            if hint > plenty && hint >= least {
                break;
            }
        }
        best.1
    }
}

/// Returns the region of a window of `size` blocks for file block `at`: within a hole, and between
/// other windows.
fn region(file: &Windows, map: &impl Neighbours, at: FileBlock, size: u32) -> BlockRange {
    let aligned = if size == 0 { at } else { FileBlock(at.get() - at.get() % size) };
    let mut low = map.hole_before(aligned, at).to_u64();
    let next = file.partition_point(|window| window.first <= at);
    if let Some(before) = next.checked_sub(1).map(|index| &file[index]) {
        low = low.max(before.blocks().end().min(at.to_u64()));
    }
    let mut high = (at.to_u64() + u64::from(map.run_len(at, size.max(1)))).min(MAX_FILE_BLOCKS);
    if let Some(after) = file.get(next) {
        high = high.min(after.first.to_u64());
    }
    BlockRange::clamped(low, high).take(size)
}

/// Returns the volume block at which file block `at` continues the window or the extent before it,
/// or precedes the window after it. Ignores a window that ends before file block `low`.
fn goal(file: &Windows, map: &impl Neighbours, at: FileBlock, low: FileBlock) -> Option<FsBlock> {
    let next = file.partition_point(|window| window.first <= at);
    let before = next.checked_sub(1).map(|index| &file[index]);
    let touching = before.filter(|window| window.blocks().end() >= low.to_u64());
    touching
        .and_then(|window| window.block_for(at))
        .or_else(|| map.goal(at))
        .or_else(|| file.get(next).and_then(|window| window.block_for(at)))
}
