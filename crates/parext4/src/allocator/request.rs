//! Requests of blocks for the holes of a file.
//!
//! This module decides whether the blocks come from windows of the file or from free extents.
//! [`blocks`](super::blocks) searches the free extents.

use parext4_format::{BlockRange, FileBlock, FsBlock, GroupNo};
use smallvec::SmallVec;

use super::free_extents::End;
use super::neighbours::{ClusterMap, Neighbours};
use super::window::Reclaimed;
use super::windows::{FileWindows, Windows, covering};
use super::{AllocMode, Allocator, MAX_GROUPS, MAX_RUNS, Reservation, Run, Runs};
use crate::credentials::Credentials;
use crate::error::Result;

/// If the first write to an empty file requests at most this number of blocks, it may be the whole
/// file, and the file gets no window.
const SMALL_FILE: u32 = 16;

/// The expected growth of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Growth {
    /// No growth is expected: directories, and preallocated blocks.
    Exact,
    /// The file is written. More writes are expected unless this one writes the whole file.
    Write,
    /// The file is appended to. More appends are expected.
    Append,
}

/// The source of the blocks of an allocation.
#[derive(Debug)]
pub(crate) enum BlockSource<'c, 'a> {
    /// An earlier claim, as for dirty pages. Blocks that it lacks are claimed, also from the pool.
    Claim(&'c mut Reservation<'a>),
    /// The free blocks that a caller with these credentials may use.
    Free(Credentials),
}

/// The groups that an allocation has changed.
type Groups = SmallVec<[GroupNo; MAX_GROUPS as usize]>;

/// A request for blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockRequest<'a, M> {
    pub growth: Growth,
    /// The windows and the map of the file.
    pub windows: &'a FileWindows,
    pub map: &'a M,
    /// The holes to fill, in ascending order. No two are in one cluster, and the file has no block
    /// in their clusters.
    pub holes: &'a [BlockRange],
    /// The goal of the first block: from the file's map, or from the group of its inode.
    pub goal: FsBlock,
}

impl<M: Neighbours> BlockRequest<'_, M> {
    /// Returns true if the request may open a window for the file.
    fn wants_window(&self, want: u32) -> bool {
        match self.growth {
            Growth::Exact => false,
            Growth::Append => true,
            Growth::Write => {
                let first = self.holes.first().is_some_and(|hole| hole.start() == FileBlock::ZERO);
                !(first && want <= SMALL_FILE && self.map.is_empty())
            }
        }
    }
}

impl Allocator {
    /// Returns true if a request for `want` blocks is allocated in one step.
    pub(crate) fn keeps_together(&self, want: u32) -> bool {
        self.options.serialize_from.is_some_and(|least| want >= least)
    }

    /// Allocates the clusters of the holes of a request, in the order of the holes. They come from
    /// windows of the file, or else from free extents, contiguous if possible and at the goal if it
    /// is free.
    ///
    /// Returns at least one block. Returns fewer than requested if all would come from more groups
    /// than the handle has credits for ([`super::ALLOCATE_CREDITS`]), or if windows end.
    ///
    /// # Errors
    /// [`Error::NoSpace`](crate::Error::NoSpace), with nothing changed, if fewer blocks are
    /// available than requested. Corruption of a group.
    pub(crate) fn allocate<'a, M: Neighbours>(
        &'a self,
        mode: AllocMode<'_>,
        request: &BlockRequest<'_, M>,
        source: &mut BlockSource<'_, 'a>,
    ) -> Result<Runs> {
        let holes: SmallVec<[BlockRange; 4]> =
            request.holes.iter().map(|hole| self.file_clusters(*hole)).collect();
        let map = ClusterMap { map: request.map, cluster_bits: self.layout.cluster_bits };
        let goal = self.cluster_of(request.goal);
        let request =
            BlockRequest { growth: request.growth, windows: request.windows, map: &map, holes: &holes, goal };
        let want: u32 = holes.iter().map(|hole| hole.count()).sum();
        let mut claimed_now;
        let claim = match source {
            BlockSource::Claim(claim) => {
                claim.top_up(want)?;
                &mut **claim
            }
            BlockSource::Free(credentials) => {
                claimed_now = self.reserve_data(want, *credentials)?;
                &mut claimed_now
            }
        };
        if request.growth != Growth::Exact && !self.keeps_together(want) {
            return self.allocate_per_block(mode, want, claim);
        }
        let mut runs = Runs::new();
        let mut found = self.take_from_windows(mode, &request, want, &mut runs);
        if found.is_ok() && runs.is_empty() {
            let first = request.holes.first().map_or(FileBlock::ZERO, |hole| hole.start());
            let beside = self.goal_beside(&request.windows.read(), request.map, first);
            found = self.find(mode, beside.unwrap_or(request.goal), want, End::First, &mut runs);
        }
        self.finish_allocation(mode, claim, runs, found)
    }

    /// Allocates blocks from windows of the file, and opens windows as needed. Stops at the first
    /// block that no window covers.
    fn take_from_windows<M: Neighbours>(
        &self,
        mode: AllocMode<'_>,
        request: &BlockRequest<'_, M>,
        want: u32,
        runs: &mut Runs,
    ) -> Result<()> {
        if self.take_covered(mode, request, runs)? {
            return Ok(());
        }
        let mut file = request.windows.write();
        let mut may_open = if request.wants_window(want) { MAX_GROUPS } else { 0 };
        let mut groups = Groups::new();
        for &hole in request.holes {
            let mut rest = hole;
            while !rest.is_empty() && runs.len() < MAX_RUNS {
                if covering(&file, rest.start()).is_none() {
                    let opens =
                        may_open > 0 && self.open_window(&mut file, request.map, request.goal, rest)?;
                    if !opens {
                        return Ok(());
                    }
                    may_open -= 1;
                }
                match self.take_from_window(mode, &mut file, &mut groups, rest)? {
                    Ok(Some(run)) => {
                        runs.push(run);
                        rest = rest.skip(run.len);
                    }
                    Ok(None) => return Ok(()),
                    Err(Reclaimed) => {}
                }
            }
            if !rest.is_empty() {
                break;
            }
        }
        Ok(())
    }

    /// Allocates blocks for a single hole from the window that covers it, with the file's windows
    /// locked shared. Returns true if it allocated any.
    fn take_covered<M>(
        &self,
        mode: AllocMode<'_>,
        request: &BlockRequest<'_, M>,
        runs: &mut Runs,
    ) -> Result<bool> {
        let &[hole] = request.holes else { return Ok(false) };
        let file = request.windows.read();
        let Some(window) = covering(&file, hole.start()).map(|index| &file[index]) else { return Ok(false) };
        let run = if window.blocks().covers(hole) { window.take(hole) } else { Ok(None) };
        let Ok(Some(run)) = run else { return Ok(false) };
        let (group, blocks) = run.group(&self.units);
        if let AllocMode::InUse(handle) = mode {
            self.group(group).mark_used(&self.cache, handle, blocks)?;
        }
        runs.push(run);
        Ok(true)
    }

    /// Allocates blocks for `blocks`, or for the first of them, from the window that covers their
    /// start. Returns `Ok(None)` if the window's group would exceed the limit of groups. Removes a
    /// window that was reclaimed.
    fn take_from_window(
        &self,
        mode: AllocMode<'_>,
        file: &mut Windows,
        groups: &mut Groups,
        blocks: BlockRange,
    ) -> Result<Result<Option<Run>, Reclaimed>> {
        let Some(index) = covering(file, blocks.start()) else { return Ok(Ok(None)) };
        let (group, _) = self.units.group_of(file[index].run.start);
        if !groups.contains(&group) {
            if groups.len() == MAX_GROUPS as usize {
                return Ok(Ok(None));
            }
            groups.push(group);
        }
        let taken = file[index].take(blocks);
        match (taken, mode) {
            (Ok(Some(run)), AllocMode::InUse(handle)) => {
                self.group(group).mark_used(&self.cache, handle, run.group(&self.units).1)?;
            }
            (Ok(_), _) => {}
            (Err(Reclaimed), _) => drop(file.remove(index)),
        }
        Ok(taken)
    }
}
