//! What admission must know of a file.

use rangelock::ByteRange;

use super::{Admission, Blocks, FileState, plan};
use crate::error::Result;
use crate::extent_map::{Mapping, State};
use crate::file::File;
use crate::file::direct::Runs;
use crate::operation::Operation;
use crate::policy::Policy;

/// What was seen of a file.
#[derive(Debug)]
pub(in crate::file) struct Seen {
    pub state: FileState,
    /// What the blocks of a write are mapped to.
    pub runs: Runs,
}

impl File {
    /// What `operation` needs as far as one can see before it has its range.
    pub(in crate::file) fn foresee(&self, operation: Operation) -> Result<Admission> {
        let (policy, volume) = (self.volume().policy, self.volume());
        // Whole blocks of its own are what it needs, whatever they are mapped to. Only who explains wants to know.
        let whole_blocks = |offset: u64, end: u64| (offset | end).is_multiple_of(volume.block_size());
        if let Some((offset, end)) = operation.written()
            && policy == Policy::Range
            && whole_blocks(offset, end)
            && !volume.usage.explains()
        {
            return Ok(plan(operation, &self.state(Blocks::NOT_LOOKED_AT), policy));
        }
        Ok(plan(operation, &self.observe(operation)?.state, policy))
    }

    /// What admission must know of the file for `operation`.
    pub(in crate::file) fn observe(&self, operation: Operation) -> Result<Seen> {
        let Some((offset, end)) = operation.written() else {
            return Ok(Seen { state: self.state(Blocks::NOT_LOOKED_AT), runs: Runs::new() });
        };
        let block_size = self.volume().block_size();
        let (first, len) = self.blocks_of(ByteRange::new(offset, end));
        let covered = (offset.is_multiple_of(block_size), end.is_multiple_of(block_size));
        let runs = self.runs(first, len)?;
        Ok(Seen { state: self.state(Blocks::of(&runs, covered)), runs })
    }

    pub(in crate::file) fn state(&self, blocks: Blocks) -> FileState {
        let (size, block_size) = (self.size(), self.volume().block_size());
        FileState {
            size,
            block_size,
            blocks,
            tail_clean: self.inode().is_tail_clean(),
            cached: self.inode().cached().is_some(),
        }
    }
}

impl Blocks {
    /// For operations that do not depend on the blocks.
    pub(in crate::file) const NOT_LOOKED_AT: Self =
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
