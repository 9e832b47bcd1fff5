//! The tail of the log: where recovery begins, as recorded in the journal's superblock.
//!
//! This module writes only the journal's superblock. The module `checkpoint` decides which
//! transactions may leave the log. Invariant: before the tail moves, the caller has flushed the
//! home locations of the transactions that leave the log.

use std::io::IoSlice;

use parext4_device::AlignedBuf;
use parext4_format::LogBlock;
use parext4_format::jbd2::{JournalIncompat, JournalSuperblock};

use super::log::{LogMap, sequence};
use crate::error::{Error, Result};
use crate::sync::Arc;

/// The journal's superblock of an open volume.
#[derive(Debug)]
pub(super) struct LogTail {
    map: Arc<LogMap>,
    superblock: JournalSuperblock,
}

impl LogTail {
    /// Writes an empty log whose first transaction will be `next_tid`, and returns its tail. The
    /// log must be empty before the volume's superblock says that it needs recovery, or a recovery
    /// would replay an old log.
    ///
    /// # Errors
    /// If the journal's superblock cannot be written and flushed.
    pub(super) fn new(map: Arc<LogMap>, superblock: JournalSuperblock, next_tid: u64) -> Result<Self> {
        let mut tail = Self { map, superblock };
        tail.empty(next_tid)?;
        Ok(tail)
    }

    /// Returns the number of blocks of the log.
    pub(super) fn capacity(&self) -> u32 {
        self.superblock.log_end() - self.superblock.first()
    }

    /// Makes recovery replay the log from block `start`, where transaction `tid` will begin. The
    /// change is durable with the next flush.
    pub(super) fn begin(&mut self, start: LogBlock, tid: u64) -> Result<()> {
        self.write(Some(start), tid)
    }

    /// Moves the tail to block `start` and flushes. The blocks of earlier transactions are durable
    /// at their home locations. If no block at `start` has the number of `next_tid`, recovery finds
    /// an empty log.
    pub(super) fn advance(&mut self, start: LogBlock, next_tid: u64) -> Result<()> {
        self.write(Some(start), next_tid)?;
        self.flush()
    }

    /// Writes an empty log with the error number cleared, and flushes. The open has copied an error
    /// that was recorded there to the volume's superblock.
    pub(super) fn close(&mut self, next_tid: u64) -> Result<()> {
        self.superblock.set_errno(0);
        self.empty(next_tid)
    }

    /// Writes an empty log and flushes.
    pub(super) fn empty(&mut self, next_tid: u64) -> Result<()> {
        self.write(None, next_tid)?;
        self.flush()
    }

    /// Writes the journal's superblock with the log's first block, which is `None` if the log is
    /// empty.
    fn write(&mut self, start: Option<LogBlock>, next_tid: u64) -> Result<()> {
        self.superblock.set_start(start.map_or(0, LogBlock::get));
        self.superblock.set_sequence(sequence(next_tid));
        let mut written = self.superblock.clone();
        if start.is_none() {
            // As jbd2 does, clears the feature, so that implementations without fast commits can
            // use the journal.
            written.set_incompat(written.incompat() - JournalIncompat::FAST_COMMIT);
        }
        let (offset, _) = self.map.place(self.map.superblock)?;
        let mut block = AlignedBuf::zeroed(self.map.block_size as usize);
        written.encode(&mut block);
        self.map
            .device
            .write_at(offset, &[IoSlice::new(&block)])
            .map_err(|e| Error::device("writing the journal superblock", e))
    }

    fn flush(&self) -> Result<()> {
        self.map.device.flush().map_err(|e| Error::device("flushing the journal", e))
    }
}
