//! Files with dirty pages, and writing them back: by the volume's own threads after a while, by who writes while
//! there is too much of it, and by syncs and closing.

use std::ops::Range;
use std::time::{Duration, Instant};

use parext4_device::Device;

use super::background::Background;
use super::device_queues::DeviceQueues;
use super::turns::Turns;
use super::writers::{AtWork, Writers};
use super::{Inner, OpenOptions};
use crate::error::Result;
use crate::fault::{Fault, planted};
use crate::file::{File, HowToHold};
use crate::inode::{Cached, Inode};
use crate::page_cache::{PAGE, PageCache};
use crate::sync::Rank;
use crate::sync::{Arc, Mutex, yield_now};

/// Pages that the volume's own threads write back of one file before the next one's turn.
pub(super) const TURN: u32 = 4096;
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
/// Pages that one thread would be long about.
const MANY: u64 = 1024;

/// Pages that a writer makes dirty, at most, before it looks whether too many are.
pub(crate) const PAGES_AT_ONCE: u32 = 10;
/// The nodes of the cache that these take: those on two ways down a tree; and those that who makes a tree grow takes for a
/// moment.
const NODES_AT_ONCE: u32 = 12;
const NODES_FOR_A_MOMENT: u32 = 10;
/// With more files than these to write back, others are worth waking.
const FEW: usize = 8;

/// The files with dirty pages.
#[derive(Debug)]
pub(crate) struct DirtyFiles {
    files: Mutex<Turns<Arc<Inode>>>,
    /// So many dirty pages are too many for more.
    limit: u64,
    /// Those for whom there is memory beside these.
    writers: Writers,
    /// Writers that write a batch back at a time because too much is dirty.
    cleaners: Writers,
    /// The most pages of such a batch.
    batch: u32,
    background: Option<Background>,
    /// For writing back.
    pub(crate) queues: DeviceQueues,
}

impl DirtyFiles {
    pub(super) fn new(options: &OpenOptions, pages: &PageCache, device: &Arc<dyn Device>) -> Self {
        let bytes = options.dirty_limit.unwrap_or(options.cache_size / 5 * 2);
        // Some of the cache must stay for what is read.
        let limit = (bytes / PAGE as u64).min(pages.capacity() / 4 * 3).max(16);
        let by_pages = (pages.capacity() - limit) / u64::from(PAGES_AT_ONCE);
        let by_nodes = (pages.spare_nodes() - NODES_FOR_A_MOMENT) / NODES_AT_ONCE;
        let batch =
            u32::try_from(limit / BATCH_PART).map_or(BATCH, |pages| pages.clamp(SMALLEST_BATCH, BATCH));
        let cleaners = u32::try_from(limit / BATCHES_PART / u64::from(batch)).unwrap_or(u32::MAX);
        let writers = u32::try_from(by_pages).map_or(by_nodes, |by_pages| by_pages.min(by_nodes));
        Self {
            files: Mutex::new(Rank::DirtyFiles, Turns::new()),
            limit,
            writers: Writers::new(writers),
            cleaners: Writers::new(cleaners),
            batch,
            background: options.write_back_interval.map(Background::new),
            queues: DeviceQueues::new(device),
        }
    }

    /// Ends the volume's own threads and waits for them.
    pub(super) fn stop(&self) {
        if let Some(background) = &self.background {
            background.stop();
        }
        self.queues.close();
    }

    /// Returns the most pages to write back in one batch because too much is dirty.
    pub(crate) fn batch(&self) -> u32 {
        self.batch
    }

    /// Says whether it is the only one. Who finds it listed finds it here: what it has written is synced with the rest.
    fn add(&self, inode: &Arc<Inode>, cached: &Cached) -> bool {
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
    fn next(&self, age: Duration) -> Option<Arc<Inode>> {
        self.files.lock().next(Instant::now(), age)
    }

    /// All that waited in the file is written back: what is dirty now became so since.
    fn restart(&self, inode: &Arc<Inode>) {
        self.files.lock().restart(key(inode), Instant::now());
    }

    /// Takes a file off that has nothing to write back any more.
    fn remove_if_clean(&self, inode: &Arc<Inode>, cached: &Cached) {
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

    /// All files, the last one first. The volume's own threads help whoever writes them all back, from the other end.
    fn all_together(&self) -> Vec<Arc<Inode>> {
        let mut files = self.files.lock();
        if let Some(background) = &self.background
            && files.len() > FEW
        {
            files.hurry_all();
            background.wake();
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

impl Inner {
    /// Notes that a page of the file is dirty. Who writes to one that has become so by another does it, too: the other may
    /// not have come to it yet.
    pub(crate) fn note_dirty(self: &Arc<Self>, inode: &Arc<Inode>, cached: &Cached) {
        if cached.must_list() {
            let is_first = self.dirty.add(inode, cached);
            if let Some(background) = &self.dirty.background {
                background.start(self);
                if is_first {
                    background.wake();
                }
            }
        }
    }

    /// Lets the caller write to `file`, which may take up to [`PAGES_AT_ONCE`] pages before it looks
    /// [whether more are dirty](Self::is_dirty_enough) than should be. It holds no range.
    ///
    /// # Errors
    /// If the volume has stopped, or the file cannot be written back.
    pub(crate) fn begin_writing(self: &Arc<Self>, file: &File) -> Result<AtWork<'_>> {
        let at_work = self.dirty.writers.enter();
        self.throttle(file)?;
        Ok(at_work)
    }

    /// Writes some data back for a writer of `file` if there is too much of it in memory.
    fn throttle(self: &Arc<Self>, file: &File) -> Result<()> {
        if self.is_half_full()
            && let Some(background) = &self.dirty.background
        {
            background.wake();
        }
        while self.is_dirty_enough() {
            let cleaning = self.dirty.cleaners.enter();
            // Other writers may have written enough back meanwhile.
            if !self.is_dirty_enough() {
                break;
            }
            self.health.check()?;
            match self.write_back_some(Duration::ZERO, self.dirty.batch) {
                Ok(true) => {}
                Ok(false) => yield_now(),
                // What is too much may be others' that must stay; it is this file's only if this fails too.
                Err(_) => {
                    drop(cleaning);
                    return file.write_back(0..u32::MAX, HowToHold::Wait);
                }
            }
        }
        Ok(())
    }

    /// Has the volume's own threads help somebody who is going to write the file back, if that may be much: a device is
    /// faster with several requests than with one.
    pub(crate) fn write_back_together(&self, inode: &Arc<Inode>) {
        if self.pages.dirty_pages() >= MANY
            && let Some(background) = &self.dirty.background
        {
            self.dirty.files.lock().hurry(key(inode));
            background.wake();
        }
    }

    /// Has the volume's own threads write the file back at once. Returns false if there are none.
    pub(crate) fn write_back_soon(&self, inode: &Arc<Inode>) -> bool {
        let Some(background) = &self.dirty.background else { return false };
        self.dirty.files.lock().hurry(key(inode));
        background.wake();
        true
    }

    /// Has the volume's own threads bring in pages of a file.
    pub(crate) fn read_ahead(self: &Arc<Self>, inode: &Arc<Inode>, pages: Range<u32>) {
        if let Some(background) = &self.dirty.background {
            background.read_ahead(self, inode, pages);
        }
    }

    /// Whether more is dirty than should be.
    pub(crate) fn is_dirty_enough(&self) -> bool {
        self.is_dirtier_than(self.dirty.limit)
    }

    pub(super) fn has_no_dirty_files(&self) -> bool {
        self.dirty.files.lock().len() == 0
    }

    /// Whether there is enough dirty for the volume's own threads not to wait any longer.
    pub(super) fn is_half_full(&self) -> bool {
        self.is_dirtier_than(self.dirty.limit / 2)
    }

    /// Whether so many pages are dirty, or fewer that take too many nodes of the cache.
    fn is_dirtier_than(&self, pages: u64) -> bool {
        let dirty = self.pages.dirty_pages();
        // With few, it is not these that take the nodes.
        let takes_nodes = || dirty > (self.pages.spare_nodes() / 4).into();
        dirty > pages || takes_nodes() && !self.pages.ensure_spare_nodes()
    }

    /// Writes about `most` pages back of a file that waits for `age` or longer: those that nobody is at work in. Returns
    /// whether there was anything to do.
    ///
    /// # Errors
    /// A failure, if it is all that comes of going through the files: whoever waits for room would wait for ever. The
    /// files that fail know of it too, and tell who syncs.
    pub(crate) fn write_back_some(self: &Arc<Self>, age: Duration, most: u32) -> Result<bool> {
        let mut result = Ok(false);
        let files = self.dirty.files.lock().len();
        for _ in 0..files {
            let Some(inode) = self.dirty.next(age) else { break };
            match self.write_back_turn(&inode, most) {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                failed => result = failed,
            }
        }
        result
    }

    /// The same for the file whose turn it is.
    fn write_back_turn(self: &Arc<Self>, inode: &Arc<Inode>, most: u32) -> Result<bool> {
        let Some(cached) = inode.cached() else { return Ok(false) };
        let mut result = Ok(0);
        // One that is being deleted will have no pages.
        if let Some(file) = File::for_own_thread(self, inode) {
            result = file.write_back_turn(most);
        }
        if !matches!(result, Ok(written) if written >= most) {
            self.dirty.restart(inode);
        }
        self.dirty.remove_if_clean(inode, cached);
        result.map(|written| written > 0)
    }

    /// Writes everything back that is dirty now. The caller holds no range.
    ///
    /// # Errors
    /// The first failure; the others' pages are written all the same.
    pub(crate) fn write_back_all(self: &Arc<Self>) -> Result<()> {
        let mut result = Ok(());
        for inode in self.dirty.all_together() {
            let Some(cached) = inode.cached() else { continue };
            if let Some(file) = File::for_own_thread(self, &inode) {
                result = result.and(file.write_back(0..u32::MAX, HowToHold::Wait));
            }
            self.dirty.remove_if_clean(&inode, cached);
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use parext4_device::MemDevice;

    use super::*;
    use crate::file::BufferedOptions;
    use crate::mkfs::{MkfsOptions, mkfs};
    use crate::volume::Volume;

    #[test]
    fn a_file_that_stays_dirty_holds_up_no_writer() {
        let device = Arc::new(MemDevice::new(16 << 20));
        mkfs(&*device, &MkfsOptions::default()).unwrap();
        let options =
            OpenOptions { commit_interval: None, write_back_interval: None, ..OpenOptions::default() };
        let volume = Volume::open(device, &options).unwrap();
        let file = volume.create("/f", 0o644).unwrap();
        let buffered = file.buffered(BufferedOptions::default()).unwrap();
        buffered.write_at(&[1; 4096], 0).unwrap();
        let (dirty, inode) = (&volume.inner.dirty, &file.node().inode);
        let cached = inode.cached().unwrap();
        // A check that makes writers wait acquires the list.
        let list = dirty.files.lock();
        dirty.remove_if_clean(inode, cached);
        assert!(!cached.must_list());
        drop(list);
        volume.sync().unwrap();
        assert!(!cached.is_listed());
    }
}
