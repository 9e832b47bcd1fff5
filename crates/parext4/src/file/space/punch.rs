//! Punching holes.

use std::ops::Range;

use parext4_format::BlockRange;
use rangelock::ByteRange;

use crate::error::{Error, Result};
use crate::fault::{Fault, when_planted};
use crate::file::{DirectFile, FileSize, check_not_empty};
use crate::inode::FIXED;
use crate::layout::MAX_FILE_BLOCKS;
use crate::operation::Operation;

impl DirectFile {
    /// Frees the blocks of `range`, in bytes, which then read as zeros. In blocks that the range
    /// covers in part, zeroes the bytes that it covers. Accepts any offset and length. Changes
    /// neither the size nor the blocks that were allocated past the end of the file. Blocks until
    /// operations on the same bytes have completed.
    ///
    /// A crash before the next sync may leave any part of the range as it was, and any sector of
    /// the partly covered blocks.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let file = volume.open_direct("/file", &parext4::OpenOptions::read_write().create(true))?;
    /// file.append(&parext4::AlignedBuf::from_slice(&[7; 12288]))?;
    /// file.punch_hole(4096..8192)?;
    /// assert_eq!((file.seek_hole(0)?, file.size()), (4096, 12288));
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) for a range without bytes;
    /// [`Error::FileTooLarge`](crate::Error::FileTooLarge);
    /// [`Error::NotPermitted`](crate::Error::NotPermitted) for a file that is immutable or
    /// append-only; [`Error::NoSpace`](crate::Error::NoSpace) if an extent must be split and even
    /// the blocks reserved for metadata are used up, with the edges zeroed; the errors of the
    /// device.
    pub fn punch_hole(&self, range: Range<u64>) -> Result<()> {
        let _in_flight = self.begin_change(FIXED)?;
        let Range { start: offset, end } = self.end_hole(range)?;
        self.ensure_blocks()?;
        let mut held = self.admit(Operation::PunchHole { offset, end })?;
        when_planted!(Fault::PunchWithoutRange, held.release());
        let (size, block_size, asked) =
            (self.size(), self.engine().block_size(), ByteRange::new(offset, end));
        // A range that reaches the end of the file includes all of the last block.
        let end = if end < size { end } else { size.next_multiple_of(block_size) };
        if offset >= end.min(size) {
            return self.finish_allocation(size, FileSize::Keep);
        }
        self.node.zero_edges(held.hold(), offset, end)?;
        self.free_range(self.node.whole_blocks(offset, end))?;
        self.node.drop_cached(held.hold(), asked);
        Ok(())
    }

    /// Ends a hole at the largest size that the file can have, unless it begins past that.
    fn end_hole(&self, Range { start, end }: Range<u64>) -> Result<Range<u64>> {
        if end > MAX_FILE_BLOCKS * self.engine().block_size() {
            return Err(Error::FileTooLarge);
        }
        check_not_empty(&(start..end))?;
        Ok(start..end.min(self.engine().max_size(self.inode())).max(start + 1))
    }

    /// Frees `blocks`, in as many transactions as necessary.
    ///
    /// # Errors
    /// An error of the first transaction, with nothing changed unless the volume stops. The volume
    /// stops after an error of a later one.
    fn free_range(&self, blocks: BlockRange) -> Result<()> {
        let (engine, inode) = (self.engine(), self.inode());
        let free = || {
            engine.transact(engine.map_credits(inode)?, |handle| {
                let done = engine.remove_range(handle, inode, blocks)?;
                inode.touch_modified();
                Ok(done)
            })
        };
        if engine.with_space(free)? {
            return Ok(());
        }
        let finish = || {
            while !engine.with_space(free)? {}
            Ok(())
        };
        // The pages over the blocks that were freed are not dropped yet, and dirty ones have no
        // space reserved (H29).
        finish().map_err(|error| engine.health().stop(error))
    }
}
