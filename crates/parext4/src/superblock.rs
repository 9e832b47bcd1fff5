//! Reads the superblock of a device, and checks that the volume can be used there.

mod backups;

use std::io::IoSliceMut;

use parext4_device::{AlignedBuf, Device};
use parext4_format::superblock::{Access, Superblock};

use crate::convert::to_usize;
use crate::error::{Error, Result};

pub use backups::{Backups, find_backups};

/// Reads and checks the superblock.
pub(crate) fn read_superblock(device: &dyn Device) -> Result<Superblock> {
    // 4 KiB cover the superblock, and whole sectors of every size that a device may have.
    let mut bytes = AlignedBuf::zeroed(4096);
    if device.size() < bytes.len() as u64 {
        let size = device.size();
        return Err(Error::corrupt(format_args!("superblock: the device is only {size} bytes long")));
    }
    device
        .read_at(0, &mut [IoSliceMut::new(&mut bytes)])
        .map_err(|e| Error::device("reading the superblock", e))?;
    let start = to_usize(Superblock::OFFSET);
    Ok(Superblock::parse(&bytes[start..start + Superblock::SIZE])?)
}

/// Reads the superblock and checks that the volume can be used on `device`. Returns how it may be accessed.
pub(crate) fn read_usable_superblock(device: &dyn Device) -> Result<(Superblock, Access)> {
    let superblock = read_superblock(device)?;
    let access = superblock.access().map_err(|e| Error::Unsupported(e.to_string()))?;
    check_device(device, &superblock)?;
    Ok((superblock, access))
}

fn check_device(device: &dyn Device, superblock: &Superblock) -> Result<()> {
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
