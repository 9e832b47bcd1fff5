//! Reads, writes and zeroes bytes of a file's blocks on the device.

use std::io::{self, IoSlice, IoSliceMut};
use std::ops::Deref;

use parext4_device::BufferPool;
use parext4_format::FsBlock;
use rangelock::{ByteRange, Mode, RangeLock};

use crate::convert::to_usize;
use crate::error::{Error, Result};
use crate::inode_ref::{Hold, InodeRef};
use crate::mapping::BlockState;

impl InodeRef {
    /// Writes at a device offset. A failure stops the volume (I8).
    pub(crate) fn write_device(&self, offset: u64, slices: &[IoSlice<'_>]) -> Result<()> {
        self.engine.device().write_at(offset, slices).map_err(|e| self.write_failed(offset, e))
    }

    /// Stops the volume because a write at a device offset has failed (I8). Returns the error for
    /// the caller.
    pub(crate) fn write_failed(&self, offset: u64, error: io::Error) -> Error {
        let what = format_args!("writing inode {} at device offset {offset}", self.ino());
        self.engine.health().stop(Error::device(what, error))
    }

    /// Reads at a device offset.
    pub(crate) fn read_device(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        self.engine
            .device()
            .read_at(offset, &mut [IoSliceMut::new(bytes)])
            .map_err(|e| self.read_failed(offset, e))
    }

    /// Returns the error of a read at a device offset.
    pub(crate) fn read_failed(&self, offset: u64, error: io::Error) -> Error {
        let what = format_args!("reading inode {} at device offset {offset}", self.ino());
        Error::device(what, error)
    }

    /// Returns the device offset of byte `within` of a block.
    pub(crate) fn device_offset(&self, block: FsBlock, within: u64) -> u64 {
        self.engine.layout().offset(block) + within
    }

    /// Zeroes a block from byte `from` of the file to the block's end, if that block is written.
    pub(crate) fn zero_rest_of_block<L: Deref<Target = RangeLock>>(
        &self,
        hold: &Hold<L>,
        from: u64,
    ) -> Result<()> {
        // At the end of the file only an operation that extends the file touches the bytes after
        // `from`. Until the tail is clean, each such operation holds the start of the block.
        let block_size = self.engine.block_size();
        hold.assert_covers(self, from - from % block_size, from, Mode::Exclusive);
        self.zero_within_block(from, from.next_multiple_of(block_size))
    }

    /// Zeroes the part of `[offset, end)` that lies in partly covered blocks, if those blocks are
    /// written.
    pub(crate) fn zero_edges(&self, hold: &Hold<&RangeLock>, offset: u64, end: u64) -> Result<()> {
        let block_size = self.engine.block_size();
        let head = end.min(offset.next_multiple_of(block_size));
        let blocks = ByteRange::new(offset, end).round_out(block_size);
        hold.assert_covers(self, blocks.start(), blocks.end(), Mode::Exclusive);
        self.zero_within_block(offset, head)?;
        self.zero_within_block(head.max(end - end % block_size), end)
    }

    /// Zeroes the bytes `[from, to)` of one block of the file, if that block is written.
    fn zero_within_block(&self, from: u64, to: u64) -> Result<()> {
        let block_size = self.engine.block_size();
        if from >= to {
            return Ok(());
        }
        let block = self.engine.layout().block_size.block_at(from).ok_or(Error::FileTooLarge)?;
        let BlockState::Written(physical) = self.engine.block_map(&self.inode)?.state_of(block)? else {
            return Ok(());
        };
        let first = from - from % block_size;
        let within = |at: u64| to_usize(at - first);
        let mut bytes = BufferPool::global().take(self.engine.layout().block_size.bytes() as usize);
        let start = self.device_offset(physical, 0);
        self.read_device(start, &mut bytes)?;
        bytes[within(from)..within(to)].fill(0);
        self.write_device(start, &[IoSlice::new(&bytes)])?;
        self.record().zeroed(to - from);
        Ok(())
    }
}
