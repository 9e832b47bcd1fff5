//! The allocator's queries of the map, by which it places new blocks beside the blocks of the file.

use parext4_format::indirect::PointerPosition;
use parext4_format::{FileBlock, FsBlock};

use super::IndirectMap;
use crate::allocator::Neighbours;

impl Neighbours for IndirectMap {
    fn is_empty(&self) -> bool {
        self.direct.is_empty() && self.nodes.read().has_no_leaf()
    }

    fn goal(&self, at: FileBlock) -> Option<FsBlock> {
        let shape = self.source.shape;
        let before = |number: u32| match number.checked_sub(1) {
            Some(before) => self.leaves.get(before),
            None => Some(self.direct.clone()),
        };
        match shape.place(at) {
            PointerPosition::Direct(_) => self.direct.goal(at),
            PointerPosition::Leaf(number, _) => {
                let own = self.leaves.get(number).and_then(|leaf| leaf.goal(at));
                own.or_else(|| before(number)?.goal(at))
            }
        }
    }

    fn hole_before(&self, low: FileBlock, at: FileBlock) -> FileBlock {
        let mut first = at;
        while first > low
            && let Some(before) = first.checked_sub(1)
            && self.is_loaded(before)
            && self.lookup(before, 1).is_ok_and(|found| found.is_hole())
        {
            first = before;
        }
        first
    }

    fn run_len(&self, at: FileBlock, most: u32) -> u32 {
        match self.run(at, most.max(1)) {
            Ok(run) if most > 0 => run.len,
            // If the blocks after this one cannot be read, only the window gets smaller.
            Ok(_) | Err(_) => most.min(1),
        }
    }
}
