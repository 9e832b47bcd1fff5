//! Reading ahead: who reads one piece behind the other, or at even distances, finds the next ones there. The volume's
//! own threads bring them in, several requests at once.

use std::ops::Range;
use std::sync::Weak;

use rangelock::ByteRange;
use smallvec::SmallVec;

use super::File;
use super::fill::MOST;
use crate::admission::plan;
use crate::dirty_files::ReadAheadQueue;
use crate::engine::Engine;
use crate::error::Result;
use crate::file::DirectFile;
use crate::node::Node;
use crate::operation::Operation;
use crate::page_cache::{Fill, PAGE};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Rank, hold};
use crate::writeback::{page_of, pages_of};

/// Pages ahead of the first reads of a sequence, or two reads if that is more; they double up to [`LAST_WINDOW`].
const FIRST_WINDOW: u32 = 4;
/// 8 MiB: enough for several requests on the device while the reader uses what has come.
const LAST_WINDOW: u32 = 2048;
/// No sequence fills more of the cache than one of so many parts.
const PARTS: u64 = 16;
/// So many reads at one distance count as a stride.
const STRIDES: u32 = 3;
/// Reads ahead in a stride.
const STRIDES_AHEAD: u64 = 4;

/// The recent reads of one handle.
#[derive(Debug)]
pub(super) struct ReadAhead {
    /// Where the next read begins if it goes on in sequence, and if it goes on in strides. Hints: who reads elsewhere
    /// and finds the pages there has nothing to do but to look at them.
    next: [AtomicU64; 2],
    recent: Mutex<RecentReads>,
}

#[derive(Debug, Default)]
struct RecentReads {
    /// Bytes of the last read.
    last: Range<u64>,
    /// Its distance from the one before, and how many had that.
    stride: u64,
    strides: u32,
    /// Pages that are read ahead, and the page behind those that were asked for.
    window: u32,
    asked: u32,
}

impl ReadAhead {
    pub(super) fn new() -> Self {
        Self { next: Default::default(), recent: Mutex::new(Rank::Leaf, RecentReads::default()) }
    }
}

impl RecentReads {
    /// Notes a read of `[offset, end)`, and says which pages should come in, of a sequence `most` at once.
    fn note(&mut self, offset: u64, end: u64, most: u32) -> Option<Range<u32>> {
        let last = std::mem::replace(&mut self.last, offset..end);
        if offset == last.end {
            self.strides = 0;
            return self.go_on(page_of(end), page_of(end - offset), most);
        }
        (self.window, self.asked) = (0, 0);
        let stride = offset.wrapping_sub(last.start);
        let same = stride == self.stride && offset > last.start;
        (self.stride, self.strides) = (stride, if same { self.strides + 1 } else { 0 });
        if self.strides < STRIDES {
            return None;
        }
        let ahead = offset.checked_add(stride.checked_mul(STRIDES_AHEAD)?)?;
        Some(pages_of(ByteRange::new(ahead, ahead.checked_add(end - offset)?)))
    }

    /// A sequence has come to page `here` with a read of `len` pages.
    fn go_on(&mut self, here: u32, len: u32, most: u32) -> Option<Range<u32>> {
        // The next part is asked for when half of the last one is used.
        if self.asked > here.saturating_add(self.window / 2) {
            return None;
        }
        // Who reads much at once would overtake what is less ahead.
        self.window = self.window.max(len).saturating_mul(2).max(FIRST_WINDOW).min(most);
        let from = self.asked.max(here);
        self.asked = here.saturating_add(self.window);
        (from < self.asked).then_some(from..self.asked)
    }
}

impl File {
    /// Notes a read of `[offset, end)`, which `missed` some pages or not, and asks for those that may be next.
    pub(super) fn read_ahead(&self, offset: u64, end: u64, missed: bool) {
        let next = &self.read_ahead.next;
        if end <= offset || !missed && next.iter().all(|next| next.load(Ordering::Relaxed) != offset) {
            return;
        }
        let pages = {
            let mut recent = self.read_ahead.recent.lock();
            let pages = recent.note(offset, end, longest(self.file.engine().pages.capacity()));
            next[0].store(end, Ordering::Relaxed);
            next[1].store(offset.wrapping_add(recent.stride), Ordering::Relaxed);
            pages
        };
        let file_end = page_of(self.size().saturating_sub(1)).saturating_add(1);
        let pages = pages.map(|pages| pages.start..pages.end.min(file_end));
        if let Some(pages) = pages.filter(|pages| !pages.is_empty()) {
            let engine = self.file.engine();
            if let Some(threads) = &engine.dirty.threads {
                threads.read_ahead.read_ahead(engine, self.file.inode(), pages, run);
            }
        }
    }
}

impl DirectFile {
    /// Brings in those of `pages` that are not there and that nobody is writing, as far as there is memory that nobody
    /// uses.
    ///
    /// # Errors
    /// What the device or a corrupt map give.
    pub(crate) fn bring_in(&self, pages: Range<u32>) -> Result<()> {
        let cached = self.cached_pages()?;
        let last = page_of(self.size().saturating_sub(1));
        let end = pages.end.min(last.saturating_add(1));
        if pages.start >= end {
            return Ok(());
        }
        let page = PAGE as u64;
        let operation =
            Operation::BufferedRead { offset: u64::from(pages.start) * page, end: u64::from(end) * page };
        let plan = plan(operation, &self.node.state_for_cache(), self.engine().policy);
        let _order = hold(Rank::Range);
        let Some(_held) = self.inode().ranges.try_lock(plan.range, plan.mode) else { return Ok(()) };
        let mut fills: SmallVec<[Fill<'_>; 4]> = SmallVec::new();
        for index in pages.start..end {
            let fill = cached.pages.try_claim(index);
            if fill.is_none() || fills.len() == MOST as usize {
                self.fill_claimed(std::mem::take(&mut fills))?;
            }
            fills.extend(fill);
        }
        self.fill_claimed(fills)
    }
}

/// Brings in pages, as one of the volume's own threads.
fn run(engine: &Weak<Engine>, queue: &ReadAheadQueue) {
    while let Some((inode, pages)) = queue.next() {
        let Some(engine) = engine.upgrade() else { return };
        if let Some(node) = Node::for_own_thread(&engine, &inode)
            && let Err(error) = DirectFile::for_own_thread(node).bring_in(pages)
        {
            // Whoever needs the pages will hear of it.
            tracing::debug!("reading ahead in inode {}: {error}", inode.ino());
        }
    }
}

/// The longest window in a cache of so many pages.
fn longest(capacity: u64) -> u32 {
    let part = u32::try_from(capacity / PARTS).unwrap_or(u32::MAX);
    part.clamp(FIRST_WINDOW, LAST_WINDOW)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(recent: &mut RecentReads, offset: u64, end: u64) -> Option<Range<u32>> {
        recent.note(offset, end, LAST_WINDOW)
    }

    #[test]
    fn sequences_and_strides_are_read_ahead_and_nothing_else() {
        let page = PAGE as u64;
        let mut recent = RecentReads::default();
        assert_eq!(note(&mut recent, 0, page), Some(1..5), "a file is begun at its start");
        assert_eq!(note(&mut recent, page, 2 * page), None);
        assert_eq!(note(&mut recent, 2 * page, 3 * page), Some(5..11), "the window doubles");
        let asked: Vec<_> = (3..9000).filter_map(|n| note(&mut recent, n * page, (n + 1) * page)).collect();
        assert!(asked.windows(2).all(|two| two[0].end == two[1].start), "without gaps: {asked:?}");
        assert!(asked.iter().all(|pages| pages.len() <= LAST_WINDOW as usize));
        assert_eq!(recent.window, LAST_WINDOW);

        let mut recent = RecentReads::default();
        let strided: Vec<_> = (1..7).map(|n| note(&mut recent, n * 10 * page, n * 10 * page + 100)).collect();
        assert_eq!(strided[..3], [None, None, None]);
        assert_eq!(strided[3..5], [Some(80..81), Some(90..91)]);
        for at in [7, 3, 900, 17, 40] {
            assert_eq!(note(&mut recent, at * page, at * page + 1), None);
        }
    }

    #[test]
    fn the_window_is_ahead_of_large_reads_and_fits_the_cache() {
        let page = PAGE as u64;
        let mib = 256 * page;
        let mut recent = RecentReads::default();
        let asked: Vec<_> = (0..8).filter_map(|n| note(&mut recent, n * mib, (n + 1) * mib)).collect();
        assert_eq!(asked, [256..768, 768..1536, 1536..3072, 3072..4096]);

        let mut recent = RecentReads::default();
        let asked: Vec<_> =
            (0..20).filter_map(|n| recent.note(n * page, (n + 1) * page, longest(0))).collect();
        assert!(asked.iter().all(|pages| pages.len() <= 4), "{asked:?}");
    }
}
