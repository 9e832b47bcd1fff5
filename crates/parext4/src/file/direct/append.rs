//! Appends: any number of threads at once, each record at an offset of its own (H27).

use parext4_format::inode::InodeFlags;

use crate::admission::Transfer;
use crate::error::Result;
use crate::file::DirectFile;
use crate::operation::Operation;

impl DirectFile {
    /// Writes all of `data` at the end of the file and returns the offset where it went. Appends by several
    /// threads go on in parallel; none is lost or torn, and none overlaps another.
    ///
    /// The size, which must be a multiple of the sector size, and the length of `data` are as for
    /// [`write_at`](Self::write_at). The visible size may cover an append that is still going on before
    /// this one; until it is done it reads as zeros. One that fails while others go on behind it leaves
    /// zeros there, and so does one that waits while the size is set and then goes to the new end. What another write
    /// puts there meanwhile may be overwritten.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at), but append-only files are for this.
    pub fn append(&self, data: &[u8]) -> Result<u64> {
        let _in_flight = self.begin_change(InodeFlags::IMMUTABLE)?;
        if data.is_empty() {
            return Ok(self.size());
        }
        let len = data.len() as u64;
        let mut transfer = Transfer::appending(Operation::Write { offset: 0, end: len }, len);
        let held = self.node.acquire(&mut transfer)?;
        self.write_held(data, &transfer, held)?;
        Ok(transfer.offset())
    }
}
