//! Appends: any number of threads at once, each record at an offset of its own (H27).

use std::io::IoSlice;

use parext4_format::inode::InodeFlags;

use crate::admission::Transfer;
use crate::error::Result;
use crate::file::DirectFile;
use crate::file::inline::InlineWrite;
use crate::operation::Operation;

impl DirectFile {
    /// Writes all of `data` at the end of the file and returns the offset at which it was written.
    /// Appends by several threads run in parallel. None is lost or torn, and none overlaps another.
    ///
    /// The size of the file must be a multiple of the sector size. The length of `data` is as for
    /// [`write_all_at`](Self::write_all_at). The visible size may cover an earlier append that is
    /// still in flight; its bytes read as zeros until it completes. An append that fails while
    /// later appends are in flight leaves zeros in its place. So does an append that waits while
    /// the size is set, and then goes to the new end; it may overwrite data that another write
    /// stores there meanwhile.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let file = volume.open_direct("/file", &parext4::OpenOptions::read_write().create(true))?;
    /// use parext4::AlignedBuf;
    ///
    /// let record = AlignedBuf::from_slice(&[7; 4096]);
    /// assert_eq!(file.append(&record)?, 0);
    /// assert_eq!(file.append(&record)?, 4096);
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`write_all_at`](Self::write_all_at), except that append-only files accept
    /// appends.
    pub fn append(&self, data: &[u8]) -> Result<u64> {
        let _in_flight = self.begin_change(InodeFlags::IMMUTABLE)?;
        if data.is_empty() {
            return Ok(self.size());
        }
        if let Some(offset) = self.write_inline(&[IoSlice::new(data)], InlineWrite::DirectAtEnd)? {
            return Ok(offset);
        }
        let len = data.len() as u64;
        let mut transfer = Transfer::appending(Operation::Write { offset: 0, end: len }, len);
        let held = self.acquire(&mut transfer)?;
        self.write_held(data, &transfer, held)?;
        Ok(transfer.offset())
    }
}
