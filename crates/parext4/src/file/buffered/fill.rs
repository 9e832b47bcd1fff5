//! Reads pages into the cache. A fill writes the whole page although its thread may hold only a
//! part of the page's bytes. An operation that changes the device without the cache therefore holds
//! whole pages.

use std::ops::Range;
use std::time::Duration;

use parext4_device::BufferPool;
use smallvec::SmallVec;

use super::super::DirectFile;
use crate::error::Result;
use crate::inode::Cached;
use crate::inode_ref::Hold;
use crate::page_cache::{Fill, PageLookup, PageRange};
use crate::policy::Policy;
use crate::sync::yield_now;
use rangelock::{ByteRange, Mode, RangeLock};

/// Bytes that are read in one request.
const MOST: u64 = 1 << 20;

impl DirectFile {
    /// Writes dirty pages back for a writer that finds all memory full of dirty pages. First writes
    /// back the pages of `own`, which `hold` covers, so that no other thread can write them back;
    /// then any pages that no operation holds.
    ///
    /// # Errors
    /// The errors of the write-back of `own`; the ones of other files only if no page of `own` was
    /// dirty, so that the caller has no room.
    pub(super) fn make_room(&self, hold: &Hold<&RangeLock>, own: Range<u64>) -> Result<()> {
        // Under the policies that lock whole files, no other writer can access any page of this
        // file.
        let is_range = self.engine().policy() == Policy::Range;
        let own = if is_range { self.engine().page_size().inside(own) } else { PageRange::ALL };
        let was_dirty = self.inode().cached().is_some_and(|cached| cached.pages.has_dirty(own));
        if !own.is_empty() {
            let own = hold.pages(self.engine(), self.inode(), own, Mode::Exclusive);
            self.node.write_back_held(own)?;
        }
        let elsewhere = self.make_room_elsewhere();
        if was_dirty { self.engine().health().check() } else { elsewhere }
    }

    /// Writes back pages that no operation holds, for a caller that finds all memory full of dirty
    /// pages.
    pub(super) fn make_room_elsewhere(&self) -> Result<()> {
        self.engine().health().check()?;
        if !self.engine().write_back_some(Duration::ZERO, self.engine().dirty().batch())? {
            yield_now();
        }
        Ok(())
    }

    /// Reads the missing pages of `[at, end)`, up to the first that is in the cache, in one
    /// request. Returns false if there is no memory for any page.
    ///
    /// # Errors
    /// The errors of the device and of a corrupt map.
    pub(super) fn fill_pages(
        &self,
        cached: &Cached,
        hold: &Hold<&RangeLock>,
        at: u64,
        end: u64,
    ) -> Result<bool> {
        hold.assert_covers(&self.node, at, end, Mode::Shared);
        let page_size = self.engine().page_size();
        let pages = page_size.touching(ByteRange::new(at, end)).take(page_size.pages_in(MOST));
        let first = match cached.pages.claim(pages.start()) {
            Ok(PageLookup::Vacant(first)) => first,
            Ok(PageLookup::Present(_)) => return Ok(true),
            Err(_) => return Ok(false),
        };
        let mut fills: SmallVec<[Fill<'_>; 4]> = SmallVec::new();
        fills.push(first);
        for index in PageRange::new(pages.start() + 1, pages.end()).pages() {
            // A thread that has claimed pages must not wait for another page, because other threads
            // may wait for the claimed ones.
            let Some(fill) = cached.pages.try_claim(index) else { break };
            fills.push(fill);
        }
        self.fill_claimed(fills)?;
        Ok(true)
    }

    /// Reads claimed pages that are contiguous in the file.
    pub(super) fn fill_claimed(&self, fills: SmallVec<[Fill<'_>; 4]>) -> Result<()> {
        let Some(first) = fills.first().map(Fill::index) else { return Ok(()) };
        let mut bytes = BufferPool::global().take(fills.len() * self.engine().page_size().bytes());
        self.node.read_pages(self.engine().page_size().start(first), &mut bytes)?;
        self.write_all(fills, &bytes);
        Ok(())
    }

    /// Fills one page, of which `hold` covers `[at, end)`. The caller writes its part before the
    /// page becomes visible.
    pub(super) fn fill_rest(
        &self,
        hold: &Hold<&RangeLock>,
        fill: &Fill<'_>,
        at: u64,
        end: u64,
    ) -> Result<()> {
        hold.assert_covers(&self.node, at, end, Mode::Shared);
        let page_size = self.engine().page_size();
        debug_assert_eq!(page_size.page_at(at), fill.index(), "another page is filled");
        let mut bytes = BufferPool::global().take(page_size.bytes());
        self.node.read_pages(page_size.start(fill.index()), &mut bytes)?;
        fill.write(0, &bytes);
        Ok(())
    }

    /// Reads bytes of one page from byte `at` on without caching the page, because there is no
    /// memory for it. The page was not in the cache, so the device has its bytes.
    ///
    /// # Errors
    /// The errors of the device and of a corrupt map.
    pub(super) fn read_past(&self, hold: &Hold<&RangeLock>, at: u64, out: &mut [u8]) -> Result<()> {
        hold.assert_covers(&self.node, at, at + out.len() as u64, Mode::Shared);
        let page_size = self.engine().page_size();
        let mut bytes = BufferPool::global().take(page_size.bytes());
        let (index, within) = page_size.locate(at);
        self.node.read_pages(page_size.start(index), &mut bytes)?;
        out.copy_from_slice(&bytes[within..within + out.len()]);
        Ok(())
    }

    /// Fills claimed pages with `bytes`, and makes them visible.
    pub(super) fn write_all(&self, fills: SmallVec<[Fill<'_>; 4]>, bytes: &[u8]) {
        for (fill, bytes) in fills.into_iter().zip(bytes.chunks_exact(self.engine().page_size().bytes())) {
            fill.write(0, bytes);
            drop(fill.finish(0, 0));
        }
    }
}
