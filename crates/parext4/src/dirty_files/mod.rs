//! The dirty files of a volume.
//!
//! This module has the list of files with dirty pages in the order of write-back, the dirty-page
//! limit and the limit on writers, and the threads and device queues of write-back.
//! [`writeback`](crate::writeback) writes the pages back. Invariant: each file with dirty pages is
//! in the list.

mod device_queues;
mod flush_order;
mod flush_threads;
mod read_ahead;
mod writer_limit;

use std::time::Duration;

use parext4_device::Device;

pub(crate) use device_queues::QUEUE_DEPTH;
pub(crate) use flush_threads::Wakes;
pub(crate) use read_ahead::ReadAheadQueue;
#[cfg(shuttle)]
pub use writer_limit::WriterLimit;
#[cfg(not(shuttle))]
use writer_limit::WriterLimit;
pub(crate) use writer_limit::WriterSlot;

use crate::clock::Instant;
use crate::convert::saturating_u32;
use crate::fault::{Fault, guarded, when_planted};
use crate::inode::{Cached, Inode};
use crate::page_cache::PageCache;
use crate::sync::{Arc, Mutex, Rank, yield_now};
use device_queues::DeviceQueues;
use flush_order::FlushOrder;
use flush_threads::FlushThreads;

/// Maximum length of a batch, in bytes: enough to keep the device busy while the last requests of
/// the batch complete.
pub(crate) const BATCH: u64 = 2 << 20;
/// Divisor of the dirty-page limit that bounds a batch which is written because that limit is
/// exceeded. Pages in flight count as dirty. The more of the limit they use, the fewer dirty
/// neighbours a page has when it is written back, and the shorter are the requests.
const BATCH_SHARE: u64 = 64;
/// Divisor of the dirty-page limit that bounds the batches of all writers together.
const BATCHES_SHARE: u64 = 4;
/// Minimum length of a batch, in bytes.
const MIN_BATCH: u64 = 64 << 10;

/// Maximum number of pages that a writer dirties before it checks the dirty-page limit.
pub(crate) const PAGES_AT_ONCE: u32 = 10;
/// Number of tree nodes of the cache that [`PAGES_AT_ONCE`] pages need: the nodes on two paths from
/// the root.
const NODES_AT_ONCE: u32 = 12;
const NODES_FOR_GROWTH: u32 = 10;
/// Number of files written back together above which the flush threads are woken to help.
const HELP_ABOVE_FILES: usize = 8;

/// The options of a volume for dirty data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Capacity of the page cache, in bytes.
    pub cache: u64,
    /// Dirty-page limit, in bytes. `None` means 40 % of `cache`.
    pub dirty: Option<u64>,
    /// Time for which a page may stay dirty. `None` means that the volume has no flush threads.
    pub interval: Option<Duration>,
}

/// The files with dirty pages.
#[derive(Debug)]
pub(crate) struct DirtyFiles {
    files: Mutex<FlushOrder<Arc<Inode>>>,
    /// Dirty-page limit, in pages. Writers above it must write back first.
    pub limit: u64,
    /// Limits the writers to the number for which the cache has memory beside the dirty pages.
    pub writers: WriterLimit,
    /// Limits the writers that write back a batch because the dirty-page limit is exceeded.
    pub cleaners: WriterLimit,
    /// Maximum number of pages in a batch that is written because the dirty-page limit is exceeded.
    batch: u32,
    pub threads: Option<FlushThreads>,
    /// The device queues of write-back.
    pub queues: DeviceQueues,
}

impl DirtyFiles {
    pub(crate) fn new(limits: &Limits, pages: &PageCache, device: &Arc<dyn Device>) -> Self {
        let bytes = limits.dirty.unwrap_or(limits.cache / 5 * 2);
        // A quarter of the cache is reserved for clean pages.
        let page_size = pages.page_size();
        let limit = (bytes / page_size.bytes() as u64).min(pages.capacity() / 4 * 3).max(16);
        let by_pages = (pages.capacity() - limit) / u64::from(PAGES_AT_ONCE);
        let by_nodes = (pages.spare_nodes() - NODES_FOR_GROWTH) / NODES_AT_ONCE;
        let batch = saturating_u32(limit / BATCH_SHARE)
            .clamp(page_size.pages_in(MIN_BATCH), page_size.pages_in(BATCH));
        let cleaners = saturating_u32(limit / BATCHES_SHARE / u64::from(batch));
        let writers = u32::try_from(by_pages).map_or(by_nodes, |by_pages| by_pages.min(by_nodes));
        Self {
            files: Mutex::new(Rank::DirtyFiles, FlushOrder::new()),
            limit,
            writers: WriterLimit::new(writers),
            cleaners: WriterLimit::new(cleaners),
            batch,
            threads: limits.interval.map(|interval| FlushThreads::new(interval, device.sharing())),
            queues: DeviceQueues::new(device),
        }
    }

    /// Stops the background threads and joins them, and closes the device queues.
    pub(crate) fn stop(&self) {
        if let Some(threads) = &self.threads {
            threads.stop();
        }
        self.queues.close();
    }

    /// Returns the maximum number of pages in a batch that is written because the dirty-page limit
    /// is exceeded.
    pub(crate) fn batch(&self) -> u32 {
        self.batch
    }

    /// Adds a file to the list. Returns true if the list was empty. The inode's flag is set under
    /// the list's lock, so a sync that sees the flag also finds the inode.
    pub(crate) fn add(&self, inode: &Arc<Inode>, cached: &Cached) -> bool {
        when_planted!(Fault::ListedAhead, {
            cached.list();
            // This is long enough for a write and a sync.
            (0..1000).for_each(|_| yield_now());
        });
        let mut files = self.files.lock();
        cached.list();
        files.add(key(inode), Arc::clone(inode), Instant::now());
        files.len() == 1
    }

    /// Returns the next file to write back, or `None` if no file has been dirty for `age` and none
    /// is due.
    pub(crate) fn next(&self, age: Duration) -> Option<Arc<Inode>> {
        self.files.lock().next(Instant::now(), age)
    }

    /// Records that all pages of the file that were old enough are written back. Restarts the age
    /// of the file.
    pub(crate) fn restart(&self, inode: &Arc<Inode>) {
        self.files.lock().restart(key(inode), Instant::now());
    }

    /// Removes the file from the list if it has no dirty pages.
    pub(crate) fn remove_if_clean(&self, inode: &Arc<Inode>, cached: &Cached) {
        // `unlist` scans the pages under the list's lock, and all writers of the file block on that
        // lock meanwhile. This check avoids the scan while pages are dirty or under write-back.
        if guarded!(Fault::UnlistedWhileChecked, cached.has_work()) {
            return;
        }
        let mut files = self.files.lock();
        if cached.unlist() {
            files.remove(key(inode));
        }
    }

    /// Locks the list, so that a test can observe threads that block on it.
    #[cfg(test)]
    pub(crate) fn lock(&self) -> impl Sized + '_ {
        self.files.lock()
    }

    /// Returns the number of files.
    pub(crate) fn len(&self) -> usize {
        self.files.lock().len()
    }

    /// Makes the file the next one that the flush threads write back, and wakes them. Returns false
    /// if the volume has no flush threads.
    pub(crate) fn prioritize(&self, inode: &Arc<Inode>) -> bool {
        let Some(threads) = &self.threads else { return false };
        self.files.lock().prioritize(key(inode));
        threads.wake();
        true
    }

    /// Makes the flush threads write back all files now. Returns false if the volume has no flush
    /// threads.
    pub(crate) fn make_all_due(&self) -> bool {
        let Some(threads) = &self.threads else { return false };
        self.files.lock().make_all_due();
        threads.wake();
        true
    }

    /// Returns all files in the reverse order of write-back. If there are more than
    /// [`HELP_ABOVE_FILES`] files, also wakes the flush threads, which begin at the other end of
    /// the list.
    pub(crate) fn prioritize_all(&self) -> Vec<Arc<Inode>> {
        let mut files = self.files.lock();
        if let Some(threads) = &self.threads
            && files.len() > HELP_ABOVE_FILES
        {
            files.make_all_due();
            threads.wake();
        }
        let mut all: Vec<_> = files.all().cloned().collect();
        all.reverse();
        all
    }
}

/// Returns the key of a file. A listed file stays in memory, so no other inode has its address.
fn key(inode: &Arc<Inode>) -> usize {
    std::ptr::from_ref::<Inode>(inode).addr()
}
