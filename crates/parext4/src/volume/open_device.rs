//! Opens the device that holds a volume.

use std::io;
use std::path::Path;

use parext4_device::{Device, DeviceOptions, Direct, FileDevice};

use crate::superblock::read_start;
use crate::sync::Arc;

/// Opens the image file or block device of a volume: direct where possible, locked against other
/// writers. Goes through the page cache as [`open_fitting`] does.
///
/// The crate `parext4-storage` opens URLs of network block devices and partitions of a disk.
///
/// # Errors
/// The errors of [`FileDevice::open`], and of a read of the superblock.
///
/// ```no_run
/// use parext4::{DeviceOptions, Volume, VolumeOptions};
///
/// // The volume begins 1 MiB into the image, after a partition table.
/// let device = parext4::open_image("disk.img", &DeviceOptions::new().offset(1 << 20))?;
/// let volume = Volume::open_device(device, &VolumeOptions::new())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn open_image(path: impl AsRef<Path>, options: &DeviceOptions) -> io::Result<Arc<dyn Device>> {
    open_fitting(options, |options| Ok(Arc::new(FileDevice::open(path.as_ref(), options)?)))
}

/// Opens the device of a volume with `open`. If direct I/O has sectors larger than the volume's
/// blocks, opens it again through the operating system's page cache, which accepts any length.
///
/// [`Direct::Always`] and [`Direct::Never`] in `options` open the device once, whatever its
/// sectors.
///
/// # Errors
/// The errors of `open`.
pub fn open_fitting(
    options: &DeviceOptions,
    open: impl Fn(&DeviceOptions) -> io::Result<Arc<dyn Device>>,
) -> io::Result<Arc<dyn Device>> {
    let device = open(options)?;
    let fits = options.direct != Direct::Auto
        || block_size(&*device).is_none_or(|block_size| device.sector_size() <= block_size);
    if fits {
        return Ok(device);
    }
    // The lock belongs to the open file, so the device must be closed first.
    drop(device);
    open(&options.clone().direct(Direct::Never))
}

/// Returns the block size in bytes that a superblock states, `None` if there is none, it cannot be
/// read or it is not plausible. Opening the volume checks the superblock.
fn block_size(device: &dyn Device) -> Option<u32> {
    // kernel documentation, "The Super Block": s_log_block_size, at 0x18 of the superblock at 1024.
    const LOG_BLOCK_SIZE: usize = 1024 + 0x18;
    let start = (device.size() >= 4096).then(|| read_start(device))?.ok()?;
    let field = start[LOG_BLOCK_SIZE..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
    1024_u32.checked_shl(field).filter(|_| field <= 6)
}
