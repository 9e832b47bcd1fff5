//! Opens the volume that a user named, and the device that holds it.

use std::ffi::OsStr;
use std::io;
use std::sync::Arc;

use parext4::{Device, DeviceOptions, Error, Volume, VolumeOptions, open_fitting};

use crate::dead_owner::dead_owner;
use crate::location::Location;
use crate::open_device::open_device;

/// Opens the volume on the device that a user named by a path or a URL, as
/// [`open_volume_device`] opens it.
///
/// # Errors
/// [`Error::Device`] if the device cannot be opened or is in use; the errors of
/// [`Volume::open_device`].
///
/// ```no_run
/// use parext4::VolumeOptions;
///
/// let options = VolumeOptions::new().read_only(true);
/// let volume = parext4_storage::open_volume("nbd://server/export", &options)?;
/// println!("{}", volume.read_to_string("/etc/hostname")?);
/// # Ok::<(), parext4::Error>(())
/// ```
pub fn open_volume(typed: impl AsRef<OsStr>, options: &VolumeOptions) -> parext4::Result<Volume> {
    let device = DeviceOptions::new().read_only(options.read_only);
    let device = open_volume_device(typed, &device)
        .map_err(|error| Error::Device { what: "opening the device".to_owned(), cause: Arc::new(error) })?;
    Volume::open_device(device, options)
}

/// Opens the device of a volume that a user named: direct where possible, locked against other
/// writers. Uses the page cache in the same cases as [`open_fitting`].
///
/// If a dead client holds the lock of a device on a network, fences the client and breaks its lock.
/// This blocks for about ten seconds, in which a living client would update the volume.
///
/// # Errors
/// The errors of [`open_device`].
///
/// ```no_run
/// use parext4::{DeviceOptions, Volume, VolumeOptions};
///
/// let options = DeviceOptions::new();
/// let device = parext4_storage::open_volume_device("disk.img?partition=2", &options)?;
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
    open_fitting(options, |options| open_device(typed, options))
}

fn is_on_network(typed: &OsStr) -> bool {
    Location::parse(typed).is_ok_and(|location| location.path().is_none())
}
