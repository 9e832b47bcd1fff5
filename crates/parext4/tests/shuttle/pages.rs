//! The page cache by itself. A thread that is never woken the scheduler reports as a deadlock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering::SeqCst};

use parext4::fault::Fault;
use parext4::models::{FilePages, Page, PageCache, PageLookup, page_cache};
use shuttle::thread::{JoinHandle, spawn, yield_now};

use super::support::{dawdle, random, search, stopping};

/// The fewest nodes that a tree can grow with.
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

/// The page, filled with `byte` if it is not there.
fn use_page(file: &FilePages, index: u32, byte: u8) -> Option<Page<'_>> {
    match file.claim(index).ok()? {
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
fn a_page_is_filled_by_one_while_others_wait() {
    check(3000, &[Fault::WaitersForgotten, Fault::WakeTooEarly], || {
        let file = file(&page_cache(4, FEW_NODES));
        let filled = Arc::new(AtomicUsize::new(0));
        let claim = |gives_up: bool| {
            let filled = Arc::clone(&filled);
            with(&file, move |file| match file.claim(7) {
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
        assert_eq!(byte(&file.get(7).expect("it was filled")), 7);
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
                    assert_eq!(byte(&page), index, "the frame is another page's");
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
            let page = file.get(0).expect("a dirty page stays");
            assert_eq!(byte(&page), 77, "what was written is lost");
        });
        let reader = |first: u8| {
            with(&file, move |file| {
                (first..first + 3).for_each(|index| drop(use_page(file, index.into(), index)));
            })
        };
        join([writer, reader(10), reader(20)]);
    });
}

/// What page `index` of a file is full of.
fn mark(file: u8, index: u32) -> u8 {
    file * 16 + u8::try_from(index).expect("a small number")
}

/// Uses pages one after the other, brings in what is missing, and looks again. It does not yield: a thread that stops in
/// the middle of a step must stay there while others go through all of theirs.
fn use_marked(file: &FilePages, number: u8, pages: &[u32]) {
    for &index in pages {
        let page = match file.claim(index) {
            Ok(PageLookup::Present(page)) => page,
            Ok(PageLookup::Vacant(fill)) => {
                fill.write(100, &[mark(number, index)]);
                fill.finish(0, 0)
            }
            Err(_) => continue,
        };
        assert_eq!(byte(&page), mark(number, index), "the page is another file's");
        let again = file.get(index).expect("a page in use stays");
        assert_eq!(byte(&again), mark(number, index), "the page is another file's");
    }
}

#[test]
fn a_leaf_that_is_freed_is_another_files() {
    let faults = [Fault::PinUnchecked, Fault::EnterFreedLeaf, Fault::FreeUsedLeaf, Fault::LeafNamedFirst];
    check(4000, &faults, || {
        let cache = page_cache(3, FEW_NODES);
        // A leaf each, and nodes for one tree at a time: who needs a leaf takes the other's.
        let files = [file(&cache), file(&cache)];
        let user = |number: u8, pages: &'static [u32]| {
            with(&files[usize::from(number)], move |file| use_marked(file, number, pages))
        };
        join([user(0, &[0, 1]), user(1, &[1, 0]), user(0, &[0])]);
        for (number, file) in (0..).zip(&files) {
            for index in 0..2 {
                if let Some(page) = file.get(index) {
                    assert_eq!(byte(&page), mark(number, index), "the page is another file's");
                }
            }
        }
        drop(files);
        let stats = cache.stats();
        assert_eq!((stats.pages, stats.nodes), (0, 0), "something is left");
    });
}

/// Writes a page back to `device`.
fn write_back(file: &FilePages, device: &AtomicU8) {
    let Some(page) = file.get(0) else { return };
    let Some(write_back) = page.begin_write_back() else { return };
    let mut byte = [0];
    write_back.read(100, &mut byte);
    drop(page);
    dawdle(3);
    device.store(byte[0], SeqCst);
    write_back.finish(true);
}

#[test]
fn what_is_changed_during_its_write_back_is_written_again() {
    check(3000, &[Fault::WriteBackCleansAll, Fault::WriteBackTwice], || {
        let cache = page_cache(2, FEW_NODES);
        let file = file(&cache);
        let device = Arc::new(AtomicU8::new(0));
        drop(use_page(&file, 0, 0));
        let writer = with(&file, |file| {
            for value in 1..4 {
                let page = file.get(0).expect("nobody evicts it");
                page.write(100, &[value]);
                page.mark_dirty(1, 1);
            }
        });
        let flusher = || {
            let device = Arc::clone(&device);
            with(&file, move |file| (0..2).for_each(|_| write_back(file, &device)))
        };
        join([writer, flusher(), flusher()]);
        file.wait_write_back(0..1);
        write_back(&file, &device);
        assert_eq!(device.load(SeqCst), 3, "the last change is not on the device");
        assert_eq!((file.next_dirty(0, 1), cache.dirty_pages()), (None, 0));
    });
}

#[test]
fn discarding_waits_for_write_backs() {
    check(3000, &[Fault::DiscardHeld, Fault::WaitersForgotten, Fault::WakeTooEarly], || {
        let cache = page_cache(2, FEW_NODES);
        let file = file(&cache);
        let discarded = Arc::new(AtomicBool::new(false));
        use_page(&file, 0, 7).expect("there is room").mark_dirty(1, 1);
        let flusher = {
            let discarded = Arc::clone(&discarded);
            with(&file, move |file| {
                let Some(page) = file.get(0) else { return };
                let Some(write_back) = page.begin_write_back() else { return };
                drop(page);
                yield_now();
                assert!(!discarded.load(SeqCst), "a write-back comes after the discard");
                write_back.finish(true);
            })
        };
        let discarder = with(&file, move |file| {
            assert!(file.discard(0..64) <= 1);
            discarded.store(true, SeqCst);
        });
        join([flusher, discarder]);
        assert_eq!((file.next_present(0), cache.dirty_pages(), cache.stats().pages), (None, 0, 0));
    });
}

#[test]
fn discarding_waits_for_fillings() {
    check(3000, &[Fault::DiscardHeld, Fault::WaitersForgotten], || {
        let file = file(&page_cache(2, FEW_NODES));
        // What is on the device: a hole is punched there when the pages are gone.
        let device = Arc::new(AtomicU8::new(7));
        let claimed = Arc::new(AtomicBool::new(false));
        let reader = {
            let (device, claimed) = (Arc::clone(&device), Arc::clone(&claimed));
            with(&file, move |file| {
                let Ok(PageLookup::Vacant(fill)) = file.claim(0) else { return };
                claimed.store(true, SeqCst);
                fill.write(100, &[device.load(SeqCst)]);
                yield_now();
                drop(fill.finish(0, 0));
            })
        };
        while !claimed.load(SeqCst) {
            yield_now();
        }
        file.discard(0..1);
        device.store(0, SeqCst);
        join([reader]);
        assert!(file.get(0).is_none_or(|page| byte(&page) == 0), "a page shows what was punched out");
    });
}
