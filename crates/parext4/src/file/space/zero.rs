//! Zeroes ranges of a file.

use std::ops::Range;

use parext4_format::BlockRange;

use crate::error::Result;
use crate::file::{DirectFile, FileSize};
use crate::inode::FIXED;
use crate::operation::Operation;

impl DirectFile {
    /// Makes the bytes of `range` read as zeros, on allocated blocks. Whole blocks become
    /// unwritten. In written blocks that the range covers in part, zeroes the bytes that it covers.
    /// Accepts any offset and length. `size` says whether a file that ends before the end of the
    /// range grows to cover it. Blocks until operations on the same bytes have completed.
    ///
    /// A crash before the next sync may leave any part of the range as it was, and any sector of
    /// the partly covered blocks.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let file = volume.open_direct("/file", &parext4::OpenOptions::read_write().create(true))?;
    /// use parext4::FileSize;
    ///
    /// file.append(&parext4::AlignedBuf::from_slice(&[7; 12288]))?;
    /// file.zero_range(4096..8192, FileSize::Keep)?;
    /// let mut buf = parext4::AlignedBuf::zeroed(4096);
    /// file.read_exact_at(&mut buf, 4096)?;
    /// assert_eq!(buf[0], 0);
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) for a range without bytes;
    /// [`Error::FileTooLarge`](crate::Error::FileTooLarge);
    /// [`Error::NotPermitted`](crate::Error::NotPermitted) for a file that is immutable or
    /// append-only; [`Error::NoSpace`](crate::Error::NoSpace), after which a part of the range may
    /// be zeroed or allocated, and the size is as before;
    /// [`Error::Unsupported`](crate::Error::Unsupported) if the file has no extents (ext2, ext3);
    /// the errors of the device.
    pub fn zero_range(&self, range: Range<u64>, size: FileSize) -> Result<()> {
        let _in_flight = self.begin_change(FIXED)?;
        self.check_extents()?;
        self.check_range(&range)?;
        self.ensure_blocks()?;
        let Range { start: offset, end } = range;
        let operation = Operation::ZeroRange { offset, end, keep_size: size == FileSize::Keep };
        let held = self.acquire_allocated(operation, range, size)?;
        self.node.zero_edges(held.hold(), offset, end)?;
        self.make_unwritten(self.node.whole_blocks(offset, end))?;
        self.finish_allocation(end, size)
    }

    fn make_unwritten(&self, blocks: BlockRange) -> Result<()> {
        let (engine, inode) = (self.engine(), self.inode());
        let mut rest = blocks;
        while !rest.is_empty() {
            rest = rest.skip(engine.with_space(|| {
                engine
                    .transact(engine.map_credits(inode)?, |handle| engine.make_unwritten(handle, inode, rest))
            })?);
        }
        Ok(())
    }
}
