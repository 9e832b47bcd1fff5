//! The mapping of file blocks to volume blocks, and its changes, in terms that hold for any format
//! of a file's block map.

use parext4_format::{BlockRange, FileBlock, FsBlock};
use smallvec::SmallVec;

/// The mapping of a file block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockState {
    Hole,
    /// Allocated, but reads return zeros.
    Unwritten(FsBlock),
    Written(FsBlock),
}

/// A run of file blocks in one state, and contiguous on the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub logical: FileBlock,
    /// Length in blocks.
    pub len: u32,
    pub state: BlockState,
}

/// Runs of blocks. Most requests touch at most two.
pub(crate) type Runs = SmallVec<[Mapping; 2]>;

impl Mapping {
    pub(crate) fn is_hole(&self) -> bool {
        self.state == BlockState::Hole
    }

    pub(crate) fn is_unwritten(&self) -> bool {
        matches!(self.state, BlockState::Unwritten(_))
    }

    /// Returns the file blocks of the run.
    pub(crate) fn blocks(&self) -> BlockRange {
        BlockRange::clamped(self.logical.to_u64(), self.end())
    }

    /// Returns the number of the file block after the last one.
    pub(crate) fn end(&self) -> u64 {
        self.logical.to_u64() + u64::from(self.len)
    }

    /// Returns the last `len` blocks of the run, which has at least as many.
    pub(crate) fn tail(&self, len: u32) -> Self {
        let skip = self.len - len;
        let from = |start: FsBlock| start + u64::from(skip);
        let state = match self.state {
            BlockState::Hole => BlockState::Hole,
            BlockState::Unwritten(start) => BlockState::Unwritten(from(start)),
            BlockState::Written(start) => BlockState::Written(from(start)),
        };
        Self { logical: self.logical + skip, len, state }
    }

    /// Appends `next` if it has the same state and continues at the next volume block. Returns true
    /// if it was appended.
    pub(crate) fn join(&mut self, next: &Self) -> bool {
        let goes_on = |start: FsBlock, other: FsBlock| start + u64::from(self.len) == other;
        let joins = match (self.state, next.state) {
            (BlockState::Hole, BlockState::Hole) => true,
            (BlockState::Unwritten(a), BlockState::Unwritten(b))
            | (BlockState::Written(a), BlockState::Written(b)) => goes_on(a, b),
            _ => false,
        };
        if joins {
            self.len += next.len;
        }
        joins
    }
}

/// The blocks of a file that remain to be moved, and their distance. All move by the same number of
/// blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shift {
    /// The file blocks `[start, end)`, by their numbers before the move.
    pub start: u64,
    pub end: u64,
    pub by: u32,
    /// True if the blocks move towards the end of the file, the last ones first.
    pub up: bool,
}

impl Shift {
    /// Moves everything from file block `start` on by `by` blocks towards the start of the file,
    /// into a hole. Begins with the first blocks.
    pub(crate) fn down(start: u64, by: u32) -> Self {
        Self { start, end: FileBlock::LIMIT, by, up: false }
    }

    /// Moves everything from file block `start` on by `by` blocks towards the end of the file.
    /// Begins with the last blocks.
    pub(crate) fn up(start: FileBlock, by: u32) -> Self {
        Self { start: start.to_u64(), end: FileBlock::LIMIT, by, up: true }
    }
}
