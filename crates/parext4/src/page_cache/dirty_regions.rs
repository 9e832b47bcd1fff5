//! The parts of a file that may have dirty pages. A search for dirty pages skips all other parts.
//!
//! The leaves of the tree whose numbers are equal modulo [`REGIONS`] form one region. So the map
//! has a constant size, and each leaf of a file of up to 256 MiB has a region of its own. A small
//! file has no map, and all of its pages may be dirty.
//!
//! | state | meaning | to |
//! |---|---|---|
//! | clean | no page counts as dirty | dirty: a writer has dirtied a page |
//! | dirty | a page may count as dirty | checking: a search has found no such page |
//! | checking | a page may count as dirty, and a thread searches the region again | clean: the search has found no such page; dirty: it has found one, or a writer has dirtied a page |
//!
//! Invariant: a page that counts as dirty lies in a region that is not clean, once the writer that
//! has dirtied it has called [`DirtyRegions::note`]. A writer also calls it for a page that another
//! thread has dirtied, because that thread may not have called it yet. A thread that rewrites a
//! clean page calls it too, because another thread may have written back the dirty neighbours. A
//! page counts as dirty while it is under write-back, so its region is not clean if the write-back
//! fails.

// once_cell's memory orders are visible to ThreadSanitizer, unlike those inside
// `std::sync::OnceLock`.
use once_cell::sync::OnceCell;

use super::nodes::{LEVEL, SLOTS};
use super::page_index::PageIndex;
use crate::fault::{Fault, guarded};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

/// Number of regions.
const REGIONS: u32 = WORDS as u32 * PER_WORD;
const WORDS: usize = 32;
/// Regions whose states share a word, two bits each.
const PER_WORD: u32 = 32;
/// Number of leaves at the start of a file that may always have dirty pages, so that a small file
/// has no map.
const UNTRACKED: u32 = 4;

const CLEAN: u64 = 0;
const DIRTY: u64 = 1;
const CHECKING: u64 = 2;
const MASK: u64 = 3;

/// The states of the regions of one file.
#[derive(Debug, Default)]
pub(super) struct DirtyRegions(OnceCell<Box<Map>>);

#[derive(Debug, Default)]
struct Map {
    words: [AtomicU64; WORDS],
    /// True while a thread checks regions. A second thread could begin a check of the same region
    /// after a writer has dirtied a page, and the first thread would end that check with the result
    /// of its own, earlier search.
    checked: AtomicBool,
}

/// The number of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Region(u32);

impl Region {
    fn of_leaf(leaf: u32) -> Self {
        Self(leaf % REGIONS)
    }

    fn word(self) -> usize {
        (self.0 / PER_WORD) as usize
    }

    fn shift(self) -> u32 {
        self.0 % PER_WORD * 2
    }
}

/// A set of regions, for one search.
#[derive(Debug, Default)]
pub(super) struct RegionSet([u32; WORDS]);

impl RegionSet {
    /// Adds the region of a page.
    pub fn insert(&mut self, index: PageIndex) {
        let region = Region::of_leaf(index.get() >> LEVEL);
        self.0[region.word()] |= 1 << (region.0 % PER_WORD);
    }

    /// Returns the regions that `other` does not have.
    pub fn without(&self, other: &Self) -> impl Iterator<Item = Region> + use<> {
        let words: [u32; WORDS] = std::array::from_fn(|nth| self.0[nth] & !other.0[nth]);
        (0..REGIONS).map(Region).filter(move |region| words[region.word()] & 1 << (region.0 % PER_WORD) != 0)
    }
}

impl DirtyRegions {
    /// Marks the region of page `index` as dirty. The page is dirty already.
    pub fn note(&self, index: PageIndex) {
        let leaf = index.get() >> LEVEL;
        if leaf < UNTRACKED {
            return;
        }
        let region = Region::of_leaf(leaf);
        let word = &self.0.get_or_init(Box::default).words[region.word()];
        // This fence pairs with the fence in `check`: either the check sees the dirty page, or this
        // load sees that the region is being checked.
        fence(Ordering::SeqCst);
        if word.load(Ordering::Acquire) >> region.shift() & MASK != DIRTY {
            let dirty = |word: u64| Some(word & !(MASK << region.shift()) | DIRTY << region.shift());
            let _ = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, dirty);
        }
    }

    /// Returns the first page at or after `from` whose region is not clean.
    pub fn next(&self, from: PageIndex) -> Option<PageIndex> {
        let first = from.get() >> LEVEL;
        if first < UNTRACKED {
            return Some(from);
        }
        let words = &self.0.get()?.words;
        let (mut leaf, end) = (first, first.saturating_add(REGIONS + PER_WORD));
        while leaf < end {
            let region = Region::of_leaf(leaf);
            let states = words[region.word()].load(Ordering::Acquire) >> region.shift();
            if states != 0 {
                let found = leaf + states.trailing_zeros() / 2;
                let index = u64::from(found) << LEVEL;
                return u32::try_from(index).ok().map(|index| from.max(PageIndex(index)));
            }
            leaf += PER_WORD - region.0 % PER_WORD;
        }
        None
    }

    /// Marks each of `regions` as clean unless `has_dirty` finds a page in it that counts as dirty.
    /// Does nothing if another thread checks regions of this file.
    pub fn check(&self, regions: impl Iterator<Item = Region>, has_dirty: impl Fn(Region) -> bool) {
        let Some(map) = self.0.get() else { return };
        if guarded!(Fault::RegionChecksOverlap, map.checked.swap(true, Ordering::Acquire)) {
            return;
        }
        regions.for_each(|region| map.check(region, &has_dirty));
        map.checked.store(false, Ordering::Release);
    }

    /// Returns the first leaf of a region at or after `leaf`, by the number of its first page.
    pub fn leaf_of(region: Region, leaf: PageIndex) -> Option<PageIndex> {
        let number = leaf.get().div_ceil(SLOTS);
        let skip = (region.0 + REGIONS - number % REGIONS) % REGIONS;
        let first = u64::from(number + skip) << LEVEL;
        u32::try_from(first).ok().map(PageIndex)
    }
}

impl Map {
    fn check(&self, region: Region, has_dirty: impl Fn(Region) -> bool) {
        let word = &self.words[region.word()];
        let change = |from: u64, to: u64| {
            let changed = move |word: u64| {
                let is_from = word >> region.shift() & MASK == from;
                is_from.then_some(word & !(MASK << region.shift()) | to << region.shift())
            };
            word.fetch_update(Ordering::AcqRel, Ordering::Acquire, changed).is_ok()
        };
        let meanwhile = guarded!(Fault::RegionCleanWhileChecked, CHECKING, CLEAN);
        if change(DIRTY, meanwhile) {
            fence(Ordering::SeqCst);
            let dirty = guarded!(Fault::RegionUnchecked, has_dirty(region), false);
            change(meanwhile, if dirty { DIRTY } else { CLEAN });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::iter::once;
    use std::sync::mpsc::channel;
    use std::thread::scope;

    use super::*;

    fn page(leaf: u32) -> PageIndex {
        PageIndex(leaf << LEVEL)
    }

    #[test]
    fn the_next_page_is_in_a_region_that_is_not_clean() {
        let regions = DirtyRegions::default();
        assert_eq!(regions.next(page(2) + 7), Some(page(2) + 7), "a small file");
        assert_eq!(regions.next(page(4)), None);
        regions.note(page(2));
        assert_eq!(regions.next(page(4)), None);
        regions.note(page(9) + 5);
        assert_eq!(regions.next(page(4)), Some(page(9)));
        assert_eq!(regions.next(page(9) + 3), Some(page(9) + 3));
        // The leaf of the next turn belongs to the same region.
        assert_eq!(regions.next(page(10)), Some(page(9 + REGIONS)));
        regions.note(page(40));
        assert_eq!(regions.next(page(10)), Some(page(40)));
        assert_eq!(regions.next(page(41 + REGIONS)), Some(page(9 + 2 * REGIONS)));
    }

    #[test]
    fn a_region_is_clean_after_a_check_that_finds_nothing() {
        let regions = DirtyRegions::default();
        let region = Region::of_leaf(9);
        regions.note(page(9));
        regions.check(once(region), |_| true);
        assert_eq!(regions.next(page(8)), Some(page(9)));
        regions.check(once(region), |_| {
            assert_eq!(regions.next(page(8)), Some(page(9)), "checked");
            regions.note(page(9 + REGIONS));
            false
        });
        assert_eq!(regions.next(page(8)), Some(page(9)), "dirtied meanwhile");
        regions.check(once(region), |_| false);
        assert_eq!(regions.next(page(8)), None);
    }

    /// The first check has found no dirty page, and ends while a second thread checks the region,
    /// in which a page is dirty by then.
    #[test]
    fn a_check_does_not_end_the_check_of_another_thread() {
        let regions = DirtyRegions::default();
        let region = Region::of_leaf(9);
        regions.note(page(9));
        let (found, has_found) = channel();
        let (end, may_end) = channel();
        scope(|scope| {
            // A receiver is not shared by threads, and `check` calls the closure once.
            let may_end = std::sync::Mutex::new(may_end);
            let regions = &regions;
            let first = scope.spawn(move || {
                regions.check(once(region), |_| {
                    found.send(()).unwrap();
                    may_end.lock().unwrap().recv().unwrap()
                });
            });
            has_found.recv().unwrap();
            regions.note(page(9));
            let first = std::cell::Cell::new(Some(first));
            let end_first = || {
                end.send(false).unwrap();
                first.take().unwrap().join().unwrap();
            };
            regions.check(once(region), |_| {
                end_first();
                assert_eq!(regions.next(page(8)), Some(page(9)), "ended by the first thread");
                true
            });
            if let Some(first) = first.take() {
                end.send(false).unwrap();
                first.join().unwrap();
            }
        });
        assert_eq!(regions.next(page(8)), Some(page(9)));
    }

    #[test]
    fn a_region_has_every_leaf_of_its_turns() {
        let region = Region::of_leaf(9);
        assert_eq!(DirtyRegions::leaf_of(region, page(0)), Some(page(9)));
        assert_eq!(DirtyRegions::leaf_of(region, page(9)), Some(page(9)));
        assert_eq!(DirtyRegions::leaf_of(region, page(9) + 1), Some(page(9 + REGIONS)));
        assert_eq!(DirtyRegions::leaf_of(region, PageIndex::END), None);
    }

    #[test]
    fn a_set_of_regions_leaves_out_those_of_another() {
        let (mut visited, mut dirty) = (RegionSet::default(), RegionSet::default());
        [5, 9, 70].into_iter().for_each(|leaf| visited.insert(page(leaf)));
        dirty.insert(page(9 + REGIONS));
        assert_eq!(visited.without(&dirty).collect::<Vec<_>>(), [5, 70].map(Region::of_leaf));
    }
}
