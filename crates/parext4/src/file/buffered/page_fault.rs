//! Page faults for a caller that maps a file into memory of its own.

use rangelock::RangeLock;

use super::File;
use crate::admission::Transfer;
use crate::error::{Error, Result};
use crate::inode_ref::Hold;
use crate::map_update::SpaceWait;
use crate::operation::Operation;
use crate::page_cache::{Page, PageLookup};

/// The access to a mapping that a page fault is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageFault {
    /// A load, for which the page is read.
    Load,
    /// A store, for which the page also becomes dirty.
    Store,
}

impl File {
    /// Implements [`ServerFile::fault`](crate::server::ServerFile::fault).
    pub(crate) fn fault(&self, offset: u64, access: PageFault) -> Result<()> {
        let engine = self.file.engine();
        if access == PageFault::Load {
            let _in_flight = self.file.begin_read()?;
            return self.until_there_is_room(|| self.fault_to_read(offset));
        }
        let _in_flight = self.file.begin_change(self.file.refusing)?;
        // A page of contents in the inode is never dirty.
        self.file.ensure_blocks()?;
        let _at_work = engine.begin_writing(&self.file.node)?;
        self.with_all_space(&mut SpaceWait::new(), || {
            self.until_there_is_room(|| self.fault_to_write(offset))
        })
    }

    /// Retries until there is memory for the page. Between attempts it holds no range, so every
    /// page can be written back.
    fn until_there_is_room(&self, fault: impl Fn() -> Result<bool>) -> Result<()> {
        while !fault()? {
            self.file.make_room_elsewhere()?;
        }
        Ok(())
    }

    /// Reads the page for a read fault. Returns false if there is no memory for it.
    fn fault_to_read(&self, offset: u64) -> Result<bool> {
        let page_size = self.file.engine().page_size();
        let end = page_size.round_down(offset).saturating_add(page_size.bytes() as u64);
        let mut transfer = Transfer::reading(Operation::BufferedRead { offset, end });
        match self.file.acquire_to_read(&mut transfer)? {
            // Contents in the inode need no page.
            Some(_) if self.file.is_inline()? => Ok(true),
            Some(held) => Ok(self.bring_in(held.hold(), offset, transfer.end())?.is_some()),
            None => Err(past_end(offset)),
        }
    }

    fn fault_to_write(&self, offset: u64) -> Result<bool> {
        let page_size = self.file.engine().page_size();
        let start = page_size.round_down(offset);
        loop {
            let end = self.size().min(start.saturating_add(page_size.bytes() as u64));
            if end <= offset {
                return Err(past_end(offset));
            }
            let held = self.file.admit(Operation::BufferedWrite { offset: start, end })?;
            // The file may have been truncated while this thread waited. If the page is still
            // inside, the next attempt uses the new size.
            if self.size() >= end {
                let Some(page) = self.bring_in(held.hold(), start, end)? else { return Ok(false) };
                self.file.dirty_page(self.cached()?, held.hold(), &page, (start, end))?;
                return Ok(true);
            }
        }
    }

    /// Reads the page into the cache of which `hold` covers `[start, end)`. The returned reference
    /// pins the page. Returns `None` if there is no memory for it.
    fn bring_in(&self, hold: &Hold<&RangeLock>, start: u64, end: u64) -> Result<Option<Page<'_>>> {
        match self.cached()?.pages.claim(self.file.engine().page_size().page_at(start)) {
            Ok(PageLookup::Present(page)) => Ok(Some(page)),
            Ok(PageLookup::Vacant(fill)) => {
                self.file.fill_rest(hold, &fill, start, end)?;
                Ok(Some(fill.finish(0, 0)))
            }
            Err(_) => Ok(None),
        }
    }
}

fn past_end(offset: u64) -> Error {
    Error::invalid(format_args!("a page fault at offset {offset}, past the end of the file"))
}
