//! A journal on a device of its own: checks that the device holds the journal of the volume.

use std::io::IoSliceMut;

use parext4_device::{AlignedBuf, Device};
use parext4_format::jbd2::{JournalDevice, JournalSuperblock};
use parext4_format::superblock::Superblock;
use parext4_format::{FsBlock, LogBlock};
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::journal::{self, LogExtent, LogMap};
use crate::sync::Arc;

/// Returns true if `device` is the journal of a volume on another device.
///
/// ```
/// use parext4::{MemDevice, MkfsOptions, is_journal_device, mkfs::mkfs_journal_device};
///
/// let device = MemDevice::new(8 << 20);
/// assert!(!is_journal_device(&device));
/// mkfs_journal_device(&device, &MkfsOptions::new())?;
/// assert!(is_journal_device(&device));
/// # Ok::<(), parext4::Error>(())
/// ```
#[must_use]
pub fn is_journal_device(device: &dyn Device) -> bool {
    read(device).is_ok()
}

/// Returns the error of a volume whose journal device was not given.
pub(super) fn missing(superblock: &Superblock) -> Error {
    Error::NoJournalDevice { uuid: Uuid::from_bytes(superblock.journal_uuid()).to_string() }
}

/// Returns the log on `device` and its superblock, after checking that the volume and the journal
/// name each other.
///
/// # Errors
/// [`Error::Invalid`] if the device is no journal, or that of another volume.
/// [`Error::Unsupported`] if several volumes use it, as for the kernel. Corruption; failed reads.
pub(super) fn open(device: &Arc<dyn Device>, volume: &Superblock) -> Result<(LogMap, JournalSuperblock)> {
    let found = read(&**device)?;
    let wrong = |what: String| Err(Error::invalid(format_args!("the journal device: {what}")));
    if found.uuid != volume.journal_uuid() {
        let [found, wanted] = [found.uuid, volume.journal_uuid()].map(Uuid::from_bytes);
        return wrong(format!("its UUID is {found}, and the volume's journal has {wanted}"));
    }
    if found.block_size != volume.block_size() {
        return wrong(format!(
            "blocks of {} bytes, the volume's have {}",
            found.block_size,
            volume.block_size()
        ));
    }
    if device.size() / u64::from(found.block_size) < found.blocks {
        return wrong(format!("{} blocks, but it has only {} bytes", found.blocks, device.size()));
    }
    let len = u32::try_from(found.blocks).unwrap_or(u32::MAX);
    let map = LogMap {
        device: Arc::clone(device),
        external: true,
        block_size: found.block_size,
        superblock: LogBlock(found.journal_superblock()),
        // A log block has the number of its block on the device.
        extents: vec![LogExtent { log: LogBlock(0), physical: FsBlock(0), len }],
    };
    let superblock = journal::read_superblock(&map)?;
    if superblock.first() <= map.superblock.get() {
        return Err(Error::corrupt_field("journal superblock", "s_first", superblock.first()));
    }
    if !superblock.users().any(|user| user == volume.uuid()) {
        let uuid = Uuid::from_bytes(volume.uuid());
        return wrong(format!("it is not the journal of the volume with UUID {uuid}"));
    }
    match superblock.users().count() {
        1 => Ok((map, superblock)),
        users => Err(Error::Unsupported(format!("a journal that {users} volumes share"))),
    }
}

fn read(device: &dyn Device) -> Result<JournalDevice> {
    // Whole sectors of every size that a device may have.
    let mut bytes = AlignedBuf::zeroed(4096);
    if device.size() < bytes.len() as u64 {
        return Err(Error::invalid("the journal device is too small"));
    }
    device
        .read_at(0, &mut [IoSliceMut::new(&mut bytes)])
        .map_err(|e| Error::device("reading the journal device", e))?;
    let found = JournalDevice::parse(&bytes)
        .map_err(|error| Error::invalid(format_args!("the journal device: {error}")))?;
    let (sector, block) = (device.sector_size(), found.block_size);
    if sector > block {
        return Err(Error::Unsupported(format!(
            "a journal with blocks of {block} bytes on a device with sectors of {sector}"
        )));
    }
    Ok(found)
}
