//! The start of the log, as recorded in the journal's superblock.

use std::io::IoSlice;

use parext4_device::{AlignedBuf, Device};
use parext4_format::jbd2::JournalSuperblock;

use super::log::{LogMap, sequence};
use crate::error::{Error, Result};
use crate::sync::Arc;

/// The journal's superblock.
#[derive(Debug)]
pub(super) struct Tail {
    device: Arc<dyn Device>,
    map: Arc<LogMap>,
    superblock: JournalSuperblock,
}

impl Tail {
    /// An empty log whose first transaction will be `next_tid`. It is empty on the device before anything else
    /// changes there: once the volume says that it needs recovery, an old log must not be found.
    ///
    /// # Errors
    /// If the journal's superblock cannot be written and flushed.
    pub(super) fn new(
        device: Arc<dyn Device>,
        map: Arc<LogMap>,
        superblock: JournalSuperblock,
        next_tid: u64,
    ) -> Result<Self> {
        let mut tail = Self { device, map, superblock };
        tail.empty(next_tid)?;
        Ok(tail)
    }

    /// Blocks of the log.
    pub(super) fn capacity(&self) -> u32 {
        self.superblock.maxlen() - self.superblock.first()
    }

    /// Makes recovery replay the log: the first transaction, `tid`, will begin at `start`. Durable with the next flush.
    pub(super) fn begin(&mut self, start: u32, tid: u64) -> Result<()> {
        self.write(start, tid)
    }

    /// Moves the start of the log on, durably. The blocks of earlier transactions were flushed home. A start without a
    /// block of this sequence number reads as an empty log.
    pub(super) fn advance(&mut self, start: u32, next_tid: u64) -> Result<()> {
        self.write(start, next_tid)?;
        self.flush()
    }

    /// Leaves an empty log, durably, and clears its error number: the open has copied an error recorded there to the
    /// volume's superblock.
    pub(super) fn close(&mut self, next_tid: u64) -> Result<()> {
        self.superblock.set_errno(0);
        self.empty(next_tid)
    }

    /// Leaves an empty log, durably.
    pub(super) fn empty(&mut self, next_tid: u64) -> Result<()> {
        self.write(0, next_tid)?;
        self.flush()
    }

    fn write(&mut self, start: u32, next_tid: u64) -> Result<()> {
        self.superblock.set_start(start);
        self.superblock.set_sequence(sequence(next_tid));
        let (offset, _) = self.map.place(0)?;
        let mut block = AlignedBuf::zeroed(self.map.block_size as usize);
        self.superblock.encode(&mut block);
        self.device
            .write_at(offset, &[IoSlice::new(&block)])
            .map_err(|e| Error::device("writing the journal superblock", e))
    }

    fn flush(&self) -> Result<()> {
        self.device.flush().map_err(|e| Error::device("flushing the device", e))
    }
}
