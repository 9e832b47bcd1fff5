//! The bytes of a file's blocks on the device.

use std::io::{IoSlice, IoSliceMut};

use parext4_device::{BufferPool, PooledBuf};
use parext4_format::FsBlock;

use super::File;
use crate::error::{Error, Result};
use crate::extent_map::State;

impl File {
    /// Writes at a device offset. A failure stops the volume (I8).
    pub(super) fn write_device(&self, offset: u64, slices: &[IoSlice<'_>]) -> Result<()> {
        let volume = self.volume();
        volume.device.write_at(offset, slices).map_err(|e| {
            let what = format_args!("writing inode {} at device offset {offset}", self.node.ino());
            volume.health.stop(Error::device(what, e))
        })
    }

    /// Reads at a device offset.
    pub(super) fn read_device(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        self.volume().device.read_at(offset, &mut [IoSliceMut::new(bytes)]).map_err(|e| {
            let what = format_args!("reading inode {} at device offset {offset}", self.node.ino());
            Error::device(what, e)
        })
    }

    /// The device offset of byte `within` of a block.
    pub(super) fn device_offset(&self, block: FsBlock, within: u64) -> u64 {
        self.volume().layout.offset(block) + within
    }

    /// Zeroes the rest of the block behind byte `from` of the file, if that block is written. The caller
    /// holds the block exclusively.
    pub(super) fn zero_rest_of_block(&self, from: u64) -> Result<()> {
        let block_size = self.volume().block_size();
        let within = from % block_size;
        let block = u32::try_from(from / block_size).map_err(|_| Error::FileTooLarge)?;
        if within == 0 {
            return Ok(());
        }
        let mapping = self.volume().map(self.inode())?.lookup(block, 1);
        let State::Written(physical) = mapping.state else { return Ok(()) };
        let mut bytes = self.block_buffer();
        let start = self.device_offset(physical, 0);
        self.read_device(start, &mut bytes)?;
        // A u32 fits `usize` on every supported target, and a block's size is one.
        bytes[usize::try_from(within).unwrap_or(usize::MAX)..].fill(0);
        self.write_device(start, &[IoSlice::new(&bytes)])?;
        self.record().zeroed(block_size - within);
        Ok(())
    }

    fn block_buffer(&self) -> PooledBuf {
        BufferPool::global().take(self.volume().layout.block_size as usize)
    }
}
