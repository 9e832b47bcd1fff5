//! Empties the log of a volume that stays open, as the ioctl `EXT4_IOC_CHECKPOINT` asks for.

use super::{Journal, Log};
use crate::error::{Error, Result};
use crate::fault::{Fault, guarded};
use crate::sync::atomic::Ordering;

/// The treatment of the emptied log's blocks by
/// [`Volume::empty_journal`](crate::Volume::empty_journal).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EmptiedLog {
    /// The blocks keep their contents.
    Kept,
    /// The blocks are discarded on the device.
    Discarded,
    /// The blocks are overwritten with zeros.
    Zeroed,
}

impl Journal {
    /// Commits the running transaction, checkpoints everything, and leaves an empty log on the
    /// device. Holds the commit lock, so commits block meanwhile, but handles do not. So changes
    /// that are made meanwhile are not yet in the log. Deferred changes may not fit
    /// ([`CommitHooks::closing`](super::CommitHooks::closing)).
    ///
    /// # Errors
    /// [`Error::Unsupported`] on a volume without a journal. A failed discard is returned and does
    /// not stop the volume; all other errors are errors of [`commit`](Self::commit).
    pub(crate) fn empty_log(&self, blocks: EmptiedLog) -> Result<()> {
        let mut log = self.log.lock();
        self.health.check()?;
        if log.is_none() {
            return Err(Error::Unsupported("emptying the journal of a volume that has none".into()));
        }
        self.commit_running(&mut log)
            .and_then(|_| self.restart_log(&mut log))
            .map_err(|e| self.health.stop(e))?;
        match (&*log, blocks) {
            (None, _) | (_, EmptiedLog::Kept) => Ok(()),
            // The log is empty already, so a failed discard leaves the volume consistent.
            (Some(log), EmptiedLog::Discarded) => log.discard(),
            (Some(log), EmptiedLog::Zeroed) => log.zero().map_err(|error| self.health.stop(error)),
        }
    }

    /// Checkpoints everything. The next commit records where the log begins.
    fn restart_log(&self, log: &mut Option<Log>) -> Result<()> {
        self.checkpoint.empty(self.committed.load(Ordering::Acquire) + 1)?;
        if let Some(log) = log {
            guarded!(Fault::EmptyLogUnrecorded, log.mark_unused());
        }
        Ok(())
    }
}
