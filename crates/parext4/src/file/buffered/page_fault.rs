//! Page faults of whoever maps a file into memory of its own.

use super::BufferedFile;
use crate::error::{Error, Result};
use crate::file::admission::Operation;
use crate::inode::FIXED;
use crate::page_cache::{Claim, PAGE, Page};

impl BufferedFile {
    /// Brings the page at byte `offset` into the cache, as a page fault of a mapping would. For `write` it is dirty
    /// afterwards and has its space. Holds that page alone.
    ///
    /// # Errors
    /// [`Error::Invalid`] behind the end of the file, where a mapping would get a signal; else as
    /// [`write_at`](Self::write_at) and [`read_at`](Self::read_at).
    pub fn fault(&self, offset: u64, write: bool) -> Result<()> {
        let start = offset - offset % PAGE as u64;
        if !write {
            let _in_flight = self.file.volume().in_flight.enter()?;
            let operation = |offset, end| Operation::BufferedRead { offset, end };
            let admitted = self.file.admit_read(offset, start + PAGE as u64, operation)?;
            let Some(_held) = admitted else { return Err(behind_end(offset)) };
            return self.bring_in(start).map(drop);
        }
        let _in_flight = self.file.begin_change(FIXED)?;
        self.file.volume().throttle(&self.file)?;
        self.file.volume().with_space(|| {
            loop {
                let end = self.size().min(start + PAGE as u64);
                if end <= offset {
                    return Err(behind_end(offset));
                }
                let _held = self.file.admit(Operation::BufferedWrite { offset: start, end })?;
                // The file may have been cut while it waited, though not up to this byte.
                if self.size() >= end {
                    let page = self.bring_in(start)?;
                    return self.file.dirty_page(self.cached()?, &page, start, end);
                }
            }
        })
    }

    /// Brings a page in, some of which is held. It stays as long as it is used.
    fn bring_in(&self, start: u64) -> Result<Page<'_>> {
        let index = u32::try_from(start / PAGE as u64).unwrap_or(u32::MAX);
        let cached = self.cached()?;
        loop {
            match cached.pages.claim(index) {
                Ok(Claim::Present(page)) => return Ok(page),
                Ok(Claim::Vacant(fill)) => {
                    self.file.fill_rest(&fill)?;
                    return Ok(fill.finish(0, 0));
                }
                Err(_) => self.file.make_room(0..0)?,
            }
        }
    }
}

fn behind_end(offset: u64) -> Error {
    Error::invalid(format_args!("a page fault at offset {offset}, behind the end of the file"))
}
