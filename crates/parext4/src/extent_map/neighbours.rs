//! The allocator's view of the map, which places new blocks next to the blocks of the file.

use parext4_format::FsBlock;

use super::{ExtentMap, State};
use crate::allocator::Neighbours;

impl Neighbours for ExtentMap {
    fn is_empty(&self) -> bool {
        self.last().is_none()
    }

    fn goal(&self, at: u32) -> Option<FsBlock> {
        self.goal(at)
    }

    fn hole_before(&self, low: u32, at: u32) -> u32 {
        let last = self.runs(low, at - low).last();
        last.map_or(low, |run| if run.state == State::Hole { run.logical.get() } else { at })
    }

    fn run_len(&self, at: u32, most: u32) -> u32 {
        self.runs(at, most).next().map_or(0, |run| run.len)
    }
}
