//! Gathers the facts of a file that admission plans from.

use rangelock::ByteRange;

use super::{Admission, Blocks, FileState, plan};
use crate::error::Result;
use crate::mapping::{Mapping, Runs, State};
use crate::node::Node;
use crate::operation::Operation;
use crate::policy::Policy;

/// The facts that admission plans from, and the mapping of the blocks of a write.
#[derive(Debug)]
pub(crate) struct Facts {
    pub state: FileState,
    /// The mapping of the blocks of a write; empty for every other operation.
    pub runs: Runs,
}

impl Node {
    /// Plans `operation` from the facts known before it holds its range.
    pub(crate) fn tentative_plan(&self, operation: Operation) -> Result<Admission> {
        let (policy, engine) = (self.engine.policy, &self.engine);
        // A write of whole blocks needs the same range whatever its blocks are mapped to. Only explanations of waits
        // report the reason, which depends on the mapping.
        let whole_blocks = |offset: u64, end: u64| (offset | end).is_multiple_of(engine.block_size());
        if let Some((offset, end)) = operation.written()
            && policy == Policy::Range
            && whole_blocks(offset, end)
            && !engine.usage.explains()
        {
            return Ok(plan(operation, &self.state(Blocks::NOT_LOOKED_AT), policy));
        }
        Ok(plan(operation, &self.facts(operation)?.state, policy))
    }

    /// Returns the facts of the file that the plan of `operation` depends on.
    pub(crate) fn facts(&self, operation: Operation) -> Result<Facts> {
        let Some((offset, end)) = operation.written() else {
            return Ok(Facts { state: self.state(Blocks::NOT_LOOKED_AT), runs: Runs::new() });
        };
        let block_size = self.engine.block_size();
        let covered = (offset.is_multiple_of(block_size), end.is_multiple_of(block_size));
        let runs = self.runs(self.blocks_of(ByteRange::new(offset, end)))?;
        Ok(Facts { state: self.state(Blocks::of(&runs, covered)), runs })
    }

    pub(crate) fn state(&self, blocks: Blocks) -> FileState {
        let (size, block_size) = (self.inode.size(), self.engine.block_size());
        FileState {
            size,
            block_size,
            page_size: self.engine.page_size().bytes() as u64,
            cluster_size: self.engine.layout.cluster_bytes(),
            blocks,
            tail_clean: self.inode.is_tail_clean(),
            cached: self.inode.cached().is_some(),
        }
    }
}

impl Blocks {
    /// The value for operations whose range does not depend on the mapping of blocks.
    pub(crate) const NOT_LOOKED_AT: Self =
        Self { all_written: false, edges_written: false, holes: false, one_extent: false };

    /// Summarises the blocks that `runs` map. `covered` tells whether the request covers all of the first block and
    /// all of the last.
    fn of(runs: &[Mapping], covered: (bool, bool)) -> Self {
        let is_written = |run: &Mapping| matches!(run.state, State::Written(_));
        Self {
            all_written: runs.iter().all(is_written),
            edges_written: (covered.0 || runs.first().is_some_and(is_written))
                && (covered.1 || runs.last().is_some_and(is_written)),
            holes: runs.iter().any(Mapping::is_hole),
            one_extent: runs.len() == 1,
        }
    }
}
