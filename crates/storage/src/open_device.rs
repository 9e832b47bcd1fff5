//! Opening the device that a user named.

use std::ffi::OsStr;
use std::io;
use std::num::NonZeroU32;
use std::sync::Arc;

use parext4_device::{Device, DeviceOptions, Direct, FileDevice};
#[cfg(feature = "nbd")]
use parext4_nbd::NbdDevice;
#[cfg(feature = "rbd")]
use parext4_rbd::RbdDevice;

use crate::location::Location;
use crate::partition::{self, split_partition};

/// Opens the device that a user named by a path or a URL. A name that ends in `?partition=N` is a
/// partition of the disk.
///
/// Blocks until the device is open: for up to half a second while another program uses a block
/// device, and for about ten seconds while an NBD server does not answer.
///
/// # Errors
/// Messages repeat the name that the user typed.
/// - [`io::ErrorKind::Unsupported`] if the scheme is unknown or its feature is not enabled, or the
///   device cannot do what the options demand;
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
    let typed = typed.as_ref();
    let (disk, number) = split_partition(typed);
    let Some(number) = number else { return open_whole(typed, options) };
    open_whole(disk, &partition_options(disk, number, options)?)
}

/// Returns options that open partition `number` of a disk when the disk is opened with them; an
/// offset and a length in `options` are within the partition.
///
/// # Errors
/// [`io::ErrorKind::NotFound`] without a table or a partition of this number, `InvalidData` if the
/// table is damaged or the partition does not lie on the disk, and the errors of [`open_device`].
pub fn partition_options(
    disk: impl AsRef<OsStr>,
    number: NonZeroU32,
    options: &DeviceOptions,
) -> io::Result<DeviceOptions> {
    let disk = disk.as_ref();
    let name = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", disk.display()));
    if options.create.is_some() {
        return Err(name(io::Error::new(io::ErrorKind::InvalidInput, "a partition is not created")));
    }
    // The device of the partition needs its place when it is opened, so the table is read through
    // another device.
    let table = open_whole(disk, &DeviceOptions::new().read_only(true).lock(false).direct(Direct::Never))?;
    partition::narrow(disk, &*table, number, options).map_err(name)
}

fn open_whole(typed: &OsStr, options: &DeviceOptions) -> io::Result<Arc<dyn Device>> {
    match Location::parse(typed)? {
        Location::Path(path) => Ok(Arc::new(FileDevice::open(path, options)?)),
        #[cfg(feature = "nbd")]
        Location::Nbd(url) => Ok(Arc::new(NbdDevice::open(&url, options)?)),
        #[cfg(feature = "rbd")]
        Location::Rbd(url) => Ok(Arc::new(RbdDevice::open(&url, options)?)),
    }
}
