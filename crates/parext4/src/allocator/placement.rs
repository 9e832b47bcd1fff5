//! Where a new window goes, and how large it is.

use parext4_format::{FsBlock, GroupNo};

use super::windows::{WindowTable, Windows};
use super::{Allocator, Neighbours, Run};
use crate::error::Result;
use crate::sync::atomic::Ordering;

/// Blocks of a window, unless the volume is too small for that.
const LARGEST: u32 = 16384;
/// A smaller window is not worth while.
const SMALLEST: u32 = 8;
/// Windows are sized as if there were at least so many, each of which finds its share this many times.
const EXPECTED: usize = 16;
const SHARES: usize = 4;
/// A window that is smaller than its size by more than this factor is placed elsewhere.
const SHRINK: u32 = 8;
/// Groups looked at for a new place, and how many of them are tried.
const GROUPS_LOOKED_AT: usize = 256;
const GROUPS_TRIED: u32 = 4;

/// What a window is wanted for.
#[derive(Clone, Copy, Debug)]
struct Wish {
    /// The file block that must be in it, and how many from there on should be.
    at: u32,
    want: u32,
    /// The region of the file, `[first, end)`, that it may keep blocks for.
    first: u32,
    end: u32,
    /// The least blocks that are worth a window.
    least: u32,
    /// Blocks of the file before the region that are to find their place before it too: of threads that write a
    /// new file side by side, any may come first.
    lead: u32,
}

impl Allocator {
    /// Opens a window for the hole in `map` at file block `at`, of which `want` blocks are to be allocated now.
    /// Returns whether there is one now that covers `at`.
    ///
    /// `home` is where a file that has nothing yet should lie, if it is in the volume.
    pub(super) fn open_window(
        &self,
        file: &mut Windows,
        map: &impl Neighbours,
        home: FsBlock,
        at: u32,
        want: u32,
    ) -> Result<bool> {
        let mut table = self.windows.lock();
        let size = self.window_size(table.len().saturating_sub(file.len()));
        let (first, end) = region(file, map, at, size);
        // One allocation takes all there is to keep.
        if size < SMALLEST || want >= end - first {
            return Ok(false);
        }
        let least = want.max(size / SHRINK);
        let lead = if file.is_empty() && map.is_empty() { first } else { 0 };
        let wish = Wish { at, want, first, end, least, lead };
        let goal = goal(file, map, &wish).filter(|&goal| self.layout.contains(goal));
        let mut found = None;
        if let Some(goal) = goal {
            found = self.place_at(goal, &wish)?;
        }
        if found.is_none() {
            found = self.place_apart(&table, goal.unwrap_or(self.layout.nearest(home)), &wish)?;
        }
        let Some((first, run)) = found else { return Ok(false) };
        self.add_window(&mut table, file, first, run);
        Ok(true)
    }

    /// Where blocks for file block `at` should lie that get no window: beside those that the file has.
    pub(super) fn goal_beside(&self, file: &Windows, map: &impl Neighbours, at: u32) -> Option<FsBlock> {
        let wish = Wish { at, want: 0, first: at, end: at, least: 0, lead: 0 };
        goal(file, map, &wish).filter(|&goal| self.layout.contains(goal))
    }

    /// Blocks of a new window besides `open` others of other files: a power of two, so that regions of different sizes nest.
    fn window_size(&self, open: usize) -> u32 {
        let free = u64::try_from(self.unclaimed.load(Ordering::Relaxed)).unwrap_or(0);
        let share = free / (open.max(EXPECTED) * SHARES) as u64;
        let most = LARGEST.min(self.layout.blocks_per_group / 2);
        let share = u32::try_from(share).unwrap_or(u32::MAX).min(most);
        share.checked_ilog2().map_or(0, |bits| 1 << bits)
    }

    /// Places a window so that file block `wish.at` comes to lie at `goal`.
    fn place_at(&self, goal: FsBlock, wish: &Wish) -> Result<Option<(u32, Run)>> {
        let (group, offset) = self.layout.group_of(goal);
        let limit = self.layout.group_blocks(group);
        let low = offset.saturating_sub(wish.at - wish.first);
        let high = offset.saturating_add(wish.end - wish.at).min(limit);
        // What goes on in the next group may be short in this one.
        let least = wish.least.min(high - offset);
        let taken = self.group(group).keep_for_window(&self.cache, |free| {
            free.around(offset, low, high).filter(|&(start, len)| start + len - offset >= least)
        })?;
        Ok(taken.map(|(start, len)| {
            let run = Run { start: self.layout.group_start(group) + u64::from(start), len };
            (wish.at - (offset - start), run)
        }))
    }

    /// Places a window where it has room to grow: in the largest free run of a group that has much room, from
    /// `near` on; in the middle of it if another file may want to grow into its start.
    fn place_apart(&self, table: &WindowTable, near: FsBlock, wish: &Wish) -> Result<Option<(u32, Run)>> {
        let (near, _) = self.layout.group_of(near);
        for _ in 0..GROUPS_TRIED {
            let Some(group) = self.roomiest_group(near, wish.least) else { return Ok(None) };
            let group_start = self.layout.group_start(group);
            let mut first = wish.first;
            let taken = self.group(group).keep_for_window(&self.cache, |free| {
                let (start, len) = free.largest_run().filter(|&(_, len)| len >= wish.least)?;
                let crowded = len / 2 >= wish.least && table.ends_at(group_start + u64::from(start));
                let skip = if crowded { len / 2 } else { 0 };
                let led = skip.saturating_add(wish.lead);
                let skip = if led.saturating_add(wish.end - wish.first) <= len { led } else { skip };
                let room = len - skip;
                // All of the region if it fits, else from where it is needed.
                if (wish.at - wish.first).saturating_add(wish.want) > room {
                    first = wish.at;
                }
                Some((start + skip, room.min(wish.end - first)))
            })?;
            if let Some((start, len)) = taken {
                return Ok(Some((first, Run { start: group_start + u64::from(start), len })));
            }
        }
        Ok(None)
    }

    /// A group that seems to have a free run of at least `least` blocks: the first from `near` on with most of it
    /// free, else that with the largest run.
    fn roomiest_group(&self, near: GroupNo, least: u32) -> Option<GroupNo> {
        let plenty = self.layout.blocks_per_group / 4 * 3;
        let mut best = (least.max(1) - 1, None);
        for group in self.groups_from(near).take(GROUPS_LOOKED_AT) {
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

/// The region of a window of `size` blocks for file block `at`: within a hole, and between other windows.
fn region(file: &Windows, map: &impl Neighbours, at: u32, size: u32) -> (u32, u32) {
    let aligned = if size == 0 { at } else { at - at % size };
    let mut low = map.hole_before(aligned, at);
    let next = file.partition_point(|window| window.first <= at);
    if let Some(before) = next.checked_sub(1).map(|index| &file[index]) {
        low = low.max(before.end().min(at));
    }
    let mut high = at.saturating_add(map.run_len(at, size.max(1)));
    if let Some(after) = file.get(next) {
        high = high.min(after.first);
    }
    (low, high.min(low.saturating_add(size)))
}

/// Where the block at `wish.at` continues what the file has: the window or the extent before it, or the window
/// behind it.
fn goal(file: &Windows, map: &impl Neighbours, wish: &Wish) -> Option<FsBlock> {
    let next = file.partition_point(|window| window.first <= wish.at);
    let before = next.checked_sub(1).map(|index| &file[index]);
    let touching = before.filter(|window| window.end() >= wish.first);
    touching
        .and_then(|window| window.place_of(wish.at))
        .or_else(|| map.goal(wish.at))
        .or_else(|| file.get(next).and_then(|window| window.place_of(wish.at)))
}
