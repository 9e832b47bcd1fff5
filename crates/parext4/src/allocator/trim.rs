//! Telling the device which blocks are free.

use std::ops::Range;

use parext4_format::GroupNo;

use super::Allocator;
use super::group::Group;
use crate::error::Result;
use crate::meta::MetaCache;

/// Runs that are discarded before others get at the group.
const TURN: usize = 64;

impl Allocator {
    /// Calls `discard` with each run of free blocks within `blocks`, if it has at least `least`: byte offset and
    /// length. Blocks that are kept for a file, or whose freeing is not durable, are left alone. Returns how many
    /// blocks it were.
    ///
    /// # Errors
    /// As `discard`; corruption.
    pub(crate) fn discard_free(
        &self,
        blocks: Range<u64>,
        least: u32,
        mut discard: impl FnMut(u64, u64) -> Result<()>,
    ) -> Result<u64> {
        let mut sum = 0;
        for number in 0..self.layout.group_count {
            let (number, group) = (GroupNo(number), &self.groups[number as usize]);
            let first = self.layout.group_start(number).get();
            let within = |block: u64| u32::try_from(block.saturating_sub(first)).unwrap_or(u32::MAX);
            let end = within(blocks.end).min(self.layout.group_blocks(number));
            let mut at = within(blocks.start);
            while at < end {
                let mut one = |start: u32, len: u32| {
                    sum += u64::from(len);
                    let start = self.layout.group_start(number) + u64::from(start);
                    discard(self.layout.offset(start), u64::from(len) * u64::from(self.layout.block_size))
                };
                at = group.discard_some(&self.cache, at..end, least, &mut one)?;
            }
        }
        Ok(sum)
    }
}

impl Group {
    /// Calls `discard` with some runs of free blocks within `blocks`, while nobody can take them. Returns where to go
    /// on.
    fn discard_some(
        &self,
        cache: &MetaCache,
        blocks: Range<u32>,
        least: u32,
        discard: &mut impl FnMut(u32, u32) -> Result<()>,
    ) -> Result<u32> {
        self.with_free(cache, |free| {
            let runs = free.runs_from(blocks.start).take_while(|&(start, _)| start < blocks.end);
            for (nth, (start, len)) in runs.enumerate() {
                if nth == TURN {
                    return Ok(start);
                }
                let (start, end) = (start.max(blocks.start), (start + len).min(blocks.end));
                if end - start >= least {
                    discard(start, end - start)?;
                }
            }
            Ok(blocks.end)
        })
    }
}
