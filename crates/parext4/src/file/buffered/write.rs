//! Buffered writes: into the pages, page by page, under a range that covers them all.

use std::io::IoSlice;

use parext4_format::FileBlock;
use parext4_format::inode::InodeFlags;
use rangelock::{Mode, RangeLock};
use smallvec::SmallVec;

use super::{File, SyncMode};
use crate::admission::{HeldRange, Transfer};
use crate::convert::to_usize;
use crate::dirty_files::PAGES_AT_ONCE;
use crate::error::{Error, Result};
use crate::fault::{Fault, guarded, when_planted};
use crate::file::DirectFile;
use crate::file::inline::InlineWrite;
use crate::inode::Cached;
use crate::inode_ref::Hold;
use crate::map_update::SpaceWait;
use crate::mapping::BlockState;
use crate::operation::Operation;
use crate::page_cache::{Page, PageIndex, PageLookup};

/// A write checks the dirty-page limit each time it has copied this many pages.
const PAGES_BETWEEN_CHECKS: u64 = PAGES_AT_ONCE as u64 - 2;

/// A part of a write that lies in one page.
#[derive(Clone, Copy, Debug)]
struct PagePart<'a> {
    index: PageIndex,
    /// Offset in the page, in bytes.
    within: usize,
    data: &'a [u8],
}

/// A write that failed after a part of its data was copied.
struct PartialWrite {
    error: Error,
    /// Number of bytes, from the first on, that are in the file.
    visible: u64,
}

impl PartialWrite {
    /// Returns true if space ran out after a part was stored.
    fn is_cut_short(&self) -> bool {
        self.visible > 0 && matches!(self.error, Error::NoSpace | Error::QuotaExceeded(_))
    }
}

impl File {
    /// Writes all of `data` at byte `offset`, which may lie past the end of the file; the gap then
    /// reads as zeros. In append mode, writes at the end of the file.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let file = volume.open_file("/file", &parext4::OpenOptions::read_write().create(true))?;
    /// file.write_all_at(b"text", 10)?;
    /// assert_eq!(file.size(), 14);
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NoSpace`]; data that a write accepted has its space. The errors of the device.
    /// After an error the range holds old or new data.
    pub fn write_all_at(&self, data: &[u8], offset: u64) -> Result<()> {
        self.write_all_vectored_at(&[IoSlice::new(data)], offset)
    }

    /// Like [`write_all_at`](Self::write_all_at), from one buffer after the other.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let file = volume.open_file("/file", &parext4::OpenOptions::read_write().create(true))?;
    /// use std::io::IoSlice;
    ///
    /// file.write_all_vectored_at(&[IoSlice::new(b"head"), IoSlice::new(b"body")], 0)?;
    /// assert_eq!(volume.read("/file")?, b"headbody");
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`write_all_at`](Self::write_all_at).
    pub fn write_all_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> Result<()> {
        self.write_vectored_waiting(bufs, offset, &mut SpaceWait::new())
    }

    /// Implements
    /// [`ServerFile::write_all_at_waiting`](crate::server::ServerFile::write_all_at_waiting).
    pub(crate) fn write_all_at_waiting(&self, data: &[u8], offset: u64, wait: &mut SpaceWait) -> Result<()> {
        self.write_vectored_waiting(&[IoSlice::new(data)], offset, wait)
    }

    fn write_vectored_waiting(&self, bufs: &[IoSlice<'_>], offset: u64, wait: &mut SpaceWait) -> Result<()> {
        if self.options.append {
            return self.append_with(bufs, wait)?.1.map_or(Ok(()), |partial| Err(partial.error));
        }
        let end = self.file.node.end_of(offset, total(bufs))?;
        let cached = self.cached()?;
        cached.pages.prefetch(cached.pages.page_size().page_at(offset));
        let mut partial = None;
        self.write_with(bufs, self.file.refusing, wait, || {
            if self.file.write_inline(bufs, InlineWrite::At(offset))?.is_some() {
                return Ok(offset);
            }
            let operation = Operation::BufferedWrite { offset, end };
            let held = self.file.acquire(&mut Transfer::extending(operation, end))?;
            match self.file.write_cached(self.cached()?, bufs, offset, end, &held) {
                Ok(()) => {}
                // A read between two attempts would see a part of the data.
                Err(failed) if failed.is_cut_short() => partial = Some(failed.error),
                Err(failed) => return Err(failed.error),
            }
            Ok(offset)
        })?;
        partial.map_or(Ok(()), Err)
    }

    /// Writes all of `data` at the end of the file and returns the offset at which it was written,
    /// as [`DirectFile::append`] does.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let file = volume.open_file("/file", &parext4::OpenOptions::read_write().create(true))?;
    /// assert_eq!(file.append(b"one ")?, 0);
    /// assert_eq!(file.append(b"two")?, 4);
    /// assert_eq!(volume.read("/file")?, b"one two");
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`write_all_at`](Self::write_all_at). After an error the file may end with the
    /// first part of `data`.
    pub fn append(&self, data: &[u8]) -> Result<u64> {
        self.append_vectored(&[IoSlice::new(data)])
    }

    /// Implements [`ServerFile::append_partial`](crate::server::ServerFile::append_partial).
    pub(crate) fn append_partial(&self, data: &[u8], wait: &mut SpaceWait) -> Result<usize> {
        let (_, partial) = self.append_with(&[IoSlice::new(data)], wait)?;
        Ok(partial.map_or(data.len(), |partial| to_usize(partial.visible)))
    }

    /// Like [`append`](Self::append), from one buffer after the other.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// # let file = volume.open_file("/file", &parext4::OpenOptions::read_write().create(true))?;
    /// use std::io::IoSlice;
    ///
    /// let offset = file.append_vectored(&[IoSlice::new(b"length"), IoSlice::new(b"record")])?;
    /// assert_eq!((offset, file.size()), (0, 12));
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`append`](Self::append).
    pub fn append_vectored(&self, bufs: &[IoSlice<'_>]) -> Result<u64> {
        match self.append_with(bufs, &mut SpaceWait::new())? {
            (offset, None) => Ok(offset),
            (_, Some(partial)) => Err(partial.error),
        }
    }

    /// Appends, and returns the offset of the data. If space ran out after a part was stored, also
    /// returns that part.
    fn append_with(&self, bufs: &[IoSlice<'_>], wait: &mut SpaceWait) -> Result<(u64, Option<PartialWrite>)> {
        let (len, mut partial) = (total(bufs), None);
        let offset = self.write_with(bufs, InodeFlags::IMMUTABLE, wait, || {
            if let Some(offset) = self.file.write_inline(bufs, InlineWrite::AtEnd)? {
                return Ok(offset);
            }
            let operation = Operation::BufferedWrite { offset: 0, end: len };
            let mut transfer = Transfer::appending(operation, len);
            let mut held = self.file.acquire(&mut transfer)?;
            let (offset, end) = (transfer.offset(), transfer.end());
            match self.file.write_cached(self.cached()?, bufs, offset, end, &held) {
                Ok(()) => held.set_done(),
                // A second attempt would append after the part that is already visible.
                Err(failed) if failed.is_cut_short() => partial = Some(failed),
                Err(failed) => return Err(failed.error),
            }
            Ok(offset)
        })?;
        Ok((offset, partial))
    }

    /// Runs `write` with the steps that every write needs: checks the `forbidden` flags, waits for
    /// the dirty-page limit, retries when space runs out, and syncs as the options ask.
    fn write_with(
        &self,
        bufs: &[IoSlice<'_>],
        forbidden: InodeFlags,
        wait: &mut SpaceWait,
        write: impl FnMut() -> Result<u64>,
    ) -> Result<u64> {
        let _in_flight = self.file.begin_change(forbidden)?;
        if bufs.iter().all(|buf| buf.is_empty()) {
            return Ok(self.size());
        }
        let at_work = self.file.engine().begin_writing(&self.file.node)?;
        let offset = self.with_all_space(wait, write)?;
        drop(at_work);
        match self.options.sync {
            SyncMode::None => {}
            SyncMode::Data => self.sync_range(offset..offset + total(bufs))?,
            SyncMode::All => self.sync_all_written(offset, total(bufs))?,
        }
        Ok(offset)
    }

    /// Runs `operation`. If space runs out, frees the space that can be freed and runs it again.
    /// The caller holds no range.
    pub(super) fn with_all_space<R>(
        &self,
        wait: &mut SpaceWait,
        mut operation: impl FnMut() -> Result<R>,
    ) -> Result<R> {
        match wait.attempt(&mut operation) {
            (Err(Error::NoSpace), true) => {
                let engine = self.file.engine();
                // Cached data reserves more than it will need, and freed blocks may wait for a
                // commit. Files that fail here report that to their own syncs.
                let _ = engine.write_back_all();
                engine.with_space_of(wait, operation)
            }
            (Err(Error::QuotaExceeded(_)), _) => self.file.engine().with_space(operation),
            (other, _) => other,
        }
    }
}

impl DirectFile {
    /// Writes `[offset, end)` into the pages.
    fn write_cached(
        &self,
        cached: &Cached,
        bufs: &[IoSlice<'_>],
        offset: u64,
        end: u64,
        held: &HeldRange<'_>,
    ) -> Result<(), PartialWrite> {
        // Of a write whose part before byte `end` stays.
        let failed = |error, end: u64| {
            if end > offset {
                self.touch();
            }
            PartialWrite { error, visible: end.saturating_sub(offset) }
        };
        if held.admission.zero_tail {
            self.zero_tail(held.hold()).map_err(|error| failed(error, offset))?;
        }
        held.hold().assert_covers(&self.node, offset, end, Mode::Exclusive);
        let page_size = cached.pages.page_size();
        let has_parts = bufs.len() > 1 || page_size.round_down(end - 1) > offset;
        if has_parts && offset < self.size() {
            self.check_space(cached, offset, end).map_err(|error| failed(error, offset))?;
        }
        let large = PAGES_BETWEEN_CHECKS * page_size.bytes() as u64;
        let (mut at, mut written_back) = (offset, offset);
        for data in bufs {
            let mut rest = &data[..];
            while !rest.is_empty() {
                let (index, within) = page_size.locate(at);
                let (data, behind) = rest.split_at(rest.len().min(page_size.bytes() - within));
                let part = PagePart { index, within, data };
                let mut result = self.write_part(cached, held.hold(), part, offset);
                let may_fit = || at > written_back && self.may_fit(end - offset, end - at);
                if matches!(result, Err(Error::NoSpace)) && may_fit() {
                    self.inode().raise_visible_size(at);
                    self.make_room(held.hold(), written_back..at).map_err(|error| failed(error, at))?;
                    written_back = offset.max(page_size.round_down(at));
                    result = self.write_part(cached, held.hold(), part, offset);
                }
                if matches!(result, Err(Error::NoSpace | Error::QuotaExceeded(_)))
                    && self.size().min(at) > offset
                {
                    // There was no check, or other writers took the space since. The range stays
                    // held, so that no read sees the parts before this one alone (H22).
                    result = self.engine().with_space(|| self.write_part(cached, held.hold(), part, offset));
                }
                if let Err(error) = result {
                    let end = self.forget_behind_end(cached, held.hold(), offset, at);
                    return Err(failed(error, end));
                }
                at += data.len() as u64;
                rest = behind;
                if at - written_back >= large && self.engine().is_dirty_enough() {
                    // No other thread can write these pages back now. Write-back requires that they
                    // lie within the file.
                    self.inode().raise_visible_size(at);
                    self.make_room(held.hold(), written_back..at).map_err(|error| failed(error, at))?;
                    // The page in which this part ends is written back once it is complete.
                    written_back = offset.max(page_size.round_down(at));
                }
            }
        }
        when_planted!(Fault::DiskSizeFirst, self.inode().raise_size(end));
        self.inode().raise_visible_size(end);
        self.touch();
        Ok(())
    }

    /// Sets the times of a change of the contents, if this handle sets any.
    fn touch(&self) {
        if self.dates {
            self.engine().touch_lazily(self.inode());
        }
    }

    /// Writes a part into its page, for a write that began at byte `began`.
    fn write_part(
        &self,
        cached: &Cached,
        hold: &Hold<&RangeLock>,
        part: PagePart<'_>,
        began: u64,
    ) -> Result<()> {
        let page_size = cached.pages.page_size();
        let here = page_size.start(part.index) + part.within as u64;
        let touched = self.node.units().touched(part.within, part.data.len());
        loop {
            if let Some(page) = cached.pages.get(part.index) {
                return self.write_page(cached, &page, part, touched);
            }
            match cached.pages.claim(part.index) {
                Ok(PageLookup::Present(page)) => return self.write_page(cached, &page, part, touched),
                Ok(PageLookup::Vacant(fill)) => {
                    if self.covers(part) {
                        fill.zero(0, part.within);
                        let end = part.within + part.data.len();
                        fill.zero(end, page_size.bytes() - end);
                    } else {
                        self.fill_rest(hold, &fill, here, here + part.data.len() as u64)?;
                    }
                    let missing = self.delay(cached, part.index, self.missing(part.index, touched)?)?;
                    fill.write(part.within, part.data);
                    drop(fill.finish(touched, missing));
                    self.note_dirty(cached, part.index);
                    return Ok(());
                }
                // All memory is full of dirty pages, perhaps of this write. Write-back requires
                // that they lie within the file.
                Err(_) => {
                    if began < here {
                        self.inode().raise_visible_size(here);
                    }
                    self.make_room(hold, began..here)?;
                }
            }
        }
    }

    fn write_page(&self, cached: &Cached, page: &Page<'_>, part: PagePart<'_>, touched: u8) -> Result<()> {
        // Dirty units have their space already.
        if touched & !page.marks().0 == 0 {
            page.write(part.within, part.data);
            guarded!(Fault::ListedByOthers, self.note_dirty(cached, part.index));
            return Ok(());
        }
        let missing = self.keep_space(cached, part.index, page, touched)?;
        page.write(part.within, part.data);
        self.mark_dirty(cached, part.index, page, touched, missing);
        Ok(())
    }

    /// Marks the blocks of `[start, end)` dirty, which `hold` covers and which lie in one page.
    ///
    /// # Errors
    /// [`Error::NoSpace`].
    pub(super) fn dirty_page(
        &self,
        cached: &Cached,
        hold: &Hold<&RangeLock>,
        page: &Page<'_>,
        (start, end): (u64, u64),
    ) -> Result<()> {
        hold.assert_covers(&self.node, start, end, Mode::Exclusive);
        let index = cached.pages.page_size().page_at(start);
        let len = to_usize(end - start);
        let touched = self.node.units().touched(0, len);
        let missing = self.keep_space(cached, index, page, touched)?;
        self.mark_dirty(cached, index, page, touched, missing);
        Ok(())
    }

    /// Reserves space for the units of a page whose blocks are holes without a reservation. Returns
    /// these units.
    fn keep_space(&self, cached: &Cached, index: PageIndex, page: &Page<'_>, touched: u8) -> Result<u8> {
        let (dirty, reserved) = page.marks();
        let missing = self.missing(index, touched & !dirty & !reserved)?;
        self.delay(cached, index, missing)
    }

    /// Marks units of a page dirty. A block is reserved for each of the `missing` units.
    fn mark_dirty(&self, cached: &Cached, index: PageIndex, page: &Page<'_>, touched: u8, missing: u8) {
        let (dirty, reserved) = page.mark_dirty(touched, missing);
        // Another writer in the same block may have reserved it first.
        let twice = self.node.units().blocks_in(missing & reserved);
        if twice > 0 {
            let engine = self.engine();
            drop(engine.undelay(self.inode(), twice));
            let blocks = self.node.units().blocks_of(index, missing & reserved);
            engine.end_delay(self.inode(), cached, twice, blocks);
        }
        if guarded!(Fault::ListedByOthers, true, dirty == 0) {
            self.note_dirty(cached, index);
        }
    }

    /// Returns true if a part overwrites everything that its page holds of the file.
    fn covers(&self, part: PagePart<'_>) -> bool {
        let page_size = self.engine().page_size();
        let start = page_size.start(part.index);
        let end = part.within + part.data.len();
        let before = part.within == 0 || self.size() <= start;
        before && (end == page_size.bytes() || self.size() <= start + end as u64)
    }

    /// Returns the units of a page, out of `among`, whose blocks are holes.
    pub(super) fn missing(&self, index: PageIndex, among: u8) -> Result<u8> {
        if among == 0 {
            return Ok(0);
        }
        let block_map = self.engine().block_map(self.inode())?;
        let mut holes = 0;
        for (block, mask) in self.node.units().of_page(index) {
            if among & mask != 0 && block_map.state_of(block)? == BlockState::Hole {
                holes |= mask;
            }
        }
        Ok(holes)
    }

    /// Reserves space for units of a page. Returns the units that have it.
    fn delay(&self, cached: &Cached, index: PageIndex, units: u8) -> Result<u8> {
        let units = guarded!(Fault::DelayNothing, units);
        if units == 0 {
            return Ok(0);
        }
        let blocks: SmallVec<[FileBlock; 4]> = self.node.units().blocks_of(index, units).collect();
        self.engine().delay(self.inode(), cached, &blocks, self.credentials())?;
        Ok(units)
    }

    /// Drops, after a failed write, the pages that it has written of `[start, end)` past the end of
    /// the file, so that they need no space (H29). Zeroes its part of a page at an edge, which must
    /// hold zeros past the end (H23). Returns where the part ends that stays in the file.
    fn forget_behind_end(&self, cached: &Cached, hold: &Hold<&RangeLock>, start: u64, end: u64) -> u64 {
        when_planted!(Fault::FailedWriteNotDiscarded, return self.size().clamp(start, end));
        let page_size = cached.pages.page_size();
        let kept = self.size().clamp(start, end);
        let mut at = kept;
        let whole = page_size.inside(at..end);
        if !whole.is_empty() {
            let whole = hold.pages(self.engine(), self.inode(), whole, Mode::Exclusive);
            self.engine().discard_pages(self.inode(), whole);
        }
        while at < end {
            let (index, within) = page_size.locate(at);
            let len = (page_size.bytes() - within).min(to_usize(end - at));
            if let Some(page) = cached.pages.get(index) {
                page.zero(within, len);
            }
            at += len as u64;
        }
        kept
    }
}

fn total(bufs: &[IoSlice<'_>]) -> u64 {
    bufs.iter().map(|buf| buf.len() as u64).sum()
}
