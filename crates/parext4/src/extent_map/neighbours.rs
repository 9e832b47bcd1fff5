//! The allocator's queries of the map, by which it places new blocks beside the blocks of the file.

use parext4_format::{BlockRange, FileBlock, FsBlock};

use super::ExtentMap;
use crate::allocator::Neighbours;

impl Neighbours for ExtentMap {
    fn is_empty(&self) -> bool {
        self.last().is_none()
    }

    fn goal(&self, at: FileBlock) -> Option<FsBlock> {
        self.goal(at)
    }

    fn hole_before(&self, low: FileBlock, at: FileBlock) -> FileBlock {
        let last = self.runs(BlockRange::clamped(low.to_u64(), at.to_u64())).last();
        last.map_or(low, |run| if run.is_hole() { run.logical } else { at })
    }

    fn run_len(&self, at: FileBlock, most: u32) -> u32 {
        if most == 0 { 0 } else { self.run(at, most).len }
    }
}
