//! Checks the offsets and lengths of requests.

use crate::error::{Error, Result};
use crate::inode_ref::InodeRef;

impl InodeRef {
    /// Returns the offset after the last byte of a request.
    ///
    /// # Errors
    /// [`Error::FileTooLarge`] if the format of the file cannot map that offset.
    pub(crate) fn end_of(&self, offset: u64, len: u64) -> Result<u64> {
        let end = offset.checked_add(len);
        end.filter(|&end| end <= self.engine.max_size(&self.inode)).ok_or(Error::FileTooLarge)
    }

    /// Returns the number of bytes that a read of `len` bytes from `offset` on can return. As in
    /// the kernel, it ends at the largest offset that the format of the file can map.
    pub(crate) fn readable(&self, offset: u64, len: usize) -> usize {
        let most = self.engine.max_size(&self.inode).saturating_sub(offset);
        usize::try_from(most).map_or(len, |most| len.min(most))
    }

    /// Checks the offset of a direct request.
    ///
    /// # Errors
    /// [`Error::Invalid`] unless the offset is a multiple of the sector size.
    pub(crate) fn check_offset(&self, offset: u64) -> Result<()> {
        let sector = u64::from(self.engine.device().sector_size());
        if offset.is_multiple_of(sector) {
            return Ok(());
        }
        Err(Error::invalid(format_args!("offset {offset} is not a multiple of the sector size {sector}")))
    }

    /// Checks the length of a direct request.
    ///
    /// # Errors
    /// [`Error::Invalid`] unless the length is a multiple of the sector size or the request reaches
    /// the end of the file.
    pub(crate) fn check_len(&self, len: u64, reaches_end: bool) -> Result<()> {
        let sector = u64::from(self.engine.device().sector_size());
        if reaches_end || len.is_multiple_of(sector) {
            return Ok(());
        }
        Err(Error::invalid(format_args!(
            "length {len} is not a multiple of the sector size {sector}, and the file does not end there"
        )))
    }
}
