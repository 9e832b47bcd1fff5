//! The fields of multi-mount protection.

use super::Superblock;
use crate::error::{FormatError, Result};
use crate::features::Incompat;
use crate::mmp::{DEFAULT_UPDATE_INTERVAL, MAX_UPDATE_INTERVAL};
use crate::number::FsBlock;

impl Superblock {
    /// Returns the block of multi-mount protection; `None` without the feature `mmp`.
    ///
    /// # Errors
    /// The block lies outside the volume.
    pub fn mmp_block(&self) -> Result<Option<FsBlock>> {
        if !self.incompat().contains(Incompat::MMP) {
            return Ok(None);
        }
        let block = self.raw.s_mmp_block.get();
        let first = u64::from(self.first_data_block());
        if block <= first || block >= self.blocks_count() {
            return Err(FormatError::new("superblock", "s_mmp_block", format_args!("{block}")));
        }
        Ok(Some(FsBlock(block)))
    }

    /// Returns the time in seconds between two updates of the block by the machine that uses the
    /// volume.
    #[must_use]
    pub fn mmp_update_interval(&self) -> u16 {
        match self.raw.s_mmp_update_interval.get() {
            0 => DEFAULT_UPDATE_INTERVAL,
            interval => interval.min(MAX_UPDATE_INTERVAL),
        }
    }

    /// Adds the feature `mmp`.
    pub fn set_mmp(&mut self, block: FsBlock, update_interval: u16) {
        self.set_incompat(self.incompat() | Incompat::MMP);
        self.raw.s_mmp_block.set(block.get());
        self.raw.s_mmp_update_interval.set(update_interval);
    }
}
