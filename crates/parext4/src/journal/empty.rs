//! Emptying the log of a volume that stays open.

use super::{Journal, Log};
use crate::error::{Error, Result};
use crate::fault::{Fault, planted};
use crate::sync::atomic::Ordering;

/// What becomes of the blocks of an emptied log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmptiedLog {
    /// They keep what was written to them.
    Kept,
    /// They are discarded on the device.
    Discarded,
    /// They are overwritten with zeros.
    Zeroed,
}

impl Journal {
    /// Commits everything, brings it home, and leaves an empty log on the device. Commits wait meanwhile; handles do not.
    ///
    /// # Errors
    /// As [`commit`](Self::commit); [`Error::Unsupported`] without a log; a failed discard.
    pub(crate) fn empty_log(&self, blocks: EmptiedLog) -> Result<()> {
        let mut log = self.log.lock();
        self.health.check()?;
        if log.is_none() {
            return Err(Error::Unsupported("emptying the journal of a volume that has none".into()));
        }
        self.commit_rest(&mut log)
            .and_then(|()| self.begin_anew(&mut log))
            .map_err(|e| self.health.stop(e))?;
        match (&*log, blocks) {
            (None, _) | (_, EmptiedLog::Kept) => Ok(()),
            // The volume needs nothing of it, so it goes on after a failure.
            (Some(log), EmptiedLog::Discarded) => log.discard(),
            (Some(log), EmptiedLog::Zeroed) => log.zero().map_err(|error| self.health.stop(error)),
        }
    }

    /// Brings everything home, after which the next transaction is the first of the log.
    fn begin_anew(&self, log: &mut Option<Log>) -> Result<()> {
        self.checkpoint.empty(self.committed.load(Ordering::Acquire) + 1)?;
        if let Some(log) = log
            && !planted(Fault::EmptyLogUnseen)
        {
            log.begin_anew();
        }
        Ok(())
    }
}
