//! Making buffered files durable: what is dirty is written back, then a commit makes that durable, as for direct
//! writes.

use std::ops::Range;

use rangelock::ByteRange;

use super::File;
use crate::error::Result;
use crate::writeback::HowToHold;
use crate::writeback::pages_of;

impl File {
    /// Makes the file's data durable, and of its attributes what is needed to read it back.
    ///
    /// # Errors
    /// If the device fails, or has failed before (I8). Of a failure to write data back, also in the background, each
    /// handle hears once.
    pub fn sync_data(&self) -> Result<()> {
        self.write_back(0..u32::MAX)?;
        self.file.node.commit()
    }

    /// Makes the file's data and all its attributes durable.
    ///
    /// # Errors
    /// As [`sync_data`](Self::sync_data).
    pub fn sync_all(&self) -> Result<()> {
        self.write_back(0..u32::MAX)?;
        self.file.node().sync()
    }

    /// Makes `len` bytes of the file's data from `offset` on durable.
    ///
    /// # Errors
    /// As [`sync_data`](Self::sync_data).
    pub fn sync_range(&self, offset: u64, len: u64) -> Result<()> {
        let end = self.file.node.end_of(offset, len)?;
        if len == 0 {
            return Ok(());
        }
        self.write_back(pages_of(ByteRange::new(offset, end)))?;
        self.file.node.commit()
    }

    /// As [`sync_range`](Self::sync_range), of what was just written and with all attributes.
    pub(super) fn sync_all_written(&self, offset: u64, len: u64) -> Result<()> {
        self.write_back(pages_of(ByteRange::new(offset, offset + len)))?;
        self.file.node().sync()
    }

    fn write_back(&self, pages: Range<u32>) -> Result<()> {
        let written = self.file.node.write_back(pages, HowToHold::Wait);
        // What the device said is told before that the volume has stopped.
        self.cached()?.failures.check(&self.heard)?;
        written
    }
}
