//! When data in memory is written back: by the volume's own threads after a while, by writers while there is too much of
//! it, and by syncs and closing.

use std::sync::Weak;
use std::time::Duration;

use super::HowToHold;
use crate::dirty_files::{AtWork, Wakes};
use crate::engine::Engine;
use crate::error::Result;
use crate::inode::{Cached, Inode};
use crate::node::Node;
use crate::sync::{Arc, yield_now};

/// Pages that the volume's own threads write back of one file before the next one's turn.
const TURN: u32 = 4096;
/// Pages that one thread would be long about.
const MANY: u64 = 1024;

impl Engine {
    /// Notes that a page of the file is dirty. Who writes to one that has become so by another does it, too: the other may
    /// not have come to it yet.
    pub(crate) fn note_dirty(self: &Arc<Self>, inode: &Arc<Inode>, cached: &Cached) {
        if cached.must_list() {
            let is_first = self.dirty.add(inode, cached);
            if let Some(threads) = &self.dirty.threads {
                threads.start(self, run);
                if is_first {
                    threads.wake();
                }
            }
        }
    }

    /// Lets the caller write to `node`, which may take up to [`PAGES_AT_ONCE`](crate::dirty_files::PAGES_AT_ONCE) pages before it looks
    /// [whether more are dirty](Self::is_dirty_enough) than should be. It holds no range.
    ///
    /// # Errors
    /// If the volume has stopped, or the file cannot be written back.
    pub(crate) fn begin_writing(self: &Arc<Self>, node: &Node) -> Result<AtWork<'_>> {
        let at_work = self.dirty.writers.enter();
        self.throttle(node)?;
        Ok(at_work)
    }

    /// Writes some data back for a writer of `node` if there is too much of it in memory.
    fn throttle(self: &Arc<Self>, node: &Node) -> Result<()> {
        if self.is_half_full()
            && let Some(threads) = &self.dirty.threads
        {
            threads.wake();
        }
        while self.is_dirty_enough() {
            let cleaning = self.dirty.cleaners.enter();
            // Other writers may have written enough back meanwhile.
            if !self.is_dirty_enough() {
                break;
            }
            self.health.check()?;
            match self.write_back_some(Duration::ZERO, self.dirty.batch()) {
                Ok(true) => {}
                Ok(false) => yield_now(),
                // What is too much may be others' that must stay; it is this file's only if this fails too.
                Err(_) => {
                    drop(cleaning);
                    return node.write_back(0..u32::MAX, HowToHold::Wait);
                }
            }
        }
        Ok(())
    }

    /// Has the volume's own threads help somebody who is going to write the file back, if that may be much: a device is
    /// faster with several requests than with one.
    pub(crate) fn write_back_together(&self, inode: &Arc<Inode>) {
        if self.pages.dirty_pages() >= MANY {
            self.dirty.hurry(inode);
        }
    }

    /// Has the volume's own threads write the file back at once. Returns false if there are none.
    pub(crate) fn write_back_soon(&self, inode: &Arc<Inode>) -> bool {
        self.dirty.hurry(inode)
    }

    /// Whether more is dirty than should be.
    pub(crate) fn is_dirty_enough(&self) -> bool {
        self.is_dirtier_than(self.dirty.limit)
    }

    pub(crate) fn has_no_dirty_files(&self) -> bool {
        self.dirty.len() == 0
    }

    /// Whether there is enough dirty for the volume's own threads not to wait any longer.
    pub(crate) fn is_half_full(&self) -> bool {
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
        let files = self.dirty.len();
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
        if let Some(node) = Node::for_own_thread(self, inode) {
            result = node.write_back_turn(most);
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
            if let Some(node) = Node::for_own_thread(self, &inode) {
                result = result.and(node.write_back(0..u32::MAX, HowToHold::Wait));
            }
            self.dirty.remove_if_clean(&inode, cached);
        }
        result
    }
}

/// Writes back what is due, as one of the volume's own threads.
fn run(engine: &Weak<Engine>, wakes: &Wakes, interval: Duration) {
    let (mut seen, mut is_idle) = (0, false);
    // Pages become dirty at any time, so what is due is looked for more often than it becomes so.
    while wakes.wait(if is_idle { Duration::MAX } else { interval / 5 }, &mut seen) {
        let Some(engine) = engine.upgrade() else { return };
        while !wakes.is_stopped() && engine.health.check().is_ok() {
            let age = if engine.is_half_full() { Duration::ZERO } else { interval };
            if !matches!(engine.write_back_some(age, TURN), Ok(true)) {
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
    use crate::file::BufferedOptions;
    use crate::mkfs::{MkfsOptions, mkfs};
    use crate::volume::{Volume, VolumeOptions};

    #[test]
    fn a_file_that_stays_dirty_holds_up_no_writer() {
        let device = Arc::new(MemDevice::new(16 << 20));
        mkfs(&*device, &MkfsOptions::default()).unwrap();
        let options = VolumeOptions::new().commit_interval(None).write_back_interval(None);
        let volume = Volume::open_device(device, &options).unwrap();
        let file = volume.create("/f", 0o644).unwrap();
        let buffered = file.buffered(BufferedOptions::default()).unwrap();
        buffered.write_at(&[1; 4096], 0).unwrap();
        let (dirty, inode) = (&volume.engine.dirty, &file.node().inode);
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
