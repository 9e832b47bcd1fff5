//! Reads whole blocks and pages of a file from the device.

use rangelock::ByteRange;

use crate::convert::to_usize;
use crate::error::Result;
use crate::inode_ref::InodeRef;
use crate::mapping::BlockState;

impl InodeRef {
    /// Reads whole blocks from the device, from byte `offset` of the file on. Holes and unwritten
    /// blocks read as zeros.
    pub(crate) fn read_blocks(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let block_size = self.engine.block_size();
        for run in self.runs(self.blocks_of(ByteRange::new(offset, offset + bytes.len() as u64)))? {
            let start = to_usize(u64::from(run.logical.get()) * block_size - offset);
            let part = &mut bytes[start..start + to_usize(u64::from(run.len) * block_size)];
            match run.state {
                BlockState::Written(physical) => self.read_device(self.device_offset(physical, 0), part)?,
                _ => part.fill(0),
            }
        }
        Ok(())
    }

    /// Reads whole pages from the device, from byte `offset` of the file on, and verifies them.
    /// Holes, unwritten blocks and bytes past the end of the file read as zeros.
    pub(crate) fn read_pages(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        // Loads the size before reading any block. A writer that grows the file over stale bytes
        // past its end zeroes them first (H3), but perhaps only after this read.
        let size = self.inode.size();
        let end = size.min(offset + bytes.len() as u64);
        if end <= offset {
            bytes.fill(0);
            return Ok(());
        }
        let whole_blocks = to_usize((end - offset).next_multiple_of(self.engine.block_size()));
        self.read_blocks(offset, &mut bytes[..whole_blocks])?;
        bytes[to_usize(end - offset)..].fill(0);
        self.verify(offset, bytes)
    }
}
