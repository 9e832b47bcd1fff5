//! A window: free blocks kept for a region of one file, so that the file can grow, or be filled in any order,
//! and still lie together.
//!
//! Its blocks are out of their group's free extents, and that is all: bitmap, descriptor and counts know nothing
//! of it. They may be taken back at any time, by anybody who finds no others.

use std::collections::BTreeMap;

use parext4_format::FsBlock;

use super::Run;
use crate::fault::{Fault, planted};
use crate::sync::Mutex;
use crate::sync::Rank;

/// Keeps block `start + n` for file block `first + n`.
#[derive(Debug)]
pub(super) struct Window {
    /// Counts up from window to window.
    pub age: u64,
    /// The first file block.
    pub first: u32,
    /// The blocks kept, which are all of one group.
    pub run: Run,
    /// Those not allocated yet; `None` once the window was taken back.
    rest: Mutex<Option<Spans>>,
}

/// Blocks counted from the start of a window, by start, with their end: not empty, not touching. A file filled at
/// random leaves thousands of them.
type Spans = BTreeMap<u32, u32>;

impl Window {
    pub(super) fn new(age: u64, first: u32, run: Run) -> Self {
        Self { age, first, run, rest: Mutex::new(Rank::Window, Some(BTreeMap::from([(0, run.len)]))) }
    }

    /// The file block behind the last.
    pub(super) fn end(&self) -> u32 {
        self.first + self.run.len
    }

    pub(super) fn covers(&self, block: u32) -> bool {
        (self.first..self.end()).contains(&block)
    }

    /// Where file block `block`, which may lie outside the window, is to go by it.
    pub(super) fn place_of(&self, block: u32) -> Option<FsBlock> {
        (self.run.start.get() + u64::from(block)).checked_sub(u64::from(self.first)).map(FsBlock)
    }

    /// Takes what is left for the file blocks `[block, block + max)`, from `block` on and up to the first that is
    /// not. `Err` if the window was taken back.
    pub(super) fn take(&self, block: u32, max: u32) -> Result<Option<Run>, TakenBack> {
        let at = block - self.first;
        let mut rest = self.rest.lock();
        let spans = rest.as_mut().ok_or(TakenBack)?;
        let Some((&start, end)) = spans.range_mut(..=at).next_back().filter(|(_, end)| at < **end) else {
            return Ok(None);
        };
        let stop = (*end).min(at.saturating_add(max));
        let end = std::mem::replace(end, at);
        if start == at {
            spans.remove(&start);
        }
        if stop < end {
            spans.insert(stop, end);
        }
        Ok(Some(Run { start: self.run.start + u64::from(at), len: stop - at }))
    }

    /// Takes the window back; returns what was left of it.
    pub(super) fn take_back(&self) -> Vec<Run> {
        let mut rest = self.rest.lock();
        let spans = if planted(Fault::WindowOutlivesReturn) { rest.clone() } else { rest.take() };
        let run = |(start, end)| Run { start: self.run.start + u64::from(start), len: end - start };
        spans.unwrap_or_default().into_iter().map(run).collect()
    }

    /// Whether `len` blocks are left that lie together.
    pub(super) fn has_together(&self, len: u32) -> bool {
        self.run.len >= len && self.rest.lock().iter().flatten().any(|(start, end)| end - start >= len)
    }

    /// Whether nothing is left in it.
    pub(super) fn is_used_up(&self) -> bool {
        self.rest.lock().as_ref().is_none_or(BTreeMap::is_empty)
    }
}

/// The window was taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TakenBack;

#[cfg(test)]
mod tests {
    use super::*;

    fn run(start: u64, len: u32) -> Run {
        Run { start: FsBlock(start), len }
    }

    #[test]
    fn blocks_go_to_their_places_in_any_order() {
        let window = Window::new(0, 100, run(5000, 16));
        assert_eq!(window.take(108, 2), Ok(Some(run(5008, 2))));
        assert_eq!(window.take(100, 1), Ok(Some(run(5000, 1))));
        assert_eq!(window.take(115, 9), Ok(Some(run(5015, 1))));
        assert_eq!(window.take(106, 9), Ok(Some(run(5006, 2))), "up to what is taken");
        assert_eq!(window.take(109, 1), Ok(None));
        assert!(window.has_together(5) && !window.has_together(6));
        assert_eq!(window.take_back(), [run(5001, 5), run(5010, 5)]);
        assert_eq!(window.take(101, 1), Err(TakenBack));
        assert!(window.take_back().is_empty() && window.is_used_up());
    }

    #[test]
    fn a_window_reaches_to_the_last_block_of_a_file() {
        let window = Window::new(0, u32::MAX - 4, run(10, 4));
        assert!(window.covers(u32::MAX - 1) && !window.covers(u32::MAX));
        assert_eq!(window.take(u32::MAX - 1, u32::MAX), Ok(Some(run(13, 1))));
        assert_eq!(window.place_of(u32::MAX - 20), None);
    }
}
