//! Collapses and inserts ranges: the bytes after the range move.
//!
//! The move is one transaction, unless that would take more than half of the blocks of one. Then
//! the hole moves through the file step by step. A crash in between keeps all data, in order, with
//! the hole at or after the offset. Meanwhile the size is the larger of the two.

use std::ops::Range;

use crate::error::{Error, Result};
use crate::fault::{Fault, guarded};
use crate::file::DirectFile;
use crate::inode::FIXED;
use crate::map_update::CUT_BLOCKS;
use crate::mapping::Shift;
use crate::operation::Operation;

impl DirectFile {
    /// Removes the bytes of `range` from the file: the bytes after the range move down by its
    /// length. Both of its ends are multiples of the block size, or with bigalloc of the cluster
    /// size, and the range ends before the end of the file.
    ///
    /// After a crash the file is as it was before or after the call. If moving its extents takes
    /// several transactions, zeros may remain in place of the range, or further on.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let file = volume.open_direct("/file", &parext4::OpenOptions::read_write().create(true))?;
    /// file.append(&parext4::AlignedBuf::from_slice(&[7; 12288]))?;
    /// file.collapse_range(4096..8192)?;
    /// assert_eq!(file.size(), 8192);
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] for a range that is not aligned so, is empty, or reaches the end of the
    /// file; [`Error::NotPermitted`] for a file that is immutable or append-only;
    /// [`Error::NoSpace`] if an extent must be split and even the blocks reserved for metadata are
    /// used up, with nothing changed; [`Error::Unsupported`] if the file has no extents (ext2,
    /// ext3); the errors of the device.
    pub fn collapse_range(&self, range: Range<u64>) -> Result<()> {
        let _in_flight = self.begin_change(FIXED)?;
        self.check_extents()?;
        self.check_whole_clusters(&range)?;
        self.ensure_blocks()?;
        let Range { start: offset, end } = range;
        let _held = self.admit(Operation::CollapseRange { offset, end })?;
        let size = self.size();
        if end >= size {
            return Err(Error::invalid(format_args!("a range to {end} reaches the end of the file, {size}")));
        }
        self.void_claims_after(self.engine().with_space(|| self.collapse(range.clone())))
    }

    /// Inserts a hole that is then `range`: the bytes from its start on move up by its length. Both
    /// of its ends are multiples of the block size, or with bigalloc of the cluster size, and it
    /// starts before the end of the file.
    ///
    /// A crash has the effects described for [`collapse_range`](Self::collapse_range).
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let file = volume.open_direct("/file", &parext4::OpenOptions::read_write().create(true))?;
    /// file.append(&parext4::AlignedBuf::from_slice(&[7; 12288]))?;
    /// file.insert_range(4096..12288)?;
    /// assert_eq!((file.seek_hole(0)?, file.size()), (4096, 20480));
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] for a range that is not aligned so, is empty, or begins at or past the
    /// end of the file; [`Error::FileTooLarge`]; [`Error::NotPermitted`] and [`Error::NoSpace`] as
    /// for [`collapse_range`](Self::collapse_range).
    pub fn insert_range(&self, range: Range<u64>) -> Result<()> {
        let _in_flight = self.begin_change(FIXED)?;
        self.check_extents()?;
        self.check_whole_clusters(&range)?;
        self.ensure_blocks()?;
        let Range { start: offset, end } = range;
        let held = self.admit(Operation::InsertRange { offset, end })?;
        let size = self.size();
        if offset >= size {
            return Err(Error::invalid(format_args!(
                "offset {offset} is not before the end of the file, {size}"
            )));
        }
        let mapped = self.engine().block_map(self.inode())?.end()?;
        self.node.end_of(size.max(mapped * self.engine().block_size()), end - offset)?;
        if held.admission.zero_tail {
            self.zero_tail(held.hold())?;
        }
        self.void_claims_after(self.insert(range))
    }

    /// Voids the offsets that waiting appends claimed, whatever the result of the shift, and
    /// returns that result.
    fn void_claims_after(&self, result: Result<()>) -> Result<()> {
        guarded!(Fault::ShiftKeepsClaims, self.inode().tail.lock().set(self.size()));
        result
    }

    fn collapse(&self, Range { start, end }: Range<u64>) -> Result<()> {
        let (engine, inode) = (self.engine(), self.inode());
        let blocks = self.node.whole_blocks(start, end);
        engine.allocator().close_windows(&inode.windows, blocks.start());
        let (mut removed, mut shift) = (false, Shift::down(blocks.end(), blocks.count()));
        let mut step = || {
            engine.transact(engine.shift_credits(inode, blocks)?, |handle| {
                removed = removed || engine.remove_range(handle, inode, blocks)?;
                // The shift splits no extent, because a hole precedes it.
                let mut none = engine.allocator().reserve(0)?;
                let done = removed && engine.shift(handle, inode, &mut shift, &mut none)?;
                if done {
                    inode.set_size(inode.size() - (end - start));
                }
                inode.touch_modified();
                Ok(done)
            })
        };
        while !step()? {}
        Ok(())
    }

    fn insert(&self, Range { start, end }: Range<u64>) -> Result<()> {
        let (engine, inode) = (self.engine(), self.inode());
        let blocks = self.node.whole_blocks(start, end);
        let size = inode.size() + (end - start);
        engine.allow_size(size)?;
        let mut reservation = engine.with_space(|| engine.allocator().reserve(CUT_BLOCKS))?;
        engine.allocator().close_windows(&inode.windows, blocks.start());
        let mut shift = Shift::up(blocks.start(), blocks.count());
        let mut step = || {
            engine.transact(engine.shift_credits(inode, blocks.take(0))?, |handle| {
                let done = engine.shift(handle, inode, &mut shift, &mut reservation)?;
                inode.set_size(size);
                inode.touch_modified();
                Ok(done)
            })
        };
        while !step()? {}
        Ok(())
    }

    /// Checks that a range is of whole clusters, the only ranges that can be moved: a block keeps
    /// its place in its cluster.
    fn check_whole_clusters(&self, range: &Range<u64>) -> Result<()> {
        let unit = self.engine().layout().cluster_bytes();
        let Range { start, end } = range;
        if !(start | end).is_multiple_of(unit) {
            let what = if self.engine().layout().cluster_bits == 0 { "block" } else { "cluster" };
            return Err(Error::invalid(format_args!(
                "the range {start}..{end} does not start and end at multiples of the {what} size, {unit} bytes"
            )));
        }
        self.check_range(range)
    }
}
