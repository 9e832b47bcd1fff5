//! Recording errors in the superblock of a volume that has stopped.
//!
//! While the journal works, errors are recorded in its next transaction. When the volume has
//! stopped, nothing goes through the journal any more: the record is written into the superblock as
//! the device has it, so that no counter of a transaction that is not durable comes with it. A
//! replay may bring back a superblock without the record, so the journal's own superblock says too
//! that there was an error (`s_errno`), as jbd2 leaves it when it aborts.

use std::io::{IoSlice, IoSliceMut};

use parext4_device::{AlignedBuf, Device};
use parext4_format::jbd2::JournalSuperblock;
use parext4_format::superblock::Superblock;

use crate::convert::to_usize;
use crate::error::{Error, Result};
use crate::findings::ErrorSummary;
use crate::health::Health;
use crate::journal::{Journal, LogMap};
use crate::sync::Arc;

/// Writes the record. It holds parts of the volume, not the volume, because the commit thread has
/// it.
#[derive(Debug)]
pub(crate) struct ErrorRecorder {
    device: Arc<dyn Device>,
    health: Arc<Health>,
    log: Option<LogMap>,
}

impl ErrorRecorder {
    pub(crate) fn new(device: &Arc<dyn Device>, health: &Arc<Health>, log: Option<LogMap>) -> Self {
        Self { device: Arc::clone(device), health: Arc::clone(health), log }
    }

    /// Writes the errors found, if any, into both superblocks on the device. The volume has
    /// stopped, but a checkpoint round that was under way goes on to its end and writes both
    /// superblocks: the record waits for that, so that neither overwrites the other. A failure is
    /// logged only, because the error that stopped the volume has been reported.
    pub(crate) fn write(&self, journal: &Journal) {
        if let Some(found) = self.health.found() {
            journal.while_idle(|| self.write_alone(&found));
        }
    }

    fn write_alone(&self, found: &ErrorSummary) {
        let sector = u64::from(self.device.sector_size()).max(Superblock::SIZE as u64);
        let start = Superblock::OFFSET - Superblock::OFFSET % sector;
        let at = to_usize(Superblock::OFFSET - start);
        // No other block changes: blocks are at least as large as sectors.
        let recorded = Self::change(&self.device, start, sector, |bytes| {
            let mut superblock = Superblock::parse(&bytes[at..])?;
            found.record_in(&mut superblock);
            superblock.encode(&mut bytes[at..]);
            Ok(())
        });
        // After a failed flush every flush fails, although the record is written.
        if let Err(error) = recorded.and(self.set_journal_error()) {
            log::warn!("the superblocks may not tell of the error that stopped the volume: {error}");
        }
    }

    fn set_journal_error(&self) -> Result<()> {
        let Some(log) = &self.log else { return Ok(()) };
        Self::change(&log.device, log.place(log.superblock)?.0, log.block_size.into(), |bytes| {
            let mut superblock = JournalSuperblock::parse(bytes)?;
            superblock.set_errno(-libc::EIO);
            superblock.encode(bytes);
            Ok(())
        })
    }

    fn change(
        device: &Arc<dyn Device>,
        offset: u64,
        len: u64,
        change: impl FnOnce(&mut [u8]) -> Result<()>,
    ) -> Result<()> {
        let mut bytes = AlignedBuf::zeroed(to_usize(len));
        let failed = |what| move |e| Error::device(what, e);
        device.read_at(offset, &mut [IoSliceMut::new(&mut bytes)]).map_err(failed("reading a superblock"))?;
        change(&mut bytes)?;
        device.write_at(offset, &[IoSlice::new(&bytes)]).map_err(failed("writing a superblock"))?;
        device.flush().map_err(failed("flushing the device"))
    }
}
