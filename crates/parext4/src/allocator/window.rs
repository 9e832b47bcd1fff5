//! A window: free blocks kept for a region of one file, so that the file stays contiguous if it
//! grows or is filled in any order.
//!
//! A window records which of its blocks are still free. It does not change the bitmap, the
//! descriptor and the counters, which count the blocks as free. Invariant: the blocks of a window
//! are not in the free extents of their group. A thread that finds no other free blocks may reclaim
//! a window at any time.

use std::collections::BTreeMap;

use parext4_format::{BlockRange, FileBlock, FsBlock};

use super::Run;
use crate::fault::{Fault, guarded};
use crate::sync::Mutex;
use crate::sync::Rank;

/// A window, in which block `run.start + n` is kept for file block `first + n`.
#[derive(Debug)]
pub(super) struct Window {
    /// Sequence number: a window opened later has a higher one.
    pub age: u64,
    /// The first file block.
    pub first: FileBlock,
    /// The blocks, all of one group.
    pub run: Run,
    /// The blocks that are not allocated yet. `None` once the window was reclaimed.
    rest: Mutex<Option<Spans>>,
}

/// Spans of blocks, relative to the start of the window: from start to end. They are not empty and
/// do not touch. A file that is filled in random order leaves thousands of spans.
type Spans = BTreeMap<u32, u32>;

impl Window {
    pub(super) fn new(age: u64, first: FileBlock, run: Run) -> Self {
        Self { age, first, run, rest: Mutex::new(Rank::Window, Some(BTreeMap::from([(0, run.len)]))) }
    }

    /// Returns the file blocks that the window covers.
    pub(super) fn blocks(&self) -> BlockRange {
        let first = self.first.to_u64();
        BlockRange::clamped(first, first + u64::from(self.run.len))
    }

    /// Returns the volume block at which the window would continue to file block `block`, which may
    /// be outside the window.
    pub(super) fn block_for(&self, block: FileBlock) -> Option<FsBlock> {
        (self.run.start + block.to_u64()).checked_sub(self.first.to_u64())
    }

    /// Removes the blocks for `blocks`, from their start up to the first one that is not free.
    /// Returns `Ok(None)` if the first of them is not free, and `Err` if the window was reclaimed.
    /// The window covers the start.
    pub(super) fn take(&self, blocks: BlockRange) -> Result<Option<Run>, Reclaimed> {
        let at = blocks.start() - self.first;
        let mut rest = self.rest.lock();
        let spans = rest.as_mut().ok_or(Reclaimed)?;
        let Some((&start, end)) = spans.range_mut(..=at).next_back().filter(|(_, end)| at < **end) else {
            return Ok(None);
        };
        let stop = (*end).min(at.saturating_add(blocks.count()));
        let end = std::mem::replace(end, at);
        if start == at {
            spans.remove(&start);
        }
        if stop < end {
            spans.insert(stop, end);
        }
        Ok(Some(Run { start: self.run.start + u64::from(at), len: stop - at }))
    }

    /// Reclaims the window. Returns its remaining blocks.
    pub(super) fn reclaim(&self) -> Vec<Run> {
        let mut rest = self.rest.lock();
        let spans = guarded!(Fault::WindowOutlivesReturn, rest.take(), rest.clone());
        let run = |(start, end)| Run { start: self.run.start + u64::from(start), len: end - start };
        spans.unwrap_or_default().into_iter().map(run).collect()
    }

    /// Returns true if `len` contiguous blocks are left.
    pub(super) fn has_together(&self, len: u32) -> bool {
        self.run.len >= len && self.rest.lock().iter().flatten().any(|(start, end)| end - start >= len)
    }

    /// Returns true if no block is left.
    pub(super) fn is_used_up(&self) -> bool {
        self.rest.lock().as_ref().is_none_or(BTreeMap::is_empty)
    }
}

/// Error: the window was reclaimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reclaimed;

#[cfg(test)]
mod tests {
    use super::*;

    fn run(start: u64, len: u32) -> Run {
        Run { start: FsBlock(start), len }
    }

    fn blocks(start: u32, len: u32) -> BlockRange {
        BlockRange::with_len(FileBlock(start), len).unwrap()
    }

    #[test]
    fn blocks_go_to_their_places_in_any_order() {
        let window = Window::new(0, FileBlock(100), run(5000, 16));
        assert_eq!(window.take(blocks(108, 2)), Ok(Some(run(5008, 2))));
        assert_eq!(window.take(blocks(100, 1)), Ok(Some(run(5000, 1))));
        assert_eq!(window.take(blocks(115, 9)), Ok(Some(run(5015, 1))));
        assert_eq!(window.take(blocks(106, 9)), Ok(Some(run(5006, 2))), "up to the first allocated block");
        assert_eq!(window.take(blocks(109, 1)), Ok(None));
        assert!(window.has_together(5) && !window.has_together(6));
        assert_eq!(window.reclaim(), [run(5001, 5), run(5010, 5)]);
        assert_eq!(window.take(blocks(101, 1)), Err(Reclaimed));
        assert!(window.reclaim().is_empty() && window.is_used_up());
    }

    #[test]
    fn a_window_reaches_to_the_last_block_of_a_file() {
        let window = Window::new(0, FileBlock(u32::MAX - 4), run(10, 4));
        assert_eq!(window.blocks(), blocks(u32::MAX - 4, 4));
        assert_eq!(window.take(BlockRange::starting_at(FileBlock(u32::MAX - 1))), Ok(Some(run(13, 1))));
        assert_eq!(window.block_for(FileBlock(u32::MAX - 20)), None);
    }
}
