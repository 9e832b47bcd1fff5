//! Taking ranges out of a file and putting holes in: what is behind moves.
//!
//! All of it is one transaction, unless that would take more than half of the journal. Then the hole moves through
//! the file step by step: a crash in between leaves all data that was, in its order, and somewhere at or behind the
//! offset the hole. The size is the larger one meanwhile.

use crate::body::{CUT_BLOCKS, Shift};
use crate::error::{Error, Result};
use crate::fault::{Fault, planted};
use crate::file::DirectFile;
use crate::inode::FIXED;
use crate::operation::Operation;

impl DirectFile {
    /// Takes `[offset, offset + len)` bytes out of the file: what is behind moves down by `len`. Both are multiples
    /// of the block size, and the range ends before the file does.
    ///
    /// A crash shows the file as it was before or after, unless it has so many extents that moving them takes several
    /// transactions: then zeros may be found in place of the range, or further behind.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a range off the blocks, an empty one, or one that reaches the end of the file;
    /// [`Error::NotPermitted`] for a file that is immutable or can only be appended to; [`Error::NoSpace`] if an
    /// extent must be cut and even the blocks kept for metadata are used up, with nothing changed; what the device
    /// gives.
    pub fn collapse_range(&self, offset: u64, len: u64) -> Result<()> {
        let _in_flight = self.begin_change(FIXED)?;
        let end = self.end_of_blocks(offset, len)?;
        let _held = self.node.admit(Operation::CollapseRange { offset, end })?;
        let size = self.size();
        if end >= size {
            return Err(Error::invalid(format_args!("a range to {end} reaches the end of the file, {size}")));
        }
        self.settle_shift(self.engine().with_space(|| self.collapse(offset, len)))
    }

    /// Puts `len` bytes of zeros into the file at `offset`, which take no space: what was there and behind moves up.
    /// Both are multiples of the block size, and `offset` is before the end of the file.
    ///
    /// For a crash see [`collapse_range`](Self::collapse_range).
    ///
    /// # Errors
    /// [`Error::Invalid`] for a range off the blocks, an empty one, or one that begins behind the end of the file;
    /// [`Error::FileTooLarge`]; [`Error::NotPermitted`] and [`Error::NoSpace`] as for
    /// [`collapse_range`](Self::collapse_range).
    pub fn insert_range(&self, offset: u64, len: u64) -> Result<()> {
        let _in_flight = self.begin_change(FIXED)?;
        let end = self.end_of_blocks(offset, len)?;
        let held = self.node.admit(Operation::InsertRange { offset, end })?;
        let size = self.size();
        if offset >= size {
            return Err(Error::invalid(format_args!(
                "offset {offset} is not before the end of the file, {size}"
            )));
        }
        let mapped = self.engine().map(self.inode())?.last().map_or(0, |last| last.end());
        self.node.end_of(size.max(mapped * self.engine().block_size()), len)?;
        if held.admission.zero_tail {
            self.zero_tail(held.hold())?;
        }
        self.settle_shift(self.insert(offset, len))
    }

    /// Offsets handed out to appends that wait for the range are void.
    fn settle_shift(&self, result: Result<()>) -> Result<()> {
        if !planted(Fault::ShiftKeepsClaims) {
            self.inode().tail.lock().set(self.size());
        }
        result
    }

    fn collapse(&self, offset: u64, len: u64) -> Result<()> {
        let (engine, inode) = (self.engine(), self.inode());
        let (first, end) = self.node.whole_blocks(offset, offset + len);
        let count = end - first;
        engine.allocator.close_windows(&inode.windows, first);
        let (mut removed, mut shift) = (false, Shift::down(end, count));
        let mut step = || {
            engine.transact(engine.shift_credits(inode, first, count)?, |handle| {
                removed = removed || engine.remove_range(handle, inode, first, end.into())?;
                // Nothing is cut: a hole is before it.
                let mut none = engine.allocator.reserve(0)?;
                let done = removed && engine.shift(handle, inode, &mut shift, &mut none)?;
                if done {
                    inode.set_size(inode.size() - len);
                }
                inode.touch_modified();
                Ok(done)
            })
        };
        while !step()? {}
        Ok(())
    }

    fn insert(&self, offset: u64, len: u64) -> Result<()> {
        let (engine, inode) = (self.engine(), self.inode());
        let (first, end) = self.node.whole_blocks(offset, offset + len);
        let count = end - first;
        let size = inode.size() + len;
        let mut reservation = engine.with_space(|| engine.allocator.reserve(CUT_BLOCKS))?;
        engine.allocator.close_windows(&inode.windows, first);
        let mut shift = Shift::up(first, count);
        let mut step = || {
            engine.transact(engine.shift_credits(inode, first, 0)?, |handle| {
                inode.join(handle);
                inode.set_size(size);
                inode.touch_modified();
                engine.shift(handle, inode, &mut shift, &mut reservation)
            })
        };
        while !step()? {}
        Ok(())
    }

    /// The end of a range of whole blocks.
    fn end_of_blocks(&self, offset: u64, len: u64) -> Result<u64> {
        let block_size = self.engine().block_size();
        if !(offset | len).is_multiple_of(block_size) {
            return Err(Error::invalid(format_args!(
                "offset {offset} or length {len} is not a multiple of the block size {block_size}"
            )));
        }
        self.end_of_range(offset, len)
    }
}
