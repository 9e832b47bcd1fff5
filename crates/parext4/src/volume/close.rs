//! Syncs and closes a volume.

use parext4_format::features::{Compat, Incompat, RoCompat};
use parext4_format::superblock::STATE_VALID;

use super::Volume;
use crate::engine::{Engine, EngineRef};
use crate::error::{Error, Result};
use crate::fault::{Fault, guarded, when_planted};
use crate::journal::EmptiedLog;
use crate::sync::atomic::Ordering;
use crate::sync::{Arc, yield_now};

impl Volume {
    /// Makes all earlier changes of the volume durable. Blocks until the device has flushed them.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// volume.write("/a", "text")?;
    /// volume.sync()?;
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the device fails, or has failed before (I8).
    pub fn sync(&self) -> Result<()> {
        self.engine.sync()
    }

    /// Commits and checkpoints all earlier changes of metadata, and leaves an empty journal on the
    /// device. Does not write back dirty pages.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// use parext4::EmptiedLog;
    ///
    /// volume.write("/a", "text")?;
    /// volume.empty_journal(EmptiedLog::Kept)?;
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the volume has no journal. An error if the volume cannot be
    /// changed, or the device fails.
    pub fn empty_journal(&self, blocks: EmptiedLog) -> Result<()> {
        self.engine.check_writable()?;
        let _in_flight = self.engine.in_flight().enter()?;
        self.engine.empty_journal(blocks)
    }

    /// Stops the volume as a crash would, for tests of programs and of recovery. Commits all
    /// earlier changes of metadata, and refuses later changes with [`Error::ShutDown`]. Data that
    /// was not written back is lost. The next open replays the journal. A volume that is read-only,
    /// or that an error has stopped, has nothing to commit. Does nothing if the volume was shut
    /// down before.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use parext4::{MemDevice, MkfsOptions, Volume, VolumeOptions, mkfs};
    ///
    /// let device = Arc::new(MemDevice::new(16 << 20));
    /// mkfs(&*device, &MkfsOptions::new())?;
    /// let volume = Volume::open_device(device.clone(), &VolumeOptions::new())?;
    /// volume.create_dir("/dir", 0o755)?;
    /// volume.abort()?;
    /// drop(volume);
    /// let volume = Volume::open_device(device, &VolumeOptions::new())?;
    /// assert!(volume.exists("/dir")?, "replayed from the journal");
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the commit fails. The volume is shut down nevertheless.
    pub fn abort(&self) -> Result<()> {
        let committed = match self.engine.check_writable() {
            Ok(()) => self.engine.commit_all().map(drop),
            Err(_) => Ok(()),
        };
        self.engine.health().shut_down();
        committed
    }

    /// Makes everything durable and leaves a clean volume. Further calls on the volume and its
    /// files fail. If another thread closes the volume, or has closed it, waits until it is done
    /// and returns its result.
    ///
    /// Dropping the last handle to a volume closes it too, but cannot report an error.
    ///
    /// ```
    /// # let volume = testkit::volume::scratch();
    /// volume.write("/a", "text")?;
    /// volume.close()?;
    /// # Ok::<(), parext4::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Busy`] while an [`IoQueue`](crate::IoQueue) of the volume exists; the volume then
    /// stays open. The errors of [`sync`](Self::sync); the next open then replays the journal.
    /// [`Error::Stopped`] if an earlier close has failed.
    pub fn close(self) -> Result<()> {
        self.engine.close()
    }
}

impl Engine {
    pub(crate) fn sync(self: &Arc<Self>) -> Result<()> {
        if self.is_read_only() {
            return Ok(());
        }
        self.health().check()?;
        self.write_back_all()?;
        if self.commit_all()? {
            return Ok(());
        }
        self.journal().flush()
    }

    fn empty_journal(&self, blocks: EmptiedLog) -> Result<()> {
        self.fold_lazy_times()?;
        self.journal().empty_log(blocks)
    }

    pub(super) fn close(self: &Arc<Self>) -> Result<()> {
        let mut outcome = self.closed().lock();
        if let Some(outcome) = &*outcome {
            return outcome.clone().map_err(Error::Stopped);
        }
        // Before the gate closes, because calls fail while it is closed.
        self.check_no_queue()?;
        // Long enough for a thread to open a queue.
        when_planted!(Fault::QueueWhileClosing, (0..1000).for_each(|_| yield_now()));
        self.in_flight().close();
        // A thread counts its queue before an operation of the queue checks that the volume is
        // open. So either this load sees the queue, or the operation sees that the volume is
        // closed. Before the wait, because an operation in flight may wait for a range of the
        // queue, and the queue's thread for this close.
        guarded!(Fault::QueueWhileClosing, self.check_no_queue(), Ok(()))
            .inspect_err(|_| self.in_flight().reopen())?;
        self.in_flight().wait();
        let written = if self.is_read_only() { Ok(()) } else { self.write_back_all() };
        self.dirty().stop();
        self.idle_cache().stop();
        self.deletions().finish();
        let result = self.shut_down().and(written);
        *outcome = Some(result.as_ref().map(|&()| ()).map_err(|error| error.to_string().into()));
        result
    }

    fn check_no_queue(&self) -> Result<()> {
        if self.queues().load(Ordering::SeqCst) > 0 {
            return Err(Error::Busy("the volume still has a queue of operations".into()));
        }
        Ok(())
    }

    /// Stops the commit timer and ends all changes, as the last step of closing. No operation is in
    /// flight.
    fn shut_down(&self) -> Result<()> {
        if let Some(timer) = self.timer().get() {
            timer.stop();
        }
        if self.is_read_only() {
            return Ok(());
        }
        let result = self.end_changes();
        if result.is_err() {
            self.recorder().write(self.journal());
        }
        let released = self.protection().map_or(Ok(()), |protection| protection.release(result.is_ok()));
        result.and(released)
    }

    /// Makes all changes durable and the volume clean.
    fn end_changes(&self) -> Result<()> {
        // An error leaves the blocks mapped past the end of the file, which is harmless. One after
        // a change has stopped the volume.
        if self.health().check().is_ok()
            && let Err(error) = self.free_all_preallocated()
        {
            log::warn!("preallocated blocks could not be freed: {error}");
        }
        self.journal().shut_down(|| {
            self.mark_closed()?;
            self.health().close("the volume is closed");
            Ok(())
        })
    }

    /// Records on the device that the volume was closed. Marks the volume clean only if it was
    /// clean when it was opened. Otherwise only e2fsck marks it clean.
    fn mark_closed(&self) -> Result<()> {
        let orphan_file_empty = self.orphans().file_is_empty();
        let was_valid = self.superblock().state() & STATE_VALID;
        self.write_superblock(|superblock| {
            superblock.set_incompat(superblock.incompat() - Incompat::RECOVER);
            superblock.set_state(superblock.state() | was_valid);
            if superblock.compat().contains(Compat::ORPHAN_FILE) && orphan_file_empty {
                superblock.set_ro_compat(superblock.ro_compat() - RoCompat::ORPHAN_PRESENT);
            }
        })
    }
}

impl Drop for EngineRef {
    fn drop(&mut self) {
        // A drop has no caller to return the error to. The next open replays the journal.
        if self.release()
            && self.in_flight().check_open().is_ok()
            && let Err(error) = self.close()
        {
            log::warn!("closing the volume: {error}");
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // The last `EngineRef` has closed the volume, unless opening it failed.
        if !self.in_flight().close() {
            return;
        }
        if let Err(error) = self.shut_down() {
            log::warn!("closing the volume: {error}");
        }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use parext4_device::{Device, FaultDevice, FaultKind, FaultPlan, MemDevice};
    use parext4_format::FileBlock;

    use super::*;
    use crate::file::OpenOptions;
    use crate::memory::Evict;
    use crate::mkfs::{MkfsOptions, mkfs};
    use crate::namespace::SetAttributes;
    use crate::volume::VolumeOptions;

    #[test]
    fn a_close_that_cannot_free_preallocated_blocks_commits_what_was_changed() {
        let memory = Arc::new(MemDevice::new(64 << 20));
        mkfs(&*memory, &MkfsOptions::new()).unwrap();
        let device = Arc::new(FaultDevice::new(Arc::clone(&memory) as Arc<dyn Device>, FaultPlan::default()));
        let options = VolumeOptions::new().commit_interval(None);
        let volume = Volume::open_device(Arc::clone(&device) as _, &options).unwrap();
        let file = volume.open_direct("/file", &OpenOptions::read_write().create_new(true)).unwrap();
        for _ in 0..20 {
            file.append(&[1; 4096]).unwrap();
        }
        volume.empty_journal(EmptiedLog::Kept).unwrap();
        assert!(file.inode_ref().inode.has_spare_blocks());
        let allocator = volume.engine.allocator();
        allocator.close_windows(&file.inode_ref().inode.windows, FileBlock::ZERO);
        // The number of groups, and of blocks in the cache, or more.
        (0..8).for_each(|_| Evict::evict(&**allocator));
        (0..4096).for_each(|_| Evict::evict(&**volume.engine.cache()));
        volume.resolve("/").unwrap().set_attributes(&SetAttributes::new().uid(7)).unwrap();
        device.arm(FaultPlan::at(1).kind(FaultKind::Reads));
        volume.close().unwrap();
        assert!(device.failed().is_some(), "no bitmap was read");
        drop(file);
        let volume = Volume::open_device(memory, &options).unwrap();
        assert_eq!(volume.metadata("/").unwrap().uid, 7);
    }
}
