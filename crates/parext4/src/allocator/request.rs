//! Blocks for holes of a file, with regard to how the file grows.

use parext4_format::{FsBlock, GroupNo};
use smallvec::SmallVec;

use super::free_extents::End;
use super::window::TakenBack;
use super::windows::{FileWindows, Windows, covering};
use super::{Allocator, MAX_GROUPS, MAX_RUNS, Reservation, Run, Runs};
use crate::error::Result;
use crate::journal::Handle;

/// A file whose first write is of no more blocks may well be all written by it.
const SMALL: u32 = 16;

/// What is known of how a file grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Growth {
    /// Just the blocks of the request: directories, and what is allocated ahead.
    Exact,
    /// It is written. If that is not the whole file, more will follow.
    Write,
    /// It is appended to, and more will follow.
    Append,
}

/// The groups that an allocation has changed.
type Groups = SmallVec<[GroupNo; MAX_GROUPS as usize]>;

/// What the allocator must know of where a file's blocks lie.
pub(crate) trait Neighbours {
    /// Returns true if the file has no blocks.
    fn is_empty(&self) -> bool;

    /// Returns where file block `at` would continue the blocks before it on the device.
    fn goal(&self, at: u32) -> Option<FsBlock>;

    /// Returns the start of the hole that ends at file block `at`, but at least `low`; `at` if the block before is mapped.
    fn hole_before(&self, low: u32, at: u32) -> u32;

    /// Returns the number of file blocks from `at` on that are in one run, but at most `most`.
    fn run_len(&self, at: u32, most: u32) -> u32;
}

/// A request for blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockRequest<'a, M> {
    pub growth: Growth,
    /// The windows of the file, and its map.
    pub windows: &'a FileWindows,
    pub map: &'a M,
    /// The holes to fill, as `(file block, length)`, ascending.
    pub holes: &'a [(u32, u32)],
    /// Where the first block should lie, by what the map has or else by where its inode lies.
    pub goal: FsBlock,
}

impl<M: Neighbours> BlockRequest<'_, M> {
    /// Whether the file may get a window for it.
    fn wants_window(&self, want: u32) -> bool {
        match self.growth {
            Growth::Exact => false,
            Growth::Append => true,
            Growth::Write => {
                let first = self.holes.first().is_some_and(|&(logical, _)| logical == 0);
                !(first && want <= SMALL && self.map.is_empty())
            }
        }
    }
}

impl Allocator {
    /// Whether a file that grows gets `want` blocks in one step.
    pub(crate) fn keeps_together(&self, want: u32) -> bool {
        self.serialize_from.is_some_and(|least| want >= least)
    }

    /// Allocates blocks for the holes of a request, in one call and in the order of the holes: out of windows of
    /// the file, else together if possible, at the goal if free.
    ///
    /// They come out of `claim`, if the caller has claimed some; else they are claimed now.
    ///
    /// Returns at least one block, and fewer than wanted only if they would come from too many groups for the
    /// handle's credits ([`super::ALLOCATE_CREDITS`]), or where windows end.
    ///
    /// # Errors
    /// [`Error::NoSpace`](crate::Error::NoSpace) unless all blocks wanted are free, with nothing changed;
    /// corruption.
    pub(crate) fn allocate<'a, M: Neighbours>(
        &'a self,
        handle: &Handle<'_>,
        request: &BlockRequest<'_, M>,
        claim: Option<&mut Reservation<'a>>,
    ) -> Result<Runs> {
        let want: u32 = request.holes.iter().map(|&(_, len)| len).sum();
        let mut claimed_now;
        let claim = match claim {
            Some(claim) => {
                claim.top_up(want)?;
                claim
            }
            None => {
                claimed_now = self.reserve_data(want)?;
                &mut claimed_now
            }
        };
        if request.growth != Growth::Exact && !self.keeps_together(want) {
            return self.allocate_per_block(handle, want, claim);
        }
        let mut runs = Runs::new();
        let mut found = self.take_from_windows(handle, request, want, &mut runs);
        if found.is_ok() && runs.is_empty() {
            let first = request.holes.first().map_or(0, |&(logical, _)| logical);
            let beside = self.goal_beside(&request.windows.read(), request.map, first);
            found = self.find(handle, beside.unwrap_or(request.goal), want, End::First, &mut runs);
        }
        self.settle(handle, claim, runs, found)
    }

    /// Takes blocks out of windows of the file, which are opened as needed, up to where that ends.
    fn take_from_windows<M: Neighbours>(
        &self,
        handle: &Handle<'_>,
        request: &BlockRequest<'_, M>,
        want: u32,
        runs: &mut Runs,
    ) -> Result<()> {
        if self.take_covered(handle, request, runs)? {
            return Ok(());
        }
        let mut file = request.windows.write();
        let mut may_open = if request.wants_window(want) { MAX_GROUPS } else { 0 };
        let mut groups = Groups::new();
        for &(logical, len) in request.holes {
            let (mut at, end) = (logical, logical + len);
            while at < end && runs.len() < MAX_RUNS {
                if covering(&file, at).is_none() {
                    let opens = may_open > 0
                        && self.open_window(&mut file, request.map, request.goal, at, end - at)?;
                    if !opens {
                        return Ok(());
                    }
                    may_open -= 1;
                }
                match self.take_from_window(handle, &mut file, &mut groups, at, end - at)? {
                    Ok(Some(run)) => {
                        runs.push(run);
                        at += run.len;
                    }
                    Ok(None) => return Ok(()),
                    Err(TakenBack) => {}
                }
            }
            if at < end {
                break;
            }
        }
        Ok(())
    }

    /// Takes blocks for one hole out of the window that covers it, beside others who do the same. Says whether there
    /// were any.
    fn take_covered<M>(
        &self,
        handle: &Handle<'_>,
        request: &BlockRequest<'_, M>,
        runs: &mut Runs,
    ) -> Result<bool> {
        let &[(at, len)] = request.holes else { return Ok(false) };
        let file = request.windows.read();
        let Some(window) = covering(&file, at).map(|index| &file[index]) else { return Ok(false) };
        let run = if at + len <= window.end() { window.take(at, len) } else { Ok(None) };
        let Ok(Some(run)) = run else { return Ok(false) };
        let (group, offset) = self.layout.group_of(run.start);
        self.group(group).mark_used(&self.cache, handle, offset, run.len)?;
        runs.push(run);
        Ok(true)
    }

    /// Takes blocks for file blocks `[at, at + max)` out of the window that covers `at`; nothing, if its group
    /// would be one too many. A window that was taken back is forgotten.
    fn take_from_window(
        &self,
        handle: &Handle<'_>,
        file: &mut Windows,
        groups: &mut Groups,
        at: u32,
        max: u32,
    ) -> Result<Result<Option<Run>, TakenBack>> {
        let Some(index) = covering(file, at) else { return Ok(Ok(None)) };
        let (group, _) = self.layout.group_of(file[index].run.start);
        if !groups.contains(&group) {
            if groups.len() == MAX_GROUPS as usize {
                return Ok(Ok(None));
            }
            groups.push(group);
        }
        let taken = file[index].take(at, max);
        match taken {
            Ok(Some(run)) => {
                let (_, offset) = self.layout.group_of(run.start);
                self.group(group).mark_used(&self.cache, handle, offset, run.len)?;
            }
            Ok(None) => {}
            Err(TakenBack) => drop(file.remove(index)),
        }
        Ok(taken)
    }
}
