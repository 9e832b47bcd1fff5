//! The page cache, alone. If a thread is never woken, the scheduler reports a deadlock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering::SeqCst};

use parext4::fault::Fault;
use parext4::models::{FilePages, Page, PageCache, PageIndex, PageLookup, PageRange, page_cache};
use shuttle::thread::{JoinHandle, spawn, yield_now};

use super::support::{random, search, stopping, yield_randomly};

/// The smallest number of nodes with which a tree can grow.
const FEW_NODES: u32 = 10;

/// Checks `model` under many schedules, then that it fails with each of `faults`.
fn check(iterations: usize, faults: &[Fault], model: fn()) {
    search(iterations, faults, |iterations| {
        random(iterations, model);
        stopping(iterations, model);
    });
}

fn file(cache: &Arc<PageCache>) -> Arc<FilePages> {
    Arc::new(FilePages::new(cache))
}

fn with(file: &Arc<FilePages>, work: impl FnOnce(&FilePages) + Send + 'static) -> JoinHandle<()> {
    let file = Arc::clone(file);
    spawn(move || work(&file))
}

fn join(threads: impl IntoIterator<Item = JoinHandle<()>>) {
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

fn byte(page: &Page<'_>) -> u8 {
    let mut byte = [0];
    page.read(100, &mut byte);
    byte[0]
}

/// Returns the page, filled with `byte` if it is not in the cache.
fn use_page(file: &FilePages, index: u32, byte: u8) -> Option<Page<'_>> {
    match file.claim(PageIndex(index)).ok()? {
        PageLookup::Present(page) => Some(page),
        PageLookup::Vacant(fill) => {
            fill.write(100, &[0xee]);
            yield_now();
            fill.write(100, &[byte]);
            Some(fill.finish(0, 0))
        }
    }
}

#[test]
fn a_page_is_filled_by_one_thread_while_the_rest_wait() {
    check(3000, &[Fault::WaitersNotWoken, Fault::WakeTooEarly], || {
        let file = file(&page_cache(4, FEW_NODES));
        let filled = Arc::new(AtomicUsize::new(0));
        let claim = |gives_up: bool| {
            let filled = Arc::clone(&filled);
            with(&file, move |file| match file.claim(PageIndex(7)) {
                Ok(PageLookup::Vacant(fill)) if gives_up => {
                    fill.write(100, &[0xee]);
                    drop(fill);
                }
                Ok(PageLookup::Vacant(fill)) => {
                    assert_eq!(filled.fetch_add(1, SeqCst), 0, "the page is filled twice");
                    yield_now();
                    fill.write(100, &[7]);
                    drop(fill.finish(0, 0));
                }
                Ok(PageLookup::Present(page)) => assert_eq!(byte(&page), 7, "the page is not filled"),
                Err(error) => panic!("{error:?}"),
            })
        };
        join([claim(false), claim(true), claim(false)]);
        assert_eq!(filled.load(SeqCst), 1);
        assert_eq!(byte(&file.get(PageIndex(7)).expect("it was filled")), 7);
    });
}

#[test]
fn a_page_in_use_stays() {
    check(2000, &[Fault::EvictPinned], || {
        let file = file(&page_cache(2, FEW_NODES));
        let user = |first: u8| {
            with(&file, move |file| {
                for index in [first, first + 1, first] {
                    let Some(page) = use_page(file, index.into(), index) else { continue };
                    yield_now();
                    assert_eq!(byte(&page), index, "the frame belongs to another page");
                }
            })
        };
        join([user(0), user(10), user(1)]);
    });
}

#[test]
fn a_dirty_page_stays() {
    check(2000, &[Fault::EvictDirty], || {
        let file = file(&page_cache(3, FEW_NODES));
        let writer = with(&file, |file| {
            let Some(page) = use_page(file, 0, 0) else { return };
            page.mark_dirty(1, 0);
            page.write(100, &[77]);
            drop(page);
            yield_now();
            let page = file.get(PageIndex(0)).expect("a dirty page stays");
            assert_eq!(byte(&page), 77, "written data is lost");
        });
        let reader = |first: u8| {
            with(&file, move |file| {
                (first..first + 3).for_each(|index| drop(use_page(file, index.into(), index)));
            })
        };
        join([writer, reader(10), reader(20)]);
    });
}

/// Returns the byte that fills page `index` of a file.
fn mark(file: u8, index: u32) -> u8 {
    file * 16 + u8::try_from(index).expect("a small number")
}

/// Uses pages in order, fills missing ones, and reads them again. Does not yield: a thread that is
/// stopped in the middle of a step must stay there while other threads complete all of their steps.
fn use_marked(file: &FilePages, number: u8, pages: &[u32]) {
    for &index in pages {
        let page = match file.claim(PageIndex(index)) {
            Ok(PageLookup::Present(page)) => page,
            Ok(PageLookup::Vacant(fill)) => {
                fill.write(100, &[mark(number, index)]);
                fill.finish(0, 0)
            }
            Err(_) => continue,
        };
        assert_eq!(byte(&page), mark(number, index), "the page belongs to another file");
        let again = file.get(PageIndex(index)).expect("a page in use stays");
        assert_eq!(byte(&again), mark(number, index), "the page belongs to another file");
    }
}

#[test]
fn a_freed_leaf_is_reused_by_another_file() {
    let faults = [Fault::PinUnchecked, Fault::EnterFreedLeaf, Fault::FreeUsedLeaf, Fault::LeafNamedFirst];
    check(4000, &faults, || {
        let cache = page_cache(3, FEW_NODES);
        // There are enough nodes for one tree only, so a file that needs a leaf takes the other
        // file's.
        let files = [file(&cache), file(&cache)];
        let user = |number: u8, pages: &'static [u32]| {
            with(&files[usize::from(number)], move |file| use_marked(file, number, pages))
        };
        join([user(0, &[0, 1]), user(1, &[1, 0]), user(0, &[0])]);
        for (number, file) in (0..).zip(&files) {
            for index in 0..2 {
                if let Some(page) = file.get(PageIndex(index)) {
                    assert_eq!(byte(&page), mark(number, index), "the page belongs to another file");
                }
            }
        }
        drop(files);
        let stats = cache.stats();
        assert_eq!((stats.pages, stats.nodes), (0, 0), "the cache is empty");
    });
}

/// Writes a page back to `device`.
fn write_back(file: &FilePages, device: &AtomicU8) {
    let Some(page) = file.get(PageIndex(0)) else { return };
    let Some(write_back) = page.begin_write_back() else { return };
    let mut byte = [0];
    write_back.read(100, &mut byte);
    drop(page);
    yield_randomly(3);
    device.store(byte[0], SeqCst);
    write_back.finish(true);
}

#[test]
fn a_page_changed_during_write_back_is_written_again() {
    check(3000, &[Fault::WriteBackCleansAll, Fault::WriteBackTwice], || {
        let cache = page_cache(2, FEW_NODES);
        let file = file(&cache);
        let device = Arc::new(AtomicU8::new(0));
        drop(use_page(&file, 0, 0));
        let writer = with(&file, |file| {
            for value in 1..4 {
                let page = file.get(PageIndex(0)).expect("a pinned page stays");
                page.write(100, &[value]);
                page.mark_dirty(1, 1);
                file.note_dirty(PageIndex(0));
            }
        });
        let flusher = || {
            let device = Arc::clone(&device);
            with(&file, move |file| (0..2).for_each(|_| write_back(file, &device)))
        };
        join([writer, flusher(), flusher()]);
        file.wait_write_back((0..1).into());
        write_back(&file, &device);
        assert_eq!(device.load(SeqCst), 3, "the last change is not on the device");
        assert_eq!((file.next_dirty(PageIndex(0), 1), cache.dirty_pages()), (None, 0));
    });
}

/// A page is dirtied and searched for, while two threads find that its region has no dirty page.
#[test]
fn a_search_finds_a_page_that_was_dirtied_while_its_region_was_checked() {
    // Smaller files have no map of regions. The page is in the middle of its leaf, so that a search
    // has steps before and after it visits the page.
    const DIRTIED: u32 = 4 * 64 + 32;
    let faults = [Fault::RegionCleanWhileChecked, Fault::RegionUnchecked, Fault::RegionChecksOverlap];
    check(3000, &faults, || {
        let cache = page_cache(3, FEW_NODES);
        let file = file(&cache);
        for index in [DIRTIED, DIRTIED + 1] {
            use_page(&file, index, 7).expect("there is room").mark_dirty(1, 0);
            file.note_dirty(PageIndex(index));
            let page = file.get(PageIndex(index)).expect("a dirty page stays");
            page.begin_write_back().expect("it is dirty").finish(true);
        }
        let searcher = || {
            with(&file, |file| {
                // About the time that a search takes.
                yield_randomly(160);
                file.dirty_span(PageRange::ALL);
            })
        };
        let writer = with(&file, |file| {
            let page = file.get(PageIndex(DIRTIED)).expect("there is room for all pages");
            yield_randomly(320);
            page.mark_dirty(1, 0);
            file.note_dirty(PageIndex(DIRTIED));
            assert_eq!(file.dirty_span(PageRange::ALL), (DIRTIED..DIRTIED + 1).into());
        });
        join([searcher(), searcher(), writer]);
        assert_eq!(file.dirty_span(PageRange::ALL), (DIRTIED..DIRTIED + 1).into());
        file.get(PageIndex(DIRTIED)).unwrap().begin_write_back().expect("it is dirty").finish(true);
        assert!(file.dirty_span(PageRange::ALL).is_empty());
        // The search before has found that the region is clean, so this one visits no page.
        assert!(!file.has_dirty(PageRange::ALL));
    });
}

#[test]
fn discarding_waits_for_write_backs() {
    check(3000, &[Fault::DiscardHeld, Fault::WaitersNotWoken, Fault::WakeTooEarly], || {
        let cache = page_cache(2, FEW_NODES);
        let file = file(&cache);
        let discarded = Arc::new(AtomicBool::new(false));
        use_page(&file, 0, 7).expect("there is room").mark_dirty(1, 1);
        let flusher = {
            let discarded = Arc::clone(&discarded);
            with(&file, move |file| {
                let Some(page) = file.get(PageIndex(0)) else { return };
                let Some(write_back) = page.begin_write_back() else { return };
                drop(page);
                yield_now();
                assert!(!discarded.load(SeqCst), "a write-back comes after the discard");
                write_back.finish(true);
            })
        };
        let discarder = with(&file, move |file| {
            assert!(file.discard((0..64).into()) <= 1);
            discarded.store(true, SeqCst);
        });
        join([flusher, discarder]);
        assert_eq!((file.next_present(PageIndex(0)), cache.dirty_pages(), cache.stats().pages), (None, 0, 0));
    });
}

#[test]
fn discarding_waits_for_fillings() {
    check(3000, &[Fault::DiscardHeld, Fault::WaitersNotWoken], || {
        let file = file(&page_cache(2, FEW_NODES));
        // The contents of the device. A hole is punched there once the pages are discarded.
        let device = Arc::new(AtomicU8::new(7));
        let claimed = Arc::new(AtomicBool::new(false));
        let reader = {
            let (device, claimed) = (Arc::clone(&device), Arc::clone(&claimed));
            with(&file, move |file| {
                let Ok(PageLookup::Vacant(fill)) = file.claim(PageIndex(0)) else { return };
                claimed.store(true, SeqCst);
                fill.write(100, &[device.load(SeqCst)]);
                yield_now();
                drop(fill.finish(0, 0));
            })
        };
        while !claimed.load(SeqCst) {
            yield_now();
        }
        file.discard((0..1).into());
        device.store(0, SeqCst);
        join([reader]);
        assert!(file.get(PageIndex(0)).is_none_or(|page| byte(&page) == 0), "a page holds punched bytes");
    });
}

#[test]
fn a_discard_is_woken_for_a_page_that_is_evicted_as_its_last_user_leaves() {
    check(3000, &[Fault::WakeIfStillMarked], || {
        let file = file(&page_cache(2, FEW_NODES));
        drop(use_page(&file, 0, 0).expect("there is room"));
        let user = with(&file, |file| drop(file.peek(PageIndex(0))));
        let evicting = with(&file, |file| (10..12).for_each(|index| drop(use_page(file, index, 1))));
        let discarder = with(&file, |file| {
            file.discard((0..1).into());
        });
        join([user, evicting, discarder]);
    });
}
