//! The allocator's view of the map, which places new blocks next to the blocks of the file.

use parext4_format::{BlockRange, FileBlock, FsBlock};

use super::ExtentMap;
use crate::allocator::Neighbours;

impl Neighbours for ExtentMap {
    fn is_empty(&self) -> bool {
        self.last().is_none()
    }

    fn goal(&self, at: u32) -> Option<FsBlock> {
        self.goal(FileBlock(at))
    }

    fn hole_before(&self, low: u32, at: u32) -> u32 {
        let last = self.runs(BlockRange::clamped(low.into(), at.into())).last();
        last.map_or(low, |run| if run.is_hole() { run.logical.get() } else { at })
    }

    fn run_len(&self, at: u32, most: u32) -> u32 {
        if most == 0 { 0 } else { self.run(FileBlock(at), most).len }
    }
}
