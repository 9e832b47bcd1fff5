//! Tests of the whole cache, with one thread and with several.

use std::sync::mpsc;
use std::thread;

use super::*;

/// Returns a cache of the smallest size.
pub(super) fn small() -> Arc<PageCache> {
    PageCache::new(0, PageSize::MIN)
}

/// Returns the page, filled with its index if it was missing.
fn use_page(file: &FilePages, index: u32) -> Page<'_> {
    match file.claim(PageIndex(index)).unwrap() {
        PageLookup::Present(page) => page,
        PageLookup::Vacant(fill) => {
            fill.write(0, &contents(index));
            fill.finish(0, 0)
        }
    }
}

fn contents(index: u32) -> Vec<u8> {
    index.to_le_bytes().repeat(PageSize::MIN.bytes() / 4)
}

fn holds(page: &Page<'_>, index: u32) -> bool {
    let mut read = vec![0; PageSize::MIN.bytes()];
    page.read(0, &mut read);
    read == contents(index)
}

#[test]
fn a_page_is_filled_once_and_found_from_then_on() {
    let cache = small();
    let (file, other) = (FilePages::new(&cache), FilePages::new(&cache));
    for index in [0, 63, 64, 4095, 4096, 1 << 18, 1 << 24, u32::MAX - 1] {
        assert!(file.get(PageIndex(index)).is_none());
        let Ok(PageLookup::Vacant(fill)) = file.claim(PageIndex(index)) else {
            panic!("the page is missing")
        };
        assert_eq!(fill.index(), PageIndex(index));
        fill.write(0, &contents(index));
        assert!(file.get(PageIndex(index)).is_none(), "not before it is filled");
        assert!(file.try_claim(PageIndex(index)).is_none());
        drop(fill.finish(0, 0));
        assert!(holds(&file.get(PageIndex(index)).unwrap(), index));
        assert!(matches!(file.claim(PageIndex(index)), Ok(PageLookup::Present(_))));
        assert!(other.get(PageIndex(index)).is_none(), "another file's");
    }
    for index in [0, 64, 4096, u32::MAX - 1] {
        assert!(holds(&file.peek(PageIndex(index)).unwrap(), index), "{index}");
    }
    let stats = cache.stats();
    assert_eq!((stats.pages, stats.hits, stats.misses, stats.evicted, stats.dirty), (8, 16, 8, 0, 0));
}

#[test]
fn a_claim_that_is_given_up_is_free_again() {
    let cache = small();
    let file = FilePages::new(&cache);
    drop(file.claim(PageIndex(7)));
    assert_eq!((file.next_present(PageIndex::ZERO), cache.stats().pages), (None, 0));
    assert!(matches!(file.claim(PageIndex(7)), Ok(PageLookup::Vacant(_))));
}

#[test]
fn a_claim_waits_while_another_thread_fills_the_page() {
    let file = &FilePages::new(&small());
    let Ok(PageLookup::Vacant(fill)) = file.claim(PageIndex(7)) else { panic!("the page is missing") };
    thread::scope(|scope| {
        let (tell, told) = mpsc::channel();
        let waiter = scope.spawn(move || {
            tell.send(()).unwrap();
            holds(&use_page(file, 7), 7)
        });
        told.recv().unwrap();
        fill.write(0, &contents(7));
        drop(fill.finish(0, 0));
        assert!(waiter.join().unwrap());
    });
}

#[test]
fn dirty_pages_are_counted_found_in_runs_and_cleaned() {
    let cache = small();
    let file = FilePages::new(&cache);
    for index in [3, 4, 5, 63, 64, 65, 5000] {
        let page = use_page(&file, index);
        assert_eq!(page.mark_dirty(0b0001, 0b0011), (0, 0));
        assert_eq!(page.mark_dirty(0b1000, 0b0010), (0b0001, 0b0011));
        file.note_dirty(PageIndex(index));
    }
    drop(use_page(&file, 6));
    assert_eq!(cache.dirty_pages(), 7);
    let rows = [(0, 100, 3..6), (4, 1, 4..5), (6, 100, 63..66), (66, 100, 5000..5001)];
    for (from, most, run) in rows {
        assert_eq!(file.next_dirty(PageIndex(from), most), Some(run.into()), "from {from}");
    }
    assert_eq!(file.next_dirty(PageIndex(5001), 100), None);
    let next_present = |from| file.next_present(PageIndex(from));
    assert_eq!((next_present(6), next_present(5001)), (Some(PageIndex(6)), None));

    let page = file.get(PageIndex(4)).unwrap();
    let write_back = page.begin_write_back().unwrap();
    assert_eq!((write_back.dirty(), write_back.reserved()), (0b1001, 0b0011));
    assert!(page.begin_write_back().is_none(), "one at a time");
    write_back.finish(true);
    assert_eq!((page.marks(), cache.dirty_pages()), ((0, 0), 6));
    assert!(page.begin_write_back().is_none(), "clean");
    drop(page);

    assert_eq!(file.discard((4..64).into()), 2 * 2, "pages 5 and 63 had reservations");
    assert_eq!((cache.dirty_pages(), file.next_present(PageIndex(4))), (4, Some(PageIndex(64))));
    drop(file);
    assert_eq!((cache.dirty_pages(), cache.stats().pages, cache.stats().nodes), (0, 0, 0));
}

#[test]
fn what_could_not_be_written_back_or_was_changed_meanwhile_stays_dirty() {
    let cache = small();
    let file = FilePages::new(&cache);
    let page = use_page(&file, 0);
    page.mark_dirty(0b0011, 0b1111);
    page.begin_write_back().unwrap().finish(false);
    assert_eq!((page.marks(), cache.dirty_pages()), ((0b0011, 0b1111), 1));
    drop(page.begin_write_back().unwrap());
    assert_eq!((page.marks(), cache.dirty_pages()), ((0b0011, 0b1111), 1));

    let mut write_back = page.begin_write_back().unwrap();
    page.mark_dirty(0b0100, 0);
    write_back.allocated(0b0001);
    assert_eq!(page.marks(), (0b0100, 0b1110));
    write_back.finish(true);
    assert_eq!((page.marks(), cache.dirty_pages()), ((0b0100, 0), 1));
}

#[test]
fn dirty_and_pinned_pages_are_not_evicted() {
    let cache = small();
    let file = FilePages::new(&cache);
    let all = u32::try_from(cache.capacity()).unwrap();
    for index in 0..all - 1 {
        use_page(&file, index).mark_dirty(1, 0);
    }
    let pinned = use_page(&file, all);
    assert!(matches!(file.claim(PageIndex(all + 1)), Err(NoFrame)));
    assert!(file.try_claim(PageIndex(all + 1)).is_none());
    drop(pinned);
    assert!(holds(&use_page(&file, all + 1), all + 1), "there is room again");
    assert!(file.get(PageIndex(all)).is_none());
    (0..all - 1).for_each(|index| assert!(holds(&file.get(PageIndex(index)).unwrap(), index)));
}

/// A stream that is longer than the cache is read ahead too.
#[test]
fn read_ahead_evicts_pages_that_were_read() {
    let cache = small();
    let file = FilePages::new(&cache);
    let all = u32::try_from(cache.capacity()).unwrap();
    for index in 0..all {
        drop(use_page(&file, index));
        assert!(holds(&file.get(PageIndex(index)).unwrap(), index));
    }
    for index in all..4 * all {
        let fill = file.try_claim(PageIndex(index)).expect("a page was evicted");
        fill.write(0, &contents(index));
        drop(fill.finish(0, 0));
        assert!(holds(&file.get(PageIndex(index)).unwrap(), index));
    }
}

#[test]
fn pages_far_apart_stay_within_the_budget() {
    let cache = small();
    let files: Vec<_> = (0..8).map(|_| FilePages::new(&cache)).collect();
    let (_, nodes) = shares(0, PageSize::MIN);
    for nth in 0..20_000_u32 {
        let file = &files[nth as usize % files.len()];
        let index = nth.wrapping_mul(0x9e37_79b1);
        assert!(holds(&use_page(file, index), index));
        let stats = cache.stats();
        assert!(stats.nodes <= nodes.into() && stats.pages <= cache.capacity());
    }
    assert!(cache.stats().evicted > 19_000);
    drop(files);
    assert_eq!((cache.stats().nodes, cache.stats().pages), (0, 0));
}

#[test]
fn clean_pages_make_way_for_nodes_and_dirty_ones_do_not() {
    let cache = small();
    let file = FilePages::new(&cache);
    // Each of them needs four nodes.
    let lone = || (0..60_u32).map(|nth| nth << 24);
    lone().for_each(|index| drop(use_page(&file, index)));
    let free = || cache.nodes.capacity() - cache.nodes.used();
    assert!(free() < cache.spare_nodes());
    assert!(cache.ensure_spare_nodes() && free() >= cache.spare_nodes());
    lone().for_each(|index| {
        use_page(&file, index).mark_dirty(1, 0);
    });
    assert!(!cache.ensure_spare_nodes());
    assert!(lone().all(|index| file.get(PageIndex(index)).is_some_and(|page| holds(&page, index))));
}

#[test]
fn a_clean_page_is_written_again_while_it_counts_as_dirty() {
    let cache = small();
    let file = FilePages::new(&cache);
    let page = use_page(&file, 0);
    let again = page.begin_rewrite().unwrap();
    assert_eq!((again.dirty(), cache.dirty_pages(), cache.busy_pages()), (0, 1, 1));
    assert!(page.begin_rewrite().is_none(), "one at a time");
    again.finish(true);
    assert_eq!((page.marks(), cache.dirty_pages()), ((0, 0), 0));
    page.mark_dirty(1, 0);
    assert!(page.begin_rewrite().is_none(), "dirty");
    assert_eq!(cache.dirty_pages(), 1);
}

#[test]
fn a_clean_page_that_is_written_again_is_found_after_its_region_was_clean() {
    let cache = small();
    let file = FilePages::new(&cache);
    let index = PageIndex(4 * 64 + 1);
    drop(use_page(&file, index.get()));
    let again = file.begin_rewrite(index).unwrap();
    assert_eq!(file.dirty_span(PageRange::ALL), PageRange::of_page(index));
    again.finish(true);
    assert!(file.dirty_span(PageRange::ALL).is_empty());
    // The region is clean now.
    let again = file.begin_rewrite(index).unwrap();
    assert_eq!(file.dirty_span(PageRange::ALL), PageRange::of_page(index));
    drop(again);
}

#[test]
fn a_unit_that_is_reserved_again_during_the_write_back_stays_reserved() {
    let cache = small();
    let file = FilePages::new(&cache);
    let page = use_page(&file, 0);
    page.mark_dirty(0b0011, 0b0011);
    let mut write_back = page.begin_write_back().unwrap();
    write_back.allocated(0b0001);
    assert_eq!(write_back.reserved(), 0b0010);
    page.mark_dirty(0b0001, 0b0001);
    write_back.finish(true);
    assert_eq!(page.marks(), (0b0001, 0b0001));
}

#[test]
fn units_that_a_write_back_leaves_out_are_clean_and_not_reserved() {
    let cache = small();
    let file = FilePages::new(&cache);
    let page = use_page(&file, 0);
    page.mark_dirty(0b0111, 0b0011);
    let mut write_back = page.begin_write_back().unwrap();
    assert_eq!(write_back.leave_out(0b0110), 0b0010, "only that one was reserved");
    assert_eq!((write_back.dirty(), write_back.reserved(), page.marks()), (0b0001, 0b0001, (0, 0b0001)));
    write_back.finish(false);
    assert_eq!((page.marks(), cache.dirty_pages()), ((0b0001, 0b0001), 1));
}

#[test]
fn pages_that_are_pinned_or_filled_are_busy() {
    let cache = small();
    let file = FilePages::new(&cache);
    let page = use_page(&file, 0);
    drop(use_page(&file, 1));
    assert_eq!(cache.busy_pages(), 1, "pinned");
    page.mark_dirty(1, 0);
    let write_back = page.begin_write_back().unwrap();
    drop(page);
    assert_eq!(cache.busy_pages(), 1, "under write-back");
    write_back.finish(true);
    assert_eq!(cache.busy_pages(), 0);
    let fill = file.claim(PageIndex(2)).unwrap();
    assert_eq!(cache.busy_pages(), 1, "filled");
    drop(fill);
    assert_eq!(cache.busy_pages(), 0);
}

#[test]
fn a_page_is_searched_among_many_dirty_ones_only_if_it_is_needed() {
    let cache = PageCache::with_capacity(1024, 256, PageSize::MIN);
    let file = FilePages::new(&cache);
    for index in 0..1023 {
        use_page(&file, index).mark_dirty(1, 0);
    }
    drop(use_page(&file, 1023));
    assert!(file.try_claim(PageIndex(1024)).is_none(), "a short search finds only dirty pages");
    assert!(holds(&use_page(&file, 1024), 1024));
    assert!(file.get(PageIndex(1023)).is_none());
}

/// More leaves than there are nodes, one after another.
#[test]
fn leaves_that_became_empty_are_used_again() {
    type GoBy = fn(&FilePages, PageIndex);
    let ways: [(&str, GoBy); 3] = [
        ("discarded", |file, index| {
            drop(use_page(file, index.0));
            file.discard(PageRange::of_page(index));
        }),
        ("given up", |file, index| drop(file.claim(index).unwrap())),
        ("discarded as a whole leaf", |file, index| {
            let pages = PageRange::new(index, index + nodes::SLOTS);
            pages.pages().for_each(|index| drop(use_page(file, index.0)));
            file.discard(pages);
        }),
    ];
    for (what, go) in ways {
        let cache = small();
        let file = FilePages::new(&cache);
        for nth in 0..4 * cache.nodes.capacity() {
            go(&file, PageIndex(nth << 12));
        }
        assert_eq!(cache.stats().pages, 0, "{what}");
        drop(file);
        assert!(cache.trees.lock().is_empty());
    }
}
