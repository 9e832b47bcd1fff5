//! The page-cache state of a file: its pages, its membership in the list of dirty files, and its
//! write-back failures.
//!
//! Invariant: while a page of the file is dirty or being written back, the file is in the list of
//! dirty files.

use super::delayed_clusters::DelayedClusters;
use crate::error::Error;
use crate::fault::{Fault, guarded};
use crate::page_cache::{FilePages, PageIndex, PageRange};
use crate::sync::Mutex;
use crate::sync::Rank;
use crate::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};

/// The page-cache state of a file.
#[derive(Debug)]
pub(crate) struct Cached {
    pub pages: FilePages,
    pub failures: Failures,
    /// The file's state with regard to the list of dirty files: a [`Listing`].
    listing: AtomicU8,
    /// Number of threads that write back pages of the file. Pages in write-back may count as clean.
    writing: AtomicU32,
    /// The page at which the next turn of write-back begins.
    cursor: AtomicU32,
    /// Blocks, of clusters, that dirty pages have reserved and that are not allocated yet.
    /// `st_blocks` counts them, as on the kernel's ext4, so that write-back does not change it.
    delayed: AtomicU64,
    pub clusters: DelayedClusters,
}

/// The state of a file with regard to the list of dirty files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Listing {
    /// The file is not on the list and has no dirty page.
    Unlisted,
    /// The file is on the list. A thread that holds the list checks whether the file can come off
    /// it.
    Leaving,
    Listed,
}

impl Cached {
    pub(crate) fn new(pages: FilePages) -> Self {
        Self {
            pages,
            failures: Failures::new(),
            listing: AtomicU8::new(Listing::Unlisted as u8),
            writing: AtomicU32::new(0),
            cursor: AtomicU32::new(0),
            delayed: AtomicU64::new(0),
            clusters: DelayedClusters::new(),
        }
    }

    /// Returns the page at which the next turn of write-back begins.
    pub(crate) fn cursor(&self) -> PageIndex {
        PageIndex(self.cursor.load(Ordering::Relaxed))
    }

    /// Makes the next turn of write-back begin at `next`. Returns false if another thread has moved
    /// the cursor away from `from`.
    pub(crate) fn advance_cursor(&self, from: PageIndex, next: PageIndex) -> bool {
        let (from, next) = (from.get(), next.get());
        self.cursor.compare_exchange(from, next, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Counts blocks that were reserved for dirty pages.
    pub(crate) fn add_delayed(&self, blocks: u32) {
        self.delayed.fetch_add(blocks.into(), Ordering::Relaxed);
    }

    /// Stops counting blocks that were allocated, or that will not be.
    pub(crate) fn remove_delayed(&self, blocks: u32) {
        let rest = |delayed: u64| Some(delayed.saturating_sub(blocks.into()));
        let _ = self.delayed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest);
    }

    /// Returns the number of blocks that are reserved for dirty pages.
    pub(crate) fn delayed(&self) -> u64 {
        self.delayed.load(Ordering::Relaxed)
    }

    /// Returns true if the caller, which has dirtied a page, must [list](Self::list) the file.
    pub(crate) fn must_list(&self) -> bool {
        // Pairs with the fence in `unlist`: either `unlist` sees the dirty page, or this load sees
        // `Leaving`.
        fence(Ordering::SeqCst);
        self.listing.load(Ordering::Relaxed) != Listing::Listed as u8
    }

    /// Returns true if the file is in the list. That is so while any page is dirty or being written
    /// back, even while a thread checks whether the file can be removed from the list.
    pub(crate) fn is_listed(&self) -> bool {
        self.listing.load(Ordering::Acquire) != Listing::Unlisted as u8
    }

    /// Returns true if no page is dirty or being written back, for a file with few pages even if it
    /// is in the list, where it stays for a while after a sync has written its pages back.
    pub(crate) fn is_written(&self) -> bool {
        /// The most pages of which the states are read.
        const PAGES: u32 = 1024;
        // The count is loaded last, as in `has_work`.
        !self.is_listed() || !(self.pages.may_have_dirty(PAGES) || self.writing.load(Ordering::SeqCst) > 0)
    }

    /// Records that the file is in the list. The caller holds the list and adds the file.
    pub(crate) fn list(&self) {
        self.listing.store(Listing::Listed as u8, Ordering::Release);
    }

    /// Records that this thread writes back pages, until the returned guard is dropped.
    pub(crate) fn writing(&self) -> Writing<'_> {
        self.writing.fetch_add(1, Ordering::SeqCst);
        Writing(&self.writing)
    }

    /// Returns true if any page is dirty or being written back.
    pub(crate) fn has_work(&self) -> bool {
        // Most dirty pages of a large file follow the page at which the next turn begins. The count
        // is loaded last, because a thread raises it before it begins the write-back of dirty
        // pages.
        let next = self.cursor();
        let is_dirty = self.pages.has_dirty(PageRange::starting_at(next))
            || self.pages.has_dirty(PageRange::ALL.before(next));
        is_dirty || self.writing.load(Ordering::SeqCst) > 0
    }

    /// Records that the file is not in the list, if it was and none of its pages is dirty or being
    /// written back. Returns true if so. The caller holds the list and removes the file.
    pub(crate) fn unlist(&self) -> bool {
        // Another thread may have removed the file since the caller checked it. A writer that has
        // dirtied a page meanwhile must still find that the file is not in the list. Relaxed: the
        // state changes only under the list's lock.
        let is_listed = self.listing.load(Ordering::Relaxed) != Listing::Unlisted as u8;
        if guarded!(Fault::ListedByChecks, !is_listed, false) {
            return false;
        }
        let meanwhile = guarded!(Fault::UnlistedWhileChecked, Listing::Leaving, Listing::Unlisted);
        self.listing.store(meanwhile as u8, Ordering::Release);
        fence(Ordering::SeqCst);
        // A thread that dirties a page from here on sees `Leaving`, and blocks on the list.
        let clean = !self.has_work();
        let listing = if clean { Listing::Unlisted } else { Listing::Listed };
        self.listing.store(listing as u8, Ordering::Release);
        clean
    }
}

/// A thread that writes back pages of the file.
#[derive(Debug)]
pub(crate) struct Writing<'a>(&'a AtomicU32);

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Failed write-backs of a file. Each handle reports a failure once, however many occurred since
/// its last check (the kernel's `errseq_t`).
#[derive(Debug)]
pub(crate) struct Failures {
    /// Number of failures, times two. The lowest bit is set if the last failure was reported.
    count: AtomicU32,
    /// Number of failures whose pages are dirty again.
    redirtied: AtomicU32,
    last: Mutex<Option<Error>>,
}

impl Failures {
    const REPORTED: u32 = 1;

    fn new() -> Self {
        Self { count: AtomicU32::new(0), redirtied: AtomicU32::new(0), last: Mutex::new(Rank::Leaf, None) }
    }

    /// Records a failure, then runs `dirties`, which makes its pages dirty again.
    pub(crate) fn add_before(&self, error: Error, dirties: impl FnOnce()) {
        self.add(error);
        dirties();
        self.redirtied.fetch_add(1, Ordering::Release);
    }

    /// Returns the number of failures if the pages of all of them are dirty again.
    pub(crate) fn all_redirtied(&self) -> Option<u32> {
        let redirtied = self.redirtied.load(Ordering::Acquire);
        // Counted modulo 2^31, like the failures.
        let redirtied = redirtied & (u32::MAX >> 1);
        (self.count() == redirtied).then_some(redirtied)
    }

    /// Returns the number of failures.
    pub(crate) fn count(&self) -> u32 {
        self.count.load(Ordering::Acquire) >> 1
    }

    /// Records a failure.
    fn add(&self, error: Error) {
        let mut last = self.last.lock();
        *last = Some(error);
        let next = |count: u32| Some((count & !Self::REPORTED).wrapping_add(2));
        let _ = self.count.fetch_update(Ordering::Release, Ordering::Relaxed, next);
    }

    /// Returns the position at which a new handle begins: before the last failure if no handle has
    /// reported it, else after it.
    pub(crate) fn now(&self) -> u32 {
        let count = self.count.load(Ordering::Acquire);
        if count & Self::REPORTED == 0 && count > 0 { count.wrapping_sub(2) | Self::REPORTED } else { count }
    }

    /// Returns the last failure if one occurred since the handle with position `since` last
    /// checked.
    pub(crate) fn check(&self, since: &AtomicU32) -> Result<(), Error> {
        let count = self.count.load(Ordering::Acquire);
        if count >> 1 == since.load(Ordering::Acquire) >> 1 {
            return Ok(());
        }
        let last = self.last.lock();
        let count = self.count.fetch_or(Self::REPORTED, Ordering::AcqRel) | Self::REPORTED;
        let before = since.swap(count, Ordering::AcqRel);
        // Another thread with the same handle may have reported it first.
        if before >> 1 == count >> 1 { Ok(()) } else { last.clone().map_or(Ok(()), Err) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page_cache::{PageCache, PageLookup, PageSize};
    use crate::sync::atomic::AtomicBool;
    use crate::{MemDevice, MkfsOptions, OpenOptions, Volume, VolumeOptions, mkfs};

    /// Models a turn of write-back that left pages dirty, while a rename checks whether there are
    /// any.
    #[test]
    fn a_dirty_file_counts_as_listed_while_a_thread_checks_it() {
        let device = std::sync::Arc::new(MemDevice::new(16 << 20));
        mkfs(&*device, &MkfsOptions::new()).unwrap();
        let options = VolumeOptions::new().write_back_interval(None);
        let volume = Volume::open_device(device, &options).unwrap();
        let file = volume.open_direct("/f", &OpenOptions::read_write().create_new(true)).unwrap();
        file.buffered().unwrap().write_all_at(&[1; 100], 0).unwrap();
        let cached = file.inode_ref().inode.cached().unwrap();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                (0..200_000).for_each(|_| assert!(!cached.unlist(), "the file is dirty"));
                over.store(true, Ordering::Relaxed);
            });
            let mut unlisted = 0;
            while !over.load(Ordering::Relaxed) {
                unlisted += u32::from(!cached.is_listed());
            }
            assert_eq!(unlisted, 0, "no check may miss the dirty page");
        });
    }

    /// Models a writer that has dirtied a page but not listed the file, while a thread checks a
    /// file that another has removed from the list.
    #[test]
    fn a_file_that_is_not_in_the_list_is_listed_by_no_check() {
        let cached = Cached::new(FilePages::new(&PageCache::new(1 << 20, PageSize::MIN)));
        let Ok(PageLookup::Vacant(fill)) = cached.pages.claim(PageIndex::ZERO) else {
            panic!("the page is missing")
        };
        drop(fill.finish(1, 0));
        assert!(!cached.unlist(), "the file is dirty");
        assert!(cached.must_list(), "the writer lists the file");
        cached.list();
        assert!(!cached.unlist() && !cached.must_list());
    }

    #[test]
    fn every_handle_hears_once() {
        let failures = Failures::new();
        let handle = || AtomicU32::new(failures.now());
        let hears = |since: &AtomicU32| failures.check(since).is_err();
        let (first, second) = (handle(), handle());
        assert!(!hears(&first));
        failures.add(Error::NoSpace);
        failures.add(Error::Cancelled);
        let late = handle();
        assert!(hears(&first) && !hears(&first));
        assert!(hears(&second) && !hears(&second));
        assert!(hears(&late) && !hears(&late), "no handle had reported the failure when it was opened");
        assert!(!hears(&handle()), "this one came when all was told");
        failures.add(Error::NoSpace);
        assert!(hears(&first) && hears(&second) && hears(&late) && !hears(&first));
    }
}
