//! Property test: one thread performs random operations on a small cache, and compares each result
//! with a model.

use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;

use super::*;

const FILES: usize = 3;

#[derive(Clone, Debug)]
enum Step {
    /// Claims a page, fills it or changes a byte, and marks units dirty, with a reservation.
    Write(usize, PageIndex, u8, u8),
    Get(usize, PageIndex),
    GiveUp(usize, PageIndex),
    /// Writes back the first dirty page at or after an index.
    WriteBack(usize, PageIndex, bool),
    Discard(usize, PageIndex, u32),
    Reopen(usize),
}

/// Returns indices that are close together and far apart.
fn index() -> impl Strategy<Value = PageIndex> {
    let index = prop_oneof![0..100_u32, (0..40_u32).prop_map(|nth| nth * 4096), Just(u32::MAX - 1)];
    index.prop_map(PageIndex)
}

fn step() -> impl Strategy<Value = Step> {
    let file = 0..FILES;
    prop_oneof![
        6 => (file.clone(), index(), any::<u8>(), 0..16_u8).prop_map(|(f, i, b, d)| Step::Write(f, i, b, d)),
        4 => (file.clone(), index()).prop_map(|(f, i)| Step::Get(f, i)),
        1 => (file.clone(), index()).prop_map(|(f, i)| Step::GiveUp(f, i)),
        4 => (file.clone(), index(), any::<bool>()).prop_map(|(f, i, ok)| Step::WriteBack(f, i, ok)),
        1 => (file.clone(), index(), 0..5000_u32).prop_map(|(f, i, n)| Step::Discard(f, i, n)),
        1 => file.prop_map(Step::Reopen),
    ]
}

/// The pages that must be present: the dirty pages of a file, with their byte, dirty and reserved
/// units.
type Dirty = BTreeMap<PageIndex, (u8, u8)>;

/// A file, the pages of it that must be in the cache, and the contents of its device.
struct CheckedFile {
    pages: FilePages,
    dirty: Dirty,
    content: HashMap<PageIndex, u8>,
}

impl CheckedFile {
    fn new(cache: &Arc<PageCache>) -> Self {
        Self { pages: FilePages::new(cache), dirty: Dirty::new(), content: HashMap::new() }
    }

    fn content(&self, index: PageIndex) -> u8 {
        self.content.get(&index).copied().unwrap_or(0)
    }

    fn write(&mut self, index: PageIndex, byte: u8, units: u8) {
        let page = match self.pages.claim(index) {
            Ok(PageLookup::Present(page)) => page,
            Ok(PageLookup::Vacant(fill)) => {
                assert!(!self.dirty.contains_key(&index), "a dirty page is gone");
                fill.write(0, &[self.content(index)]);
                fill.finish(0, 0)
            }
            Err(NoFrame) => return,
        };
        let before = self.dirty.get(&index).copied().unwrap_or((0, 0));
        assert_eq!(read(&page), self.content(index));
        if units != 0 {
            page.write(0, &[byte]);
            self.content.insert(index, byte);
            assert_eq!(page.mark_dirty(units, units & 5), before);
            self.pages.note_dirty(index);
            self.dirty.insert(index, (before.0 | units, before.1 | units & 5));
        }
    }

    fn get(&self, index: PageIndex) {
        match self.pages.get(index) {
            Some(page) => assert_eq!(read(&page), self.content(index)),
            None => assert!(!self.dirty.contains_key(&index), "a dirty page is gone"),
        }
    }

    fn write_back(&mut self, from: PageIndex, ok: bool) {
        let first = self.dirty.range(from..).find(|(_, marks)| marks.0 != 0).map(|(&index, _)| index);
        assert_eq!(self.pages.next_dirty(from, 1).map(PageRange::start), first);
        let Some(index) = first else { return };
        let (dirty, reserved) = self.dirty[&index];
        let write_back = self.pages.get(index).unwrap().begin_write_back().unwrap();
        assert_eq!((write_back.dirty(), write_back.reserved()), (dirty, reserved));
        write_back.finish(ok);
        if ok {
            self.dirty.remove(&index);
        }
    }

    /// Discards pages, dirty or not. Their next fill reads the device, without the discarded
    /// changes.
    fn discard(&mut self, from: PageIndex, len: u32) {
        let range = from..from.saturating_add(len);
        let reserved: u32 = self.dirty.range(range.clone()).map(|(_, marks)| marks.1.count_ones()).sum();
        assert_eq!(self.pages.discard(PageRange::new(range.start, range.end)), u64::from(reserved));
        self.dirty.retain(|index, _| !range.contains(index));
        assert!(self.pages.next_present(range.start).is_none_or(|next| next >= range.end));
    }
}

fn read(page: &Page<'_>) -> u8 {
    let mut byte = [0];
    page.read(0, &mut byte);
    byte[0]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn a_cache_does_as_its_model(steps in prop::collection::vec(step(), 1..300)) {
        let cache = super::tests::small();
        let mut files: Vec<_> = (0..FILES).map(|_| CheckedFile::new(&cache)).collect();
        for step in steps {
            match step {
                Step::Write(file, index, byte, units) => files[file].write(index, byte, units),
                Step::Get(file, index) => files[file].get(index),
                Step::GiveUp(file, index) => drop(files[file].pages.try_claim(index)),
                Step::WriteBack(file, from, ok) => files[file].write_back(from, ok),
                Step::Discard(file, from, len) => files[file].discard(from, len),
                Step::Reopen(file) => files[file] = CheckedFile::new(&cache),
            }
            let dirty = files.iter().flat_map(|file| file.dirty.values()).filter(|marks| marks.0 != 0).count();
            prop_assert_eq!(cache.dirty_pages(), dirty as u64);
            prop_assert!(cache.stats().pages <= cache.capacity());
        }
        drop(files);
        let stats = cache.stats();
        prop_assert_eq!((stats.pages, stats.nodes, stats.dirty), (0, 0, 0));
    }
}
