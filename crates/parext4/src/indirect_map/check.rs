//! The check of a tree, before its blocks are freed.

use parext4_format::FileBlock;
use parext4_format::indirect::{PointerBlock, PointerPosition};

use super::IndirectMap;
use super::nodes::{check_disjoint, runs};
use crate::error::Result;

/// Largest number of runs up to which the check finds blocks that appear below two indirect blocks.
const MAX_RUNS: usize = 1 << 20;

impl IndirectMap {
    /// Reads and checks the leaf of `start`, all later leaves, and the blocks above them. Also
    /// checks that no block appears twice in these leaves, unless they have more than 2^20 runs.
    /// Adds no leaf to the leaves in memory. The caller makes sure that no block is unmapped
    /// meanwhile.
    ///
    /// # Errors
    /// Corruption, a failed read.
    pub(crate) fn check_from(&self, start: FileBlock) -> Result<()> {
        let _changing = self.changing.read();
        let mut all = Vec::new();
        let mut next = match self.source.shape.place(start) {
            PointerPosition::Direct(_) => {
                all.extend(runs(&self.direct.pointers()));
                Some(0)
            }
            PointerPosition::Leaf(number, _) => Some(number).filter(|&number| number <= self.max_leaf()),
        };
        while let Some(from) = next {
            let Some(number) = self.nodes.write().next_leaf(&self.source, from)? else { break };
            if all.len() < MAX_RUNS {
                all.extend(runs(&self.pointers_of(number)?));
            } else {
                self.pointers_of(number)?;
            }
            next = number.checked_add(1);
        }
        if all.len() < MAX_RUNS { check_disjoint(all) } else { Ok(()) }
    }

    /// Returns the pointers of a leaf, claims included.
    fn pointers_of(&self, number: u32) -> Result<Vec<u32>> {
        let nodes = self.nodes.read();
        if let Some(leaf) = self.leaves.get(number) {
            return Ok(leaf.pointers());
        }
        let block = nodes.pointer(self.source.shape, PointerBlock::Leaf(number)).unwrap_or(0);
        let pointers = self.source.read(block)?;
        nodes.check_data(&pointers)?;
        Ok(pointers)
    }
}
