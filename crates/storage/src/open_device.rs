//! Opening the device that a user named.

use std::ffi::OsStr;
use std::io;
use std::sync::Arc;

use parext4_device::{Device, DeviceOptions, Direct, FileDevice};
use parext4_nbd::NbdDevice;
use parext4_rbd::RbdDevice;

use crate::location::Location;

/// Opens the device that a user named by a path or a URL.
///
/// Blocks until the device is open: for up to half a second while another program uses a block device, and for about ten seconds
/// while an NBD server does not answer.
///
/// # Errors
/// Messages name what was typed.
/// - [`io::ErrorKind::Unsupported`] if the scheme is unknown, or the device cannot do what the options demand;
/// - [`io::ErrorKind::InvalidInput`] if the name or the options do not describe a device;
/// - [`io::ErrorKind::ResourceBusy`] if another opener's lock forbids it;
/// - errors of the operating system.
///
/// ```no_run
/// use parext4_device::DeviceOptions;
/// use parext4_storage::open_device;
/// let device = open_device("disk.img", &DeviceOptions::new().read_only(true))?;
/// println!("{} bytes", device.size());
/// # std::io::Result::Ok(())
/// ```
pub fn open_device(typed: impl AsRef<OsStr>, options: &DeviceOptions) -> io::Result<Arc<dyn Device>> {
    match Location::parse(typed)? {
        Location::Path(path) => Ok(Arc::new(FileDevice::open(path, options)?)),
        Location::Nbd(url) => Ok(Arc::new(NbdDevice::open(&url, options)?)),
        Location::Rbd(url) => Ok(Arc::new(RbdDevice::open(&url, options)?)),
    }
}

/// Opens a device as [`open_device`] does, but through the page cache if direct I/O has sectors that are too large.
///
/// `largest_sector` reads the largest sector that the caller can use from the device, in bytes, such as the block size of
/// the file system on it. `None` accepts any sector. [`Direct::Always`] accepts any sector too.
///
/// # Errors
/// The errors of [`open_device`] and of `largest_sector`.
pub fn open_device_with_sectors(
    typed: impl AsRef<OsStr>,
    options: &DeviceOptions,
    largest_sector: impl FnOnce(&dyn Device) -> io::Result<Option<u32>>,
) -> io::Result<Arc<dyn Device>> {
    let typed = typed.as_ref();
    let device = open_device(typed, options)?;
    let largest = match options.direct {
        Direct::Auto => largest_sector(&*device)?,
        _ => None,
    };
    if largest.is_none_or(|largest| device.sector_size() <= largest) {
        return Ok(device);
    }
    // The lock belongs to the open file, so the device must be closed first.
    drop(device);
    open_device(typed, &options.clone().direct(Direct::Never))
}
