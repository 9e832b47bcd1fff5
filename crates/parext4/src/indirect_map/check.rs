//! The check of a whole tree.

use parext4_format::indirect::PointerBlock;

use super::IndirectMap;
use super::nodes::{check_disjoint, runs};
use crate::error::Result;

/// Number of runs up to which the check for blocks that appear twice covers the whole file.
const MAX_RUNS: usize = 1 << 20;

impl IndirectMap {
    /// Reads all indirect blocks, which checks each of them, and checks that no block of the file appears twice, unless the
    /// file is in more than 2^20 pieces. Keeps no leaf in memory that was not there. No block is unmapped meanwhile.
    ///
    /// # Errors
    /// Corruption, a failed read.
    pub(crate) fn check(&self) -> Result<()> {
        let _changing = self.changing.read();
        let mut all: Vec<(u64, u64)> = runs(&self.direct.pointers()).collect();
        let mut next = Some(0);
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
