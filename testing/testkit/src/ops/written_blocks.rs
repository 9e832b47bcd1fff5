//! Which blocks of a file are written, and not holes or preallocated, if nothing is written
//! through the page cache.

use super::content::index;
use super::file_op::FileOp;

/// The blocks of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenBlocks {
    /// Bytes in a block.
    block: u64,
    written: Vec<bool>,
}

impl WrittenBlocks {
    /// Returns the blocks of an empty file.
    pub fn new(block: u64) -> Self {
        Self { block, written: Vec::new() }
    }

    /// Applies an operation on a file of `size` bytes, which has `new_size` bytes afterwards.
    pub fn apply(&mut self, op: FileOp, size: u64, new_size: u64) {
        let block = self.block;
        match op {
            FileOp::CollapseRange { offset, len } => {
                self.written.drain(index(offset / block)..index((offset + len) / block));
            }
            FileOp::InsertRange { offset, len } => {
                let (first, count) = (index(offset / block), index(len / block));
                self.written.splice(first..first, std::iter::repeat_n(false, count));
            }
            _ => self.written.resize(index(new_size.div_ceil(block)), false),
        }
        if let Some(range) = op.written(size) {
            self.written[index(range.start / block)..index(range.end.div_ceil(block))].fill(true);
        }
        match op {
            // The last block is freed as a whole.
            FileOp::PunchHole { offset, len } if offset + len >= size => {
                self.clear(offset, size.next_multiple_of(block));
            }
            FileOp::PunchHole { offset, len } | FileOp::ZeroRange { offset, len, .. } => {
                self.clear(offset, offset + len);
            }
            _ => {}
        }
    }

    /// Marks the whole blocks between two offsets as unwritten.
    fn clear(&mut self, start: u64, end: u64) {
        let end = index(end / self.block).min(self.written.len());
        self.written.get_mut(index(start.div_ceil(self.block))..end).unwrap_or_default().fill(false);
    }

    /// Returns the written ranges of a file of `size` bytes.
    pub fn ranges(&self, size: u64) -> Vec<(u64, u64)> {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        let written = (0..).zip(&self.written).filter(|(_, written)| **written);
        for (number, _) in written {
            let (start, end) = (number * self.block, ((number + 1) * self.block).min(size));
            match ranges.last_mut().filter(|last| last.1 == start) {
                Some(last) => last.1 = end,
                None => ranges.push((start, end)),
            }
        }
        ranges
    }
}
