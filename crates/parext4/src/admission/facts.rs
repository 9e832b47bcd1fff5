//! What admission must know of a file.

use rangelock::ByteRange;

use super::{Admission, Blocks, FileState, plan};
use crate::body::{Mapping, Runs, State};
use crate::error::Result;
use crate::node::Node;
use crate::operation::Operation;
use crate::policy::Policy;

/// What admission knows of a file, and what the blocks of a write are mapped to.
#[derive(Debug)]
pub(crate) struct Facts {
    pub state: FileState,
    /// What the blocks of a write are mapped to.
    pub runs: Runs,
}

impl Node {
    /// What `operation` needs as far as one can see before it has its range.
    pub(crate) fn tentative_plan(&self, operation: Operation) -> Result<Admission> {
        let (policy, engine) = (self.engine.policy, &self.engine);
        // Whole blocks of its own are what it needs, whatever they are mapped to. Only who explains wants to know.
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

    /// What admission must know of the file for `operation`.
    pub(crate) fn facts(&self, operation: Operation) -> Result<Facts> {
        let Some((offset, end)) = operation.written() else {
            return Ok(Facts { state: self.state(Blocks::NOT_LOOKED_AT), runs: Runs::new() });
        };
        let block_size = self.engine.block_size();
        let (first, len) = self.blocks_of(ByteRange::new(offset, end));
        let covered = (offset.is_multiple_of(block_size), end.is_multiple_of(block_size));
        let runs = self.runs(first, len)?;
        Ok(Facts { state: self.state(Blocks::of(&runs, covered)), runs })
    }

    pub(crate) fn state(&self, blocks: Blocks) -> FileState {
        let (size, block_size) = (self.inode.size(), self.engine.block_size());
        FileState {
            size,
            block_size,
            blocks,
            tail_clean: self.inode.is_tail_clean(),
            cached: self.inode.cached().is_some(),
        }
    }
}

impl Blocks {
    /// For operations that do not depend on the blocks.
    pub(crate) const NOT_LOOKED_AT: Self =
        Self { all_written: false, edges_written: false, holes: false, one_extent: false };

    /// The blocks that `runs` are; `covered` says of the first and the last whether all of it is meant.
    fn of(runs: &[Mapping], covered: (bool, bool)) -> Self {
        let is_written = |run: &Mapping| matches!(run.state, State::Written(_));
        Self {
            all_written: runs.iter().all(is_written),
            edges_written: (covered.0 || runs.first().is_some_and(is_written))
                && (covered.1 || runs.last().is_some_and(is_written)),
            holes: runs.iter().any(|run| run.state == State::Hole),
            one_extent: runs.len() == 1,
        }
    }
}
