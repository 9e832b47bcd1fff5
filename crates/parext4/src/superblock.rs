//! Reads the superblock of a device, and checks that the volume can be used there.

mod backups;

use std::io::{self, IoSliceMut};

use parext4_device::{AlignedBuf, Device};
use parext4_format::superblock::{Access, Superblock};

use crate::convert::to_usize;
use crate::error::{Error, Result};

pub(crate) use backups::first_backup;
pub use backups::{Backups, find_backups};

/// Reads the first 4 KiB of a device, which cover the superblock, and whole sectors of every size
/// that a device may have. If they cannot be read, only the sectors of the superblock, with zeros
/// beside them.
///
/// # Errors
/// These sectors cannot be read, either.
pub(crate) fn read_start(device: &dyn Device) -> io::Result<AlignedBuf> {
    let mut bytes = AlignedBuf::zeroed(4096);
    if device.read_at(0, &mut [IoSliceMut::new(&mut bytes)]).is_err() {
        bytes.fill(0);
        let sector = device.sector_size() as usize;
        let offset = to_usize(Superblock::OFFSET);
        let start = offset - offset % sector;
        let end = (offset + Superblock::SIZE).next_multiple_of(sector).min(bytes.len());
        device.read_at(start as u64, &mut [IoSliceMut::new(&mut bytes[start..end])])?;
    }
    Ok(bytes)
}

/// Reads and checks the superblock.
pub(crate) fn read_superblock(device: &dyn Device) -> Result<Superblock> {
    let size = device.size();
    if size < 4096 {
        return Err(Error::corrupt(format_args!("superblock: the device is only {size} bytes long")));
    }
    let bytes = read_start(device).map_err(|e| Error::device("reading the superblock", e))?;
    let start = to_usize(Superblock::OFFSET);
    Ok(Superblock::parse(&bytes[start..start + Superblock::SIZE])?)
}

/// Reads the superblock and checks that the volume can be used on `device`. Returns how it may be
/// accessed.
pub(crate) fn read_usable_superblock(device: &dyn Device) -> Result<(Superblock, Access)> {
    let superblock = read_superblock(device)?;
    let access = superblock.access().map_err(|e| Error::Unsupported(e.to_string()))?;
    check_device(device, &superblock)?;
    Ok((superblock, access))
}

pub(crate) fn check_device(device: &dyn Device, superblock: &Superblock) -> Result<()> {
    let needed = superblock.blocks_count().saturating_mul(u64::from(superblock.block_size()));
    if device.size() < needed {
        return Err(Error::Truncated { needed, size: device.size() });
    }
    if device.sector_size() > superblock.block_size() {
        let (sector, block) = (device.sector_size(), superblock.block_size());
        return Err(Error::Unsupported(format!(
            "blocks of {block} bytes on a device with sectors of {sector}"
        )));
    }
    Ok(())
}
