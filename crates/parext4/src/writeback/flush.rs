//! When dirty pages are written back.
//!
//! | Trigger | Thread | Pages |
//! |---|---|---|
//! | a page has been dirty for the write-back interval | flush threads | the files that are old enough |
//! | half the dirty-page limit is exceeded | flush threads | all files |
//! | the dirty-page limit is exceeded | the writer | a batch of any file |
//! | sync, or closing the volume | the caller, helped by flush threads | the pages that are dirty when it begins |
//!
//! Not responsible for writing a page: the parent module does that.

use std::sync::Weak;
use std::time::Duration;

use crate::dirty_files::{Wakes, WriterSlot};
use crate::engine::Engine;
use crate::error::Result;
use crate::fault::{Fault, when_planted};
use crate::inode::{Cached, Inode};
use crate::inode_ref::InodeRef;
use crate::page_cache::PageRange;
use crate::sync::{Arc, yield_now};

/// Bytes of one file that a flush thread writes back before it continues with the next file.
const TURN: u64 = 16 << 20;
/// With this number of bytes in dirty pages or more, the flush threads help the thread that writes
/// back a file.
const HELP_FROM_DIRTY: u64 = 4 << 20;

impl Engine {
    /// Adds the file to the dirty files, if it is not listed. Must be called after a page became
    /// dirty. A thread that writes to a page that another thread dirtied calls this as well,
    /// because the other thread may not have called it yet.
    pub(crate) fn note_dirty(self: &Arc<Self>, inode: &Arc<Inode>, cached: &Cached) {
        // Long enough for a check of the list.
        when_planted!(Fault::ListedByChecks, (0..30).for_each(|_| yield_now()));
        if cached.must_list() {
            let is_first = self.dirty().add(inode, cached);
            if let Some(threads) = &self.dirty().threads {
                threads.start(self, run);
                if is_first {
                    threads.wake();
                }
            }
        }
    }

    /// Admits the caller as a writer of `node`. Writes back pages first while the dirty-page limit
    /// is exceeded. The caller holds no range. It may dirty up to
    /// [`PAGES_AT_ONCE`](crate::dirty_files::PAGES_AT_ONCE) pages before it checks [the
    /// limit](Self::is_dirty_enough) again.
    ///
    /// Blocks while too many writers are admitted, and on the device.
    ///
    /// # Errors
    /// Returns an error if the volume has stopped or the file cannot be written back.
    pub(crate) fn begin_writing(self: &Arc<Self>, node: &InodeRef) -> Result<WriterSlot<'_>> {
        let writer_slot = self.dirty().writers.acquire();
        self.throttle(node)?;
        Ok(writer_slot)
    }

    /// Writes back batches for a writer of `node` while the dirty-page limit is exceeded.
    fn throttle(self: &Arc<Self>, node: &InodeRef) -> Result<()> {
        if self.is_half_full()
            && let Some(threads) = &self.dirty().threads
        {
            threads.wake();
        }
        while self.is_dirty_enough() {
            let cleaner_slot = self.dirty().cleaners.acquire();
            // Other writers may have written back enough meanwhile.
            if !self.is_dirty_enough() {
                break;
            }
            self.health().check()?;
            match self.write_back_some(Duration::ZERO, self.dirty().batch()) {
                Ok(true) => {}
                Ok(false) => yield_now(),
                // The pages that failed may belong to other files. The writer fails only if its own
                // file cannot be written back.
                Err(_) => {
                    drop(cleaner_slot);
                    return node.write_back(PageRange::ALL);
                }
            }
        }
        Ok(())
    }

    /// Wakes the flush threads to help the caller write back the file, if the volume has many dirty
    /// pages. A device is faster with several requests in flight than with one.
    pub(crate) fn write_back_together(&self, inode: &Arc<Inode>) {
        if self.pages().dirty_pages() >= self.page_size().pages_in(HELP_FROM_DIRTY).into() {
            self.dirty().prioritize(inode);
        }
    }

    /// Makes the flush threads write back the file next. Returns false if the volume has no flush
    /// threads.
    pub(crate) fn write_back_soon(&self, inode: &Arc<Inode>) -> bool {
        self.dirty().prioritize(inode)
    }

    /// Returns true if the dirty-page limit is exceeded.
    pub(crate) fn is_dirty_enough(&self) -> bool {
        self.is_dirtier_than(self.dirty().limit)
    }

    pub(crate) fn has_no_dirty_files(&self) -> bool {
        self.dirty().len() == 0
    }

    /// Returns true if half the dirty-page limit is exceeded. The flush threads then do not wait
    /// for the interval.
    pub(crate) fn is_half_full(&self) -> bool {
        self.is_dirtier_than(self.dirty().limit / 2)
    }

    /// Returns true if more than `pages` pages are dirty, or if fewer use too many tree nodes of
    /// the cache.
    fn is_dirtier_than(&self, pages: u64) -> bool {
        let dirty = self.pages().dirty_pages();
        // Below this number, pages that are not dirty use the nodes.
        let uses_nodes = || dirty > (self.pages().spare_nodes() / 4).into();
        dirty > pages || uses_nodes() && !self.pages().ensure_spare_nodes()
    }

    /// Writes back about `most` pages of one file that has been dirty for `age` or longer. Skips
    /// pages whose range is held. Returns true if it wrote any.
    ///
    /// # Errors
    /// Returns a failure if no file could be written back, because a caller that waits for the
    /// limit would wait forever. Each failed file also records its failure and reports it to the
    /// next sync.
    pub(crate) fn write_back_some(self: &Arc<Self>, age: Duration, most: u32) -> Result<bool> {
        let mut result = Ok(false);
        let files = self.dirty().len();
        for _ in 0..files {
            let Some(inode) = self.dirty().next(age) else { break };
            match self.write_back_turn(&inode, most) {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                failed => result = failed,
            }
        }
        result
    }

    /// Like [`write_back_some`](Self::write_back_some), for one file.
    fn write_back_turn(self: &Arc<Self>, inode: &Arc<Inode>, most: u32) -> Result<bool> {
        let Some(cached) = inode.cached() else { return Ok(false) };
        let mut result = Ok(0);
        // `None` if the inode is being deleted. It will have no pages then.
        if let Some(node) = InodeRef::for_own_thread(self, inode) {
            result = node.write_back_turn(most);
        }
        if !matches!(result, Ok(written) if written >= most) {
            self.dirty().restart(inode);
        }
        self.dirty().remove_if_clean(inode, cached);
        result.map(|written| written > 0)
    }

    /// Writes back all pages that are dirty now. The caller holds no range.
    ///
    /// # Errors
    /// Returns the first failure. The pages of the remaining files are written back nevertheless.
    pub(crate) fn write_back_all(self: &Arc<Self>) -> Result<()> {
        let mut result = Ok(());
        for inode in self.dirty().prioritize_all() {
            let Some(cached) = inode.cached() else { continue };
            if let Some(node) = InodeRef::for_own_thread(self, &inode) {
                result = result.and(node.write_back(PageRange::ALL));
            }
            self.dirty().remove_if_clean(&inode, cached);
        }
        result
    }
}

/// The body of a flush thread.
fn run(engine: &Weak<Engine>, wakes: &Wakes, interval: Duration) {
    let (mut seen, mut is_idle) = (0, false);
    // Pages become dirty at any time, so the thread checks more often than once in the interval.
    while wakes.wait(if is_idle { Duration::MAX } else { interval / 5 }, &mut seen) {
        let Some(engine) = engine.upgrade() else { return };
        while !wakes.is_stopped() && engine.health().check().is_ok() {
            let age = if engine.is_half_full() { Duration::ZERO } else { interval };
            if !matches!(engine.write_back_some(age, engine.page_size().pages_in(TURN)), Ok(true)) {
                break;
            }
        }
        is_idle = engine.has_no_dirty_files();
    }
}

#[cfg(test)]
mod tests {
    use parext4_device::MemDevice;

    use super::*;
    use crate::file::OpenOptions;
    use crate::mkfs::{MkfsOptions, mkfs};
    use crate::volume::{Volume, VolumeOptions};

    #[test]
    fn a_file_that_stays_dirty_holds_up_no_writer() {
        let device = Arc::new(MemDevice::new(16 << 20));
        mkfs(&*device, &MkfsOptions::new()).unwrap();
        let options = VolumeOptions::new().commit_interval(None).write_back_interval(None);
        let volume = Volume::open_device(device, &options).unwrap();
        let file = volume.open_direct("/f", &OpenOptions::read_write().create_new(true)).unwrap();
        let buffered = file.buffered().unwrap();
        buffered.write_all_at(&[1; 4096], 0).unwrap();
        let (dirty, inode) = (volume.engine.dirty(), &file.inode_ref().inode);
        let cached = inode.cached().unwrap();
        // A check that makes writers wait acquires the list.
        let list = dirty.lock();
        dirty.remove_if_clean(inode, cached);
        assert!(!cached.must_list());
        drop(list);
        volume.sync().unwrap();
        assert!(!cached.is_listed());
    }
}
