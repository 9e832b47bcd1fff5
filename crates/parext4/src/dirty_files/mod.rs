//! The files with dirty pages: their list in the order of write-back, how many writers may be at work, and the queues and
//! threads that write back. What the threads do comes from above (`writeback`).

mod device_queues;
mod flush_order;
mod flush_threads;
mod read_ahead;
mod writer_limit;

use std::time::{Duration, Instant};

use parext4_device::Device;

pub(crate) use device_queues::QUEUE_DEPTH;
pub(crate) use flush_threads::Wakes;
pub(crate) use read_ahead::ReadAheadQueue;
pub(crate) use writer_limit::AtWork;
#[cfg(shuttle)]
pub use writer_limit::WriterLimit;
#[cfg(not(shuttle))]
use writer_limit::WriterLimit;

use crate::fault::{Fault, planted};
use crate::inode::{Cached, Inode};
use crate::page_cache::{PAGE, PageCache};
use crate::sync::{Arc, Mutex, Rank, yield_now};
use device_queues::DeviceQueues;
use flush_order::FlushOrder;
use flush_threads::FlushThreads;

/// The most pages of a batch: enough to keep the device busy while the last requests of the batch end.
pub(crate) const BATCH: u32 = 512;
/// A batch that is written because too much is dirty has at most this part of the dirty-page limit. Pages under way count as
/// dirty. The more of the limit they take, the fewer dirty neighbours has a page when it is taken, and the shorter are the
/// requests.
const BATCH_PART: u64 = 64;
/// The batches of all writers together have at most this part of the limit.
const BATCHES_PART: u64 = 4;
/// The fewest pages of a batch.
const SMALLEST_BATCH: u32 = 16;

/// Pages that a writer makes dirty, at most, before it looks whether too many are.
pub(crate) const PAGES_AT_ONCE: u32 = 10;
/// The nodes of the cache that these take: those on two ways down a tree; and those that who makes a tree grow takes for a
/// moment.
const NODES_AT_ONCE: u32 = 12;
const NODES_FOR_A_MOMENT: u32 = 10;
/// With more files than these to write back, others are worth waking.
const FEW: usize = 8;

/// What the options of a volume say about dirty data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The bytes of file data in memory.
    pub cache: u64,
    /// The dirty bytes among them. `None`: 40 %.
    pub dirty: Option<u64>,
    /// How long data may stay dirty. `None`: the volume has no threads that write back.
    pub interval: Option<Duration>,
}

/// The files with dirty pages.
#[derive(Debug)]
pub(crate) struct DirtyFiles {
    files: Mutex<FlushOrder<Arc<Inode>>>,
    /// So many dirty pages are too many for more.
    pub limit: u64,
    /// Those for whom there is memory beside these.
    pub writers: WriterLimit,
    /// Writers that write a batch back at a time because too much is dirty.
    pub cleaners: WriterLimit,
    /// The most pages of such a batch.
    batch: u32,
    pub threads: Option<FlushThreads>,
    /// For writing back.
    pub queues: DeviceQueues,
}

impl DirtyFiles {
    pub(crate) fn new(limits: &Limits, pages: &PageCache, device: &Arc<dyn Device>) -> Self {
        let bytes = limits.dirty.unwrap_or(limits.cache / 5 * 2);
        // Some of the cache must stay for what is read.
        let limit = (bytes / PAGE as u64).min(pages.capacity() / 4 * 3).max(16);
        let by_pages = (pages.capacity() - limit) / u64::from(PAGES_AT_ONCE);
        let by_nodes = (pages.spare_nodes() - NODES_FOR_A_MOMENT) / NODES_AT_ONCE;
        let batch =
            u32::try_from(limit / BATCH_PART).map_or(BATCH, |pages| pages.clamp(SMALLEST_BATCH, BATCH));
        let cleaners = u32::try_from(limit / BATCHES_PART / u64::from(batch)).unwrap_or(u32::MAX);
        let writers = u32::try_from(by_pages).map_or(by_nodes, |by_pages| by_pages.min(by_nodes));
        Self {
            files: Mutex::new(Rank::DirtyFiles, FlushOrder::new()),
            limit,
            writers: WriterLimit::new(writers),
            cleaners: WriterLimit::new(cleaners),
            batch,
            threads: limits.interval.map(FlushThreads::new),
            queues: DeviceQueues::new(device),
        }
    }

    /// Ends the volume's own threads and waits for them.
    pub(crate) fn stop(&self) {
        if let Some(threads) = &self.threads {
            threads.stop();
        }
        self.queues.close();
    }

    /// Returns the most pages to write back in one batch because too much is dirty.
    pub(crate) fn batch(&self) -> u32 {
        self.batch
    }

    /// Says whether it is the only one. Who finds it listed finds it here: what it has written is synced with the rest.
    pub(crate) fn add(&self, inode: &Arc<Inode>, cached: &Cached) -> bool {
        if planted(Fault::ListedAhead) {
            cached.list();
            // Long enough for a write and a sync.
            (0..1000).for_each(|_| yield_now());
        }
        let mut files = self.files.lock();
        cached.list();
        files.add(key(inode), Arc::clone(inode), Instant::now());
        files.len() == 1
    }

    /// The file whose turn it is; only one that waits for `age` or longer.
    pub(crate) fn next(&self, age: Duration) -> Option<Arc<Inode>> {
        self.files.lock().next(Instant::now(), age)
    }

    /// All that waited in the file is written back: what is dirty now became so since.
    pub(crate) fn restart(&self, inode: &Arc<Inode>) {
        self.files.lock().restart(key(inode), Instant::now());
    }

    /// Takes a file off that has nothing to write back any more.
    pub(crate) fn remove_if_clean(&self, inode: &Arc<Inode>, cached: &Cached) {
        // All writers of the file block on the list while `unlist` scans the pages. A file that has work stays listed, so
        // they need not.
        if cached.has_work() && !planted(Fault::UnlistedWhileChecked) {
            return;
        }
        let mut files = self.files.lock();
        if cached.unlist() {
            files.remove(key(inode));
        }
    }

    /// Acquires the list, so that a test sees who waits for it.
    #[cfg(test)]
    pub(crate) fn lock(&self) -> impl Sized + '_ {
        self.files.lock()
    }

    /// Returns the number of files.
    pub(crate) fn len(&self) -> usize {
        self.files.lock().len()
    }

    /// Has the threads write the file back before all that are not in a hurry. Returns false if there are no threads.
    pub(crate) fn hurry(&self, inode: &Arc<Inode>) -> bool {
        let Some(threads) = &self.threads else { return false };
        self.files.lock().hurry(key(inode));
        threads.wake();
        true
    }

    /// All files, the last one first. The volume's own threads help whoever writes them all back, from the other end.
    pub(crate) fn all_together(&self) -> Vec<Arc<Inode>> {
        let mut files = self.files.lock();
        if let Some(threads) = &self.threads
            && files.len() > FEW
        {
            files.hurry_all();
            threads.wake();
        }
        let mut all: Vec<_> = files.all().cloned().collect();
        all.reverse();
        all
    }
}

/// What is listed stays in memory, so nothing else is there.
fn key(inode: &Arc<Inode>) -> usize {
    std::ptr::from_ref::<Inode>(inode).addr()
}
