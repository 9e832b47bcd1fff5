//! Appends: any number of threads at once, each record at an offset of its own (H27).

use super::File;
use super::admission::Operation;
use crate::error::Result;
use crate::fault::{Fault, planted};

impl File {
    /// Writes all of `data` at the end of the file and returns the offset where it went. Appends by several
    /// threads go on in parallel; none is lost or torn, and none overlaps another.
    ///
    /// The size, which must be a multiple of the sector size, and the length of `data` are as for
    /// [`write_at`](Self::write_at). The visible size may cover an append that is still going on before
    /// this one; until it is done it reads as zeros. One that fails leaves zeros there.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at).
    pub fn append(&self, data: &[u8]) -> Result<u64> {
        self.check_writable()?;
        let len = data.len() as u64;
        if data.is_empty() {
            return Ok(self.size());
        }
        self.volume().with_space(|| {
            loop {
                let mut claim = self.inode().tail.lock().claim(len);
                if planted(Fault::AppendAtSize) {
                    claim.offset = self.size();
                }
                let result = self.append_at(data, claim.offset, |file| file.inode().tail.lock().holds(claim));
                match result {
                    Ok(true) => return Ok(claim.offset),
                    // The size was set meanwhile; the end is elsewhere now.
                    Ok(false) => {}
                    Err(error) => {
                        self.inode().tail.lock().give_back(claim, len);
                        return Err(error);
                    }
                }
            }
        })
    }

    /// Has appends that come from now on go behind `end`, where an operation is about to extend the file to.
    pub(super) fn announce_end(&self, end: u64) {
        if end > self.size() {
            self.inode().tail.lock().raise(end);
        }
    }

    /// Writes `data` at the claimed offset, unless the claim has become void while waiting for the range.
    fn append_at(&self, data: &[u8], offset: u64, holds: impl FnOnce(&Self) -> bool) -> Result<bool> {
        self.check_offset(offset)?;
        let end = self.end_of(offset, data.len() as u64)?;
        let held = self.admit(Operation::Write { offset, end })?;
        if !holds(self) {
            return Ok(false);
        }
        self.write_held(data, offset, held.admission.zero_tail)?;
        Ok(true)
    }
}
