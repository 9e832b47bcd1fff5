//! Syncing and closing.

use parext4_format::features::{Compat, Incompat, RoCompat};
use parext4_format::superblock::STATE_VALID;

use super::Volume;
use super::open::seconds;
use crate::engine::{Engine, Use};
use crate::error::{Error, Result};
use crate::fault::{Fault, planted};
use crate::journal::EmptiedLog;
use crate::sync::Arc;
use crate::sync::atomic::Ordering;

impl Volume {
    /// Makes everything done so far durable.
    ///
    /// # Errors
    /// If the device fails, or has failed before (I8).
    pub fn sync(&self) -> Result<()> {
        self.engine.sync()
    }

    /// Commits everything, brings all metadata to its place, and leaves an empty journal on the device. Data that is only
    /// in the page cache stays there.
    ///
    /// # Errors
    /// If the volume cannot be changed; [`Error::Unsupported`] if it has no journal; if the device fails.
    pub fn empty_journal(&self, blocks: EmptiedLog) -> Result<()> {
        self.engine.check_writable()?;
        let _in_flight = self.engine.in_flight.enter()?;
        self.engine.journal.empty_log(blocks)
    }

    /// Ends all changes as a crash would, for tests of programs and of recovery: commits all earlier changes, then
    /// refuses further ones. Data that was not written back is lost, and the journal recovers the volume at the next
    /// open.
    ///
    /// # Errors
    /// If the volume cannot be changed, or the commit fails.
    pub fn abort(&self) -> Result<()> {
        self.engine.check_writable()?;
        self.engine.journal.commit_all()?;
        self.engine.health.close("it was shut down");
        Ok(())
    }

    /// Makes everything durable and leaves a clean volume. Further calls on the volume and its files fail.
    ///
    /// Dropping the last handle to a volume closes it too, but cannot report an error.
    ///
    /// # Errors
    /// [`Error::Busy`] while an [`IoQueue`](crate::IoQueue) of the volume exists; it then stays open. As
    /// [`sync`](Self::sync); the journal then recovers the volume at the next open.
    pub fn close(self) -> Result<()> {
        self.engine.close()
    }
}

impl Engine {
    pub(crate) fn sync(self: &Arc<Self>) -> Result<()> {
        if self.is_read_only() {
            return Ok(());
        }
        self.health.check()?;
        self.write_back_all()?;
        if self.journal.commit_all()? {
            return Ok(());
        }
        self.journal.flush()
    }

    pub(super) fn close(self: &Arc<Self>) -> Result<()> {
        if !self.in_flight.close() {
            return Ok(());
        }
        // Whoever begins an operation of a queue counts the queue first and then looks whether the volume is open.
        if self.queues.load(Ordering::SeqCst) > 0 && !planted(Fault::QueueWhileClosing) {
            self.in_flight.reopen();
            return Err(Error::Busy("the volume still has a queue of operations".into()));
        }
        let written = if self.is_read_only() { Ok(()) } else { self.write_back_all() };
        self.dirty.stop();
        self.idle_cache.stop();
        self.shut_down().and(written)
    }

    /// The rest of closing, when all data is on the device and nothing is under way.
    fn shut_down(&self) -> Result<()> {
        if let Some(timer) = self.timer.get() {
            timer.stop();
        }
        if self.is_read_only() {
            return Ok(());
        }
        let result = self.end_changes();
        if result.is_err() {
            self.recorder.write(&self.journal);
        }
        result
    }

    /// Makes all changes durable and the volume clean.
    fn end_changes(&self) -> Result<()> {
        if self.health.check().is_ok() {
            // On an error the blocks stay mapped behind the end, which is no harm.
            self.free_all_preallocated()?;
        }
        self.journal.shut_down(|| {
            self.mark_closed()?;
            self.health.close("the volume is closed");
            Ok(())
        })
    }

    /// Says on the device that the volume was closed. What was not clean when it was opened is for e2fsck to
    /// call clean again.
    fn mark_closed(&self) -> Result<()> {
        let orphan_file_empty = self.orphans.file_is_empty();
        let was_valid = self.superblock.state() & STATE_VALID;
        self.write_superblock(|superblock| {
            superblock.set_incompat(superblock.incompat() - Incompat::RECOVER);
            superblock.set_state(superblock.state() | was_valid);
            if superblock.compat().contains(Compat::ORPHAN_FILE) && orphan_file_empty {
                superblock.set_ro_compat(superblock.ro_compat() - RoCompat::ORPHAN_PRESENT);
            }
            superblock.raw_mut().s_wtime.set(seconds());
        })
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        // Nobody is left to hear of an error; the journal recovers the volume.
        if self.release()
            && let Err(error) = self.close()
        {
            tracing::warn!("closing the volume: {error}");
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // The last user has closed it, unless it was never opened whole.
        if !self.in_flight.close() {
            return;
        }
        if let Err(error) = self.shut_down() {
            tracing::warn!("closing the volume: {error}");
        }
    }
}
