//! Writes that are atomic with respect to crashes (the kernel's `RWF_ATOMIC`).

use rangelock::ByteRange;

use super::File;
use crate::admission::Transfer;
use crate::error::{Error, Result};
use crate::file::DirectFile;
use crate::inode::FIXED;
use crate::mapping::{BlockState, Mapping};
use crate::operation::Operation;

impl File {
    /// Like [`DirectFile::write_untorn`].
    ///
    /// # Errors
    /// The errors of [`DirectFile::write_untorn`].
    pub fn write_untorn(&self, data: &[u8], offset: u64) -> Result<()> {
        self.file.write_untorn(data, offset)
    }
}

impl DirectFile {
    /// Writes `data` at byte `offset` with one request to the device, so that no crash tears it if
    /// the device writes that many bytes atomically. The data must be one block, or a power of two
    /// of blocks, at a multiple of its length.
    ///
    /// If the data is more than one block, its blocks must have been allocated before, contiguous
    /// and at a multiple of the length on the device.
    ///
    /// # Errors
    /// [`Error::Invalid`] for any other request. The file does not change then, but appends that
    /// begin meanwhile may stay past the range. Otherwise the errors of
    /// [`write_all_at`](Self::write_all_at).
    pub fn write_untorn(&self, data: &[u8], offset: u64) -> Result<()> {
        let _in_flight = self.begin_change(FIXED)?;
        let (len, block_size) = (data.len() as u64, self.engine().block_size());
        if !len.is_multiple_of(block_size) || !(len / block_size).is_power_of_two() {
            let text =
                format_args!("an untorn write of {len} bytes, not a power of two of blocks of {block_size}");
            return Err(Error::invalid(text));
        }
        if !offset.is_multiple_of(len) {
            let text = format_args!("an untorn write at offset {offset}, not a multiple of its length {len}");
            return Err(Error::invalid(text));
        }
        let end = self.node.end_of(offset, len)?;
        self.ensure_blocks()?;
        let mut transfer = Transfer::extending(Operation::Write { offset, end }, end);
        let held = self.acquire(&mut transfer)?;
        if len > block_size {
            let blocks = self.node.blocks_of(ByteRange::new(offset, end));
            check_together(&self.node.runs(blocks)?, blocks.len())?;
        }
        self.write_held(data, &transfer, held)
    }
}

/// Returns an error unless the blocks are one run, at a multiple of their number on the device.
fn check_together(runs: &[Mapping], blocks: u64) -> Result<()> {
    let start = match runs {
        [Mapping { state: BlockState::Written(start) | BlockState::Unwritten(start), .. }] => start.get(),
        [Mapping { state: BlockState::Hole, .. }] => {
            return Err(Error::invalid("an untorn write of several blocks that are not allocated"));
        }
        _ => return Err(Error::invalid("an untorn write of blocks that do not lie together in one state")),
    };
    if start.is_multiple_of(blocks) {
        return Ok(());
    }
    let text =
        format_args!("an untorn write of {blocks} blocks from device block {start} on, no multiple of that");
    Err(Error::invalid(text))
}
