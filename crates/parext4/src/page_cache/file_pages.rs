//! The pages of one file: look-up, claim, discard, and search for dirty pages.
//!
//! The module combines the tree of the file with the states of its pages. The file decides which
//! pages stay, and when they are written back.
//!
//! Invariant: a page that a look-up returns belongs to this file. A leaf may be freed and reused by
//! another file during a look-up, so the leaf's key is checked after the pin.

use smallvec::SmallVec;

use super::dirty_regions::{DirtyRegions, Region, RegionSet};
use super::nodes::{LeafKey, SLOTS, Slot};
use super::page::{Fill, Page, WriteBack};
use super::page_index::{PageIndex, PageRange};
use super::page_size::PageSize;
use super::runs::{DirtyRuns, RunFinder, RunLimits};
use super::state::PageState;
use super::tree::PageTree;
use super::{NoFrame, PageCache};
use crate::fault::{Fault, guarded};
use crate::sync::atomic::Ordering;
use crate::sync::{Arc, spin};

/// The pages of one file by index. Dropping it discards all pages.
#[derive(Debug)]
pub struct FilePages {
    cache: Arc<PageCache>,
    tree: Arc<PageTree>,
    regions: DirtyRegions,
}

/// The result of [`FilePages::claim`].
#[derive(Debug)]
pub enum PageLookup<'a> {
    /// The page has contents.
    Present(Page<'a>),
    /// The page is missing, and the caller must fill it.
    Vacant(Fill<'a>),
}

impl FilePages {
    /// Returns an empty set of pages.
    #[must_use]
    pub fn new(cache: &Arc<PageCache>) -> Self {
        Self { cache: Arc::clone(cache), tree: cache.new_tree(), regions: DirtyRegions::default() }
    }

    /// Returns the size of the pages.
    #[inline]
    pub fn page_size(&self) -> PageSize {
        self.cache.page_size()
    }

    /// Returns a page that has contents, and counts an access to it. Does not block.
    #[inline]
    pub fn get(&self, index: PageIndex) -> Option<Page<'_>> {
        let leaf = self.tree.leaf(&self.cache.nodes, index)?;
        let page = self.pin(leaf, index, true)?;
        self.cache.counters.hit();
        Some(page)
    }

    /// Prefetches the page's cache lines, while the caller acquires its range.
    #[inline]
    pub fn prefetch(&self, index: PageIndex) {
        let Some(leaf) = self.tree.leaf(&self.cache.nodes, index) else { return };
        // Acquire: the frame's memory is mapped.
        let state = PageState(self.cache.nodes.page_slot(leaf, index).word.load(Ordering::Acquire));
        if state.is_present() {
            self.cache.prefetch(state.frame());
        }
    }

    /// Returns a page that has contents, without counting an access. It is for another part of a
    /// page that the caller has just found.
    pub fn peek(&self, index: PageIndex) -> Option<Page<'_>> {
        self.pin(self.tree.leaf(&self.cache.nodes, index)?, index, false)
    }

    /// Returns the page, or the right to fill it. Blocks while another thread fills it. May evict
    /// other pages.
    ///
    /// # Errors
    /// [`NoFrame`] if all pages are dirty, reserved or in use.
    pub fn claim(&self, index: PageIndex) -> Result<PageLookup<'_>, NoFrame> {
        loop {
            let leaf = self.leaf_or_insert(index)?;
            let slot = self.cache.nodes.page_slot(leaf, index);
            let state = PageState(slot.word.load(Ordering::Acquire));
            if state.is_filling() {
                self.cache.wait_queues.wait_while(slot, PageState::is_filling);
            } else if let Some(page) = self.pin(leaf, index, true) {
                self.cache.counters.hit();
                return Ok(PageLookup::Present(page));
            } else if let Some(fill) = self.start_filling(slot, index, false)? {
                return Ok(PageLookup::Vacant(fill));
            } else {
                // Another thread has just claimed the page, or is freeing the leaf.
                spin();
            }
        }
    }

    /// Returns the right to fill a page, for a caller that does not need it, such as read-ahead.
    /// Returns `None` if the page has contents, if another thread fills it, or if a short search
    /// finds no page to evict. Does not block on a page.
    pub fn try_claim(&self, index: PageIndex) -> Option<Fill<'_>> {
        let nodes = &self.cache.nodes;
        let leaf = self.tree.leaf(nodes, index).or_else(|| self.tree.leaf_or_insert(nodes, index))?;
        let slot = nodes.page_slot(leaf, index);
        let free = slot.word.load(Ordering::Acquire) == PageState::EMPTY.0;
        if free { self.start_filling(slot, index, true).ok()? } else { None }
    }

    /// Returns the first run of dirty pages at or after `from`, of at most `most` pages.
    #[cfg(any(test, shuttle))]
    pub fn next_dirty(&self, from: PageIndex, most: u32) -> Option<PageRange> {
        let limits = RunLimits { pages: most, run: most, gap: 0 };
        self.dirty_runs(PageRange::starting_at(from), limits).into_iter().next()
    }

    /// Returns whether any of `pages` is dirty.
    pub fn has_dirty(&self, pages: PageRange) -> bool {
        let is_dirty = |slot: Slot<'_>| PageState(slot.word.load(Ordering::Acquire)).dirty() != 0;
        self.scan_dirty(pages, |_, slot| is_dirty(slot).then_some(())).is_some()
    }

    /// Records that a page is dirty, so that searches for dirty pages find it. The caller calls it
    /// after the page became dirty, even if another thread has dirtied the page.
    #[inline]
    pub fn note_dirty(&self, index: PageIndex) {
        self.regions.note(index);
    }

    /// Begins a write-back of a clean page, which is written again with dirty neighbours. Returns
    /// `None` if the page is not clean. The region of the page may be clean already, because
    /// another thread has written back the neighbours.
    pub fn begin_rewrite(&self, index: PageIndex) -> Option<WriteBack<'_>> {
        let write_back = self.peek(index)?.begin_rewrite()?;
        self.note_dirty(index);
        Some(write_back)
    }

    /// Returns true if any of the first `most` pages is dirty, or if there are more pages.
    pub fn may_have_dirty(&self, most: u32) -> bool {
        let mut left = most;
        self.scan(PageRange::ALL, |_, slot| {
            let is_dirty = PageState(slot.word.load(Ordering::Acquire)).dirty() != 0;
            left = left.saturating_sub(1);
            (is_dirty || left == 0).then_some(())
        })
        .is_some()
    }

    /// Returns the pages from the first to the last one of `pages` that is dirty or under
    /// write-back, or an empty range if none is.
    pub fn dirty_span(&self, pages: PageRange) -> PageRange {
        let mut span = pages.take(0);
        let (mut visited, mut dirty) = (RegionSet::default(), RegionSet::default());
        self.scan_dirty(pages, |index, slot| {
            visited.insert(index);
            if PageState(slot.word.load(Ordering::Acquire)).counts_as_dirty() {
                dirty.insert(index);
                let start = if span.is_empty() { index } else { span.start() };
                span = PageRange::new(start, index + 1);
            }
            None::<()>
        });
        if pages == PageRange::ALL {
            self.regions.check(visited.without(&dirty), |region| self.has_dirty_in(region));
        }
        span
    }

    /// Returns true if a page of the region counts as dirty.
    fn has_dirty_in(&self, region: Region) -> bool {
        let nodes = &self.cache.nodes;
        let mut from = DirtyRegions::leaf_of(region, PageIndex::ZERO);
        while let Some(index) = from {
            let Some((_, first)) = self.tree.next_leaf(nodes, index) else { return false };
            let leaf = PageRange::new(first, first.saturating_add(SLOTS));
            let is_dirty = |slot: Slot<'_>| PageState(slot.word.load(Ordering::Acquire)).counts_as_dirty();
            if first == index && self.scan(leaf, |_, slot| is_dirty(slot).then_some(())).is_some() {
                return true;
            }
            let next = if first == index { first.saturating_add(SLOTS) } else { first };
            from = DirtyRegions::leaf_of(region, next);
        }
        false
    }

    /// Returns true if a unit that begins at or after byte `start` of the file is dirty.
    pub fn has_dirty_from(&self, start: u64) -> bool {
        let (first, within) = self.page_size().locate(start);
        let before = within.div_ceil(self.page_size().unit() as usize);
        let is_dirty = |index: PageIndex, slot: Slot<'_>| {
            let dirty = PageState(slot.word.load(Ordering::Acquire)).dirty();
            dirty >> if index == first { before } else { 0 } != 0
        };
        let pages = PageRange::starting_at(first);
        self.scan_dirty(pages, |index, slot| is_dirty(index, slot).then_some(())).is_some()
    }

    /// Returns the first runs of dirty pages in `pages`, in ascending order. A run begins and ends
    /// with a dirty page and may have clean pages in between.
    pub fn dirty_runs(&self, pages: PageRange, limits: RunLimits) -> DirtyRuns {
        let mut finder = RunFinder::new(limits);
        self.scan_dirty(pages, |index, slot| {
            finder.visit(index, PageState(slot.word.load(Ordering::Acquire)));
            finder.is_full().then_some(())
        });
        finder.runs
    }

    /// Returns the index of the first page with contents at or after `from`.
    #[cfg(any(test, shuttle))]
    pub fn next_present(&self, from: PageIndex) -> Option<PageIndex> {
        let present = |slot: Slot<'_>| PageState(slot.word.load(Ordering::Acquire)).is_present();
        self.scan(PageRange::starting_at(from), |index, slot| present(slot).then_some(index))
    }

    /// Removes pages, dirty or not. Blocks until they are not filled, pinned or under write-back.
    /// Returns the number of units that were reserved. The caller makes sure that no thread claims
    /// pages in the range meanwhile.
    pub fn discard(&self, pages: PageRange) -> u64 {
        let mut reserved = 0;
        self.discard_each(pages, |_, units| reserved += u64::from(units.count_ones()));
        reserved
    }

    /// Like [`discard`](Self::discard). Calls `reserved` with each page that had units reserved,
    /// and these units.
    pub(crate) fn discard_each(&self, pages: PageRange, mut reserved: impl FnMut(PageIndex, u8)) {
        let mut gone: SmallVec<[_; SLOTS as usize]> = SmallVec::new();
        self.scan(pages, |index, slot| {
            if let Some(state) = self.remove(slot) {
                if state.reserved() != 0 {
                    reserved(index, state.reserved());
                }
                gone.push((slot.id, Some(state.frame())));
            }
            if gone.len() == SLOTS as usize {
                self.cache.release(gone.drain(..));
            }
            None::<()>
        });
        if !gone.is_empty() {
            self.cache.release(gone);
        }
    }

    /// Blocks until the write-backs that are under way in `pages` have ended.
    pub fn wait_write_back(&self, pages: PageRange) {
        self.scan_dirty(pages, |_, slot| {
            if PageState(slot.word.load(Ordering::Acquire)).is_in_write_back() {
                self.cache.wait_queues.wait_while(slot, PageState::is_in_write_back);
            }
            None::<()>
        });
    }

    #[inline]
    fn pin(&self, leaf: u32, index: PageIndex, counts: bool) -> Option<Page<'_>> {
        let cache = &*self.cache;
        let slot = cache.nodes.page_slot(leaf, index);
        let ours = || guarded!(Fault::PinUnchecked, cache.nodes.key(leaf) == self.tree.key(index), true);
        // This check is not needed for correctness. It loads the header's cache line while the
        // slot's cache line is being fetched.
        if !ours() {
            return None;
        }
        let pin = |word| PageState(word).pinned(counts).map(|state| state.0);
        // Acquire: this thread sees the contents as they were filled.
        let before = slot.word.update(Ordering::AcqRel, pin).ok()?;
        let page = Page::new(cache, slot, PageState(before));
        // The path may have been old, and the page may belong to another file. A pinned page keeps
        // its leaf's key, so this check is final.
        ours().then_some(page)
    }

    fn leaf_or_insert(&self, index: PageIndex) -> Result<u32, NoFrame> {
        let nodes = &self.cache.nodes;
        if let Some(leaf) = self.tree.leaf(nodes, index) {
            return Ok(leaf);
        }
        loop {
            if let Some(leaf) = self.tree.leaf_or_insert(nodes, index) {
                return Ok(leaf);
            }
            if !self.cache.free_nodes() {
                return Err(NoFrame);
            }
        }
    }

    /// Claims an empty slot. Returns `None` if the slot is not empty, or no longer belongs to this
    /// file.
    fn start_filling(
        &self,
        slot: Slot<'_>,
        index: PageIndex,
        optional: bool,
    ) -> Result<Option<Fill<'_>>, NoFrame> {
        let (cache, key) = (&*self.cache, self.tree.key(index));
        if !cache.nodes.enter(slot.id.node(), key) {
            return Ok(None);
        }
        let slot = cache.nodes.page_slot(slot.id.node(), index);
        if slot.word.compare_exchange(PageState::EMPTY.0, PageState::CLAIMED.0, Ordering::AcqRel).is_err() {
            cache.release([(slot.id, None)]);
            return Ok(None);
        }
        let Some(frame) = cache.allocate_frame(slot.id, key.ghost(slot.id), optional) else {
            cache.wait_queues.update_and_wake(slot, |_| PageState::EMPTY);
            cache.release([(slot.id, None)]);
            return Err(NoFrame);
        };
        cache.counters.missed();
        Ok(Some(Fill::new(cache, slot, key, frame)))
    }

    /// Empties a slot, once its page is not in use. Returns the page's last state, or `None` if the
    /// slot was empty.
    fn remove(&self, slot: Slot<'_>) -> Option<PageState> {
        let take = |word: u64| {
            let held = guarded!(Fault::DiscardHeld, PageState(word).is_in_use());
            (word != PageState::EMPTY.0 && !held).then_some(PageState::EMPTY.0)
        };
        loop {
            match slot.word.update(Ordering::AcqRel, take).map(PageState) {
                Ok(state) => {
                    if state.counts_as_dirty() {
                        self.cache.counters.dirty(-1);
                    }
                    return Some(state);
                }
                Err(0) => return None,
                Err(_) => self.cache.wait_queues.wait_while(slot, PageState::is_in_use),
            }
        }
    }

    /// Like [`scan`](Self::scan), for the leaves that may have dirty pages or pages under
    /// write-back.
    fn scan_dirty<T>(
        &self,
        pages: PageRange,
        mut visit: impl FnMut(PageIndex, Slot<'_>) -> Option<T>,
    ) -> Option<T> {
        let mut from = pages.start();
        while from < pages.end() {
            from = self.regions.next(from)?;
            let (_, first) = self.tree.next_leaf(&self.cache.nodes, from)?;
            if first > from {
                // The region of the next page may be clean.
                from = first;
                continue;
            }
            let leaf = PageRange::new(from, first.saturating_add(SLOTS).min(pages.end()).max(from));
            let found = self.scan(leaf, &mut visit);
            if found.is_some() {
                return found;
            }
            from = first.saturating_add(SLOTS);
        }
        None
    }

    /// Calls `visit` for the slots of all leaves in a range, in ascending order, until it returns a
    /// value.
    fn scan<T>(
        &self,
        pages: PageRange,
        mut visit: impl FnMut(PageIndex, Slot<'_>) -> Option<T>,
    ) -> Option<T> {
        let nodes = &self.cache.nodes;
        let mut from = pages.start();
        while from < pages.end() {
            let (leaf, first) = self.tree.next_leaf(nodes, from)?;
            let start = first.max(from);
            let end = first.saturating_add(SLOTS).min(pages.end());
            from = end.max(from);
            let Some(_entered) = LeafUse::new(&self.cache, leaf, self.tree.key(first)) else { continue };
            let found = PageRange::new(start, end)
                .pages()
                .find_map(|index| visit(index, nodes.page_slot(leaf, index)));
            if found.is_some() {
                return found;
            }
        }
        None
    }
}

impl Drop for FilePages {
    fn drop(&mut self) {
        if cfg!(shuttle) && std::thread::panicking() {
            return;
        }
        self.discard(PageRange::ALL);
        self.tree.clear(&self.cache.nodes);
        self.cache.remove_tree(&self.tree);
    }
}

/// Prevents a leaf from being freed until this guard is dropped.
struct LeafUse<'a> {
    cache: &'a PageCache,
    leaf: u32,
}

impl<'a> LeafUse<'a> {
    fn new(cache: &'a PageCache, leaf: u32, key: LeafKey) -> Option<Self> {
        // The guard is constructed only on success, because dropping it leaves the leaf.
        cache.nodes.enter(leaf, key).then(|| Self { cache, leaf })
    }
}

impl Drop for LeafUse<'_> {
    fn drop(&mut self) {
        self.cache.leave(self.leaf);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::small;
    use super::*;

    #[test]
    fn a_leaf_of_other_pages_is_not_entered() {
        let cache = small();
        let file = FilePages::new(&cache);
        let Ok(PageLookup::Vacant(fill)) = file.claim(PageIndex(7)) else { panic!("the page is missing") };
        drop(fill.finish(1, 0));
        let leaf = file.tree.leaf(&cache.nodes, PageIndex(7)).unwrap();
        assert!(LeafUse::new(&cache, leaf, file.tree.key(PageIndex(700))).is_none());
        assert!(!file.tree.prune(&cache.nodes, PageIndex(7)), "a leaf that is used is freed");
        assert_eq!(file.next_dirty(PageIndex::ZERO, 1), Some(PageRange::of_page(PageIndex(7))));
    }

    #[test]
    fn the_dirty_span_includes_pages_under_write_back() {
        let cache = small();
        let file = FilePages::new(&cache);
        for (index, dirty) in [(3, 0), (5, 1), (6, 0), (70, 1), (90, 0)] {
            let Ok(PageLookup::Vacant(fill)) = file.claim(PageIndex(index)) else {
                panic!("the page is missing")
            };
            drop(fill.finish(dirty, 0));
        }
        assert_eq!(file.dirty_span(PageRange::ALL), (5..71).into());
        assert_eq!(file.dirty_span((6..70).into()).len(), 0);
        let under_way = file.peek(PageIndex(70)).unwrap().begin_write_back().unwrap();
        assert_eq!(file.dirty_span((6..90).into()), (70..71).into());
        under_way.finish(true);
        assert_eq!(file.dirty_span(PageRange::ALL), (5..6).into());
    }

    #[test]
    fn units_count_as_dirty_from_where_they_begin() {
        let cache = small();
        let file = FilePages::new(&cache);
        let (page, unit) = (cache.page_size().bytes() as u64, u64::from(cache.page_size().unit()));
        let Ok(PageLookup::Vacant(fill)) = file.claim(PageIndex(7)) else { panic!("the page is missing") };
        drop(fill.finish(0b0110, 0));
        let from = [0, 7 * page, 7 * page + 2 * unit, 7 * page + 2 * unit + 1, 8 * page, u64::MAX];
        assert_eq!(from.map(|start| file.has_dirty_from(start)), [true, true, true, false, false, false]);
    }
}
