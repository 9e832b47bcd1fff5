//! Discarding free blocks on the device.
//!
//! This module keeps blocks from being allocated while the device discards them: a run of free
//! blocks leaves its group's free extents meanwhile. The caller decides when blocks are discarded.
//! Invariant: at most one run is removed at a time. The group's lock is not held meanwhile, so
//! commits and allocations in the group continue. A thread that finds no free block waits until the
//! run is returned ([`Allocator::wait_for_trim`]).

use std::ops::Range;

use parext4_format::GroupNo;

use super::group::Group;
use super::{Allocator, Run};
use crate::convert::saturating_u32;
use crate::error::Result;
use crate::layout::GroupRun;
use crate::sync::Rank;
use crate::sync::{Mutex, MutexGuard};

/// Maximum number of blocks in a run that is out of its group. The number bounds the time that a
/// thread waits for the run.
const MAX_RUN: u32 = 16384;

/// The lock that a thread holds while a run is removed from its group.
#[derive(Debug)]
pub(super) struct Trimming(Mutex<()>);

impl Trimming {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Rank::Trimming, ()))
    }
}

/// A run that is removed from its group. Dropping it returns the run.
struct RemovedRun<'a> {
    group: &'a Group,
    run: GroupRun,
    _trimming: MutexGuard<'a, ()>,
}

impl Drop for RemovedRun<'_> {
    fn drop(&mut self) {
        self.group.release([self.run]);
    }
}

impl Allocator {
    /// Calls `discard` with the byte offset and the length of each run of at least `least` free
    /// blocks within `blocks`, in whole clusters. Skips blocks of windows and blocks of a
    /// transaction that is not durable. Returns the number of discarded blocks.
    ///
    /// # Errors
    /// Returns the error of `discard`, or corruption of a group.
    pub(crate) fn discard_free(
        &self,
        blocks: Range<u64>,
        least: u32,
        mut discard: impl FnMut(u64, u64) -> Result<()>,
    ) -> Result<u64> {
        let bits = self.layout.cluster_bits;
        let clusters = blocks.start.div_ceil(1 << bits)..blocks.end >> bits;
        let least = least.div_ceil(1 << bits);
        let mut sum = 0;
        for number in 0..self.layout.group_count {
            let (number, group) = (GroupNo(number), &self.groups[number as usize]);
            let first = self.units.group_start(number).get();
            let within = |cluster: u64| saturating_u32(cluster.saturating_sub(first));
            let end = within(clusters.end).min(self.units.group_blocks(number));
            let blocks = within(clusters.start)..end;
            let mut at = blocks.start;
            while let Some(removed) = self.remove_run(group, &blocks, at, least)? {
                let Run { start, len } = self.blocks_of(Run::in_group(&self.units, number, removed.run));
                discard(
                    self.layout.offset(start),
                    u64::from(len) * u64::from(self.layout.block_size.bytes()),
                )?;
                sum += u64::from(len);
                at = removed.run.end();
            }
        }
        Ok(sum)
    }

    /// Removes the first free run with at least `least` blocks within `blocks` from the group, from
    /// `at` on.
    fn remove_run<'a>(
        &'a self,
        group: &'a Group,
        blocks: &Range<u32>,
        at: u32,
        least: u32,
    ) -> Result<Option<RemovedRun<'a>>> {
        if at >= blocks.end {
            return Ok(None);
        }
        let trimming = self.trimming.0.lock();
        let run = group.keep_for_window(&self.cache, |free| {
            let within = |run: GroupRun| (run.start.max(blocks.start), run.end().min(blocks.end));
            let mut runs = free.runs_from(at).map(within).take_while(|&(start, end)| start < end);
            let (start, end) = runs.find(|&(start, end)| end - start >= least)?;
            let start = start.max(at);
            Some(GroupRun { start, len: (end - start).min(MAX_RUN) })
        })?;
        Ok(run.map(|run| RemovedRun { group, run, _trimming: trimming }))
    }

    /// Waits until no run is removed from its group. No run is removed while the caller keeps the
    /// returned guard.
    pub(super) fn wait_for_trim(&self) -> MutexGuard<'_, ()> {
        self.trimming.0.lock()
    }
}
