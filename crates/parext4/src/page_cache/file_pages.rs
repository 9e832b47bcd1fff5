//! The pages of one file.

use std::ops::Range;

use smallvec::SmallVec;

use super::nodes::{Key, SLOTS, Slot};
use super::page::{Fill, Page};
use super::runs::{DirtyRuns, RunFinder, RunLimits};
use super::tree::Tree;
use super::word::State;
use super::{NoFrame, PageCache};
use crate::fault::{Fault, planted};
use crate::sync::atomic::Ordering;
use crate::sync::{Arc, spin};

/// The pages of one file, by index: the offset in pages. What is left when this is dropped is discarded.
#[derive(Debug)]
pub struct FilePages {
    cache: Arc<PageCache>,
    tree: Arc<Tree>,
}

/// What [`FilePages::claim`] gives.
#[derive(Debug)]
pub enum PageLookup<'a> {
    /// The page is there.
    Present(Page<'a>),
    /// It is for the caller to fill.
    Vacant(Fill<'a>),
}

impl FilePages {
    /// No pages yet.
    #[must_use]
    pub fn new(cache: &Arc<PageCache>) -> Self {
        Self { cache: Arc::clone(cache), tree: cache.new_tree() }
    }

    /// A page that is there and filled. Never waits.
    #[inline]
    pub fn get(&self, index: u32) -> Option<Page<'_>> {
        let leaf = self.tree.leaf(&self.cache.nodes, index)?;
        let page = self.pin(leaf, index, true)?;
        self.cache.counters.hit();
        Some(page)
    }

    /// Has the processor bring near what [`get`](Self::get) will find, while the caller sees to the right to look at it.
    #[inline]
    pub fn prefetch(&self, index: u32) {
        let Some(leaf) = self.tree.leaf(&self.cache.nodes, index) else { return };
        // Acquire: the memory of the frame is there.
        let state = State(self.cache.nodes.slot(leaf, index).word.load(Ordering::Acquire));
        if state.is_present() {
            self.cache.prefetch(state.frame());
        }
    }

    /// The same; it does not count as an access. For another part of a page that was just found.
    pub fn peek(&self, index: u32) -> Option<Page<'_>> {
        self.pin(self.tree.leaf(&self.cache.nodes, index)?, index, false)
    }

    /// The page, or the right to fill it. Waits while another fills it.
    ///
    /// # Errors
    /// [`NoFrame`] if all pages are dirty, reserved or in use.
    pub fn claim(&self, index: u32) -> Result<PageLookup<'_>, NoFrame> {
        loop {
            let leaf = self.provide_leaf(index)?;
            let slot = self.cache.nodes.slot(leaf, index);
            let state = State(slot.word.load(Ordering::Acquire));
            if state.is_filling() {
                self.cache.parking.sleep_while(slot, State::is_filling);
            } else if let Some(page) = self.pin(leaf, index, true) {
                self.cache.counters.hit();
                return Ok(PageLookup::Present(page));
            } else if let Some(fill) = self.start_filling(slot, index, false)? {
                return Ok(PageLookup::Vacant(fill));
            } else {
                // Another thread has just claimed the page, or is taking the leaf out of the tree.
                spin();
            }
        }
    }

    /// The right to fill the page, if it is not there, nobody else fills it, and there is a frame for it without
    /// evicting what is in use. For reading ahead. Never waits for a page.
    pub fn try_claim(&self, index: u32) -> Option<Fill<'_>> {
        let nodes = &self.cache.nodes;
        let leaf = self.tree.leaf(nodes, index).or_else(|| self.tree.provide(nodes, index))?;
        let slot = nodes.slot(leaf, index);
        let free = slot.word.load(Ordering::Acquire) == State::EMPTY.0;
        if free { self.start_filling(slot, index, true).ok()? } else { None }
    }

    /// Returns the first run of dirty pages at or after `from`, of at most `most` pages.
    #[cfg(any(test, shuttle))]
    pub fn next_dirty(&self, from: u32, most: u32) -> Option<Range<u32>> {
        let limits = RunLimits { pages: most, run: most, gap: 0 };
        self.dirty_runs(from..u32::MAX, limits).into_iter().next()
    }

    /// Returns whether any of `pages` is dirty.
    pub fn has_dirty(&self, pages: Range<u32>) -> bool {
        let is_dirty = |slot: Slot<'_>| State(slot.word.load(Ordering::Acquire)).dirty() != 0;
        self.scan(pages, |_, slot| is_dirty(slot).then_some(())).is_some()
    }

    /// Returns the first runs of dirty pages in `pages`, in ascending order. A run begins and ends with a dirty page and may
    /// have clean ones between.
    pub fn dirty_runs(&self, pages: Range<u32>, limits: RunLimits) -> DirtyRuns {
        let mut finder = RunFinder::new(limits);
        self.scan(pages, |index, slot| {
            finder.visit(index, State(slot.word.load(Ordering::Acquire)));
            finder.is_full().then_some(())
        });
        finder.runs
    }

    /// The first page at or behind `from`.
    #[cfg(any(test, shuttle))]
    pub fn next_present(&self, from: u32) -> Option<u32> {
        let present = |slot: Slot<'_>| State(slot.word.load(Ordering::Acquire)).is_present();
        self.scan(from..u32::MAX, |index, slot| present(slot).then_some(index))
    }

    /// Drops pages, dirty or not; waits for their fillings, write-backs and pins. Returns how many units had a
    /// reservation. The caller sees to it that no pages come into being there.
    pub fn discard(&self, pages: Range<u32>) -> u64 {
        let mut reserved = 0;
        let mut gone: SmallVec<[_; SLOTS as usize]> = SmallVec::new();
        self.scan(pages, |_, slot| {
            if let Some(state) = self.remove(slot) {
                reserved += u64::from(state.reserved().count_ones());
                gone.push((slot.place, Some(state.frame())));
            }
            if gone.len() == SLOTS as usize {
                self.cache.release(gone.drain(..));
            }
            None::<()>
        });
        if !gone.is_empty() {
            self.cache.release(gone);
        }
        reserved
    }

    /// Waits for the write-backs that are under way.
    pub fn wait_write_back(&self, pages: Range<u32>) {
        self.scan(pages, |_, slot| {
            if State(slot.word.load(Ordering::Acquire)).is_written_back() {
                self.cache.parking.sleep_while(slot, State::is_written_back);
            }
            None::<()>
        });
    }

    #[inline]
    fn pin(&self, leaf: u32, index: u32, counts: bool) -> Option<Page<'_>> {
        let cache = &*self.cache;
        let slot = cache.nodes.slot(leaf, index);
        let ours = || cache.nodes.key(leaf) == self.tree.key(index) || planted(Fault::PinUnchecked);
        // Not needed, but it brings the header's line while the slot's comes.
        if !ours() {
            return None;
        }
        let pin = |word| State(word).pinned(counts).map(|state| state.0);
        // Acquire: the contents are as they were filled.
        let before = slot.word.update(Ordering::AcqRel, pin).ok()?;
        let page = Page::new(cache, slot, State(before));
        // The path may have been an old one, and the page another's. Now that it is pinned it stays what it is.
        ours().then_some(page)
    }

    fn provide_leaf(&self, index: u32) -> Result<u32, NoFrame> {
        let nodes = &self.cache.nodes;
        if let Some(leaf) = self.tree.leaf(nodes, index) {
            return Ok(leaf);
        }
        loop {
            if let Some(leaf) = self.tree.provide(nodes, index) {
                return Ok(leaf);
            }
            if !self.cache.free_nodes() {
                return Err(NoFrame);
            }
        }
    }

    /// Claims an empty slot. `None` if it is not that any more.
    fn start_filling(&self, slot: Slot<'_>, index: u32, gently: bool) -> Result<Option<Fill<'_>>, NoFrame> {
        let (cache, key) = (&*self.cache, self.tree.key(index));
        if !cache.nodes.enter(slot.place.node(), key) {
            return Ok(None);
        }
        let slot = cache.nodes.slot(slot.place.node(), index);
        if slot.word.compare_exchange(State::EMPTY.0, State::CLAIMED.0, Ordering::AcqRel).is_err() {
            cache.release([(slot.place, None)]);
            return Ok(None);
        }
        let Some(frame) = cache.take_frame(slot.place, key.ghost(slot.place), gently) else {
            cache.parking.end(slot, |_| State::EMPTY);
            cache.release([(slot.place, None)]);
            return Err(NoFrame);
        };
        cache.counters.missed();
        Ok(Some(Fill::new(cache, slot, key, frame)))
    }

    /// Takes the page out, once nobody holds it. Returns what it was.
    fn remove(&self, slot: Slot<'_>) -> Option<State> {
        let take = |word: u64| {
            let held = State(word).is_held() && !planted(Fault::DiscardHeld);
            (word != State::EMPTY.0 && !held).then_some(State::EMPTY.0)
        };
        loop {
            match slot.word.update(Ordering::AcqRel, take).map(State) {
                Ok(state) => {
                    if state.is_unsettled() {
                        self.cache.counters.dirty(-1);
                    }
                    return Some(state);
                }
                Err(0) => return None,
                Err(_) => self.cache.parking.sleep_while(slot, State::is_held),
            }
        }
    }

    /// Goes through the slots of all leaves in a range, until `visit` returns something.
    fn scan<T>(&self, pages: Range<u32>, mut visit: impl FnMut(u32, Slot<'_>) -> Option<T>) -> Option<T> {
        let nodes = &self.cache.nodes;
        let mut from = pages.start;
        while from < pages.end {
            let (leaf, first) = self.tree.next_leaf(nodes, from)?;
            let start = first.max(from);
            let end = first.saturating_add(SLOTS).min(pages.end);
            from = end.max(from);
            let Some(_entered) = Entered::new(&self.cache, leaf, self.tree.key(first)) else { continue };
            let found = (start..end).find_map(|index| visit(index, nodes.slot(leaf, index)));
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
        self.discard(0..u32::MAX);
        self.tree.clear(&self.cache.nodes);
        self.cache.forget_tree(&self.tree);
    }
}

/// A leaf that is not freed meanwhile.
struct Entered<'a> {
    cache: &'a PageCache,
    leaf: u32,
}

impl<'a> Entered<'a> {
    fn new(cache: &'a PageCache, leaf: u32, key: Key) -> Option<Self> {
        // Made only then: dropping one leaves the leaf.
        cache.nodes.enter(leaf, key).then(|| Self { cache, leaf })
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.cache.leave(self.leaf);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::small;
    use super::*;

    #[test]
    fn who_finds_the_leaf_of_other_pages_leaves_it_as_it_is() {
        let cache = small();
        let file = FilePages::new(&cache);
        let Ok(PageLookup::Vacant(fill)) = file.claim(7) else { panic!("nobody has it") };
        drop(fill.finish(1, 0));
        let leaf = file.tree.leaf(&cache.nodes, 7).unwrap();
        assert!(Entered::new(&cache, leaf, file.tree.key(700)).is_none());
        assert!(!file.tree.prune(&cache.nodes, 7), "a leaf that is used is freed");
        assert_eq!(file.next_dirty(0, 1), Some(7..8));
    }
}
