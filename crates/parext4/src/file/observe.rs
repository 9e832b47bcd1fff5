//! What admission must know of a file.

use rangelock::ByteRange;

use super::File;
use super::admission::{Blocks, FileState, Operation};
use crate::error::Result;
use crate::extent_map::{ExtentMap, State};

impl File {
    /// What admission must know of the file for `operation`.
    pub(super) fn observe(&self, operation: Operation, tail_clean: bool) -> Result<FileState> {
        let blocks = match operation {
            Operation::Write { offset, end } => self.look_at(offset, end)?,
            _ => Blocks::NOT_LOOKED_AT,
        };
        Ok(FileState { size: self.size(), block_size: self.volume().block_size(), blocks, tail_clean })
    }

    /// What the blocks of `[offset, end)` are mapped to.
    fn look_at(&self, offset: u64, end: u64) -> Result<Blocks> {
        let block_size = self.volume().block_size();
        let (first, len) = self.blocks_of(ByteRange::new(offset, end));
        let covered = (offset.is_multiple_of(block_size), end.is_multiple_of(block_size));
        let map = self.volume().map(self.inode())?;
        Ok(Blocks::of(map, first, len, covered))
    }
}

impl Blocks {
    /// For operations that do not depend on the blocks.
    const NOT_LOOKED_AT: Self =
        Self { all_written: false, edges_written: false, holes: false, one_extent: false };

    /// The blocks `[first, first + len)`; `covered` says of the first and the last whether all of it is meant.
    fn of(map: &ExtentMap, first: u32, len: u32, covered: (bool, bool)) -> Self {
        let is_written = |state: State| matches!(state, State::Written(_));
        let mut blocks = Self { all_written: true, edges_written: true, holes: false, one_extent: true };
        // What the next run is like if it goes on where this one ends.
        let mut next = None;
        for run in map.runs(first, len) {
            let state = run.state;
            blocks.all_written &= is_written(state);
            blocks.holes |= state == State::Hole;
            blocks.one_extent &= next.is_none_or(|next| next == state);
            let at_edge =
                (next.is_none() && !covered.0) || (run.logical.get() + run.len == first + len && !covered.1);
            blocks.edges_written &= is_written(state) || !at_edge;
            next = Some(state.behind(run.len));
        }
        blocks
    }
}

impl State {
    /// The state `len` blocks behind this one in the same extent.
    fn behind(self, len: u32) -> Self {
        match self {
            Self::Hole => Self::Hole,
            Self::Unwritten(start) => Self::Unwritten(start + u64::from(len)),
            Self::Written(start) => Self::Written(start + u64::from(len)),
        }
    }
}
