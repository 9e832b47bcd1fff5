//! A journal on a device of its own, for a new volume.

use std::fmt;
use std::io::IoSliceMut;
use std::sync::Arc;

use parext4_device::{AlignedBuf, Device};
use parext4_format::jbd2::{JournalDevice, JournalSuperblock};
use parext4_format::superblock::Superblock;
use uuid::Uuid;

use crate::error::{MkfsError, Result};
use crate::write::DeviceWriter;
use parext4_format::convert::to_usize;

/// A journal on a device of its own, as [`mkfs_journal_device`](crate::mkfs_journal_device) and
/// `mke2fs -O journal_dev` make it.
#[derive(Clone)]
pub struct ExternalJournal {
    /// The device, which must stay open until the volume is made.
    pub device: Arc<dyn Device>,
    /// Number of a block device (`st_rdev`), by which the kernel finds it; 0 for a file.
    pub number: u32,
}

impl fmt::Debug for ExternalJournal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExternalJournal").field("number", &self.number).finish_non_exhaustive()
    }
}

impl ExternalJournal {
    /// Reads the superblock of the device.
    ///
    /// # Errors
    /// If the device is not a journal device, or cannot be read.
    pub(crate) fn read(&self) -> Result<JournalDevice> {
        let bytes = self.bytes(0, 4096)?;
        JournalDevice::parse(&bytes).map_err(|error| wrong(format_args!("{error}")))
    }

    /// Checks that a new volume can have the journal.
    ///
    /// # Errors
    /// If the block sizes differ, if the journal belongs to another volume, or if it is not empty.
    pub(crate) fn check(&self, found: &JournalDevice, sb: &Superblock) -> Result<()> {
        let (journal, volume) = (found.block_size, sb.block_size());
        if journal != volume {
            return Err(wrong(format_args!("blocks of {journal} bytes, the volume's have {volume}")));
        }
        let log = self.log(found)?;
        log.check(journal, found.blocks).map_err(|error| wrong(format_args!("{error}")))?;
        if log.start() != 0 {
            return Err(wrong(format_args!("it has transactions that were not replayed")));
        }
        match log.users().find(|user| *user != sb.uuid()) {
            Some(user) => {
                let user = Uuid::from_bytes(user);
                Err(wrong(format_args!(
                    "it is the journal of the volume with UUID {user}; make the journal again"
                )))
            }
            None => Ok(()),
        }
    }

    /// Notes the volume as the journal's only user. Blocks until that is durable.
    pub(crate) fn claim(&self, volume: &[u8; 16]) -> Result<()> {
        let found = self.read()?;
        let mut log = self.log(&found)?;
        log.set_users(&[*volume]);
        let mut block = self.block(&found)?;
        log.encode(&mut block);
        let writer = DeviceWriter::new(&*self.device, found.block_size);
        writer.blocks("the superblock of the journal device", found.journal_superblock().into(), &block)?;
        writer.flush()
    }

    fn log(&self, found: &JournalDevice) -> Result<JournalSuperblock> {
        JournalSuperblock::parse(&self.block(found)?).map_err(|error| wrong(format_args!("{error}")))
    }

    /// Returns the block with the journal's superblock.
    fn block(&self, found: &JournalDevice) -> Result<Vec<u8>> {
        let size = found.block_size;
        self.bytes(u64::from(found.journal_superblock()) * u64::from(size), size as usize)
    }

    fn bytes(&self, offset: u64, len: usize) -> Result<Vec<u8>> {
        // Reads whole sectors of every size that a device may have.
        let start = offset - offset % 4096;
        let within = to_usize(offset - start);
        let mut buf = AlignedBuf::zeroed((within + len).next_multiple_of(4096));
        if self.device.size() < start + buf.len() as u64 {
            return Err(wrong(format_args!("it is too small")));
        }
        self.device
            .read_at(start, &mut [IoSliceMut::new(&mut buf)])
            .map_err(|error| MkfsError::device("reading the journal device", error))?;
        Ok(buf[within..within + len].to_vec())
    }
}

fn wrong(what: fmt::Arguments<'_>) -> MkfsError {
    MkfsError::invalid(format_args!("the journal device: {what}"))
}
