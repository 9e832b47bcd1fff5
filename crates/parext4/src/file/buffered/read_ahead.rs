//! Read-ahead: detects sequential reads and reads at a constant stride, and reads the next pages
//! into the cache. Background threads of the volume perform it, with several requests in flight.

use std::ops::Range;
use std::sync::Weak;

use rangelock::ByteRange;

use super::File;
use crate::convert::saturating_u32;
use crate::dirty_files::ReadAheadQueue;
use crate::engine::Engine;
use crate::error::Result;
use crate::file::DirectFile;
use crate::inode_ref::InodeRef;
use crate::operation::Operation;
use crate::page_cache::{PageIndex, PageRange, PageSize};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Rank, hold};

/// The first window of a sequence, in bytes, or twice the length of the read if that is more.
/// Windows double up to [`LAST_WINDOW`].
const FIRST_WINDOW: u64 = 16 << 10;
/// The largest window, in bytes: enough for several requests on the device while the reader
/// consumes earlier pages.
const LAST_WINDOW: u64 = 32 << 20;
/// A window is at most one in this many parts of the cache.
const PARTS: u64 = 16;
/// A stride is recognised after this many repetitions of one distance.
const STRIDES: u32 = 3;
/// The number of strides by which read-ahead precedes the reader.
const STRIDES_AHEAD: u64 = 4;

/// The recent reads of one handle.
#[derive(Debug)]
pub(super) struct ReadAhead {
    /// The offset of the next read if the sequence continues, and if the stride continues. They are
    /// hints: a read at another offset that finds its pages cached need not acquire the lock.
    next: [AtomicU64; 2],
    recent: Mutex<RecentReads>,
}

#[derive(Debug, Default)]
struct RecentReads {
    /// The byte range of the last read.
    last: Range<u64>,
    /// The distance of the last read from the one before, in bytes, and the number of reads that
    /// repeated it.
    stride: u64,
    strides: u32,
    /// The window, in pages, and the page after the last one requested.
    window: u32,
    asked: PageIndex,
}

/// The windows of one volume, in pages.
#[derive(Clone, Copy, Debug)]
struct Windows {
    page_size: PageSize,
    first: u32,
    largest: u32,
}

impl Windows {
    /// Returns the windows for a cache of `capacity` pages.
    fn new(page_size: PageSize, capacity: u64) -> Self {
        let (first, last) = (page_size.pages_in(FIRST_WINDOW), page_size.pages_in(LAST_WINDOW));
        Self { page_size, first, largest: saturating_u32(capacity / PARTS).clamp(first, last) }
    }
}

impl ReadAhead {
    pub(super) fn new() -> Self {
        Self { next: Default::default(), recent: Mutex::new(Rank::Leaf, RecentReads::default()) }
    }
}

impl RecentReads {
    /// Records a read of `[offset, end)`. Returns the pages to read ahead.
    fn note(&mut self, offset: u64, end: u64, windows: Windows) -> Option<PageRange> {
        let page_size = windows.page_size;
        let last = std::mem::replace(&mut self.last, offset..end);
        if offset == last.end {
            self.strides = 0;
            let len = saturating_u32((end - offset) / page_size.bytes() as u64);
            return self.go_on(page_size.page_at(end), len, windows);
        }
        (self.window, self.asked) = (0, PageIndex::ZERO);
        let stride = offset.wrapping_sub(last.start);
        let same = stride == self.stride && offset > last.start;
        (self.stride, self.strides) = (stride, if same { self.strides + 1 } else { 0 });
        if self.strides < STRIDES {
            return None;
        }
        let ahead = offset.checked_add(stride.checked_mul(STRIDES_AHEAD)?)?;
        Some(page_size.touching(ByteRange::new(ahead, ahead.checked_add(end - offset)?)))
    }

    /// Continues a sequence that has reached page `here` with a read of `len` pages. Returns the
    /// pages to read ahead.
    fn go_on(&mut self, here: PageIndex, len: u32, windows: Windows) -> Option<PageRange> {
        // Requests the next pages once half of the window is used.
        if self.asked > here.saturating_add(self.window / 2) {
            return None;
        }
        // The window grows with the reads: a smaller one would not stay ahead of large reads.
        self.window = self.window.max(len).saturating_mul(2).max(windows.first).min(windows.largest);
        let from = self.asked.max(here);
        self.asked = here.saturating_add(self.window);
        (from < self.asked).then_some(PageRange::new(from, self.asked))
    }
}

impl File {
    /// Records a read of `[offset, end)`, and requests the pages that the next reads may need.
    /// `missed` tells whether the read found a page missing.
    pub(super) fn read_ahead(&self, offset: u64, end: u64, missed: bool) {
        let next = &self.read_ahead.next;
        if end <= offset || !missed && next.iter().all(|next| next.load(Ordering::Relaxed) != offset) {
            return;
        }
        let engine = self.file.engine();
        let page_size = engine.page_size();
        let pages = {
            let mut recent = self.read_ahead.recent.lock();
            let pages = recent.note(offset, end, Windows::new(page_size, engine.pages().capacity()));
            next[0].store(end, Ordering::Relaxed);
            next[1].store(offset.wrapping_add(recent.stride), Ordering::Relaxed);
            pages
        };
        let file_end = page_size.page_at(self.size().saturating_sub(1)).saturating_add(1);
        let pages = pages.map(|pages| pages.before(file_end));
        if let Some(pages) = pages.filter(|pages| !pages.is_empty())
            && let Some(threads) = &engine.dirty().threads
        {
            threads.read_ahead.read_ahead(engine, self.file.inode(), (pages, page_size), run);
        }
    }
}

impl DirectFile {
    /// Reads the missing ones of `pages` into the cache, unless a writer holds them, as far as the
    /// cache has or evicts memory for them.
    ///
    /// # Errors
    /// The errors of the device and of a corrupt map.
    pub(crate) fn bring_in(&self, pages: PageRange) -> Result<()> {
        let cached = self.cached_pages()?;
        let page_size = self.engine().page_size();
        let last = page_size.page_at(self.size().saturating_sub(1));
        let pages = pages.before(last.saturating_add(1));
        if pages.is_empty() {
            return Ok(());
        }
        let Range { start: offset, end } = page_size.bytes_of(pages);
        let operation = Operation::BufferedRead { offset, end };
        let plan = self.node.tentative_plan(operation)?;
        let _order = hold(Rank::Range);
        let Some(_held) = self.inode().ranges.try_lock(plan.range, plan.mode) else { return Ok(()) };
        if self.is_inline()? {
            return Ok(());
        }
        self.engine().dirty().queues.with(|queue| self.fill_ahead(cached, pages, queue))
    }
}

/// Reads pages ahead, in a background thread of the volume.
fn run(engine: &Weak<Engine>, queue: &ReadAheadQueue) {
    while let Some((inode, pages)) = queue.next() {
        let Some(engine) = engine.upgrade() else { return };
        if let Some(node) = InodeRef::for_own_thread(&engine, &inode)
            && let Err(error) = DirectFile::for_own_thread(node).bring_in(pages)
        {
            // A read that needs the pages reports the error itself.
            log::debug!("reading ahead in inode {}: {error}", inode.ino());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(recent: &mut RecentReads, offset: u64, end: u64) -> Option<PageRange> {
        recent.note(offset, end, windows(u64::MAX))
    }

    fn windows(capacity: u64) -> Windows {
        Windows::new(PageSize::MIN, capacity)
    }

    #[test]
    fn sequences_and_strides_are_read_ahead_and_nothing_else() {
        let page = PageSize::MIN.bytes() as u64;
        let mut recent = RecentReads::default();
        assert_eq!(note(&mut recent, 0, page), Some((1..5).into()), "a file is begun at its start");
        assert_eq!(note(&mut recent, page, 2 * page), None);
        assert_eq!(note(&mut recent, 2 * page, 3 * page), Some((5..11).into()), "the window doubles");
        let asked: Vec<_> = (3..9000).filter_map(|n| note(&mut recent, n * page, (n + 1) * page)).collect();
        assert!(asked.windows(2).all(|two| two[0].end() == two[1].start()), "without gaps: {asked:?}");
        assert!(asked.iter().all(|pages| pages.len() <= 8192));
        assert_eq!(recent.window, 8192);

        let mut recent = RecentReads::default();
        let strided: Vec<_> = (1..7).map(|n| note(&mut recent, n * 10 * page, n * 10 * page + 100)).collect();
        assert_eq!(strided[..3], [None, None, None]);
        assert_eq!(strided[3..5], [Some((80..81).into()), Some((90..91).into())]);
        for at in [7, 3, 900, 17, 40] {
            assert_eq!(note(&mut recent, at * page, at * page + 1), None);
        }
    }

    #[test]
    fn the_window_is_ahead_of_large_reads_and_fits_the_cache() {
        let page = PageSize::MIN.bytes() as u64;
        let mib = 256 * page;
        let mut recent = RecentReads::default();
        let asked: Vec<_> = (0..8).filter_map(|n| note(&mut recent, n * mib, (n + 1) * mib)).collect();
        assert_eq!(asked, [256..768, 768..1536, 1536..3072, 3072..6144].map(PageRange::from));

        let mut recent = RecentReads::default();
        let asked: Vec<_> =
            (0..20).filter_map(|n| recent.note(n * page, (n + 1) * page, windows(0))).collect();
        assert!(asked.iter().all(|pages| pages.len() <= 4), "{asked:?}");
    }
}
