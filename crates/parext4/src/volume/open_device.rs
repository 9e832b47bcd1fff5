//! Opens the device that holds a volume.

use std::ffi::OsStr;
use std::io;

use parext4_device::{Device, DeviceOptions};
use parext4_storage::{Location, open_device_with_sectors};

use super::dead_owner::dead_owner;
use crate::superblock::read_start;
use crate::sync::Arc;

/// Opens the device of a volume that a user named: direct where possible, locked against other writers.
///
/// A device whose sectors are larger than the volume's blocks is opened through the operating system's page cache, which has
/// no such limit.
///
/// If a client that is dead holds the lock of a device on a network, fences the client and breaks its lock. That takes some seconds, in
/// which the client could show that it lives.
///
/// # Errors
/// The errors of [`open_device`](crate::storage::open_device).
///
/// ```no_run
/// use parext4::{DeviceOptions, Volume, VolumeOptions};
///
/// // The volume begins 1 MiB into the image, after a partition table.
/// let device = parext4::open_volume_device("disk.img", &DeviceOptions::new().offset(1 << 20))?;
/// let volume = Volume::open_device(device, &VolumeOptions::new())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn open_volume_device(typed: impl AsRef<OsStr>, options: &DeviceOptions) -> io::Result<Arc<dyn Device>> {
    let typed = typed.as_ref();
    match open(typed, options) {
        Err(busy)
            if busy.kind() == io::ErrorKind::ResourceBusy && !options.takeover && is_on_network(typed) =>
        {
            match dead_owner(typed, options) {
                Ok(Some(owner)) => open(typed, &options.clone().takeover(true).takeover_from(owner)),
                _ => Err(busy),
            }
        }
        opened => opened,
    }
}

fn open(typed: &OsStr, options: &DeviceOptions) -> io::Result<Arc<dyn Device>> {
    open_device_with_sectors(typed, options, |device| Ok(block_size(device)))
}

fn is_on_network(typed: &OsStr) -> bool {
    Location::parse(typed).is_ok_and(|location| location.path().is_none())
}

/// Returns the block size in bytes that a superblock states, `None` if there is none, it cannot be read or it is not plausible. Opening the
/// volume checks the superblock.
fn block_size(device: &dyn Device) -> Option<u32> {
    // kernel documentation, "The Super Block": s_log_block_size, at 0x18 of the superblock at 1024.
    const LOG_BLOCK_SIZE: usize = 1024 + 0x18;
    let start = (device.size() >= 4096).then(|| read_start(device))?.ok()?;
    let field = start[LOG_BLOCK_SIZE..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
    1024_u32.checked_shl(field).filter(|_| field <= 6)
}
